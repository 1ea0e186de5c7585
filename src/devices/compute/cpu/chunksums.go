//go:build cgo

package cpu

// #include "halognn_cpu.h"
import "C"

import (
	"gonum.org/v1/gonum/blas"

	"halognn/src/base/mem"
	"halognn/src/devices/compute"
)

const (
	// If a sum has fewer chunks of rows than this, the products of a chunk are also divided by
	// columns, so that there are tiles for all threads.
	fewChunks = 16
	// number of columns of a tile if products are divided by columns
	weightColumns = 128
	// The libraries pad the rows of a product to a multiple of this number of elements.
	vectorWidth = 16
)

// chunkSums computes gradients that are sums over rows: dw = (rows 0..511) + (rows 512..1023) + ...
// It computes several chunks of rows at a time, which are called a wave. All work on a chunk is
// done while the chunk is in the cache. First its dy is backpropagated through the activation, then
// the columns of dy are summed, then the products are computed.
//
//	dy, y, x of chunk c ─> partial[c]: products | columns ─> sums in chunk order ─> gradients
type chunkSums struct {
	rows, first int // number of rows of the gradient, and number of the first row of the wave

	// Backward pass of the activation. If there is no activation, it does not change dy.
	behind activationBackward
	dy     compute.Matrix
	// Gradient of the bias, which is the sum of each column of dy; nil if it is not wanted.
	bias     []float32
	products [2]weightSum
	count    int // number of products

	stride int // number of elements of the partial sums of a chunk
	across int // number of tiles into which a chunk is divided by columns of the products
}

// weightSum is the sum over rows of a product leftᵀ right.
type weightSum struct {
	dw, left, right compute.Matrix
	turned          bool // whether right is dy, so that the sum is the transpose of dw
	at              int  // index at which this sum begins in the partial sums of a chunk
	width           int  // number of columns of a tile
}

// product adds dw = dyᵀ x to the products that are computed.
func (a *chunkSums) product(d *Device, dw, dy, x compute.Matrix) {
	d.multiplies(dy)
	d.multiplies(x)
	p := weightSum{dw: dw, left: dy, right: x, at: a.stride}
	// The libraries pad rows to whole vectors. If the rows of dw need padding, but those of its
	// transpose xᵀ dy do not, the transpose is computed instead.
	if dw.Cols%vectorWidth != 0 && dw.Rows%vectorWidth == 0 {
		p.turned, p.left, p.right = true, x, dy
	}
	a.products[a.count] = p
	a.count++
	a.stride += dw.Rows * dw.Cols
}

// run computes the sums.
func (a *chunkSums) run(d *Device) {
	chunks := chunkCount(a.rows)
	a.stride += len(a.bias)
	a.across = 1
	for i := range a.products[:a.count] {
		p := &a.products[i]
		if p.width = p.right.Cols; chunks < fewChunks {
			p.width = min(p.width, weightColumns)
			a.across = max(a.across, (p.right.Cols+p.width-1)/p.width)
		}
	}
	most := compute.ChunkWave / a.count
	d.reservePartials(min(chunks, most), a.stride)
	d.sums = mem.Grow(d.sums, a.stride)
	clear(d.sums[:a.stride])
	for a.first = 0; a.first < a.rows; a.first += most * compute.ChunkRows {
		wave := min(chunkCount(a.rows-a.first), most)
		if a.across > 1 && (a.bias != nil || a.behind.kind != compute.NoActivation) {
			run(d, wave, 1, chunkRows{*a})
		}
		run(d, wave*a.across, 1, *a)
		run(d, a.stride, tileElements/2, addChunks{d.sums[:a.stride], wave})
	}
	for _, p := range a.products[:a.count] {
		if sum := d.sums[p.at:][:p.dw.Rows*p.dw.Cols]; p.turned {
			turn(d, p.dw.Data, sum, p.dw.Cols, p.dw.Rows)
		} else {
			copy(p.dw.Data, sum)
		}
	}
	copy(a.bias, d.sums[a.stride-len(a.bias):a.stride])
}

// bounds returns the rows of a chunk of the wave, and its partial sums.
func (a *chunkSums) bounds(d *Device, chunk int) (lo, hi int, partial []float32) {
	lo = a.first + chunk*compute.ChunkRows
	return lo, min(lo+compute.ChunkRows, a.rows), d.partial[chunk*a.stride:][:a.stride]
}

// tile computes tile i of a wave. This is part i%across of chunk i/across.
func (a *chunkSums) tile(d *Device, i, _ int) {
	chunk, part := i/a.across, i%a.across
	if a.across == 1 {
		a.prepare(d, chunk)
	}
	lo, hi, partial := a.bounds(d, chunk)
	for _, p := range a.products[:a.count] {
		rows, cols := p.left.Cols, p.right.Cols
		j := part * p.width
		if j >= cols && part > 0 {
			continue
		}
		left, right, sum := p.left.RowsAt(lo, hi), p.right.RowsAt(lo, hi), partial[p.at+j:]
		width := min(p.width, cols-j)
		if d.rounding != nil {
			d.rounding.chunk(sum, cols, left, right, j, width, false)
			continue
		}
		d.gemm.Sgemm(blas.Trans, blas.NoTrans, rows, width, hi-lo, left.Data, rows, right.Data[j:],
			cols, 0, sum, cols)
	}
}

// prepare backpropagates dy through the activation, for one chunk of rows, and sums the columns of
// the result.
func (a *chunkSums) prepare(d *Device, chunk int) {
	if a.bias == nil && a.behind.kind == compute.NoActivation {
		return
	}
	lo, hi, partial := a.bounds(d, chunk)
	r := d.widen(a.dy.RowsAt(lo, hi))
	a.behind.rows(d, r.wide, lo, hi)
	if a.bias != nil {
		rows, cols := size(r.wide)
		C.halognn_column_sum(d.level, floats(partial[a.stride-len(a.bias):]), rows, cols,
			floats(r.wide.Data))
	}
	// nothing was changed, because there is no activation
	if a.behind.kind == compute.NoActivation {
		r.forget()
		return
	}
	d.storeRows(r, false)
}

// chunkRows prepares the chunks of a wave before their products are computed. It is used if
// products are divided by columns.
type chunkRows struct{ of chunkSums }

func (a *chunkRows) tile(d *Device, i, _ int) { a.of.prepare(d, i) }

// addChunks adds the partial sums of a wave's chunks, in order, to sum.
type addChunks struct {
	sum    []float32
	chunks int
}

func (a *addChunks) tile(d *Device, lo, hi int) {
	size := len(a.sum)
	for c := range a.chunks {
		addInto(d.level, a.sum[lo:hi], d.partial[c*size+lo:c*size+hi])
	}
}

func addInto(k level, sum, x []float32) {
	C.halognn_add_into(k, floats(sum), C.int64_t(len(sum)), floats(x))
}
