//go:build cgo

package cpu

import (
	"halognn/src/compute"
	"halognn/src/mem"
)

// task is the kernel call in progress: its arguments, and the function that computes one tile of it. A struct that lives in
// the device instead of closures, because those would be allocated at every call.
type task struct {
	run         func(d *Device, t *task, tile int)
	rowsPerTile int
	width       int // columns a tile, where a tile is not all of them

	y, x, w, dx                   compute.Matrix
	segments, forward             compute.Segments
	bias, gamma, beta, mean, rstd []float32
	param, grad, m, v             []float32
	weights                       []float32 // of edges
	vertices, labels              []int32
	targets                       []uint8
	add                           bool
	scale, eps                    float32
	threshold                     uint32
	key                           compute.DropoutKey
	adam                          compute.AdamCoefficients
	sgd                           compute.SGDOptions
}

// tileElements is the size of a tile of kernels that stream over memory: large enough that a call into C is nothing beside
// it, small enough that tiles divide among threads.
const tileElements = 1 << 15

// streamRows returns the rows of a tile of such a kernel.
func streamRows(cols int) int { return max(1, tileElements/max(1, cols)) }

// run computes the task, its rows cut into tiles of rowsPerTile.
func (d *Device) run(rows int, t task) {
	d.task = t
	d.pool.run((rows+t.rowsPerTile-1)/t.rowsPerTile, d.tile)
	d.task = task{} // keep nothing of the caller's alive
}

// bounds returns the rows of a tile.
func (t *task) bounds(rows, tile int) (lo, hi int) {
	lo = tile * t.rowsPerTile
	return lo, min(lo+t.rowsPerTile, rows)
}

// rows returns the rows of m that are a tile's.
func (t *task) rows(m compute.Matrix, tile int) compute.Matrix {
	return m.RowsAt(t.bounds(m.Rows, tile))
}

// chunkCount returns the number of chunks that sums over rows are made of.
func chunkCount(rows int) int { return (rows + compute.ChunkRows - 1) / compute.ChunkRows }

// reservePartials makes room for n sums of every chunk.
func (d *Device) reservePartials(chunks, n int) { d.partial = mem.Grow(d.partial, chunks*n) }

// addPartials sets sum to the sums of all chunks, added in chunk order; those of chunk c begin at partial[c*stride+offset].
func (d *Device) addPartials(sum []float32, chunks, stride, offset int) {
	clear(sum)
	for c := range chunks {
		d.kernels.addInto(sum, d.partial[c*stride+offset:][:len(sum)])
	}
}
