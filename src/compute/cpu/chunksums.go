//go:build cgo

package cpu

// #include "halognn_cpu.h"
import "C"

import (
	"gonum.org/v1/gonum/blas"

	"halognn/src/compute"
	"halognn/src/mem"
)

const (
	// weightWave is the number of chunks computed before their sums are added. It limits the
	// scratch memory to 32 times the gradients.
	weightWave = 32
	// fewChunks is the number of chunks below which tiles are also cut by columns of the product,
	// so that there are enough tiles for all threads.
	fewChunks = 16
	// weightColumns is the width of such a tile.
	weightColumns = 128
	// vectorWidth is the multiple to which the libraries pad the rows of a product.
	vectorWidth = 16
)

// chunkSums computes gradients that are sums over rows: dw = (rows 0..511) + (rows 512..1023) +
// ..., by waves of chunks. What a chunk needs is read while it is in the cache: first the gradient
// dy itself is made of what lies behind an activation, then its columns are summed, and then the
// products are.
//
//	dy, y, x  of chunk c   ──>   partial[c]: products | columns   ──> added in chunk order
type chunkSums struct {
	rows, first int // of the gradient; at which the wave begins

	behind   activationBackward // without activation: dy is given
	dy       compute.Matrix
	bias     []float32 // nil: columns are not summed
	products [2]weightSum
	count    int // of products

	stride int // elements of the partial sums of a chunk
	across int // tiles of a chunk, by columns of the products
}

// weightSum is the sum of a product leftᵀ right over rows.
type weightSum struct {
	dw, left, right compute.Matrix
	turned          bool      // right is dy: the sum is the transpose of dw
	sum             []float32 // of dw's size
	at              int       // in the partial sums of a chunk
	width           int       // columns of a tile
}

// product adds dw = dyᵀ x to what is computed.
func (a *chunkSums) product(d *Device, dw, dy, x compute.Matrix) {
	size := dw.Rows * dw.Cols
	p := weightSum{dw: dw, left: dy, right: x, sum: dw.Data[:size], at: a.stride}
	if dw.Cols%vectorWidth != 0 && dw.Rows%vectorWidth == 0 { // rows of xᵀ dy are whole vectors
		d.turned[a.count] = mem.Grow(d.turned[a.count], size)
		p.turned, p.left, p.right, p.sum = true, x, dy, d.turned[a.count][:size]
	}
	a.products[a.count] = p
	a.count++
	a.stride += size
}

// run computes the sums.
func (a *chunkSums) run(d *Device) {
	chunks := chunkCount(a.rows)
	at := a.stride // of the column sums
	if a.bias != nil {
		a.stride += len(a.bias)
		clear(a.bias)
	}
	a.across = 1
	for i := range a.products[:a.count] {
		p := &a.products[i]
		clear(p.sum)
		if p.width = p.right.Cols; chunks < fewChunks {
			p.width = min(p.width, weightColumns)
			a.across = max(a.across, (p.right.Cols+p.width-1)/p.width)
		}
	}
	d.reservePartials(min(chunks, weightWave), a.stride)
	for a.first = 0; a.first < a.rows; a.first += weightWave * compute.ChunkRows {
		wave := min(chunkCount(a.rows-a.first), weightWave)
		if a.across > 1 && (a.bias != nil || a.behind.kind != compute.NoActivation) {
			run(d, wave, 1, chunkRows{*a})
		}
		run(d, wave*a.across, 1, *a)
		for _, p := range a.products[:a.count] {
			run(d, len(p.sum), tileElements/2, addChunks{p.sum, p.at, a.stride, wave})
		}
		if a.bias != nil {
			run(d, len(a.bias), tileElements/2, addChunks{a.bias, at, a.stride, wave})
		}
	}
	for _, p := range a.products[:a.count] {
		if p.turned {
			turn(p.dw.Data, p.sum, p.dw.Cols, p.dw.Rows)
		}
	}
}

// bounds returns the rows of a chunk of the wave, and its partial sums.
func (a *chunkSums) bounds(d *Device, chunk int) (lo, hi int, partial []float32) {
	lo = a.first + chunk*compute.ChunkRows
	return lo, min(lo+compute.ChunkRows, a.rows), d.partial[chunk*a.stride:][:a.stride]
}

// tile computes a tile of a wave: part i%across of chunk i/across.
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
			d.rounding.chunk(sum, cols, left, right, j, width)
			continue
		}
		d.gemm.Sgemm(blas.Trans, blas.NoTrans, rows, width, hi-lo, left.Data, rows, right.Data[j:], cols,
			0, sum, cols)
	}
}

// prepare makes the gradient of a chunk and sums its columns.
func (a *chunkSums) prepare(d *Device, chunk int) {
	lo, hi, partial := a.bounds(d, chunk)
	a.behind.tile(d, lo, hi)
	if a.bias != nil {
		dy := a.dy.RowsAt(lo, hi)
		rows, cols := size(dy)
		C.halognn_column_sum(d.level, floats(partial[a.stride-len(a.bias):]), rows, cols,
			floats(dy.Data))
	}
}

// chunkRows prepares the chunks of a wave whose products are cut by columns.
type chunkRows struct{ of chunkSums }

func (a *chunkRows) tile(d *Device, i, _ int) { a.of.prepare(d, i) }

// addChunks adds the sums of a wave's chunks, in order, to sum; those of chunk c begin at
// partial[c*stride+at].
type addChunks struct {
	sum                []float32
	at, stride, chunks int
}

func (a *addChunks) tile(d *Device, lo, hi int) {
	for c := range a.chunks {
		from := c*a.stride + a.at
		addInto(d.level, a.sum[lo:hi], d.partial[from+lo:from+hi])
	}
}

func addInto(k level, sum, x []float32) {
	C.halognn_add_into(k, floats(sum), C.int64_t(len(sum)), floats(x))
}
