package ref

import "halognn/src/compute"

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
	scale := compute.DropoutScale(p)
	for i, v := range y.Data[:y.Rows*y.Cols] {
		if v > 0 {
			dy.Data[i] *= scale
		} else {
			dy.Data[i] = 0
		}
	}
}
