//go:build cgo

package cuda

import "halognn/src/devices/compute"

// Dense implements compute.Device. A separate launch adds a single bias, applies the epilogue and
// stores the result.
func (d *Device) Dense(y compute.Matrix, a compute.Dense) {
	defer d.probe.Start(compute.CheckDense(y, a)).Done()
	bias, sum := a.Bias, d.whole(y)
	d.MatMul(sum, a.X, a.W, false)
	if a.X2.Cols > 0 {
		if bias != nil {
			d.AddBias(sum, bias)
			bias = nil
		}
		d.MatMul(sum, a.X2, a.W2, true)
	}
	if bias != nil || y.BF16 != nil || a.Epilogue.Add.Cols > 0 ||
		d.rounds(a.Epilogue.Rounded) > 0 || a.Epilogue.Activation != compute.NoActivation {
		d.epilogue("Dense", y, sum, bias, a.Epilogue)
	}
}

// whole returns the matrix of float32 in which a kernel makes the rows y before they are complete.
// This is y itself or, if y is of bfloat16, memory that the next call of whole uses again.
func (d *Device) whole(y compute.Matrix) compute.Matrix {
	if y.BF16 == nil {
		return y
	}
	n := y.Rows * y.Cols
	if err := d.reserve(&d.product, max(1, 4*n), useScratch); err != nil {
		panic(err)
	}
	return d.product.matrix(compute.Float32s, y.Rows, y.Cols)
}

// DenseBackward implements compute.Device. If the epilogue changes dy, the same launch computes the
// gradient of the bias. Otherwise it is computed with the gradients of the weights.
func (d *Device) DenseBackward(g compute.DenseGradients, dy, y compute.Matrix, a compute.Dense) {
	defer d.probe.Start(compute.CheckDenseBackward(g, dy, y, a)).Done()
	if a.Bias == nil {
		g.Bias = nil
	}
	if a.Epilogue.Activation != compute.NoActivation {
		d.epilogueBackward("DenseBackward", g.Bias, dy, y, a.Epilogue)
		g.Bias = nil
	}
	d.weights("DenseBackward", g.W, g.Bias, dy, a.X)
	if a.X2.Cols > 0 {
		d.weights("DenseBackward", g.W2, nil, dy, a.X2)
	}
}

// DenseInput implements compute.Device.
func (d *Device) DenseInput(dx, dy, w compute.Matrix, c compute.Completion) {
	defer d.probe.Start(compute.CheckDenseInput(dx, dy, w, c)).Done()
	sum := d.whole(dx)
	d.MatMulInput(sum, dy, w, false)
	d.complete("DenseInput", dx, sum, c)
}

// Round implements compute.Device.
func (d *Device) Round(y, x compute.Matrix) {
	defer d.probe.Start(compute.CheckRound(y, x)).Done()
	d.complete("Round", y, x, compute.Completion{Rounded: true})
}

// Finish implements compute.Device.
func (d *Device) Finish(y, x compute.Matrix, b []float32, epilogue compute.Epilogue) {
	defer d.probe.Start(compute.CheckFinish(y, x, b, epilogue)).Done()
	d.epilogue("Finish", y, x, b, epilogue)
}

// FinishBackward implements compute.Device.
func (d *Device) FinishBackward(db []float32, dy, y compute.Matrix, epilogue compute.Epilogue) {
	defer d.probe.Start(compute.CheckFinishBackward(db, dy, y, epilogue)).Done()
	d.epilogueBackward("FinishBackward", db, dy, y, epilogue)
}
