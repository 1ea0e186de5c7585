//go:build cgo

package cpu

// #include "halognn_cpu.h"
import "C"

import "halognn/src/compute"

type relu struct{ y compute.Matrix }

type reluDropout struct {
	y         compute.Matrix
	threshold uint32
	scale     float32
	key       compute.DropoutKey
	vertices  []int32
}

// ReLU implements compute.Device.
func (d *Device) ReLU(y compute.Matrix, p float32, key compute.DropoutKey, vertices []int32) {
	defer d.probe.Start(compute.CheckReLU(y, p, vertices)).Done()
	if p == 0 {
		run(d, y.Rows, streamRows(y.Cols), relu{y})
		return
	}
	run(d, y.Rows, streamRows(y.Cols),
		reluDropout{y, compute.DropoutThreshold(p), compute.DropoutScale(p), key, vertices})
}

func (a *relu) tile(d *Device, lo, hi int) {
	y := a.y.RowsAt(lo, hi).Data
	C.halognn_relu(d.level, floats(y), C.int64_t(len(y)))
}

func (a *reluDropout) tile(d *Device, lo, hi int) {
	y := a.y.RowsAt(lo, hi)
	rows, cols := size(y)
	C.halognn_relu_dropout(d.level, floats(y.Data), rows, cols, C.uint32_t(a.threshold),
		C.float(a.scale), C.uint64_t(a.key.K1)<<32|C.uint64_t(a.key.K0),
		int32s(a.vertices[lo:hi]))
}

type reluBackward struct {
	dy, y compute.Matrix
	scale float32
}

// ReLUBackward implements compute.Device.
func (d *Device) ReLUBackward(dy, y compute.Matrix, p float32) {
	defer d.probe.Start(compute.CheckReLUBackward(dy, y)).Done()
	run(d, y.Rows, streamRows(y.Cols), reluBackward{dy, y, compute.DropoutScale(p)})
}

func (a *reluBackward) tile(d *Device, lo, hi int) {
	dy, y := a.dy.RowsAt(lo, hi).Data, a.y.RowsAt(lo, hi).Data
	C.halognn_relu_backward(d.level, floats(dy), C.int64_t(len(dy)), floats(y), C.float(a.scale))
}
