//go:build cgo

package cuda

// #include "library.h"
import "C"

import "halognn/src/compute"

// SegmentMean implements compute.Device.
func (d *Device) SegmentMean(out compute.Matrix, s compute.Segments, h compute.Matrix) {
	defer d.probe.Start(compute.CheckSegmentMean(out, s, h)).Done()
	d.arrays(len(s.Indptr)*8 + len(s.Indices)*4)
	indptr, indices := d.indptr(s.Indptr), d.indices("SegmentMean", s, h.Rows)
	rows, cols := size(out)
	must("SegmentMean", C.gpu_segment_mean(d.c, float(out.Data), rows, cols, indptr, indices,
		float(h.Data)))
}

// SegmentMeanBackward implements compute.Device.
func (d *Device) SegmentMeanBackward(dh compute.Matrix, forward, transposed compute.Segments,
	dout compute.Matrix, add bool) {
	defer d.probe.Start(compute.CheckSegmentMeanBackward(dh, forward, transposed, dout, add)).Done()
	d.arrays(len(forward.Indptr)*8 + len(transposed.Indptr)*8 + len(transposed.Indices)*4)
	degrees, indptr := d.indptr(forward.Indptr), d.indptr(transposed.Indptr)
	indices := d.indices("SegmentMeanBackward", transposed, dout.Rows)
	rows, cols := size(dh.RowsAt(0, transposed.Len()))
	must("SegmentMeanBackward", C.gpu_segment_mean_backward(d.c, float(dh.Data), rows, cols, indptr,
		indices, degrees, float(dout.Data), cBool(add)))
	if !add {
		d.zero(dh.RowsAt(transposed.Len(), dh.Rows).Data)
	}
}

// SegmentSum implements compute.Device.
func (d *Device) SegmentSum(out compute.Matrix, s compute.Segments, weights []float32,
	h compute.Matrix, add bool) {
	defer d.probe.Start(compute.CheckSegmentSum(out, s, weights, h, add)).Done()
	d.arrays(len(s.Indptr)*8 + len(s.Indices)*4 + len(weights)*4)
	indptr, indices := d.indptr(s.Indptr), d.indices("SegmentSum", s, h.Rows)
	edges := (*C.float)(onDevice(d, weights))
	rows, cols := size(out)
	must("SegmentSum", C.gpu_segment_sum(d.c, float(out.Data), rows, cols, indptr, indices, edges,
		float(h.Data), cBool(add)))
}
