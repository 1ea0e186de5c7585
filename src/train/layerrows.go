package train

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"halognn/src/mem"
	"halognn/src/nn"
)

// layerRows are the rows of one layer of all own vertices, while inference goes layer by layer:
// float32 [own vertices, cols] in host memory outside the heap or, if Env.ScratchDir is given, in a
// file there that has lost its name. The system writes pages of a file back when memory runs short,
// so that rows may be many times larger than it.
type layerRows struct {
	data []float32
	file *mem.Shared // nil: in memory
}

// makeLayerRows makes n zeroed numbers. The space of a file is taken at once, so that no page of it
// can lack its place on the disk when it is written back.
func makeLayerRows(dir string, n int) (r layerRows, err error) {
	if dir == "" || n == 0 {
		return layerRows{data: mem.Make[float32](n)}, nil
	}
	r.file, err = mem.CreateShared(dir, 4*n)
	if err == nil {
		if err = r.file.Unlink(); err == nil {
			err = r.file.Reserve(0, 4*n)
		}
		if err != nil {
			r.free()
		}
	}
	if err != nil {
		return layerRows{}, fmt.Errorf("hidden rows in run.scratch_dir %s: %w; give a directory with "+
			"more room; a run that was training goes on with --resume", dir, err)
	}
	r.file.ReadAtRandom() // neighbours lie anywhere
	bytes := r.file.Bytes()
	r.data = unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(bytes))), n)
	return r, nil
}

// free gives the memory, or the file, back.
func (r *layerRows) free() {
	if r.file == nil {
		mem.Free(r.data)
	} else {
		_ = r.file.Close() // nothing is kept of it
	}
	*r = layerRows{}
}

// checkScratchDir reports whether files of so many bytes can be made in dir, so that a job finds out
// before it trains. Later the disk may be fuller.
func checkScratchDir(dir string, bytes int64) error {
	if dir == "" {
		return nil
	}
	f, err := os.CreateTemp(dir, "halognn-*")
	if err != nil {
		return fmt.Errorf("run.scratch_dir: %w; give a directory of this node that can be written", err)
	}
	_ = f.Close()
	if err := os.Remove(f.Name()); err != nil {
		return err
	}
	var disk unix.Statfs_t
	if err := unix.Statfs(dir, &disk); err != nil {
		return fmt.Errorf("run.scratch_dir %s: %w", dir, err)
	}
	if room := int64(disk.Bavail) * disk.Bsize; room < bytes {
		return fmt.Errorf("run.scratch_dir %s has %d bytes left, and inference keeps up to %d of "+
			"hidden rows there; give a directory with more room", dir, room, bytes)
	}
	return nil
}

// hiddenBytes returns how many bytes of hidden rows inference keeps at a time, of so many vertices:
// two layers, or all with jumping knowledge.
func hiddenBytes(m *nn.Config, vertices int64) int64 {
	hidden := m.Layers - 1
	layers := min(2, hidden)
	if m.Jumps() {
		hidden, layers = m.Layers, m.Layers
	}
	widest := 0
	for l := range hidden {
		_, width := m.Widths(l)
		widest = max(widest, width)
	}
	return int64(layers) * vertices * int64(widest) * 4
}
