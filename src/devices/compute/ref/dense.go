package ref

import (
	"halognn/src/base/mem"
	"halognn/src/devices/compute"
)

// Dense implements compute.Device.
func (d *Device) Dense(y compute.Matrix, a compute.Dense) {
	defer d.probe.Start(compute.CheckDense(y, a)).Done()
	d.into(y, a.Epilogue.Rounded, func(y compute.Matrix) { compute.DenseInParts(d, y, a) })
}

// into calls the function f to compute y. If rounded is true, it rounds y afterwards.
func (d *Device) into(y compute.Matrix, rounded bool, f func(y compute.Matrix)) {
	if y.BF16 != nil {
		d.complete = mem.Grow(d.complete, y.Rows*y.Cols)
		wide := compute.Float32s.MatrixIn(d.complete, y.Rows, y.Cols)
		f(wide)
		y.Narrow(wide.Data)
		return
	}
	f(y)
	if !rounded || d.precision.Stored() != compute.BF16s {
		return
	}
	for i, x := range y.Data[:y.Rows*y.Cols] {
		y.Data[i] = d.precision.Round(x)
	}
}

// DenseBackward implements compute.Device.
func (d *Device) DenseBackward(g compute.DenseGradients, dy, y compute.Matrix, a compute.Dense) {
	defer d.probe.Start(compute.CheckDenseBackward(g, dy, y, a)).Done()
	of := d.gradient(dy)
	compute.DenseBackwardInParts(d, g, of, y, a)
	store(dy, of)
}

// gradient returns dy as float32: dy itself, or a copy that is valid until the kernel ends.
func (d *Device) gradient(dy compute.Matrix) compute.Matrix {
	if dy.BF16 == nil {
		return dy
	}
	d.complete = mem.Grow(d.complete, dy.Rows*dy.Cols)
	dy.Widen(d.complete)
	return compute.Float32s.MatrixIn(d.complete, dy.Rows, dy.Cols)
}

// DenseInput implements compute.Device.
func (d *Device) DenseInput(dx, dy, w compute.Matrix, c compute.Completion) {
	defer d.probe.Start(compute.CheckDenseInput(dx, dy, w, c)).Done()
	d.into(dx, c.Rounded, func(dx compute.Matrix) {
		d.MatMulInput(dx, dy, w, false)
		d.addOwn(dx, c)
	})
}

// addOwn adds the rows c.Own to y.
func (d *Device) addOwn(y compute.Matrix, c compute.Completion) {
	factor := float32(1)
	if c.Scale != nil {
		factor += c.Scale[0]
	}
	own := d.wide(1, c.Own)
	for r := range own.Rows {
		for j, x := range own.Row(r) {
			y.Row(r)[j] += factor * x
		}
	}
}

// Round implements compute.Device.
func (d *Device) Round(y, x compute.Matrix) {
	defer d.probe.Start(compute.CheckRound(y, x)).Done()
	d.into(y, true, func(y compute.Matrix) { copy(y.Data, x.Data[:x.Rows*x.Cols]) })
}

// Finish implements compute.Device.
func (d *Device) Finish(y, x compute.Matrix, b []float32, epilogue compute.Epilogue) {
	defer d.probe.Start(compute.CheckFinish(y, x, b, epilogue)).Done()
	d.into(y, epilogue.Rounded,
		func(y compute.Matrix) { compute.FinishInParts(d, y, x, b, epilogue) })
}

// FinishBackward implements compute.Device.
func (d *Device) FinishBackward(db []float32, dy, y compute.Matrix, epilogue compute.Epilogue) {
	defer d.probe.Start(compute.CheckFinishBackward(db, dy, y, epilogue)).Done()
	compute.FinishBackwardInParts(d, db, dy, y, epilogue)
}
