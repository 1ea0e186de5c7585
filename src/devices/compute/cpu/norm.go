//go:build cgo

package cpu

// #include "halognn_cpu.h"
import "C"

import "halognn/src/devices/compute"

type layerNorm struct {
	y, x                    compute.Matrix
	gamma, beta, mean, rstd []float32
	eps                     float32
	epilogue                epilogue
}

// LayerNorm implements compute.Device.
func (d *Device) LayerNorm(y, x compute.Matrix, gamma, beta, mean, rstd []float32, eps float32,
	epilogue compute.Epilogue) {
	defer d.probe.Start(compute.CheckLayerNorm(y, x, gamma, beta, mean, rstd, epilogue)).Done()
	run(d, x.Rows, streamRows(x.Cols),
		layerNorm{y, x, gamma, beta, mean, rstd, eps, epilogueOf(y, epilogue)})
}

func (a *layerNorm) tile(d *Device, lo, hi int) {
	r, x := d.begin(a.y.RowsAt(lo, hi)), a.x.RowsAt(lo, hi)
	rows, cols := size(x)
	C.halognn_layer_norm(d.level, floats(r.wide.Data), rows, cols, floats(x.Data), floats(a.gamma),
		floats(a.beta), floats(a.mean[lo:hi]), floats(a.rstd[lo:hi]), C.float(a.eps))
	a.epilogue.finishRows(d, r, lo, hi)
}

type layerNormBackward struct {
	behind            activationBackward
	dx, x             compute.Matrix
	gamma, mean, rstd []float32
}

// behind backpropagates dy through an epilogue. If dy is of float32, it does so in place. If dy is
// of bfloat16, it is not changed, and every tile that reads it must apply the activationBackward
// that behind returns.
func (d *Device) behind(dy, y compute.Matrix, e compute.Epilogue) activationBackward {
	if dy.BF16 == nil {
		e.Backward(d, dy, y)
		return activationBackward{dy: dy}
	}
	return activationBackward{activationOf(y, e), dy}
}

// widened returns rows [lo,hi) of the backpropagated gradient, as float32. The caller must call
// forget when it no longer needs them.
func (a *activationBackward) widened(d *Device, lo, hi int) result {
	r := d.widen(a.dy.RowsAt(lo, hi))
	a.rows(d, r.wide, lo, hi)
	return r
}

// LayerNormBackward implements compute.Device.
func (d *Device) LayerNormBackward(dx compute.Matrix, dgamma, dbeta []float32, dy, x compute.Matrix,
	gamma, mean, rstd []float32, y compute.Matrix, epilogue compute.Epilogue) {
	defer d.probe.Start(compute.CheckLayerNormBackward(dx, dgamma, dbeta, dy, x, gamma, mean, rstd,
		y, epilogue)).Done()
	behind := d.behind(dy, y, epilogue)
	chunks := chunkCount(x.Rows)
	d.reservePartials(chunks, 2*x.Cols)
	run(d, x.Rows, compute.ChunkRows, layerNormBackward{behind, dx, x, gamma, mean, rstd})
	d.addPartials(dgamma, chunks, 2*x.Cols, 0)
	d.addPartials(dbeta, chunks, 2*x.Cols, x.Cols)
}

func (a *layerNormBackward) tile(d *Device, lo, hi int) {
	dx, x := a.dx.RowsAt(lo, hi), a.x.RowsAt(lo, hi)
	dy := a.behind.widened(d, lo, hi)
	// partial sums of the gradient of gamma, followed by partial sums of the gradient of beta
	sums := d.partials(lo, 2*x.Cols)
	rows, cols := size(x)
	C.halognn_layer_norm_backward(d.level, floats(dx.Data), floats(sums[:x.Cols]),
		floats(sums[x.Cols:]), rows, cols, floats(dy.wide.Data), floats(x.Data), floats(a.gamma),
		floats(a.mean[lo:hi]), floats(a.rstd[lo:hi]))
	dy.forget()
}

type columnSquares struct {
	x    compute.Matrix
	mean []float32
}

// ColumnMoments implements compute.Device.
func (d *Device) ColumnMoments(mean, variance []float32, x compute.Matrix) {
	defer d.probe.Start(compute.CheckColumnMoments(mean, variance, x)).Done()
	chunks := chunkCount(x.Rows)
	d.reservePartials(chunks, x.Cols)
	run(d, x.Rows, compute.ChunkRows, columnSum{x})
	d.addPartials(mean, chunks, x.Cols, 0)
	divide(mean, x.Rows)
	run(d, x.Rows, compute.ChunkRows, columnSquares{x, mean})
	d.addPartials(variance, chunks, x.Cols, 0)
	divide(variance, x.Rows)
}

