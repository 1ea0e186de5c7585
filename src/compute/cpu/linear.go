//go:build cgo

package cpu

// #include "halognn_cpu.h"
import "C"

import (
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas32"

	"halognn/src/compute"
)

// productRows returns the height of a tile of y = x wᵀ and of dx = dy w: lower where there are few
// rows to share. BLAS packs w anew for every tile, which takes about 32/productRows of its time.
func productRows(rows int) int {
	if rows < 8192 {
		return 256
	}
	return 512
}

// general returns m as BLAS sees it.
func general(m compute.Matrix) blas32.General {
	return blas32.General{Rows: m.Rows, Cols: m.Cols, Stride: max(1, m.Cols), Data: m.Data}
}

func beta(add bool) float32 {
	if add {
		return 1
	}
	return 0
}

type matMul struct {
	y, x, w compute.Matrix
	add     bool
}

// MatMul implements compute.Device.
func (d *Device) MatMul(y, x, w compute.Matrix, add bool) {
	defer d.probe.Start(compute.CheckMatMul(y, x, w, add)).Done()
	run(d, y.Rows, productRows(y.Rows), matMul{y, x, w, add})
}

func (a *matMul) tile(_ *Device, lo, hi int) {
	blas32.Gemm(blas.NoTrans, blas.Trans, 1, general(a.x.RowsAt(lo, hi)), general(a.w), beta(a.add),
		general(a.y.RowsAt(lo, hi)))
}

type matMulInput struct {
	dx, dy, w compute.Matrix
	add       bool
}

// MatMulInput implements compute.Device.
func (d *Device) MatMulInput(dx, dy, w compute.Matrix, add bool) {
	defer d.probe.Start(compute.CheckMatMulInput(dx, dy, w, add)).Done()
	run(d, dx.Rows, productRows(dx.Rows), matMulInput{dx, dy, w, add})
}

func (a *matMulInput) tile(_ *Device, lo, hi int) {
	blas32.Gemm(blas.NoTrans, blas.NoTrans, 1, general(a.dy.RowsAt(lo, hi)), general(a.w),
		beta(a.add), general(a.dx.RowsAt(lo, hi)))
}

const (
	// weightWave is how many chunks are in progress before their sums are added: what bounds the
	// scratch memory, to 32 times dw.
	weightWave = 32
	// fewChunks is below how many chunks each is cut into columns of dw besides, so that there are
	// tiles to share.
	fewChunks = 16
	// weightColumns is the width of such a tile.
	weightColumns = 128
)

// MatMulWeights implements compute.Device: dw = (rows 0..511) + (rows 512..1023) + ..., by waves of
// chunks.
func (d *Device) MatMulWeights(dw, dy, x compute.Matrix) {
	defer d.probe.Start(compute.CheckMatMulWeights(dw, dy, x)).Done()
	chunks, size := chunkCount(dy.Rows), dw.Rows*dw.Cols
	width := dw.Cols
	if chunks < fewChunks {
		width = min(width, weightColumns)
	}
	d.reservePartials(min(chunks, weightWave), size)
	clear(dw.Data[:size])
	for first := 0; first < chunks; first += weightWave {
		lo, hi := first*compute.ChunkRows, min((first+weightWave)*compute.ChunkRows, dy.Rows)
		across := (dw.Cols + width - 1) / width
		run(d, chunkCount(hi-lo)*across, 1,
			matMulWeights{dw, dy.RowsAt(lo, hi), x.RowsAt(lo, hi), width, across})
		run(d, size, tileElements/2, addChunks{dw, chunkCount(hi - lo)})
	}
}

// matMulWeights sums the chunks of a wave, each by columns: row i of the call is columns
// [i%across*width, ...) of chunk i/across.
type matMulWeights struct {
	dw, dy, x     compute.Matrix
	width, across int
}

func (a *matMulWeights) tile(d *Device, i, _ int) {
	chunk, j := i/a.across, i%a.across*a.width
	lo := chunk * compute.ChunkRows
	hi, width := min(lo+compute.ChunkRows, a.dy.Rows), min(a.width, a.dw.Cols-j)
	sum := compute.Matrix{Rows: a.dw.Rows, Cols: a.dw.Cols, Data: d.partial[chunk*a.dw.Rows*a.dw.Cols:]}
	blas32.Gemm(blas.Trans, blas.NoTrans, 1, general(a.dy.RowsAt(lo, hi)),
		columns(a.x.RowsAt(lo, hi), j, width), 0, columns(sum, j, width))
}

// columns returns n columns of m, from column j, as BLAS sees them.
func columns(m compute.Matrix, j, n int) blas32.General {
	return blas32.General{Rows: m.Rows, Cols: n, Stride: m.Cols, Data: m.Data[j:]}
}

// addChunks adds the sums of a wave's chunks, in order, to dw.
type addChunks struct {
	dw     compute.Matrix
	chunks int
}

func (a *addChunks) tile(d *Device, lo, hi int) {
	size := a.dw.Rows * a.dw.Cols
	for c := range a.chunks {
		addInto(d.level, a.dw.Data[lo:hi], d.partial[c*size+lo:c*size+hi])
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
	y, x  compute.Matrix
	scale []float32
}

// AddScaled implements compute.Device.
func (d *Device) AddScaled(y, x compute.Matrix, scale []float32) {
	defer d.probe.Start(compute.CheckAddScaled(y, x, scale)).Done()
	run(d, y.Rows, streamRows(y.Cols), addScaled{y, x, scale})
}

func (a *addScaled) tile(d *Device, lo, hi int) {
	y := a.y.RowsAt(lo, hi).Data
	C.halognn_add_scaled(d.level, floats(y), C.int64_t(len(y)), floats(a.x.RowsAt(lo, hi).Data),
		floats(a.scale))
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
