//go:build cgo

package cuda

// #include "library.h"
import "C"

import "halognn/src/devices/compute"

// Go and the kernels use the same numbers for activations.
var (
	_ [compute.ActivateReLU]struct{} = [C.HALOGNN_RELU]struct{}{}
	_ [compute.ActivateELU]struct{}  = [C.HALOGNN_ELU]struct{}{}
)

// ReLU implements compute.Device.
func (d *Device) ReLU(y compute.Matrix, p float32, key compute.DropoutKey, vertices []int32) {
	defer d.probe.Start(compute.CheckReLU(y, p, vertices)).Done()
	d.epilogue("ReLU", y, y, nil, compute.Epilogue{Activation: compute.ActivateReLU, P: p,
		Key: key, Vertices: vertices})
}

// ReLUBackward implements compute.Device.
func (d *Device) ReLUBackward(dy, y compute.Matrix, p float32) {
	defer d.probe.Start(compute.CheckReLUBackward(dy, y)).Done()
	d.epilogueBackward("ReLUBackward", nil, dy, y,
		compute.Epilogue{Activation: compute.ActivateReLU, P: p})
}

// ELU implements compute.Device.
func (d *Device) ELU(y compute.Matrix, p float32, key compute.DropoutKey, vertices []int32) {
	defer d.probe.Start(compute.CheckELU(y, p, vertices)).Done()
	d.epilogue("ELU", y, y, nil, compute.Epilogue{Activation: compute.ActivateELU, P: p, Key: key,
		Vertices: vertices})
}

// ELUBackward implements compute.Device.
func (d *Device) ELUBackward(dy, y compute.Matrix, p float32, key compute.DropoutKey,
	vertices []int32) {
	defer d.probe.Start(compute.CheckELUBackward(dy, y, p, vertices)).Done()
	d.epilogueBackward("ELUBackward", nil, dy, y, compute.Epilogue{Activation: compute.ActivateELU,
		P: p, Key: key, Vertices: vertices})
}

// epilogue sets y = e(x + bias). If there is no bias, bias is nil. y may be x.
func (d *Device) epilogue(kernel string, y, x compute.Matrix, bias []float32, e compute.Epilogue) {
	d.follow(kernel, y, x, bias, d.cEpilogue(e))
}

// follow does what epilogue does, with an epilogue in the form in which kernels take it.
func (d *Device) follow(kernel string, y, x compute.Matrix, bias []float32,
	then C.halognn_cuda_then) {
	rows, cols := size(y)
	must(kernel, C.gpu_epilogue(d.c, matrix(y), rows, cols, float(x.Data), float(bias), then))
}

// epilogueBackward turns dy, in place, into the gradient with respect to the input of the epilogue.
// Unless db is nil, it sets db to the gradient of the bias.
func (d *Device) epilogueBackward(kernel string, db []float32, dy, y compute.Matrix,
	e compute.Epilogue) {
	rows, cols := size(dy)
	then, sums := d.cEpilogue(back(e)), 0
	if db != nil {
		sums = dy.Cols
	}
	d.lendSums(kernel, dy.Rows, sums, func(partial *C.float) C.int {
		return C.gpu_epilogue_backward(d.c, matrix(dy), float(db), rows, cols, matrix(y),
			then, partial)
	})
}

// rounds returns the number of low bits that complete rows lose when they are rounded. If rounded
// is false, or the device does not store bfloat16, that is 0.
func (d *Device) rounds(rounded bool) C.int {
	if !rounded || d.stored() != compute.BF16s {
		return 0
	}
	return d.dropped()
}

// complete applies the completion c to the rows of x and stores the results in y, in separate
// launches. The matrix y may be x.
func (d *Device) complete(kernel string, y, x compute.Matrix, c compute.Completion) {
	n := c.Own.Rows
	then := C.halognn_cuda_then{scale: 1, dropped: d.rounds(c.Rounded)}
	if n > 0 {
		first := then
		first.add = matrix(c.Own)
		d.follow(kernel, y.RowsAt(0, n), x.RowsAt(0, n), nil, first)
	}
	if then.dropped > 0 || matrix(y) != matrix(x) {
		d.follow(kernel, y.RowsAt(n, y.Rows), x.RowsAt(n, x.Rows), nil, then)
	}
}

// ending returns a completion as kernels take it. d.arrays has made room for the vertices of
// c.Back.
func (d *Device) ending(c compute.Completion) C.halognn_cuda_ending {
	end := C.halognn_cuda_ending{own: matrix(c.Own), rows: C.int64_t(c.Own.Rows),
		scale: float(c.Scale), dropped: d.rounds(c.Rounded)}
	if c.Of.Cols > 0 {
		end.of, end.back = matrix(c.Of), d.then(back(c.Back))
	}
	return end
}

// back returns e without what its gradient does not read.
func back(e compute.Epilogue) compute.Epilogue {
	if e.Activation == compute.ActivateReLU {
		e.Vertices = nil
	}
	e.Add, e.Rounded = compute.Matrix{}, false
	return e
}

// verticesBytes returns the bytes of the vertices that an epilogue's kernel reads.
func verticesBytes(e compute.Epilogue) int {
	if e.P == 0 {
		return 0
	}
	return 4 * len(e.Vertices)
}

// cEpilogue returns an epilogue as kernels take it that read no other host array.
func (d *Device) cEpilogue(e compute.Epilogue) C.halognn_cuda_then {
	if n := verticesBytes(e); n > 0 {
		d.arrays(n)
	}
	return d.then(e)
}

// then returns an epilogue as kernels take it. d.arrays has made room for its vertices.
func (d *Device) then(e compute.Epilogue) C.halognn_cuda_then {
	to := C.halognn_cuda_then{scale: 1}
	if e.Add.Cols > 0 {
		to.add = matrix(e.Add)
	}
	to.dropped = d.rounds(e.Rounded)
	if e.Activation == compute.NoActivation {
		return to
	}
	to.activation = C.int(e.Activation)
	to.threshold, to.scale = C.uint32_t(compute.DropoutThreshold(e.P)),
		C.float(compute.DropoutScale(e.P))
	to.key = C.uint64_t(e.Key.K1)<<32 | C.uint64_t(e.Key.K0)
	if verticesBytes(e) > 0 {
		to.vertices = (*C.int32_t)(onDevice(d, e.Vertices))
	}
	return to
}
