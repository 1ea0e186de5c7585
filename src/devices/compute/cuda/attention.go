//go:build cgo

package cuda

// #include "library.h"
import "C"

import (
	"unsafe"

	"halognn/src/devices/compute"
)

// heads returns the number of heads of an array by head, and the width of one in z, as C takes
// them.
func heads(s, z compute.Matrix) (n, width C.int64_t) {
	return C.int64_t(s.Cols), C.int64_t(z.Cols / s.Cols)
}

// HeadDots implements compute.Device.
func (d *Device) HeadDots(src, dst, z compute.Matrix, asrc, adst []float32) {
	defer d.probe.Start(compute.CheckHeadDots(src, dst, z, asrc, adst)).Done()
	n, width := heads(src, z)
	must("HeadDots", C.gpu_head_dots(d.c, float(src.Data), float(dst.Data), C.int64_t(z.Rows),
		C.int64_t(dst.Rows), n, width, matrix(z), float(asrc), float(adst)))
}

// HeadDotsBackward implements compute.Device.
func (d *Device) HeadDotsBackward(dz compute.Matrix, dasrc, dadst []float32,
	dsrc, ddst, z compute.Matrix, asrc, adst []float32) {
	defer d.probe.Start(compute.CheckHeadDotsBackward(dz, dasrc, dadst, dsrc, ddst, z, asrc,
		adst)).Done()
	n, width := heads(dsrc, z)
	d.lendSums("HeadDotsBackward", z.Rows, 2*z.Cols, func(partial *C.float) C.int {
		return C.gpu_head_dots_backward(d.c, float(dz.Data), float(dasrc), float(dadst),
			C.int64_t(z.Rows), C.int64_t(ddst.Rows), n, width, float(dsrc.Data), float(ddst.Data),
			matrix(z), float(asrc), float(adst), partial)
	})
}

// EdgeSoftmax implements compute.Device.
func (d *Device) EdgeSoftmax(alpha compute.Matrix, s compute.Segments, src, dst compute.Matrix,
	slope float32) {
	defer d.probe.Start(compute.CheckEdgeSoftmax(alpha, s, src, dst)).Done()
	d.arrays(len(s.Indptr)*8 + len(s.Indices)*4)
	indptr, indices := d.indptr(s.Indptr), d.indices("EdgeSoftmax", s, src.Rows)
	rows, n := size(dst)
	must("EdgeSoftmax", C.gpu_edge_softmax(d.c, float(alpha.Data), rows, n, indptr, indices,
		float(src.Data), float(dst.Data), C.float(slope)))
}

// EdgeSoftmaxBackward implements compute.Device.
func (d *Device) EdgeSoftmaxBackward(dsrc, ddst, dalpha compute.Matrix, s,
	transposed compute.Segments,
	alpha, src, dst compute.Matrix, slope float32) {
	const kernel = "EdgeSoftmaxBackward"
	defer d.probe.Start(compute.CheckEdgeSoftmaxBackward(dsrc, ddst, dalpha, s, transposed, alpha,
		src, dst)).Done()
	d.arrays(len(s.Indptr)*8 + len(s.Indices)*4 + len(transposed.Indptr)*8 +
		len(transposed.Edges)*4)
	indptr, indices := d.indptr(s.Indptr), d.indices(kernel, s, src.Rows)
	rows, n := size(dst)
	must(kernel, C.gpu_edge_softmax_backward(d.c, float(dalpha.Data), float(ddst.Data), rows, n,
		indptr,
		indices, float(alpha.Data), float(src.Data), float(dst.Data), C.float(slope)))
	from, edges := d.indptr(transposed.Indptr), d.edges(kernel, transposed)
	must(kernel, C.gpu_edge_collect(d.c, float(dsrc.Data), C.int64_t(transposed.Len()), n, from,
		edges, float(dalpha.Data)))
	d.zero(dsrc.RowsAt(transposed.Len(), dsrc.Rows))
}

// EdgeDotSoftmax implements compute.Device, in a launch for each group.
func (d *Device) EdgeDotSoftmax(alpha compute.Matrix, s compute.Segments, src, dst compute.Matrix,
	a compute.Vectors, slope float32) {
	defer d.probe.Start(compute.CheckEdgeDotSoftmax(alpha, s, src, dst, a)).Done()
	d.attendPairs("EdgeDotSoftmax", compute.Matrix{}, alpha, s, src, dst, a, slope)
}

// AttendPairs implements compute.Device.
func (d *Device) AttendPairs(y, alpha compute.Matrix, s compute.Segments, src, dst compute.Matrix,
	a compute.Vectors, slope float32) {
	defer d.probe.Start(compute.CheckAttendPairs(y, alpha, s, src, dst, a)).Done()
	d.attendPairs("AttendPairs", y, alpha, s, src, dst, a, slope)
}

