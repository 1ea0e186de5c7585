//go:build cgo

package cpu

// #include "halognn_cpu.h"
import "C"

import (
	"unsafe"

	"halognn/src/base/mem"
	"halognn/src/devices/compute"
)

// dense computes a compute.Dense tile by tile, so that a tile's rows are still in the cache when
// the epilogue is applied.
type dense struct {
	y             compute.Matrix
	first, second product // the field second has no columns if there is only one product
	bias          []float32
	epilogue      epilogue
}

// Dense implements compute.Device.
func (d *Device) Dense(y compute.Matrix, a compute.Dense) {
	defer d.probe.Start(compute.CheckDense(y, a)).Done()
	call := dense{y: y, first: d.forward(0, y, a.X, a.W, false), bias: a.Bias,
		epilogue: epilogueOf(y, a.Epilogue)}
	if a.X2.Cols > 0 {
		call.second = d.forward(1, y, a.X2, a.W2, true)
	}
	run(d, y.Rows, d.productRows(y.Rows), call)
}

func (a *dense) tile(d *Device, lo, hi int) {
	r := d.begin(a.y.RowsAt(lo, hi))
	a.first.multiply(d, r.wide, a.first.in.RowsAt(lo, hi))
	if a.bias != nil {
		(&addBias{r.wide, a.bias}).tile(d, 0, hi-lo)
	}
	if a.second.in.Cols > 0 {
		a.second.multiply(d, r.wide, a.second.in.RowsAt(lo, hi))
	}
	a.epilogue.finishRows(d, r, lo, hi)
}

// epilogue applies a compute.Epilogue while the tile's rows are in the cache.
type epilogue struct {
	add        compute.Matrix
	activation activation
	rounded    bool
}

func epilogueOf(y compute.Matrix, e compute.Epilogue) epilogue {
	return epilogue{e.Add, activationOf(y, e), e.Rounded}
}

// finishRows applies the epilogue to rows [lo,hi) of y, which r has, and stores them.
func (a *epilogue) finishRows(d *Device, r result, lo, hi int) {
	if a.add.Cols > 0 {
		(&copyColumns{r.wide, a.add.RowsAt(lo, hi), 0, 0, r.wide.Cols, true}).tile(d, 0, hi-lo)
	}
	if of := a.activation; of.kind != compute.NoActivation {
		if of.y = r.wide; of.threshold > 0 {
			of.vertices = of.vertices[lo:hi]
		}
		of.tile(d, 0, hi-lo)
	}
	d.storeRows(r, a.rounded)
}

// result has rows that a kernel computes. If they are float32, the kernel computes them in place.
// If they are stored in bfloat16, it computes them in scratch memory.
type result struct {
	y, wide compute.Matrix
	scratch *wideRows // scratch memory for the rows; nil if they are computed in place
}

// wideRows is the scratch memory of one of the tiles in progress.
type wideRows struct {
	slot
	rows []float32
	_    [64]byte // keeps threads on separate cache lines
}

// begin returns a result for the rows y, which has scratch memory if y is of bfloat16.
func (d *Device) begin(y compute.Matrix) result {
	if y.BF16 == nil {
		return result{y: y, wide: y}
	}
	s := take[wideRows](d.wide)
	s.rows = mem.Grow(s.rows, y.Rows*y.Cols)
	return result{y, compute.Float32s.MatrixIn(s.rows, y.Rows, y.Cols), s}
}

// storeRows stores complete rows. If rounded is true, it also rounds rows of float32; rows of
// bfloat16 are always rounded.
func (d *Device) storeRows(r result, rounded bool) {
	if r.scratch != nil {
		d.narrow(r.y, r.wide)
		r.scratch.release()
	}
	d.roundWide(r.y, rounded)
}

// narrow sets y, which is of bfloat16, to the float32 matrix x.
func (d *Device) narrow(y, x compute.Matrix) {
	n := C.int64_t(y.Rows * y.Cols)
	C.halognn_to_bf16(d.level, halves(y.BF16), n, 1, n, floats(x.Data), n)
}

// roundWide rounds complete rows of float32, if rounded is true and the device stores rows in
// bfloat16.
func (d *Device) roundWide(y compute.Matrix, rounded bool) {
	if y.BF16 != nil || !rounded || d.precision.Stored() != compute.BF16s {
		return
	}
	n := C.int64_t(y.Rows * y.Cols)
	C.halognn_round_factors(d.level, floats(y.Data), n, 1, n, floats(y.Data), n,
		C.int(d.precision.Dropped()))
}

// complete adds to the rows [lo,hi) of a kernel, which r has, the rows of c.Own that belong to
// them. Then it stores the sums, as storeRows does.
func (d *Device) complete(r result, c *compute.Completion, lo, hi int) {
	if own := ownAt(c, lo, hi); own.Rows > 0 {
		(&copyColumns{r.wide.RowsAt(0, own.Rows), own, 0, 0, own.Cols, true}).tile(d, 0, own.Rows)
	}
	d.storeRows(r, c.Rounded)
}

