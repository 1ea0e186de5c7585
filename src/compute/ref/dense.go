package ref

import (
	"halognn/src/compute"
	"halognn/src/mem"
)

// Dense implements compute.Device.
func (d *Device) Dense(y compute.Matrix, a compute.Dense) {
	defer d.probe.Start(compute.CheckDense(y, a)).Done()
	d.into(y, a.Epilogue, func(y compute.Matrix) { compute.DenseInParts(d, y, a) })
}

// into stores what f makes: rounded, if the epilogue says so.
func (d *Device) into(y compute.Matrix, e compute.Epilogue, f func(y compute.Matrix)) {
	if y.BF16 != nil {
		d.complete = mem.Grow(d.complete, y.Rows*y.Cols)
		wide := compute.Float32s.In(d.complete, y.Rows, y.Cols)
		f(wide)
		y.Narrow(wide.Data)
		return
	}
	f(y)
	if !e.Rounded || d.precision.Stored() != compute.BF16s {
		return
	}
	for i, x := range y.Data[:y.Rows*y.Cols] {
		y.Data[i] = d.precision.Round(x)
	}
}

// DenseBackward implements compute.Device.
func (d *Device) DenseBackward(g compute.DenseGradients, dy, y compute.Matrix, a compute.Dense) {
	defer d.probe.Start(compute.CheckDenseBackward(g, dy, y, a)).Done()
	compute.DenseBackwardInParts(d, g, dy, y, a)
}

// Finish implements compute.Device.
func (d *Device) Finish(y, x compute.Matrix, b []float32, epilogue compute.Epilogue) {
	defer d.probe.Start(compute.CheckFinish(y, x, b, epilogue)).Done()
	d.into(y, epilogue, func(y compute.Matrix) { compute.FinishInParts(d, y, x, b, epilogue) })
}

// FinishBackward implements compute.Device.
func (d *Device) FinishBackward(db []float32, dy, y compute.Matrix, epilogue compute.Epilogue) {
	defer d.probe.Start(compute.CheckFinishBackward(db, dy, y, epilogue)).Done()
	compute.FinishBackwardInParts(d, db, dy, y, epilogue)
}
