//go:build cgo

package cuda

import (
	"unsafe"

	"halognn/src/devices/compute"
)

// Dense implements compute.Device. Two products of one shape are one launch. The epilogue is
// another, which also adds the products, in the order of the parts, and stores the result.
func (d *Device) Dense(y compute.Matrix, a compute.Dense) {
	defer d.probe.Start(compute.CheckDense(y, a)).Done()
	two := a.X2.Cols > 0 && a.X2.Cols == a.X.Cols
	bias, sum, second, wide := a.Bias, y, compute.Matrix{}, 0
	if y.BF16 != nil {
		wide++
	}
	if two {
		wide++
	}
	room := d.wide(y, wide)
	if y.BF16 != nil {
		sum, room = room[0], room[1:]
	}
	if two {
		second = room[0]
	}
	switch {
	case a.X2.Cols == 0:
		d.MatMul(sum, a.X, a.W, false)
	case two:
		d.matMulTwo("Dense", sum, second, a.X, a.X2, a.W, a.W2)
	default:
		d.MatMul(sum, a.X, a.W, false)
		if bias != nil {
			d.AddBias(sum, bias)
			bias = nil
		}
		d.MatMul(sum, a.X2, a.W2, true)
	}
	if bias != nil || two || y.BF16 != nil || a.Epilogue.Add.Cols > 0 ||
		d.rounds(a.Epilogue.Rounded) > 0 || a.Epilogue.Activation != compute.NoActivation {
		d.epilogue("Dense", y, sum, bias, second.Data, a.Epilogue)
	}
}

// wide returns room for results of the shape of y, of float32, until its next call.
func (d *Device) wide(y compute.Matrix, count int) []compute.Matrix {
	n := y.Rows * y.Cols
	each := (max(1, 4*n) + alignment - 1) / alignment * alignment
	if err := d.reserve(&d.product, count*each, useScratch); err != nil {
		panic(err)
	}
	d.results = d.results[:0]
	for i := range count {
		p := (*float32)(unsafe.Add(d.product.p, i*each))
		d.results = append(d.results,
			compute.Matrix{Rows: y.Rows, Cols: y.Cols, Data: unsafe.Slice(p, n)})
	}
	return d.results
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
	sum := d.whole(dx)
	d.MatMulInput(sum, dy, w, false)
	d.complete("DenseInput", dx, sum, c)
}

// whole returns where a kernel makes the rows y before they are complete: y, or room of float32.
func (d *Device) whole(y compute.Matrix) compute.Matrix {
	if y.BF16 == nil {
		return y
	}
	return d.wide(y, 1)[0]
}

// Round implements compute.Device.
func (d *Device) Round(y, x compute.Matrix) {
	defer d.probe.Start(compute.CheckRound(y, x)).Done()
	d.complete("Round", y, x, compute.Completion{Rounded: true})
}

// Finish implements compute.Device.
func (d *Device) Finish(y, x compute.Matrix, b []float32, epilogue compute.Epilogue) {
	defer d.probe.Start(compute.CheckFinish(y, x, b, epilogue)).Done()
	d.epilogue("Finish", y, x, b, nil, epilogue)
}

// FinishBackward implements compute.Device.
func (d *Device) FinishBackward(db []float32, dy, y compute.Matrix, epilogue compute.Epilogue) {
	defer d.probe.Start(compute.CheckFinishBackward(db, dy, y, epilogue)).Done()
	d.epilogueBackward("FinishBackward", db, dy, y, epilogue)
}
