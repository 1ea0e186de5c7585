//go:build cgo

package cpu

// #include "halognn_cpu.h"
import "C"

import (
	"gonum.org/v1/gonum/blas"

	"halognn/src/compute"
	"halognn/src/mem"
)

// productRows returns the rows of a tile of y = x wᵀ and of dx = dy w: fewer if there are few rows
// to share. The library packs w again for every tile, which takes about 32/productRows of its time.
func productRows(rows int) int {
	if rows < 8192 {
		return 256
	}
	return 512
}

func beta(add bool) float32 {
	if add {
		return 1
	}
	return 0
}

// turnRows is the number of rows from which the weights of y = x wᵀ are transposed first. For every
// tile the library packs a plain w faster than a transposed one, and the transposition takes as
// long as some hundred rows.
const turnRows = 4096

type matMul struct {
	y, x   compute.Matrix
	w      []float32 // [O,F], or its transpose
	turned bool
	add    bool
}

// MatMul implements compute.Device.
func (d *Device) MatMul(y, x, w compute.Matrix, add bool) {
	defer d.probe.Start(compute.CheckMatMul(y, x, w, add)).Done()
	if d.rounding != nil {
		n := fullWidth(y.Cols)
		d.rounding.weights(w, n-w.Rows, w.Cols)
		run(d, y.Rows, productRows(y.Rows), roundedProduct{y, x, blas.Trans, n, w.Cols, add})
		return
	}
	call := matMul{y, x, w.Data, y.Rows >= turnRows, add}
	if call.turned {
		d.turned = mem.Grow(d.turned, w.Rows*w.Cols)
		turn(d.turned, w.Data, w.Rows, w.Cols)
		call.w = d.turned
	}
	run(d, y.Rows, productRows(y.Rows), call)
}

func (a *matMul) tile(d *Device, lo, hi int) {
	t, stride := blas.Transpose(blas.Trans), a.x.Cols
	if a.turned {
		t, stride = blas.NoTrans, a.y.Cols
	}
	d.gemm.Sgemm(blas.NoTrans, t, hi-lo, a.y.Cols, a.x.Cols, a.x.RowsAt(lo, hi).Data, a.x.Cols,
		a.w, stride, beta(a.add), a.y.RowsAt(lo, hi).Data, a.y.Cols)
}

// turn sets dst to the transpose of src [rows,cols], in blocks that stay in the nearest cache.
func turn(dst, src []float32, rows, cols int) {
	const block = 16
	for r0 := 0; r0 < rows; r0 += block {
		for c0 := 0; c0 < cols; c0 += block {
			for c := c0; c < min(c0+block, cols); c++ {
				out := dst[c*rows:][:rows]
				for r := r0; r < min(r0+block, rows); r++ {
					out[r] = src[r*cols+c]
				}
			}
		}
	}
}

type matMulInput struct {
	dx, dy, w compute.Matrix
	add       bool
}

// MatMulInput implements compute.Device.
func (d *Device) MatMulInput(dx, dy, w compute.Matrix, add bool) {
	defer d.probe.Start(compute.CheckMatMulInput(dx, dy, w, add)).Done()
	if d.rounding != nil {
		n := fullWidth(dx.Cols)
		d.rounding.weights(w, 0, n)
		run(d, dx.Rows, productRows(dx.Rows), roundedProduct{dx, dy, blas.NoTrans, n, n, add})
		return
	}
	run(d, dx.Rows, productRows(dx.Rows), matMulInput{dx, dy, w, add})
}

func (a *matMulInput) tile(d *Device, lo, hi int) {
	d.gemm.Sgemm(blas.NoTrans, blas.NoTrans, hi-lo, a.dx.Cols, a.dy.Cols, a.dy.RowsAt(lo, hi).Data,
		a.dy.Cols, a.w.Data, a.w.Cols, beta(a.add), a.dx.RowsAt(lo, hi).Data, a.dx.Cols)
}

const (
	// weightWave is the number of chunks computed before their sums are added. It limits the
	// scratch memory to 32 times dw.
	weightWave = 32
	// fewChunks is the number of chunks below which tiles are also cut by columns of the product,
	// so that there are enough tiles for all threads.
	fewChunks = 16
	// weightColumns is the width of such a tile.
	weightColumns = 128
	// vectorWidth is the multiple to which the libraries pad the rows of a product.
	vectorWidth = 16
)

// MatMulWeights implements compute.Device: dw = (rows 0..511) + (rows 512..1023) + ..., by waves of
// chunks.
func (d *Device) MatMulWeights(dw, dy, x compute.Matrix) {
	defer d.probe.Start(compute.CheckMatMulWeights(dw, dy, x)).Done()
	chunks, size := chunkCount(dy.Rows), dw.Rows*dw.Cols
	call, sum := matMulWeights{left: dy, right: x}, dw.Data[:size]
	turned := dw.Cols%vectorWidth != 0 && dw.Rows%vectorWidth == 0
	if turned { // rows of xᵀ dy are whole vectors
		d.turned = mem.Grow(d.turned, size)
		call.left, call.right, sum = x, dy, d.turned[:size]
	}
	call.width = call.right.Cols
	if chunks < fewChunks {
		call.width = min(call.width, weightColumns)
	}
	call.across = (call.right.Cols + call.width - 1) / call.width
	d.reservePartials(min(chunks, weightWave), size)
	clear(sum)
	left, right := call.left, call.right
	for first := 0; first < chunks; first += weightWave {
		lo, hi := first*compute.ChunkRows, min((first+weightWave)*compute.ChunkRows, dy.Rows)
		call.left, call.right = left.RowsAt(lo, hi), right.RowsAt(lo, hi)
		run(d, chunkCount(hi-lo)*call.across, 1, call)
		run(d, size, tileElements/2, addChunks{sum, chunkCount(hi - lo)})
	}
	if turned {
		turn(dw.Data, sum, dw.Cols, dw.Rows)
	}
}

