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