// widen does what begin does, for rows that the kernel also reads. Afterwards storeRows stores
// the changed rows, or forget discards them.
func (d *Device) widen(y compute.Matrix) result {
	r := d.begin(y)
	if r.scratch != nil {
		n := C.int64_t(y.Rows * y.Cols)
		C.halognn_from_bf16(d.level, floats(r.wide.Data), 1, n, halves(y.BF16), n)
	}
	return r
}

func (r *result) forget() {
	if r.scratch != nil {
		r.scratch.release()
	}
}

// denseInput is a matrix product whose rows are completed (compute.Completion).
type denseInput struct {
	of product
	c  compute.Completion
}

// DenseInput implements compute.Device.
func (d *Device) DenseInput(dx, dy, w compute.Matrix, c compute.Completion) {
	defer d.probe.Start(compute.CheckDenseInput(dx, dy, w, c)).Done()
	run(d, dx.Rows, d.productRows(dx.Rows), denseInput{d.input(dx, dy, w, false), c})
}

func (a *denseInput) tile(d *Device, lo, hi int) {
	r := d.begin(a.of.out.RowsAt(lo, hi))
	a.of.multiply(d, r.wide, a.of.in.RowsAt(lo, hi))
	d.complete(r, &a.c, lo, hi)
}

type round struct{ y, x compute.Matrix }

// Round implements compute.Device.
func (d *Device) Round(y, x compute.Matrix) {
	defer d.probe.Start(compute.CheckRound(y, x)).Done()
	run(d, y.Rows, streamRows(y.Cols), round{y, x})
}

func (a *round) tile(d *Device, lo, hi int) {
	y, x := a.y.RowsAt(lo, hi), a.x.RowsAt(lo, hi)
	switch {
	case y.BF16 != nil:
		d.narrow(y, x)
		return
	case unsafe.SliceData(y.Data) != unsafe.SliceData(x.Data):
		copy(y.Data, x.Data)
	}
	d.roundWide(y, true)
}

// DenseBackward implements compute.Device.
func (d *Device) DenseBackward(g compute.DenseGradients, dy, y compute.Matrix, a compute.Dense) {
	defer d.probe.Start(compute.CheckDenseBackward(g, dy, y, a)).Done()
	behind := activationBackward{activationOf(y, a.Epilogue), dy}
	call := chunkSums{rows: dy.Rows, behind: behind, dy: dy}
	if a.Bias != nil {
		call.bias = g.Bias
	}
	call.product(d, g.W, dy, a.X)
	if a.X2.Cols > 0 {
		call.product(d, g.W2, dy, a.X2)
	}
	call.run(d)
}

// Finish implements compute.Device.
func (d *Device) Finish(y, x compute.Matrix, b []float32, epilogue compute.Epilogue) {
	defer d.probe.Start(compute.CheckFinish(y, x, b, epilogue)).Done()
	run(d, y.Rows, streamRows(y.Cols), finish{y, x, b, epilogueOf(y, epilogue)})
}

type finish struct {
	y, x     compute.Matrix
	b        []float32
	epilogue epilogue
}

func (a *finish) tile(d *Device, lo, hi int) {
	r, x := d.begin(a.y.RowsAt(lo, hi)), a.x.RowsAt(lo, hi)
	if unsafe.SliceData(r.wide.Data) != unsafe.SliceData(x.Data) {
		copy(r.wide.Data, x.Data)
	}
	(&addBias{r.wide, a.b}).tile(d, 0, hi-lo)
	a.epilogue.finishRows(d, r, lo, hi)
}

// FinishBackward implements compute.Device.
func (d *Device) FinishBackward(db []float32, dy, y compute.Matrix, epilogue compute.Epilogue) {
	defer d.probe.Start(compute.CheckFinishBackward(db, dy, y, epilogue)).Done()
	chunks := chunkCount(dy.Rows)
	d.reservePartials(chunks, dy.Cols)
	run(d, dy.Rows, compute.ChunkRows,
		finishBackward{activationBackward{activationOf(y, epilogue), dy}})
	d.addPartials(db, chunks, dy.Cols, 0)
}

// finishBackward backpropagates a chunk of dy and sums its columns while they are in the cache.
type finishBackward struct{ behind activationBackward }

func (a *finishBackward) tile(d *Device, lo, hi int) {
	a.behind.tile(d, lo, hi)
	(&columnSum{a.behind.dy}).tile(d, lo, hi)
}

// activationOf returns the activation that the epilogue e applies to y.
func activationOf(y compute.Matrix, e compute.Epilogue) activation {
	if e.Activation == compute.NoActivation {
		return activation{}
	}
	return newActivation(e.Activation, y, e.P, e.Key, e.Vertices)
}