// matMulWeights sums the chunks of a wave of leftᵀ right, each by columns: row i of the call is
// columns [i%across*width, ...) of chunk i/across.
type matMulWeights struct {
	left, right   compute.Matrix
	width, across int
}

func (a *matMulWeights) tile(d *Device, i, _ int) {
	rows, cols := a.left.Cols, a.right.Cols
	chunk, j := i/a.across, i%a.across*a.width
	lo := chunk * compute.ChunkRows
	hi, width := min(lo+compute.ChunkRows, a.left.Rows), min(a.width, cols-j)
	left, right, sum := a.left.RowsAt(lo, hi), a.right.RowsAt(lo, hi), d.partial[chunk*rows*cols+j:]
	if d.rounding != nil {
		d.rounding.chunk(sum, cols, left, right, j, width)
		return
	}
	d.gemm.Sgemm(blas.Trans, blas.NoTrans, rows, width, hi-lo, left.Data, rows, right.Data[j:], cols,
		0, sum, cols)
}

// addChunks adds the sums of a wave's chunks, in order, to sum.
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

type addBias struct {
	y compute.Matrix
	b []float32
}

// AddBias implements compute.Device.
func (d *Device) AddBias(y compute.Matrix, b []float32) {
	defer d.probe.Start(compute.CheckAddBias(y, b)).Done()
	run(d, y.Rows, streamRows(y.Cols), addBias{y, b})
}

func (a *addBias) tile(d *Device, lo, hi int) {
	y := a.y.RowsAt(lo, hi)
	rows, cols := size(y)
	C.halognn_add_bias(d.level, floats(y.Data), rows, cols, floats(a.b))
}

type columnSum struct{ dy compute.Matrix }

// ColumnSum implements compute.Device.
func (d *Device) ColumnSum(db []float32, dy compute.Matrix) {
	defer d.probe.Start(compute.CheckColumnSum(db, dy)).Done()
	chunks := chunkCount(dy.Rows)
	d.reservePartials(chunks, dy.Cols)
	run(d, dy.Rows, compute.ChunkRows, columnSum{dy})
	d.addPartials(db, chunks, dy.Cols, 0)
}

func (a *columnSum) tile(d *Device, lo, hi int) {
	dy := a.dy.RowsAt(lo, hi)
	rows, cols := size(dy)
	C.halognn_column_sum(d.level, floats(d.partials(lo, dy.Cols)), rows, cols, floats(dy.Data))
}

type addScaled struct {
	y, z, x compute.Matrix
	scale   []float32
}

// AddScaled implements compute.Device.
func (d *Device) AddScaled(y, z, x compute.Matrix, scale []float32) {
	defer d.probe.Start(compute.CheckAddScaled(y, z, x, scale)).Done()
	run(d, y.Rows, streamRows(y.Cols), addScaled{y, z, x, scale})
}

func (a *addScaled) tile(d *Device, lo, hi int) {
	y := a.y.RowsAt(lo, hi).Data
	C.halognn_add_scaled(d.level, floats(y), C.int64_t(len(y)), floats(a.z.RowsAt(lo, hi).Data),
		floats(a.x.RowsAt(lo, hi).Data), floats(a.scale))
}

type copyColumns struct {
	y, x        compute.Matrix
	at, from, n int
	add         bool
}

// CopyColumns implements compute.Device.
func (d *Device) CopyColumns(y compute.Matrix, at int, x compute.Matrix, from, n int, add bool) {
	defer d.probe.Start(compute.CheckCopyColumns(y, at, x, from, n, add)).Done()
	if n > 0 {
		run(d, y.Rows, streamRows(n), copyColumns{y, x, at, from, n, add})
	}
}

func (a *copyColumns) tile(d *Device, lo, hi int) {
	y, x := a.y.RowsAt(lo, hi), a.x.RowsAt(lo, hi)
	C.halognn_copy_columns(d.level, floats(y.Data[a.at:]), C.int64_t(hi-lo), C.int64_t(a.n),
		C.int64_t(y.Cols), floats(x.Data[a.from:]), C.int64_t(x.Cols), cBool(a.add))
}

type columnDot struct{ x, y compute.Matrix }

// Dot implements compute.Device.
func (d *Device) Dot(sum []float32, x, y compute.Matrix) {
	defer d.probe.Start(compute.CheckDot(sum, x, y)).Done()
	chunks := chunkCount(x.Rows)
	d.reservePartials(chunks+1, x.Cols)
	run(d, x.Rows, compute.ChunkRows, columnDot{x, y})
	all := d.partial[chunks*x.Cols:][:x.Cols]
	d.addPartials(all, chunks, x.Cols, 0)
	sum[0] = 0
	for _, v := range all {
		sum[0] += v
	}
}

func (a *columnDot) tile(d *Device, lo, hi int) {
	x := a.x.RowsAt(lo, hi)
	rows, cols := size(x)
	C.halognn_column_dot(d.level, floats(d.partials(lo, x.Cols)), rows, cols, floats(x.Data),
		floats(a.y.RowsAt(lo, hi).Data))
}
