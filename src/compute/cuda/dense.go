//go:build cgo

package cuda

// #include "library.h"
import "C"

import "halognn/src/compute"

// Go and the kernels number activations alike.
var (
	_ [compute.ActivateReLU]struct{} = [C.HALOGNN_RELU]struct{}{}
	_ [compute.ActivateELU]struct{}  = [C.HALOGNN_ELU]struct{}{}
)

// Dense implements compute.Device.
func (d *Device) Dense(y compute.Matrix, a compute.Dense) {
	defer d.probe.Start(compute.CheckDense(y, a)).Done()
	d.MatMul(y, a.X, a.W, false)
	bias := a.Bias
	if a.X2.Cols > 0 {
		if bias != nil { // before the second product: the order of additions
			d.AddBias(y, bias)
			bias = nil
		}
		d.MatMul(y, a.X2, a.W2, true)
	}
	e := a.Then
	if bias == nil && e.Add.Cols == 0 && e.Activation == compute.NoActivation {
		return
	}
	rows, cols := size(y)
	threshold, scale, bits, of := d.dropping(e)
	must("Dense", C.gpu_epilogue(d.c, float(y.Data), rows, cols, float(bias), float(e.Add.Data),
		C.int(e.Activation), threshold, scale, bits, of))
}

// DenseBackward implements compute.Device.
func (d *Device) DenseBackward(g compute.DenseGradients, dy, y compute.Matrix, a compute.Dense) {
	defer d.probe.Start(compute.CheckDenseBackward(g, dy, y, a)).Done()
	if e := a.Then; a.Bias == nil {
		e.Backward(d, dy, y)
	} else {
		if e.Activation == compute.ActivateReLU { // what was dropped is 0 in y
			e.P, e.Vertices = 0, nil
		}
		rows, cols := size(dy)
		threshold, _, bits, of := d.dropping(e)
		must("DenseBackward", C.gpu_bias_backward(d.c, float(dy.Data), float(g.Bias), rows, cols,
			float(y.Data), C.int(e.Activation), threshold, C.float(compute.DropoutScale(a.Then.P)), bits,
			of, d.partial(dy.Rows, dy.Cols)))
	}
	d.weights("DenseBackward", g.W, g.W2, dy, a.X, a.X2)
}

// dropping returns what kernels know of the dropout of an epilogue.
func (d *Device) dropping(e compute.Epilogue) (threshold C.uint32_t, scale C.float, bits C.uint64_t,
	of *C.int32_t) {
	if e.Activation == compute.NoActivation {
		return 0, 1, 0, nil
	}
	return d.dropout(e.P, e.Key, e.Vertices)
}
