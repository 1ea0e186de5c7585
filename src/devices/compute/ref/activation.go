package ref

import (
	"math"

	"halognn/src/devices/compute"
)

// ReLU implements compute.Device.
func (d *Device) ReLU(y compute.Matrix, p float32, key compute.DropoutKey, vertices []int32) {
	defer d.probe.Start(compute.CheckReLU(y, p, vertices)).Done()
	if p == 0 {
		for i, v := range y.Data[:y.Rows*y.Cols] {
			if v < 0 {
				y.Data[i] = 0
			}
		}
		return
	}
	threshold, scale := compute.DropoutThreshold(p), compute.DropoutScale(p)
	for r := range y.Rows {
		row, bits := y.Row(r), key.Row(vertices[r])
		for j, v := range row {
			if v < 0 || bits.Bits(j) < threshold {
				row[j] = 0
			} else {
				row[j] = v * scale
			}
		}
	}
}

// ReLUBackward implements compute.Device.
func (d *Device) ReLUBackward(dy, y compute.Matrix, p float32) {
	defer d.probe.Start(compute.CheckReLUBackward(dy, y)).Done()
	y = d.wide(0, y)
	scale, of := compute.DropoutScale(p), d.gradient(dy)
	for i, v := range y.Data[:y.Rows*y.Cols] {
		if v > 0 {
			of.Data[i] *= scale
		} else {
			of.Data[i] = 0
		}
	}
	store(dy, of)
}

// store rounds what gradient has returned for dy, if dy is of bfloat16.
func store(dy, of compute.Matrix) {
	if dy.BF16 != nil {
		dy.Narrow(of.Data)
	}
}

// ELU implements compute.Device.
func (d *Device) ELU(y compute.Matrix, p float32, key compute.DropoutKey, vertices []int32) {
	defer d.probe.Start(compute.CheckELU(y, p, vertices)).Done()
	scale := compute.DropoutScale(p)
	for r := range y.Rows {
		row := y.Row(r)
		for j, v := range row {
			if !(v > 0) {
				v = float32(math.Exp(float64(v))) - 1
			}
			row[j] = v * scale
		}
	}
	drop(y, p, key, vertices)
}

// ELUBackward implements compute.Device.
func (d *Device) ELUBackward(dy, y compute.Matrix, p float32, key compute.DropoutKey,
	vertices []int32) {
	defer d.probe.Start(compute.CheckELUBackward(dy, y, p, vertices)).Done()
	y = d.wide(0, y)
	scale, of := compute.DropoutScale(p), d.gradient(dy)
	for i, v := range y.Data[:y.Rows*y.Cols] {
		if v > 0 {
			of.Data[i] *= scale
		} else {
			of.Data[i] *= v + scale
		}
	}
	drop(of, p, key, vertices)
	store(dy, of)
}

// drop sets the elements that dropout drops to 0.
func drop(y compute.Matrix, p float32, key compute.DropoutKey, vertices []int32) {
	if p == 0 {
		return
	}
	threshold := compute.DropoutThreshold(p)
	for r := range y.Rows {
		bits := key.Row(vertices[r])
		for j := range y.Row(r) {
			if bits.Bits(j) < threshold {
				y.Row(r)[j] = 0
			}
		}
	}
}
