package ref

import "halognn/src/compute"

// Dense implements compute.Device.
func (d *Device) Dense(y compute.Matrix, a compute.Dense) {
	defer d.probe.Start(compute.CheckDense(y, a)).Done()
	compute.DenseInParts(d, y, a)
}

// DenseBackward implements compute.Device.
func (d *Device) DenseBackward(g compute.DenseGradients, dy, y compute.Matrix, a compute.Dense) {
	defer d.probe.Start(compute.CheckDenseBackward(g, dy, y, a)).Done()
	compute.DenseBackwardInParts(d, g, dy, y, a)
}

// Finish implements compute.Device.
func (d *Device) Finish(y compute.Matrix, b []float32, epilogue compute.Epilogue) {
	defer d.probe.Start(compute.CheckFinish(y, b, epilogue)).Done()
	compute.FinishInParts(d, y, b, epilogue)
}

// FinishBackward implements compute.Device.
func (d *Device) FinishBackward(db []float32, dy, y compute.Matrix, epilogue compute.Epilogue) {
	defer d.probe.Start(compute.CheckFinishBackward(db, dy, y, epilogue)).Done()
	compute.FinishBackwardInParts(d, db, dy, y, epilogue)
}
