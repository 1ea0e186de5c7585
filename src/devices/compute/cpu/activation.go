//go:build cgo

package cpu

// #include "halognn_cpu.h"
import "C"

import "halognn/src/devices/compute"

// activation applies an activation, and dropout after it, to rows of y.
type activation struct {
	kind      compute.Activation
	y         compute.Matrix
	threshold uint32
	scale     float32
	key       compute.DropoutKey
	vertices  []int32
}

func newActivation(kind compute.Activation, y compute.Matrix, p float32, key compute.DropoutKey,
	vertices []int32) activation {
	return activation{kind, y, compute.DropoutThreshold(p), compute.DropoutScale(p), key, vertices}
}

// ReLU implements compute.Device.
func (d *Device) ReLU(y compute.Matrix, p float32, key compute.DropoutKey, vertices []int32) {
	defer d.probe.Start(compute.CheckReLU(y, p, vertices)).Done()
	run(d, y.Rows, streamRows(y.Cols), newActivation(compute.ActivateReLU, y, p, key, vertices))
}

// ELU implements compute.Device.
func (d *Device) ELU(y compute.Matrix, p float32, key compute.DropoutKey, vertices []int32) {
	defer d.probe.Start(compute.CheckELU(y, p, vertices)).Done()
	run(d, y.Rows, streamRows(y.Cols), newActivation(compute.ActivateELU, y, p, key, vertices))
}

func (a *activation) tile(d *Device, lo, hi int) {
	y := a.y.RowsAt(lo, hi)
	rows, cols := size(y)
	switch {
	case a.kind == compute.ActivateELU:
		C.halognn_elu(d.level, floats(y.Data), rows, cols, C.uint32_t(a.threshold),
			C.float(a.scale), keyOf(a.key), a.verticesAt(lo, hi))
	case a.threshold == 0:
		C.halognn_relu(d.level, floats(y.Data), C.int64_t(len(y.Data)))
	default:
		C.halognn_relu_dropout(d.level, floats(y.Data), rows, cols, C.uint32_t(a.threshold),
			C.float(a.scale), keyOf(a.key), a.verticesAt(lo, hi))
	}
}

// verticesAt returns the vertices of rows [lo,hi). It returns NULL if there is no dropout.
func (a *activation) verticesAt(lo, hi int) *C.int32_t {
	if a.threshold == 0 {
		return nil
	}
	return int32s(a.vertices[lo:hi])
}

// activationBackward turns rows of dy, the gradient with respect to the activation's output, into
// the gradient with respect to its input.
type activationBackward struct {
	activation
	dy compute.Matrix
}

// ReLUBackward implements compute.Device.
func (d *Device) ReLUBackward(dy, y compute.Matrix, p float32) {
	defer d.probe.Start(compute.CheckReLUBackward(dy, y)).Done()
	run(d, y.Rows, streamRows(y.Cols), activationBackward{
		newActivation(compute.ActivateReLU, y, p, compute.DropoutKey{}, nil), dy})
}

// ELUBackward implements compute.Device.
func (d *Device) ELUBackward(dy, y compute.Matrix, p float32, key compute.DropoutKey,
	vertices []int32) {
	defer d.probe.Start(compute.CheckELUBackward(dy, y, p, vertices)).Done()
	run(d, y.Rows, streamRows(y.Cols), activationBackward{
		newActivation(compute.ActivateELU, y, p, key, vertices), dy})
}

func (a *activationBackward) tile(d *Device, lo, hi int) {
	r := d.widen(a.dy.RowsAt(lo, hi))
	a.rows(d, r.wide, lo, hi)
	d.storeRows(r, false)
}

// rows backpropagates dy in place. dy has the rows [lo,hi) of the gradient in float32.
func (a *activationBackward) rows(d *Device, dy compute.Matrix, lo, hi int) {
	if a.kind == compute.NoActivation {
		return
	}
	y := a.y.RowsAt(lo, hi)
	rows, cols := size(y)
	if a.kind == compute.ActivateReLU {
		C.halognn_relu_backward(d.level, floats(dy.Data), C.int64_t(len(dy.Data)), read(y),
			C.float(a.scale))
		return
	}
	C.halognn_elu_backward(d.level, floats(dy.Data), rows, cols, read(y), C.uint32_t(a.threshold),
		C.float(a.scale), keyOf(a.key), a.verticesAt(lo, hi))
}

func keyOf(k compute.DropoutKey) C.uint64_t { return C.uint64_t(k.K1)<<32 | C.uint64_t(k.K0) }
