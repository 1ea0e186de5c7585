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
		C.float(a.scale), keyOf(a.key), int32s(a.vertices[lo:hi]))
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

type elu struct {
	y         compute.Matrix
	threshold uint32
	scale     float32
	key       compute.DropoutKey
	vertices  []int32
}

// ELU implements compute.Device.
func (d *Device) ELU(y compute.Matrix, p float32, key compute.DropoutKey, vertices []int32) {
	defer d.probe.Start(compute.CheckELU(y, p, vertices)).Done()
	run(d, y.Rows, streamRows(y.Cols),
		elu{y, compute.DropoutThreshold(p), compute.DropoutScale(p), key, vertices})
}

func (a *elu) tile(d *Device, lo, hi int) {
	y := a.y.RowsAt(lo, hi)
	rows, cols := size(y)
	C.halognn_elu(d.level, floats(y.Data), rows, cols, C.uint32_t(a.threshold), C.float(a.scale),
		keyOf(a.key), a.verticesAt(lo, hi))
}

// verticesAt returns the vertices of rows [lo,hi); NULL without dropout.
func (a *elu) verticesAt(lo, hi int) *C.int32_t {
	if a.threshold == 0 {
		return nil
	}
	return int32s(a.vertices[lo:hi])
}

type eluBackward struct {
	elu
	dy compute.Matrix
}

// ELUBackward implements compute.Device.
func (d *Device) ELUBackward(dy, y compute.Matrix, p float32, key compute.DropoutKey,
	vertices []int32) {
	defer d.probe.Start(compute.CheckELUBackward(dy, y, p, vertices)).Done()
	run(d, y.Rows, streamRows(y.Cols),
		eluBackward{elu{y, compute.DropoutThreshold(p), compute.DropoutScale(p), key, vertices}, dy})
}

func (a *eluBackward) tile(d *Device, lo, hi int) {
	y := a.y.RowsAt(lo, hi)
	rows, cols := size(y)
	C.halognn_elu_backward(d.level, floats(a.dy.RowsAt(lo, hi).Data), rows, cols, floats(y.Data),
		C.uint32_t(a.threshold), C.float(a.scale), keyOf(a.key), a.verticesAt(lo, hi))
}

func keyOf(k compute.DropoutKey) C.uint64_t { return C.uint64_t(k.K1)<<32 | C.uint64_t(k.K0) }
