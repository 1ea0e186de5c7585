//go:build cgo

package cpu

// #include "halognn_cpu.h"
import "C"

import (
	"fmt"

	"gonum.org/v1/gonum/blas"

	"halognn/src/base/mem"
	"halognn/src/devices/compute"
)

// productRows returns the number of rows in a tile of y = x wᵀ and of dx = dy w.
func (d *Device) productRows(rows int) int {
	if d.rounding != nil {
		return d.rounding.tileRows(rows)
	}
	return libraryRows(rows)
}

// libraryRows returns the number of rows in a tile that a library multiplies. It is small if there
// are few rows, so that all threads get tiles. Smaller tiles would be slow, because a library packs
// w again for every tile, which takes about 32/libraryRows of the time of a product.
func libraryRows(rows int) int {
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

// If y = x wᵀ has at least turnRows rows, the weights are transposed first. The library packs w for
// every tile, and packs a plain matrix faster than a transposed one. The transposition takes the
// time of some hundred rows.
const turnRows = 4096

// A product of up to compute.SameTiles rows must not transpose its weights, because products of
// single tiles do not, and both must give the same bits.
const _ = uint(turnRows - 1 - compute.SameTiles)

// product computes y = x wᵀ or dx = dy w, in tiles of rows.
type product struct {
	out, in compute.Matrix
	w       []float32      // weights, if factors are not rounded
	t       blas.Transpose // blas.Trans if weights are transposed
	stride  int            // number of elements in a row of the weights
	// Index of the copy of the weights that the device keeps. The copy is transposed or rounded.
	which int
	add   bool
}

// MatMul implements compute.Device.
func (d *Device) MatMul(y, x, w compute.Matrix, add bool) {
	defer d.probe.Start(compute.CheckMatMul(y, x, w, add)).Done()
	run(d, y.Rows, d.productRows(y.Rows), d.forward(0, y, x, w, add))
}

// forward prepares y = x wᵀ. A kernel may have two such products. This one has the given index, 0
// or 1.
func (d *Device) forward(index int, y, x, w compute.Matrix, add bool) product {
	p := product{y, x, w.Data, blas.Trans, w.Cols, index, add}
	d.multipliesBy(w, x)
	switch {
	case d.rounding != nil:
		d.rounding.keep(index, whole(w, blas.Trans))
	case y.Rows >= turnRows:
		d.turned[index] = mem.Grow(d.turned[index], w.Rows*w.Cols)
		turn(d, d.turned[index], w.Data, w.Rows, w.Cols)
		p.w, p.t, p.stride = d.turned[index], blas.NoTrans, w.Rows
	}
	return p
}

// multiplies panics if the factor x is of bfloat16 and the device does not round factors.
func (d *Device) multiplies(x compute.Matrix) {
	if x.BF16 != nil && d.rounding == nil {
		panic(fmt.Sprintf("compute: factor %v is not of float32, but the device multiplies %s "+
			"factors", x, d.precision))
	}
}

// multipliesBy panics if the weights w are of bfloat16. It also panics if the method multiplies
// does.
func (d *Device) multipliesBy(w, x compute.Matrix) {
	if w.BF16 != nil {
		panic(fmt.Sprintf("compute: weights %v are not of float32", w))
	}
	d.multiplies(x)
}

func (a *product) tile(d *Device, lo, hi int) {
	a.multiply(d, a.out.RowsAt(lo, hi), a.in.RowsAt(lo, hi))
}

// multiply multiplies some rows of the left factor (`rows`) by the weights. It writes the product
// to dst, or adds the product to dst.
func (a *product) multiply(d *Device, dst, rows compute.Matrix) {
	if d.rounding != nil {
		d.rounding.product(dst, rows, a.which, 0, a.add)
		return
	}
	d.gemm.Sgemm(blas.NoTrans, a.t, dst.Rows, dst.Cols, rows.Cols, rows.Data, rows.Cols,
		a.w, a.stride, beta(a.add), dst.Data, dst.Cols)
}

func turn(d *Device, dst, src []float32, rows, cols int) {
	C.halognn_transpose(d.level, floats(dst), C.int64_t(cols), C.int64_t(rows), floats(src),
		C.int64_t(cols))
}

// MatMulInput implements compute.Device.
func (d *Device) MatMulInput(dx, dy, w compute.Matrix, add bool) {
	defer d.probe.Start(compute.CheckMatMulInput(dx, dy, w, add)).Done()
	run(d, dx.Rows, d.productRows(dx.Rows), d.input(dx, dy, w, add))
}

// input prepares dx = dy w.
func (d *Device) input(dx, dy, w compute.Matrix, add bool) product {
	d.multipliesBy(w, dy)
	if d.rounding != nil {
		d.rounding.keep(0, whole(w, blas.NoTrans))
	}
	return product{dx, dy, w.Data, blas.NoTrans, w.Cols, 0, add}
}

// MatMulWeights implements compute.Device.
func (d *Device) MatMulWeights(dw, dy, x compute.Matrix) {
	defer d.probe.Start(compute.CheckMatMulWeights(dw, dy, x)).Done()
	call := chunkSums{rows: dy.Rows}
	call.product(d, dw, dy, x)
	call.run(d)
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
	C.halognn_add_scaled(d.level, written(a.y.RowsAt(lo, hi)), C.int64_t((hi-lo)*a.y.Cols),
		read(a.z.RowsAt(lo, hi)), read(a.x.RowsAt(lo, hi)), floats(a.scale))
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
	from := x
	if x.BF16 != nil {
		from.BF16 = x.BF16[a.from:]
	} else {
		from.Data = x.Data[a.from:]
	}
	C.halognn_copy_columns(d.level, floats(y.Data[a.at:]), C.int64_t(hi-lo), C.int64_t(a.n),
		C.int64_t(y.Cols), read(from), C.int64_t(x.Cols), cBool(a.add))
}

type transpose struct{ y, x compute.Matrix }

// Transpose implements compute.Device.
func (d *Device) Transpose(y, x compute.Matrix) {
	defer d.probe.Start(compute.CheckTranspose(y, x)).Done()
	run(d, y.Rows, streamRows(y.Cols), transpose{y, x})
}

func (a *transpose) tile(d *Device, lo, hi int) {
	y := a.y.RowsAt(lo, hi)
	rows, cols := size(y)
	if cols > 0 {
		C.halognn_transpose(d.level, floats(y.Data), rows, cols, floats(a.x.Data[lo:]),
			C.int64_t(a.x.Cols))
	}
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
		read(a.y.RowsAt(lo, hi)))
}
