//go:build cgo

package cuda

// #include "library.h"
import "C"

import "halognn/src/compute"

// LayerNorm implements compute.Device.
func (d *Device) LayerNorm(y, x compute.Matrix, gamma, beta, mean, rstd []float32, eps float32) {
	defer d.probe.Start(compute.CheckLayerNorm(y, x, gamma, beta, mean, rstd)).Done()
	rows, cols := size(x)
	must("LayerNorm", C.gpu_layer_norm(d.c, float(y.Data), rows, cols, float(x.Data), float(gamma),
		float(beta), float(mean), float(rstd), C.float(eps)))
}

// LayerNormBackward implements compute.Device.
func (d *Device) LayerNormBackward(dx compute.Matrix, dgamma, dbeta []float32, dy, x compute.Matrix,
	gamma, mean, rstd []float32) {
	defer d.probe.Start(compute.CheckLayerNormBackward(dx, dgamma, dbeta, dy, x, gamma, mean,
		rstd)).Done()
	rows, cols := size(x)
	must("LayerNormBackward", C.gpu_layer_norm_backward(d.c, float(dx.Data), float(dgamma),
		float(dbeta), rows, cols, float(dy.Data), float(x.Data), float(gamma), float(mean), float(rstd),
		d.partial(x.Rows, 2*x.Cols)))
}
