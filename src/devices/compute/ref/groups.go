package ref

import "halognn/src/devices/compute"

// GroupMatMul implements compute.Device.
func (d *Device) GroupMatMul(y, x compute.Matrix, w []float32, g compute.Groups) {
	compute.GroupMatMulInParts(d.probe, d, y, x, w, g)
}

// GroupMatMulInput implements compute.Device.
func (d *Device) GroupMatMulInput(dx, dy compute.Matrix, w []float32, g compute.Groups) {
	compute.GroupMatMulInputInParts(d.probe, d, dx, dy, w, g)
}

// GroupMatMulWeights implements compute.Device.
func (d *Device) GroupMatMulWeights(dw []float32, dy, x compute.Matrix, g compute.Groups) {
	compute.GroupMatMulWeightsInParts(d.probe, d, dw, dy, x, g)
}

// GroupDense implements compute.Device.
func (d *Device) GroupDense(y, x compute.Matrix, w, b []float32, g compute.Groups) {
	compute.GroupDenseInParts(d.probe, d, y, x, w, b, g)
}

// GroupDenseBackward implements compute.Device.
func (d *Device) GroupDenseBackward(dw, db []float32, dy, x compute.Matrix, g compute.Groups) {
	compute.GroupDenseBackwardInParts(d.probe, d, dw, db, dy, x, g)
}
