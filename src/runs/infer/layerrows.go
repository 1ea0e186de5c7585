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

// layerRows are the rows that one layer makes of all own vertices. They are in host memory outside
// the heap or, if Env.ScratchDir is given, in an unlinked file in that directory. Their elements
// have the type in which the device stores rows. The system writes pages of a file back when memory
// is short, so the rows may be many times larger than memory. In a file the rows are stored by
// blocks of columns, which inferColumns reads one at a time:
//
//	bytes    | rows x block | rows x block | ... | rows x the rest |
//
// Rows in memory are one block. Only one goroutine may use them at a time.
type layerRows struct {
	rows, cols int
	of         compute.Elements
	block      int // number of columns of a block; the last block may have fewer
	bytes      []byte
	memory     []float32   // memory of the rows; nil if they are in a file
	file       *mem.Shared // file with the rows; nil if they are in memory
	moving     []float32   // buffer for rows on their way from the device to the file
	narrow     []float32   // buffer for the columns of rows that go into one block
}

// makeLayerRows makes rows of zeros. It reserves the space of a file at once, so that the disk
// cannot be full later, when pages are written back.
func makeLayerRows(dir string, rows, cols, block int, of compute.Elements) (r layerRows,
	err error) {
	if dir == "" {
		block = cols
	}
	r.rows, r.cols, r.block, r.of = rows, cols, block, of
	n := rows * cols
	if dir == "" || n == 0 {
		r.memory = mem.Make[float32](of.Floats(n))
		r.bytes = mem.Bytes(r.memory)
		return r, nil
	}
	size := n * of.Size()
	r.file, err = mem.CreateShared(dir, size)
	if err == nil {
		if err = r.file.Unlink(); err == nil {
			err = r.file.Reserve(0, size)
		}
		if err != nil {
			r.free()
		}
	}
	if err != nil {
		return layerRows{}, fmt.Errorf("no file for hidden rows in run.scratch_dir %s: %w; give a "+
			"directory with more room, and continue a training run with --resume", dir, err)
	}
	r.file.ReadAtRandom() // neighbours may be anywhere
	r.bytes = r.file.Bytes()
	return r, nil
}

func (r *layerRows) free() {
	if r.file == nil {
		mem.Free(r.memory)
	} else {
		_ = r.file.Close() // the file has no name, so nothing remains
	}
	mem.Free(r.moving)
	mem.Free(r.narrow)
	*r = layerRows{}
}

// width returns the number of columns of the block that begins with column first.
func (r *layerRows) width(first int) int { return min(r.block, r.cols-first) }

// rowBytes returns the bytes of a row with all columns.
func (r *layerRows) rowBytes() int { return r.cols * r.of.Size() }

// rowOffset returns the offset in bytes of row lo in the block that begins with column first.
func (r *layerRows) rowOffset(first, lo int) int {
	return r.of.Size() * (first*r.rows + lo*r.width(first))
}

// part returns rows [lo,hi) of the block that begins with column first.
func (r *layerRows) part(first, lo, hi int) []byte {
	return r.bytes[r.rowOffset(first, lo):r.rowOffset(first, hi)]
}

// view returns rows [lo,hi) with all columns, as float32. Rows of another type, or in several
// blocks, are copied to buffer, which grows as needed. Other rows are returned in place.
func (r *layerRows) view(buffer *[]float32, lo, hi int) []float32 {
	whole := r.block >= r.cols
	if whole && r.of == compute.Float32s {
		return floats(r.part(0, lo, hi))
	}
	*buffer = mem.Grow(*buffer, (hi-lo)*r.cols)
	for first := 0; first < r.cols; first += r.block {
		width := r.width(first)
		part := matrixOf(r.of, r.part(first, lo, hi), hi-lo, width)
		if whole {
			part.Widen(*buffer)
			break
		}
		for i := range hi - lo {
			part.RowsAt(i, i+1).Widen((*buffer)[i*r.cols+first:])
		}
	}
	return *buffer
}

// onDevice reports whether the device can read these rows where they lie: they are in memory, and
// float32.
func (r *layerRows) onDevice(dev compute.Device) bool {
	return r.file == nil && r.of == compute.Float32s &&
		compute.CapabilitiesOf(dev).Accelerator == nil
}

// matrixOf returns the matrix of the given type whose elements lie in bytes.
func matrixOf(of compute.Elements, bytes []byte, rows, cols int) compute.Matrix {
	m := compute.Matrix{Rows: rows, Cols: cols}
	if of == compute.BF16s {
		m.BF16 = unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(bytes))), len(bytes)/2)
	} else {
		m.Data = floats(bytes)
	}
	return m
}

func floats(bytes []byte) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(bytes))), len(bytes)/4)
}

