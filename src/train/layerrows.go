package train

import (
	"fmt"
	"os"
	"unsafe"

	"halognn/src/mem"
)

// layerRows are the rows of one layer of all own vertices, while inference goes layer by layer:
// float32 [own vertices, cols] in host memory outside the heap or, if Env.ScratchDir is given, in a
// file there that has lost its name. The system writes pages of a file back when memory runs short,
// so that rows may be many times larger than it.
type layerRows struct {
	data []float32
	file *mem.Shared // nil: in memory
}

// makeLayerRows makes n zeroed numbers. The space of a file is taken at once: a disk that is too
// small is an error here, before any layer is computed.
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
		return layerRows{}, fmt.Errorf("%d bytes of hidden rows in run.scratch_dir %s: %w", 4*n, dir,
			err)
	}
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

// checkScratchDir reports whether files can be made in dir, so that a job finds out before it
// trains.
func checkScratchDir(dir string) error {
	if dir == "" {
		return nil
	}
	f, err := os.CreateTemp(dir, "halognn-*")
	if err != nil {
		return fmt.Errorf("run.scratch_dir: %w; give a directory of this node that can be written", err)
	}
	_ = f.Close()
	return os.Remove(f.Name())
}