// attendPairs makes the weights and, unless y has no columns, the sums.
func (d *Device) attendPairs(kernel string, y, alpha compute.Matrix, s compute.Segments,
	src, dst compute.Matrix, a compute.Vectors, slope float32) {
	d.arrays(len(s.Indptr)*8 + len(s.Indices)*4)
	indptr, indices := d.indptr(s.Indptr), d.indices(kernel, s, src.Rows)
	n, width := heads(alpha, src)
	groups := a.Segments(s.Len())
	for g := range groups.Ends {
		if lo, hi := groups.Rows(g); lo < hi {
			must(kernel, C.gpu_attend_pairs(d.c, float(y.RowsAt(lo, hi).Data), float(alpha.Data),
				C.int64_t(hi-lo), n, width, from(indptr, lo), indices, float(src.Data),
				float(dst.RowsAt(lo, hi).Data), float(a.Of(a.Data, g, src.Cols)), C.float(slope)))
		}
	}
}

// from returns the address of the ends of segments from segment lo on.
func from(indptr *C.int64_t, lo int) *C.int64_t {
	return (*C.int64_t)(unsafe.Add(unsafe.Pointer(indptr), 8*lo))
}

// EdgeDotSoftmaxBackward implements compute.Device, in launches for each group.
func (d *Device) EdgeDotSoftmaxBackward(dsrc, ddst compute.Matrix, da []float32,
	dalpha compute.Matrix, s, transposed compute.Segments, alpha, src, dst compute.Matrix,
	a compute.Vectors, slope float32) {
	const kernel = "EdgeDotSoftmaxBackward"
	defer d.probe.Start(compute.CheckEdgeDotSoftmaxBackward(dsrc, ddst, da, dalpha, s, transposed,
		alpha, src, dst, a)).Done()
	d.arrays(len(s.Indptr)*8 + len(s.Indices)*4 + len(transposed.Indptr)*8 +
		len(transposed.Indices)*4 + len(transposed.Edges)*4)
	indptr, indices := d.indptr(s.Indptr), d.indices(kernel, s, src.Rows)
	back, to := d.indptr(transposed.Indptr), d.indices(kernel, transposed, s.Len())
	edges := d.edges(kernel, transposed)
	n, width := heads(alpha, src)
	segments, sources := a.Segments(s.Len()), a.OfSources(transposed.Len())
	for g := range segments.Ends {
		vector := float(a.Of(a.Data, g, src.Cols))
		lo, hi := segments.Rows(g)
		d.lendSums(kernel, hi-lo, src.Cols, func(partial *C.float) C.int {
			return C.gpu_edge_dot_softmax_backward(d.c, float(dalpha.Data),
				float(ddst.RowsAt(lo, hi).Data), float(a.Of(da, g, src.Cols)), C.int64_t(hi-lo), n,
				width, from(indptr, lo), indices, float(alpha.Data), float(src.Data),
				float(dst.RowsAt(lo, hi).Data), vector, C.float(slope), partial)
		})
		if lo, hi = sources.Rows(g); lo < hi {
			must(kernel, C.gpu_edge_dot_collect(d.c, float(dsrc.RowsAt(lo, hi).Data),
				C.int64_t(hi-lo), n, width, from(back, lo), to, edges, float(dalpha.Data),
				float(src.RowsAt(lo, hi).Data), float(dst.Data), vector, C.float(slope)))
		}
	}
}

// EdgeSum implements compute.Device.
func (d *Device) EdgeSum(y compute.Matrix, s compute.Segments, alpha, z compute.Matrix) {
	defer d.probe.Start(compute.CheckEdgeSum(y, s, alpha, z)).Done()
	d.arrays(len(s.Indptr)*8 + len(s.Indices)*4)
	indptr, indices := d.indptr(s.Indptr), d.indices("EdgeSum", s, z.Rows)
	n, width := heads(alpha, z)
	must("EdgeSum", C.gpu_edge_sum(d.c, float(y.Data), C.int64_t(y.Rows), n, width, indptr, indices,
		float(alpha.Data), matrix(z)))
}

// EdgeSumBackward implements compute.Device.
func (d *Device) EdgeSumBackward(dz, dalpha compute.Matrix, transposed compute.Segments,
	alpha, z, dy compute.Matrix) {
	const kernel = "EdgeSumBackward"
	defer d.probe.Start(compute.CheckEdgeSumBackward(dz, dalpha, transposed, alpha, z, dy)).Done()
	d.arrays(len(transposed.Indptr)*8 + len(transposed.Indices)*4 + len(transposed.Edges)*4)
	indptr, indices := d.indptr(transposed.Indptr), d.indices(kernel, transposed, dy.Rows)
	edges := d.edges(kernel, transposed)
	n, width := heads(alpha, z)
	must(kernel, C.gpu_edge_sum_backward(d.c, float(dz.Data), float(dalpha.Data),
		C.int64_t(transposed.Len()), n, width, indptr, indices, edges, float(alpha.Data),
		matrix(z), float(dy.Data)))
	d.zero(dz.RowsAt(transposed.Len(), dz.Rows))
}

