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
