//go:build cgo

package cuda

import "halognn/src/compute"

// GroupMatMul implements compute.Device.
func (d *Device) GroupMatMul(y, x compute.Matrix, w []float32, g compute.Groups) {
	defer d.probe.Start(compute.CheckGroupMatMul(y, x, w, g)).Done()
	compute.GroupMatMulInParts(d, y, x, w, g)
}

// GroupMatMulInput implements compute.Device.
func (d *Device) GroupMatMulInput(dx, dy compute.Matrix, w []float32, g compute.Groups) {
	defer d.probe.Start(compute.CheckGroupMatMulInput(dx, dy, w, g)).Done()
	compute.GroupMatMulInputInParts(d, dx, dy, w, g)
}

// GroupMatMulWeights implements compute.Device.
func (d *Device) GroupMatMulWeights(dw []float32, dy, x compute.Matrix, g compute.Groups) {
	defer d.probe.Start(compute.CheckGroupMatMulWeights(dw, dy, x, g)).Done()
	compute.GroupMatMulWeightsInParts(d, dw, dy, x, g)
}
