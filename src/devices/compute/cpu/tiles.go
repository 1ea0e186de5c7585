//go:build cgo

package cpu

import (
	"halognn/src/base/mem"
	"halognn/src/devices/compute"
)

// arguments are the arguments of a kernel call. Their method tile computes rows [lo,hi) of the
// result.
type arguments interface {
	tile(d *Device, lo, hi int)
}

// argumentsIn is a constraint. It allows pointers to a struct T, if they implement arguments.
type argumentsIn[T any] interface {
	*T
	arguments
}

// tileElements is the number of elements in a tile of a kernel that reads memory once, in order. It
// is large enough that the cost of a call into C is negligible, and small enough that all threads
// get tiles.
const tileElements = 1 << 15

// streamRows returns the number of rows in a tile of tileElements elements. A row has cols
// elements.
func streamRows(cols int) int { return max(1, tileElements/max(1, cols)) }

// run computes the given number of rows of a kernel call in tiles of rowsPerTile rows. It copies
// the arguments to memory that the device keeps for this kernel. So a call allocates nothing, while
// a closure would have to be allocated.
func run[T any, P argumentsIn[T]](d *Device, rows, rowsPerTile int, args T) {
	call := place[T, P](d)
	*call = args
	d.call, d.rows, d.rowsPerTile = call, rows, rowsPerTile
	d.pool.run((rows+rowsPerTile-1)/rowsPerTile, d.runTile)
	*call = *new(T) // the device must not keep the caller's memory alive
}

// place returns the memory that the device keeps for the arguments of a kernel. On the first call
// it allocates this memory.
func place[T any, P argumentsIn[T]](d *Device) P {
	for _, c := range d.calls {
		if call, ok := c.(P); ok {
			return call
		}
	}
	call := P(new(T))
	d.calls = append(d.calls, call)
	return call
}

func (d *Device) tile(tile int) {
	lo := tile * d.rowsPerTile
	d.call.tile(d, lo, min(lo+d.rowsPerTile, d.rows))
}

func chunkCount(rows int) int { return (rows + compute.ChunkRows - 1) / compute.ChunkRows }

func (d *Device) reservePartials(chunks, n int) { d.partial = mem.Grow(d.partial, chunks*n) }

func (d *Device) partials(lo, n int) []float32 {
	return d.partial[lo/compute.ChunkRows*n:][:n]
}

// addPartials sets sum to the partial sums of all chunks, added in order. The partial sums of chunk
// c begin at partial[c*stride+offset].
func (d *Device) addPartials(sum []float32, chunks, stride, offset int) {
	clear(sum)
	for c := range chunks {
		addInto(d.level, sum, d.partial[c*stride+offset:][:len(sum)])
	}
}