// Attend implements compute.Device, in one launch.
func (d *Device) Attend(y, alpha compute.Matrix, s compute.Segments, src, dst, z compute.Matrix,
	slope float32) {
	defer d.probe.Start(compute.CheckAttend(y, alpha, s, src, dst, z)).Done()
	d.arrays(len(s.Indptr)*8 + len(s.Indices)*4)
	indptr, indices := d.indptr(s.Indptr), d.indices("Attend", s, src.Rows)
	n, width := heads(alpha, z)
	must("Attend", C.gpu_attend(d.c, float(y.Data), float(alpha.Data), C.int64_t(s.Len()), n, width,
		indptr, indices, float(src.Data), float(dst.Data), matrix(z), C.float(slope)))
}

// AttendBackward implements compute.Device: a launch by destination and one by source.
func (d *Device) AttendBackward(dz, dsrc, ddst, dalpha compute.Matrix, s,
	transposed compute.Segments, alpha, src, dst, z, dy compute.Matrix, slope float32) {
	const kernel = "AttendBackward"
	defer d.probe.Start(compute.CheckAttendBackward(dz, dsrc, ddst, dalpha, s, transposed, alpha,
		src, dst, z, dy)).Done()
	d.arrays(len(s.Indptr)*8 + len(s.Indices)*4 + len(transposed.Indptr)*8 +
		len(transposed.Indices)*4 + len(transposed.Edges)*4)
	indptr, indices := d.indptr(s.Indptr), d.indices(kernel, s, src.Rows)
	from, to := d.indptr(transposed.Indptr), d.indices(kernel, transposed, dy.Rows)
	edges := d.edges(kernel, transposed)
	n, width := heads(alpha, z)
	must(kernel, C.gpu_attend_backward(d.c, float(dz.Data), float(dsrc.Data), float(ddst.Data),
		float(dalpha.Data), C.int64_t(s.Len()), C.int64_t(transposed.Len()), n, width, indptr,
		indices, from, to, edges, float(alpha.Data), float(src.Data), float(dst.Data),
		matrix(z), float(dy.Data), C.float(slope)))
	d.zero(dz.RowsAt(transposed.Len(), dz.Rows))
	d.zero(dsrc.RowsAt(transposed.Len(), dsrc.Rows))
}

// HeadMean implements compute.Device.
func (d *Device) HeadMean(y, x compute.Matrix) {
	defer d.probe.Start(compute.CheckHeadMean(y, x)).Done()
	rows, width := size(y)
	must("HeadMean", C.gpu_head_mean(d.c, float(y.Data), rows, C.int64_t(x.Cols/max(1, y.Cols)),
		width, float(x.Data)))
}

// HeadMeanBackward implements compute.Device.
func (d *Device) HeadMeanBackward(dx, dy compute.Matrix) {
	defer d.probe.Start(compute.CheckHeadMeanBackward(dx, dy)).Done()
	rows, width := size(dy)
	must("HeadMeanBackward", C.gpu_head_mean_backward(d.c, float(dx.Data), rows,
		C.int64_t(dx.Cols/max(1, dy.Cols)), width, float(dy.Data)))
}

// HeadMax implements compute.Device.
func (d *Device) HeadMax(y, x compute.Matrix) {
	defer d.probe.Start(compute.CheckHeadMax(y, x)).Done()
	rows, width := size(y)
	must("HeadMax", C.gpu_head_max(d.c, float(y.Data), rows, C.int64_t(x.Cols/max(1, y.Cols)),
		width, float(x.Data)))
}

// HeadMaxBackward implements compute.Device.
func (d *Device) HeadMaxBackward(dx, dy, x compute.Matrix) {
	defer d.probe.Start(compute.CheckHeadMaxBackward(dx, dy, x)).Done()
	rows, width := size(dy)
	must("HeadMaxBackward", C.gpu_head_max_backward(d.c, float(dx.Data), rows,
		C.int64_t(dx.Cols/max(1, dy.Cols)), width, float(dy.Data), float(x.Data)))
}

// edges returns the device address of the positions of transposed edges. It panics if one is out of
// range.
func (d *Device) edges(kernel string, s compute.Segments) *C.int32_t {
	if s.Above > 0 {
		return (*C.int32_t)(onDevice(d, s.Edges))
	}
	return d.indices(kernel, compute.Segments{Indptr: s.Indptr, Indices: s.Edges}, len(s.Edges))
}
