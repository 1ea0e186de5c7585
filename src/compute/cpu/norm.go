//go:build cgo

package cpu

// #include "halognn_cpu.h"
import "C"

import "halognn/src/compute"

type layerNorm struct {
	y, x                    compute.Matrix
	gamma, beta, mean, rstd []float32
	eps                     float32
}

// LayerNorm implements compute.Device.
func (d *Device) LayerNorm(y, x compute.Matrix, gamma, beta, mean, rstd []float32, eps float32) {
	defer d.probe.Start(compute.CheckLayerNorm(y, x, gamma, beta, mean, rstd)).Done()
	run(d, x.Rows, streamRows(x.Cols), layerNorm{y, x, gamma, beta, mean, rstd, eps})
}

func (a *layerNorm) tile(d *Device, lo, hi int) {
	y, x := a.y.RowsAt(lo, hi), a.x.RowsAt(lo, hi)
	rows, cols := size(x)
	C.halognn_layer_norm(d.level, floats(y.Data), rows, cols, floats(x.Data), floats(a.gamma),
		floats(a.beta), floats(a.mean[lo:hi]), floats(a.rstd[lo:hi]), C.float(a.eps))
}

type layerNormBackward struct {
	dx, dy, x         compute.Matrix
	gamma, mean, rstd []float32
}

// LayerNormBackward implements compute.Device.
func (d *Device) LayerNormBackward(dx compute.Matrix, dgamma, dbeta []float32, dy, x compute.Matrix,
	gamma, mean, rstd []float32) {
	defer d.probe.Start(compute.CheckLayerNormBackward(dx, dgamma, dbeta, dy, x, gamma, mean,
		rstd)).Done()
	chunks := chunkCount(x.Rows)
	d.reservePartials(chunks, 2*x.Cols)
	run(d, x.Rows, compute.ChunkRows, layerNormBackward{dx, dy, x, gamma, mean, rstd})
	d.addPartials(dgamma, chunks, 2*x.Cols, 0)
	d.addPartials(dbeta, chunks, 2*x.Cols, x.Cols)
}

func (a *layerNormBackward) tile(d *Device, lo, hi int) {
	dx, dy, x := a.dx.RowsAt(lo, hi), a.dy.RowsAt(lo, hi), a.x.RowsAt(lo, hi)
	sums := d.partials(lo, 2*x.Cols) // of gamma's gradient, then of beta's
	rows, cols := size(x)
	C.halognn_layer_norm_backward(d.level, floats(dx.Data), floats(sums[:x.Cols]),
		floats(sums[x.Cols:]), rows, cols, floats(dy.Data), floats(x.Data), floats(a.gamma),
		floats(a.mean[lo:hi]), floats(a.rstd[lo:hi]))
}