func divide(sum []float32, rows int) {
	for j := range sum {
		sum[j] /= float32(max(1, rows))
	}
}

func (a *columnSquares) tile(d *Device, lo, hi int) {
	x := a.x.RowsAt(lo, hi)
	rows, cols := size(x)
	C.halognn_column_squares(d.level, floats(d.partials(lo, x.Cols)), rows, cols, floats(x.Data),
		floats(a.mean))
}

type batchNorm struct {
	y, x                        compute.Matrix
	gamma, beta, mean, variance []float32
	eps                         float32
	epilogue                    epilogue
}

// BatchNorm implements compute.Device.
func (d *Device) BatchNorm(y, x compute.Matrix, gamma, beta, mean, variance []float32,
	eps float32, epilogue compute.Epilogue) {
	defer d.probe.Start(compute.CheckBatchNorm(y, x, gamma, beta, mean, variance, epilogue)).Done()
	run(d, x.Rows, streamRows(x.Cols),
		batchNorm{y, x, gamma, beta, mean, variance, eps, epilogueOf(y, epilogue)})
}

func (a *batchNorm) tile(d *Device, lo, hi int) {
	r, x := d.begin(a.y.RowsAt(lo, hi)), a.x.RowsAt(lo, hi)
	rows, cols := size(x)
	C.halognn_batch_norm(d.level, floats(r.wide.Data), rows, cols, floats(x.Data), floats(a.gamma),
		floats(a.beta), floats(a.mean), floats(a.variance), C.float(a.eps))
	a.epilogue.finishRows(d, r, lo, hi)
}

type batchNormSums struct {
	behind         activationBackward
	x              compute.Matrix
	mean, variance []float32
	eps            float32
}

func (a *batchNormSums) tile(d *Device, lo, hi int) {
	dy, x := a.behind.widened(d, lo, hi), a.x.RowsAt(lo, hi)
	// partial sums of the gradient of gamma, followed by partial sums of the gradient of beta
	sums := d.partials(lo, 2*x.Cols)
	rows, cols := size(x)
	C.halognn_batch_norm_sums(d.level, floats(sums[:x.Cols]), floats(sums[x.Cols:]), rows, cols,
		floats(dy.wide.Data), floats(x.Data), floats(a.mean), floats(a.variance), C.float(a.eps))
	dy.forget()
}

type batchNormBackward struct {
	behind                               activationBackward
	dx, x                                compute.Matrix
	dgamma, dbeta, gamma, mean, variance []float32
	eps                                  float32
}

// BatchNormBackward implements compute.Device.
func (d *Device) BatchNormBackward(dx compute.Matrix, dgamma, dbeta []float32, dy, x compute.Matrix,
	gamma, mean, variance []float32, eps float32, y compute.Matrix, epilogue compute.Epilogue) {
	defer d.probe.Start(compute.CheckBatchNormBackward(dx, dgamma, dbeta, dy, x, gamma, mean,
		variance, y, epilogue)).Done()
	behind := d.behind(dy, y, epilogue)
	chunks := chunkCount(x.Rows)
	d.reservePartials(chunks, 2*x.Cols)
	run(d, x.Rows, compute.ChunkRows, batchNormSums{behind, x, mean, variance, eps})
	d.addPartials(dgamma, chunks, 2*x.Cols, 0)
	d.addPartials(dbeta, chunks, 2*x.Cols, x.Cols)
	run(d, x.Rows, streamRows(x.Cols),
		batchNormBackward{behind, dx, x, dgamma, dbeta, gamma, mean, variance, eps})
}

func (a *batchNormBackward) tile(d *Device, lo, hi int) {
	dx, x := a.dx.RowsAt(lo, hi), a.x.RowsAt(lo, hi)
	dy := a.behind.widened(d, lo, hi)
	rows, cols := size(x)
	C.halognn_batch_norm_backward(d.level, floats(dx.Data), rows, cols, floats(dy.wide.Data),
		floats(x.Data), floats(a.gamma), floats(a.mean), floats(a.variance), floats(a.dgamma),
		floats(a.dbeta), C.float(a.eps), C.int64_t(a.x.Rows))
	dy.forget()
}
