//go:build cgo

package cuda

// #include "library.h"
import "C"

import (
	"unsafe"

	"halognn/src/devices/compute"
)

// SegmentMean implements compute.Device.
func (d *Device) SegmentMean(out compute.Matrix, s compute.Segments, h compute.Matrix) {
	defer d.probe.Start(compute.CheckSegmentMean(out, s, h)).Done()
	d.arrays(len(s.Indptr)*8 + len(s.Indices)*4)
	indptr, indices := d.indptr(s.Indptr), d.indices("SegmentMean", s, h.Rows)
	rows, cols := size(out)
	must("SegmentMean", C.gpu_segment_mean(d.c, matrix(out), rows, cols, indptr, indices,
		matrix(h)))
}

// SegmentMeanBackward implements compute.Device.
func (d *Device) SegmentMeanBackward(dh compute.Matrix, forward, transposed compute.Segments,
	dout compute.Matrix, c compute.Completion) {
	defer d.probe.Start(compute.CheckSegmentMeanBackward(dh, forward, transposed, dout, c)).Done()
	d.arrays(len(forward.Indptr)*8 + len(transposed.Indptr)*8 + len(transposed.Indices)*4 +
		verticesBytes(c.Back))
	degrees, indptr := d.indptr(forward.Indptr), d.indptr(transposed.Indptr)
	indices := d.indices("SegmentMeanBackward", transposed, dout.Rows)
	rows, cols := size(dh.RowsAt(0, transposed.Len()))
	must("SegmentMeanBackward", C.gpu_segment_mean_backward(d.c, matrix(dh), rows, cols, indptr,
		indices, degrees, matrix(dout), d.ending(c)))
	d.zero(dh.RowsAt(transposed.Len(), dh.Rows))
}

// SegmentMax implements compute.Device.
func (d *Device) SegmentMax(out, arg compute.Matrix, s compute.Segments, h compute.Matrix) {
	defer d.probe.Start(compute.CheckSegmentMax(out, arg, s, h)).Done()
	d.arrays(len(s.Indptr)*8 + len(s.Indices)*4)
	indptr, indices := d.indptr(s.Indptr), d.indices("SegmentMax", s, h.Rows)
	rows, cols := size(out)
	must("SegmentMax", C.gpu_segment_max(d.c, matrix(out), bits(arg.Data), rows, cols, indptr,
		indices, matrix(h)))
}

// SegmentMaxBackward implements compute.Device.
func (d *Device) SegmentMaxBackward(dh compute.Matrix, transposed compute.Segments,
	arg, dout compute.Matrix, c compute.Completion) {
	defer d.probe.Start(compute.CheckSegmentMaxBackward(dh, transposed, arg, dout, c)).Done()
	d.arrays(len(transposed.Indptr)*8 + len(transposed.Indices)*4 + verticesBytes(c.Back))
	indptr := d.indptr(transposed.Indptr)
	indices := d.indices("SegmentMaxBackward", transposed, dout.Rows)
	rows, cols := size(dh.RowsAt(0, transposed.Len()))
	must("SegmentMaxBackward", C.gpu_segment_max_backward(d.c, matrix(dh), rows, cols, indptr,
		indices, bits(arg.Data), matrix(dout), d.ending(c)))
	d.zero(dh.RowsAt(transposed.Len(), dh.Rows))
}

// bits are the int32 numbers that an array of floats holds.
func bits(x []float32) *C.int32_t { return (*C.int32_t)(unsafe.Pointer(unsafe.SliceData(x))) }

// SegmentSum implements compute.Device.
func (d *Device) SegmentSum(out compute.Matrix, s compute.Segments, weights []float32,
	h compute.Matrix, add bool) {
	defer d.probe.Start(compute.CheckSegmentSum(out, s, weights, h, add)).Done()
	d.segmentSum("SegmentSum", out, s, weights, h, compute.Completion{}, add)
}

// SegmentSumCompleted implements compute.Device, in one launch.
func (d *Device) SegmentSumCompleted(out compute.Matrix, s compute.Segments, weights []float32,
	h compute.Matrix, c compute.Completion) {
	defer d.probe.Start(compute.CheckSegmentSumCompleted(out, s, weights, h, c)).Done()
	d.segmentSum("SegmentSumCompleted", out, s, weights, h, c, false)
}

func (d *Device) segmentSum(kernel string, out compute.Matrix, s compute.Segments,
	weights []float32, h compute.Matrix, c compute.Completion, add bool) {
	d.arrays(len(s.Indptr)*8 + len(s.Indices)*4 + len(weights)*4 + verticesBytes(c.Back))
	indptr, indices := d.indptr(s.Indptr), d.indices(kernel, s, h.Rows)
	edges := (*C.float)(onDevice(d, weights))
	rows, cols := size(out)
	must(kernel, C.gpu_segment_sum(d.c, matrix(out), rows, cols, indptr, indices, edges,
		matrix(h), cBool(add), d.ending(c)))
}
