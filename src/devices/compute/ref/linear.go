package ref

import (
	"halognn/src/base/mem"
	"halognn/src/devices/compute"
)

// MatMul implements compute.Device.
func (d *Device) MatMul(y, x, w compute.Matrix, add bool) {
	defer d.probe.Start(compute.CheckMatMul(y, x, w, add)).Done()
	x, w = d.factor(0, x), d.factor(1, w)
	for r := range y.Rows {
		row, out := x.Row(r), y.Row(r)
		for o := range out {
			var sum float32
			for f, v := range w.Row(o) {
				sum += row[f] * v
			}
			if add {
				sum += out[o]
			}
			out[o] = sum
		}
	}
}

// MatMulInput implements compute.Device.
func (d *Device) MatMulInput(dx, dy, w compute.Matrix, add bool) {
	defer d.probe.Start(compute.CheckMatMulInput(dx, dy, w, add)).Done()
	dy, w = d.factor(0, dy), d.factor(1, w)
	for r := range dx.Rows {
		out := dx.Row(r)
		if !add {
			clear(out)
		}
		for o, g := range dy.Row(r) {
			for f, v := range w.Row(o) {
				out[f] += g * v
			}
		}
	}
}

// MatMulWeights implements compute.Device.
func (d *Device) MatMulWeights(dw, dy, x compute.Matrix) {
	defer d.probe.Start(compute.CheckMatMulWeights(dw, dy, x)).Done()
	dy, x = d.factor(0, dy), d.factor(1, x)
	out := dw.Data[:dw.Rows*dw.Cols]
	clear(out)
	chunks(dy.Rows, func(lo, hi int) {
		sum := compute.Matrix{Rows: dw.Rows, Cols: dw.Cols, Data: d.scratch(len(out))}
		for r := lo; r < hi; r++ {
			for o, g := range dy.Row(r) {
				for f, v := range x.Row(r) {
					sum.Data[o*sum.Cols+f] += g * v
				}
			}
		}
		addInto(out, sum.Data)
	})
}

// factor returns factor number i of a product, in the form in which it is multiplied: m itself or a
// rounded copy.
func (d *Device) factor(i int, m compute.Matrix) compute.Matrix {
	if m.BF16 != nil {
		return d.wide(i, m)
	}
	if d.precision == compute.PrecisionFloat32 {
		return m
	}
	n := m.Rows * m.Cols
	d.rounded[i] = mem.Grow(d.rounded[i], n)
	for j, v := range m.Data[:n] {
		d.rounded[i][j] = d.precision.Round(v)
	}
	return compute.Matrix{Rows: m.Rows, Cols: m.Cols, Data: d.rounded[i]}
}

// AddBias implements compute.Device.
func (d *Device) AddBias(y compute.Matrix, b []float32) {
	defer d.probe.Start(compute.CheckAddBias(y, b)).Done()
	for r := range y.Rows {
		addInto(y.Row(r), b)
	}
}

// ColumnSum implements compute.Device.
func (d *Device) ColumnSum(db []float32, dy compute.Matrix) {
	defer d.probe.Start(compute.CheckColumnSum(db, dy)).Done()
	clear(db)
	chunks(dy.Rows, func(lo, hi int) {
		sum := d.scratch(len(db))
		for r := lo; r < hi; r++ {
			addInto(sum, dy.Row(r))
		}
		addInto(db, sum)
	})
}

// AddScaled implements compute.Device.
func (d *Device) AddScaled(y, z, x compute.Matrix, scale []float32) {
	defer d.probe.Start(compute.CheckAddScaled(y, z, x, scale)).Done()
	z, x = d.wide(0, z), d.wide(1, x)
	for r := range y.Rows {
		sum := d.scratch(y.Cols)
		for j := range sum {
			sum[j] = z.Row(r)[j] + (1+scale[0])*x.Row(r)[j]
		}
		y.RowsAt(r, r+1).Narrow(sum)
	}
}

// CopyColumns implements compute.Device.
func (d *Device) CopyColumns(y compute.Matrix, at int, x compute.Matrix, from, n int, add bool) {
	defer d.probe.Start(compute.CheckCopyColumns(y, at, x, from, n, add)).Done()
	x = d.wide(0, x)
	for r := range y.Rows {
		if to, source := y.Row(r)[at:at+n], x.Row(r)[from:from+n]; add {
			addInto(to, source)
		} else {
			copy(to, source)
		}
	}
}

// Transpose implements compute.Device.
func (d *Device) Transpose(y, x compute.Matrix) {
	defer d.probe.Start(compute.CheckTranspose(y, x)).Done()
	for r := range y.Rows {
		for j := range y.Cols {
			y.Data[r*y.Cols+j] = x.Data[j*x.Cols+r]
		}
	}
}

// Dot implements compute.Device.
func (d *Device) Dot(sum []float32, x, y compute.Matrix) {
	defer d.probe.Start(compute.CheckDot(sum, x, y)).Done()
	all := make([]float32, x.Cols)
	y = d.wide(0, y)
	chunks(x.Rows, func(lo, hi int) {
		part := d.scratch(x.Cols)
		for r := lo; r < hi; r++ {
			for j, v := range x.Row(r) {
				part[j] += v * y.Row(r)[j]
			}
		}
		addInto(all, part)
	})
	sum[0] = 0
	for _, v := range all {
		sum[0] += v
	}
}
