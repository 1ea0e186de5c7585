package ref

import (
	"math"

	"halognn/src/devices/compute"
)

// SegmentMean implements compute.Device.
func (d *Device) SegmentMean(out compute.Matrix, s compute.Segments, h compute.Matrix) {
	defer d.probe.Start(compute.CheckSegmentMean(out, s, h)).Done()
	h = d.wide(0, h)
	row := make([]float32, out.Cols)
	for t := range out.Rows {
		segment := s.Indices[s.Indptr[t]:s.Indptr[t+1]]
		clear(row)
		for _, i := range segment {
			addInto(row, h.Row(int(i)))
		}
		divide(row, len(segment))
		out.RowsAt(t, t+1).Narrow(row)
	}
}

// larger reports whether x replaces the maximum most. A NaN replaces numbers and is not replaced.
func larger(x, most float32) bool { return most == most && !(x <= most) }

// SegmentMax implements compute.Device.
func (d *Device) SegmentMax(out, arg compute.Matrix, s compute.Segments, h compute.Matrix) {
	defer d.probe.Start(compute.CheckSegmentMax(out, arg, s, h)).Done()
	h = d.wide(0, h)
	at, row := make([]int32, out.Cols), make([]float32, out.Cols)
	for t := range out.Rows {
		segment := s.Indices[s.Indptr[t]:s.Indptr[t+1]]
		clear(row)
		for j := range at {
			at[j] = -1
		}
		for _, i := range segment {
			for j, x := range h.Row(int(i)) {
				if at[j] < 0 || larger(x, row[j]) {
					row[j], at[j] = x, i
				}
			}
		}
		out.RowsAt(t, t+1).Narrow(row)
		for j := range arg.Cols {
			arg.Row(t)[j] = math.Float32frombits(uint32(at[j]))
		}
	}
}

// SegmentMaxBackward implements compute.Device.
func (d *Device) SegmentMaxBackward(dh compute.Matrix, transposed compute.Segments,
	arg, dout compute.Matrix, c compute.Completion) {
	defer d.probe.Start(compute.CheckSegmentMaxBackward(dh, transposed, arg, dout, c)).Done()
	d.into(dh, c.Rounded, func(dh compute.Matrix) {
		clear(dh.Data[:dh.Rows*dh.Cols])
		for s := range transposed.Len() {
			before := int32(-1)
			for _, t := range transposed.Indices[transposed.Indptr[s]:transposed.Indptr[s+1]] {
				for j, at := range arg.Row(int(t)) {
					if t != before && math.Float32bits(at) == uint32(s) {
						dh.Row(s)[j] += dout.Row(int(t))[j]
					}
				}
				before = t
			}
		}
		d.addOwn(dh, c)
	})
	c.GoBack(d, dh.RowsAt(0, transposed.Len()))
}

// SegmentSum implements compute.Device.
func (d *Device) SegmentSum(out compute.Matrix, s compute.Segments, weights []float32,
	h compute.Matrix, add bool) {
	defer d.probe.Start(compute.CheckSegmentSum(out, s, weights, h, add)).Done()
	d.sumRows(out, s, weights, h, add)
}

// sumRows sets out to the sums over segments or, if add is true, adds each complete sum to out.
func (d *Device) sumRows(out compute.Matrix, s compute.Segments, weights []float32,
	h compute.Matrix, add bool) {
	h = d.wide(0, h)
	sum := d.scratch(out.Cols)
	for t := range out.Rows {
		clear(sum)
		for e := s.Indptr[t]; e < s.Indptr[t+1]; e++ {
			weight := float32(1)
			if weights != nil {
				weight = weights[e]
			}
			for j, x := range h.Row(int(s.Indices[e])) {
				sum[j] += x * weight
			}
		}
		if add {
			addInto(sum, out.Row(t))
		}
		out.RowsAt(t, t+1).Narrow(sum)
	}
}

// SegmentSumCompleted implements compute.Device.
func (d *Device) SegmentSumCompleted(out compute.Matrix, s compute.Segments, weights []float32,
	h compute.Matrix, c compute.Completion) {
	defer d.probe.Start(compute.CheckSegmentSumCompleted(out, s, weights, h, c)).Done()
	d.into(out, c.Rounded, func(out compute.Matrix) {
		d.sumRows(out, s, weights, h, false)
		d.addOwn(out, c)
	})
	c.GoBack(d, out)
}

func divide(row []float32, count int) {
	if count == 0 {
		return
	}
	for j := range row {
		row[j] /= float32(count)
	}
}

// SegmentMeanBackward implements compute.Device.
func (d *Device) SegmentMeanBackward(dh compute.Matrix, forward, transposed compute.Segments,
	dout compute.Matrix, c compute.Completion) {
	defer d.probe.Start(compute.CheckSegmentMeanBackward(dh, forward, transposed, dout, c)).Done()
	d.into(dh, c.Rounded, func(dh compute.Matrix) {
		clear(dh.Data[:dh.Rows*dh.Cols])
		for s := range transposed.Len() {
			sum := dh.Row(s)
			for _, t := range transposed.Indices[transposed.Indptr[s]:transposed.Indptr[s+1]] {
				weight := 1 / float32(forward.Indptr[t+1]-forward.Indptr[t])
				for j, g := range dout.Row(int(t)) {
					sum[j] += g * weight
				}
			}
		}
		d.addOwn(dh, c)
	})
	c.GoBack(d, dh.RowsAt(0, transposed.Len()))
}
