//go:build cgo

package cuda

// #include "library.h"
import "C"

import "halognn/src/compute"

// ReLU implements compute.Device.
func (d *Device) ReLU(y compute.Matrix, p float32, key compute.DropoutKey, vertices []int32) {
	defer d.probe.Start(compute.CheckReLU(y, p, vertices)).Done()
	if p == 0 {
		must("ReLU", C.gpu_relu(d.c, float(y.Data), C.int64_t(y.Rows*y.Cols)))
		return
	}
	threshold, scale := compute.DropoutThreshold(p), compute.DropoutScale(p)
	d.arrays(len(vertices) * 4)
	rows, cols := size(y)
	must("ReLU", C.gpu_relu_dropout(d.c, float(y.Data), rows, cols, C.uint32_t(threshold),
		C.float(scale), C.uint64_t(key.K1)<<32|C.uint64_t(key.K0), (*C.int32_t)(onDevice(d, vertices))))
}

// ReLUBackward implements compute.Device.
func (d *Device) ReLUBackward(dy, y compute.Matrix, p float32) {
	defer d.probe.Start(compute.CheckReLUBackward(dy, y)).Done()
	must("ReLUBackward", C.gpu_relu_backward(d.c, float(dy.Data), C.int64_t(y.Rows*y.Cols),
		float(y.Data), C.float(compute.DropoutScale(p))))
}

// ELU implements compute.Device.
func (d *Device) ELU(y compute.Matrix, p float32, key compute.DropoutKey, vertices []int32) {
	defer d.probe.Start(compute.CheckELU(y, p, vertices)).Done()
	rows, cols := size(y)
	threshold, scale, bits, of := d.dropout(p, key, vertices)
	must("ELU", C.gpu_elu(d.c, float(y.Data), rows, cols, threshold, scale, bits, of))
}

// ELUBackward implements compute.Device.
func (d *Device) ELUBackward(dy, y compute.Matrix, p float32, key compute.DropoutKey,
	vertices []int32) {
	defer d.probe.Start(compute.CheckELUBackward(dy, y, p, vertices)).Done()
	rows, cols := size(y)
	threshold, scale, bits, of := d.dropout(p, key, vertices)
	must("ELUBackward", C.gpu_elu_backward(d.c, float(dy.Data), rows, cols, float(y.Data), threshold,
		scale, bits, of))
}

// dropout returns what kernels know of dropout; vertices are on the device unless nothing is
// dropped.
func (d *Device) dropout(p float32, key compute.DropoutKey, vertices []int32) (threshold C.uint32_t,
	scale C.float, bits C.uint64_t, of *C.int32_t) {
	if p > 0 {
		d.arrays(len(vertices) * 4)
		of = (*C.int32_t)(onDevice(d, vertices))
	}
	return C.uint32_t(compute.DropoutThreshold(p)), C.float(compute.DropoutScale(p)),
		C.uint64_t(key.K1)<<32 | C.uint64_t(key.K0), of
}
