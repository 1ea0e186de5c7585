package infer

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"halognn/src/base/mem"
	"halognn/src/devices/compute"
	"halognn/src/model/nn"
)

// layerRows are the rows of one layer of all own vertices, while inference goes layer by layer:
// float32, in host memory outside the heap or, if Env.ScratchDir is given, in an unlinked file
// there. The system writes pages of a file back when memory is short, so the rows may be many times
// larger than memory. In a file they are stored by blocks of columns (inferColumns):
//
//	data    | rows x block | rows x block | ... | rows x the rest |
//
// Rows in memory are one block. Only one goroutine may use them at a time.
type layerRows struct {
	rows, cols int
	block      int // columns of a block; the last block may have fewer
	data       []float32
	file       *mem.Shared // the file with the rows; nil: they are in memory
	moving     []float32   // float32 rows between the device and the file
	narrow     []float32   // the same rows as the device stores them
}

// makeLayerRows makes zeroed rows. It reserves the space of a file at once, so that the disk cannot
// be full when pages are written back.
func makeLayerRows(dir string, rows, cols, block int) (r layerRows, err error) {
	if dir == "" {
		block = cols
	}
	r.rows, r.cols, r.block = rows, cols, block
	n := rows * cols
	if dir == "" || n == 0 {
		r.data = mem.Make[float32](n)
		return r, nil
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
		return layerRows{}, fmt.Errorf("hidden rows in run.scratch_dir %s: %w; give a "+
			"directory with "+
			"more room; a run that was training goes on with --resume", dir, err)
	}
	r.file.ReadAtRandom() // neighbours may be anywhere
	bytes := r.file.Bytes()
	r.data = unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(bytes))), n)
	return r, nil
}

func (r *layerRows) free() {
	if r.file == nil {
		mem.Free(r.data)
	} else {
		_ = r.file.Close() // the file has no name, so nothing remains
	}
	mem.Free(r.moving)
	mem.Free(r.narrow)
	*r = layerRows{}
}

// width returns the number of columns of the block that begins with column first.
func (r *layerRows) width(first int) int { return min(r.block, r.cols-first) }

// part returns rows [lo,hi) of the block that begins with column first.
func (r *layerRows) part(first, lo, hi int) []float32 {
	at, width := first*r.rows, r.width(first)
	return r.data[at+lo*width : at+hi*width]
}

// view returns rows [lo,hi) with all columns. If the rows are in several blocks, it copies them to
// buffer, which grows as needed; else it returns them in place.
func (r *layerRows) view(buffer *[]float32, lo, hi int) []float32 {
	if r.block >= r.cols {
		return r.part(0, lo, hi)
	}
	*buffer = mem.Grow(*buffer, (hi-lo)*r.cols)
	for first := 0; first < r.cols; first += r.block {
		part, width := r.part(first, lo, hi), r.width(first)
		for i := range hi - lo {
			copy((*buffer)[i*r.cols+first:], part[i*width:(i+1)*width])
		}
	}
	return *buffer
}

// put sets columns [first, first+y.Cols), which must be whole blocks, of the rows from lo on to y,
// which is on a device.
func (r *layerRows) put(dev compute.Device, lo, first int, y compute.Matrix) error {
	n := y.Rows * y.Cols
	if r.file == nil {
		compute.Load(dev, r.part(0, lo, lo+y.Rows), y, &r.narrow)
		return nil
	}
	r.moving = mem.Grow(r.moving, 2*n)
	rows := r.moving[:n]
	compute.Load(dev, rows, y, &r.narrow)
	for from := 0; from < y.Cols; from += r.block {
		part, width := rows, r.width(first+from)
		if width < y.Cols {
			part = r.moving[len(rows) : len(rows)+y.Rows*width]
			for i := range y.Rows {
				copy(part[i*width:(i+1)*width], rows[i*y.Cols+from:])
			}
		}
		at := 4 * ((first+from)*r.rows + lo*width)
		if err := r.file.WriteAt(mem.Bytes(part), at); err != nil {
			return fmt.Errorf("hidden rows in run.scratch_dir: %w", err)
		}
		if r.block < r.cols { // memory is short
			r.file.Drop(at, at+4*len(part))
		}
	}
	return nil
}

// ahead starts reading rows [lo,hi) of the block that begins with column first from the disk.
func (r *layerRows) ahead(first, lo, hi int) {
	if r.file != nil {
		at, width := first*r.rows, r.width(first)
		r.file.Ahead(4*(at+lo*width), 4*(at+hi*width))
	}
}

// drop tells the system that it may remove these rows from memory for now.
func (r *layerRows) drop(first, lo, hi int) {
	if r.file != nil {
		at, width := first*r.rows, r.width(first)
		r.file.Drop(4*(at+lo*width), 4*(at+hi*width))
	}
}

// CheckScratch returns an error if Env.ScratchDir has no room for the hidden rows of own vertices.
func (s Passes) CheckScratch() error {
	return checkScratchDir(s.ScratchDir, hiddenBytes(&s.Job.Model, int64(s.ownRows())))
}

// checkScratchDir reports whether files of the given number of bytes can be made in dir, so that a
// job finds out before it trains. The disk may still fill up later.
func checkScratchDir(dir string, bytes int64) error {
	if dir == "" {
		return nil
	}
	f, err := os.CreateTemp(dir, "halognn-*")
	if err != nil {
		return fmt.Errorf("run.scratch_dir: %w; give a directory of this node that can be written",
			err)
	}
	_ = f.Close()
	if err := os.Remove(f.Name()); err != nil {
		return err
	}
	var disk unix.Statfs_t
	if err := unix.Statfs(dir, &disk); err != nil {
		return fmt.Errorf("run.scratch_dir %s: %w", dir, err)
	}
	if free := int64(disk.Bavail) * disk.Bsize; free < bytes {
		return fmt.Errorf("run.scratch_dir %s has %d bytes left, and inference keeps up to %d of "+
			"hidden rows there; give a directory with more room", dir, free, bytes)
	}
	return nil
}

// hiddenBytes returns how many bytes of hidden rows inference keeps at a time for the given number
// of vertices. It keeps the rows of two layers, of which one may be aggregates (inferColumns); with
// jumping knowledge it keeps the rows of all layers.
func hiddenBytes(m *nn.Config, vertices int64) int64 {
	hidden := m.Layers - 1
	layers := min(2, hidden)
	if hidden > 0 && m.Fixed().Needs().OnlySums() {
		layers = 2
	}
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