// put copies y, which is on a device, into the rows that begin with row lo. The columns of y become
// columns [first, first+y.Cols), which must be whole blocks. If the rows are float32, y may be
// bfloat16.
func (r *layerRows) put(dev compute.Device, lo, first int, y compute.Matrix) error {
	load := func(to []float32) {
		if r.of == compute.Float32s && y.BF16 != nil {
			compute.Load(dev, to, y, &r.narrow)
		} else {
			download(dev, to, y.Memory())
		}
	}
	size, words := r.of.Size(), r.of.Floats(y.Rows*y.Cols)
	if r.file == nil { // rows of bfloat16 have an even width, so they fill whole words
		load(floats(r.bytes[r.rowOffset(first, lo):])[:words])
		return nil
	}
	r.moving = mem.Grow(r.moving, words)
	load(r.moving)
	rows := mem.Bytes(r.moving)
	for from := 0; from < y.Cols; from += r.block {
		part, width := rows, r.width(first+from)*size
		if width < y.Cols*size {
			r.narrow = mem.Grow(r.narrow, (y.Rows*width+3)/4)
			part = mem.Bytes(r.narrow)[:y.Rows*width]
			for i := range y.Rows {
				copy(part[i*width:(i+1)*width], rows[(i*y.Cols+from)*size:])
			}
		}
		at := r.rowOffset(first+from, lo)
		if err := r.file.WriteAt(part, at); err != nil {
			return fmt.Errorf("hidden rows in run.scratch_dir: %w", err)
		}
		if r.block < r.cols { // rows are in several blocks because memory is short
			r.file.Drop(at, at+len(part))
		}
	}
	return nil
}

// downloadTile is how many elements a thread copies at a time.
const downloadTile = 1 << 14

// download copies from the device to host memory. If the device computes in host memory, all
// threads copy.
func download(dev compute.Device, dst, src []float32) {
	if compute.CapabilitiesOf(dev).Accelerator != nil {
		dev.Download(dst, src)
		return
	}
	compute.CheckLengths("download", len(dst), len(src))
	compute.InTiles(dev, (len(src)+downloadTile-1)/downloadTile, func(tile int) {
		lo := tile * downloadTile
		copy(dst[lo:], src[lo:min(len(src), lo+downloadTile)])
	})
}

// readAhead starts reading rows [lo,hi) from the disk, in the block that begins with column first.
func (r *layerRows) readAhead(first, lo, hi int) {
	if r.file != nil {
		r.file.Ahead(r.rowOffset(first, lo), r.rowOffset(first, hi))
	}
}

// drop tells the system that it may remove rows [lo,hi) of a block from memory for now.
func (r *layerRows) drop(first, lo, hi int) {
	if r.file != nil {
		r.file.Drop(r.rowOffset(first, lo), r.rowOffset(first, hi))
	}
}

// dropAll calls drop for rows [lo,hi) of every block.
func (r *layerRows) dropAll(lo, hi int) {
	for first := 0; first < r.cols; first += r.block {
		r.drop(first, lo, hi)
	}
}

// CheckScratch returns an error if Env.ScratchDir has no room for the hidden rows of own vertices.
func (s Passes) CheckScratch() error {
	stores := compute.CapabilitiesOf(s.Device).Stores
	return checkScratchDir(s.ScratchDir, hiddenBytes(&s.Job.Model, int64(s.ownRows()), stores))
}

// checkScratchDir returns an error if no file can be made in dir, or if dir has no room for files
// of the given number of bytes. So a job finds out before it trains. The disk may still fill up
// later.
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
		return fmt.Errorf("run.scratch_dir %s has %d bytes left, but inference keeps up to %d "+
			"bytes of hidden rows there; give a directory with more room", dir, free, bytes)
	}
	return nil
}

// hiddenBytes returns how many bytes of hidden rows inference keeps at a time. The number of
// vertices and the type in which the device stores rows (`stores`) are given. Inference keeps the
// rows of two layers. If a layer is computed by columns, its aggregates take the place of the
// second layer. With jumping knowledge it keeps the rows of all layers. If the last layer maps rows
// before it adds them, inference keeps the mapped rows instead of the rows that this layer would
// read. If it works by columns, it also keeps the sums of the mapped rows.
func hiddenBytes(m *nn.Config, vertices int64, stores compute.Elements) int64 {
	hidden, last := m.Layers-1, m.Layers-1
	layers := min(2, hidden)
	if hidden > 0 && m.Fixed().Needs().OnlySums() {
		layers = 2
	}
	if m.Jumps() {
		hidden, layers = m.Layers, m.Layers
	}
	mapped := 0
	if m.MapsFirst(last) {
		_, out := m.Widths(last)
		if mapped = 4 * (m.MappedColumns(last) + out); hidden == 1 {
			layers = 0
		}
	}
	widest := 0
	for l := range hidden {
		_, width := m.Widths(l)
		widest = max(widest, width*m.Stored(l, stores).Size())
	}
	return int64(layers*widest+mapped) * vertices
}
