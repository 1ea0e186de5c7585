//go:build cgo

package cuda

import (
	"unsafe"

	"halognn/src/devices/compute"
)

// Dense implements compute.Device. Two products of one shape are one launch. The epilogue is
// another, which also adds the products, in the order of the parts.
func (d *Device) Dense(y compute.Matrix, a compute.Dense) {
	defer d.probe.Start(compute.CheckDense(y, a)).Done()
	bias, second := a.Bias, []float32(nil)
	switch {
	case a.X2.Cols == 0:
		d.MatMul(y, a.X, a.W, false)
	case a.X2.Cols == a.X.Cols:
		second = d.second(y)
		d.matMulTwo("Dense", y, second, a.X, a.X2, a.W, a.W2)
	default:
		d.MatMul(y, a.X, a.W, false)
		if bias != nil {
			d.AddBias(y, bias)
			bias = nil
		}
		d.MatMul(y, a.X2, a.W2, true)
	}
	if bias != nil || second != nil || a.Epilogue.Add.Cols > 0 ||
		d.rounds(a.Epilogue.Rounded) > 0 || a.Epilogue.Activation != compute.NoActivation {
		d.epilogue("Dense", y, bias, second, a.Epilogue)
	}
}

// second returns room for another result of the shape of y, until the next Dense.
func (d *Device) second(y compute.Matrix) []float32 {
	n := max(1, y.Rows*y.Cols)
	if err := d.reserve(&d.product, 4*n, useScratch); err != nil {
		panic(err)
	}
	return unsafe.Slice((*float32)(d.product.p), n)
}

// DenseBackward implements compute.Device. The gradient of the bias is made where the epilogue
// changes dy or, if it does not, with the gradients of the weights.
func (d *Device) DenseBackward(g compute.DenseGradients, dy, y compute.Matrix, a compute.Dense) {
	defer d.probe.Start(compute.CheckDenseBackward(g, dy, y, a)).Done()
	if a.Bias == nil {
		g.Bias = nil
	}
	if a.Epilogue.Activation != compute.NoActivation {
		d.epilogueBackward("DenseBackward", g.Bias, dy, y, a.Epilogue)
		g.Bias = nil
	}
	first := compute.DenseGradients{W: g.W, Bias: g.Bias}
	switch {
	case a.X2.Cols == 0:
		d.weights("DenseBackward", first, dy, a.X, compute.Matrix{})
	case a.X2.Cols == a.X.Cols:
		d.weights("DenseBackward", g, dy, a.X, a.X2)
	default:
		d.weights("DenseBackward", first, dy, a.X, compute.Matrix{})
		d.weights("DenseBackward", compute.DenseGradients{W: g.W2}, dy, a.X2, compute.Matrix{})
	}
}

// DenseInput implements compute.Device.
func (d *Device) DenseInput(dx, dy, w compute.Matrix, c compute.Completion) {
	defer d.probe.Start(compute.CheckDenseInput(dx, dy, w, c)).Done()
	d.MatMulInput(dx, dy, w, false)
	d.complete("DenseInput", dx, c)
}

// Round implements compute.Device.
func (d *Device) Round(y, x compute.Matrix) {
	defer d.probe.Start(compute.CheckRound(y, x)).Done()
	if unsafe.SliceData(y.Data) != unsafe.SliceData(x.Data) {
		d.CopyColumns(y, 0, x, 0, x.Cols, false)
	}
	d.complete("Round", y, compute.Completion{Rounded: true})
}

// Finish implements compute.Device.
func (d *Device) Finish(y, x compute.Matrix, b []float32, epilogue compute.Epilogue) {
	defer d.probe.Start(compute.CheckFinish(y, x, b, epilogue)).Done()
	if unsafe.SliceData(y.Data) != unsafe.SliceData(x.Data) {
		d.CopyColumns(y, 0, x, 0, x.Cols, false)
	}
	d.epilogue("Finish", y, b, nil, epilogue)
}

// FinishBackward implements compute.Device.
func (d *Device) FinishBackward(db []float32, dy, y compute.Matrix, epilogue compute.Epilogue) {
	defer d.probe.Start(compute.CheckFinishBackward(db, dy, y, epilogue)).Done()
	d.epilogueBackward("FinishBackward", db, dy, y, epilogue)
}
