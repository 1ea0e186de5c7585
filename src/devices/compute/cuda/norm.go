//go:build cgo

package cuda

// #include "library.h"
import "C"

import "halognn/src/devices/compute"

// LayerNorm implements compute.Device.
func (d *Device) LayerNorm(y, x compute.Matrix, gamma, beta, mean, rstd []float32, eps float32,
	epilogue compute.Epilogue) {
	defer d.probe.Start(compute.CheckLayerNorm(y, x, gamma, beta, mean, rstd, epilogue)).Done()
	rows, cols := size(x)
	must("LayerNorm", C.gpu_layer_norm(d.c, matrix(y), rows, cols, float(x.Data), float(gamma),
		float(beta), float(mean), float(rstd), C.float(eps), d.cEpilogue(epilogue)))
}

// LayerNormBackward implements compute.Device.
func (d *Device) LayerNormBackward(dx compute.Matrix, dgamma, dbeta []float32, dy, x compute.Matrix,
	gamma, mean, rstd []float32, y compute.Matrix, epilogue compute.Epilogue) {
	defer d.probe.Start(compute.CheckLayerNormBackward(dx, dgamma, dbeta, dy, x, gamma, mean, rstd,
		y, epilogue)).Done()
	rows, cols := size(x)
	then := d.cEpilogue(epilogue)
	d.lendSums("LayerNormBackward", x.Rows, 2*x.Cols, func(partial *C.float) C.int {
		return C.gpu_layer_norm_backward(d.c, float(dx.Data), float(dgamma), float(dbeta), rows,
			cols, matrix(dy), float(x.Data), float(gamma), float(mean), float(rstd), matrix(y),
			then, partial)
	})
}

// ColumnMoments implements compute.Device.
func (d *Device) ColumnMoments(mean, variance []float32, x compute.Matrix) {
	defer d.probe.Start(compute.CheckColumnMoments(mean, variance, x)).Done()
	rows, cols := size(x)
	d.lendSums("ColumnMoments", x.Rows, x.Cols, func(partial *C.float) C.int {
		return C.gpu_column_moments(d.c, float(mean), float(variance), rows, cols, float(x.Data),
			partial)
	})
}

// BatchNorm implements compute.Device.
func (d *Device) BatchNorm(y, x compute.Matrix, gamma, beta, mean, variance []float32,
	eps float32, epilogue compute.Epilogue) {
	defer d.probe.Start(compute.CheckBatchNorm(y, x, gamma, beta, mean, variance, epilogue)).Done()
	rows, cols := size(x)
	must("BatchNorm", C.gpu_batch_norm(d.c, matrix(y), rows, cols, float(x.Data), float(gamma),
		float(beta), float(mean), float(variance), C.float(eps), d.cEpilogue(epilogue)))
}

// BatchNormBackward implements compute.Device.
func (d *Device) BatchNormBackward(dx compute.Matrix, dgamma, dbeta []float32, dy, x compute.Matrix,
	gamma, mean, variance []float32, eps float32, y compute.Matrix, epilogue compute.Epilogue) {
	defer d.probe.Start(compute.CheckBatchNormBackward(dx, dgamma, dbeta, dy, x, gamma, mean,
		variance, y, epilogue)).Done()
	rows, cols := size(x)
	then := d.cEpilogue(epilogue)
	d.lendSums("BatchNormBackward", x.Rows, 2*x.Cols, func(partial *C.float) C.int {
		return C.gpu_batch_norm_backward(d.c, float(dx.Data), float(dgamma), float(dbeta), rows,
			cols, matrix(dy), float(x.Data), float(gamma), float(mean), float(variance),
			C.float(eps), matrix(y), then, partial)
	})
}
