//go:build cgo

package cuda

// #include "library.h"
import "C"

import (
	"unsafe"

	"halognn/src/devices/compute"
)

// half returns the first half of a pair if k is 0, and the second if k is 1. If the pair has no
// rows, it returns an absent matrix.
func half(pair compute.Matrix, k int) C.halognn_cuda_matrix {
	if pair.Rows == 0 {
		return C.halognn_cuda_matrix{}
	}
	m := matrix(pair)
	m.of = unsafe.Add(m.of, k*pair.Cols/2*pair.Elements().Size())
	m.stride = C.int64_t(pair.Cols)
	return m
}

// Join implements compute.PairKernels.
func (d *Device) Join(all ...compute.Joining) {
	defer d.probe.Start(compute.CheckJoin(all)).Done()
	for len(all) > 0 {
		n := min(len(all), len(d.joinings))
		for i, j := range all[:n] {
			rows, cols := size(j.A)
			d.joinings[i] = C.halognn_cuda_joining{y: matrix(j.Pair), a: matrix(j.A),
				b: matrix(j.B), rows: rows, cols: cols}
		}
		must("Join", C.gpu_join(d.c, &d.joinings[0], C.int64_t(n)))
		all = all[n:]
	}
}

// Part implements compute.PairKernels.
func (d *Device) Part(a, b, pair compute.Matrix) {
	defer d.probe.Start(compute.CheckPart(a, b, pair)).Done()
	rows, cols := size(a)
	d.left(0, 0)
	must("Part", C.gpu_part(d.c, float(a.Data), float(b.Data), rows, cols, float(pair.Data)))
}

// SegmentJoined implements compute.PairKernels.
func (d *Device) SegmentJoined(pair, arg compute.Matrix, how compute.Reduction,
	s compute.Segments, weights []float32, h compute.Matrix) {
	defer d.probe.Start(compute.CheckSegmentJoined(pair, arg, how, s, weights, h)).Done()
	d.arrays(len(s.Indptr)*8 + len(s.Indices)*4 + len(weights)*4)
	indptr, indices := d.indptr(s.Indptr), d.indices("SegmentJoined", s, h.Rows)
	edges := (*C.float)(onDevice(d, weights))
	must("SegmentJoined", C.gpu_segment_joined(d.c, half(pair, 1), half(pair, 0), bits(arg.Data),
		C.int64_t(pair.Rows), C.int64_t(h.Cols), indptr, indices, C.int(how), edges, matrix(h)))
}

// SegmentJoinedBackward implements compute.PairKernels.
func (d *Device) SegmentJoinedBackward(dh compute.Matrix, how compute.Reduction,
	forward, transposed compute.Segments, weights []float32, arg, dpair compute.Matrix,
	c compute.Completion) {
	const kernel = "SegmentJoinedBackward"
	defer d.probe.Start(compute.CheckSegmentJoinedBackward(dh, how, forward, transposed, weights,
		arg, dpair, c)).Done()
	d.arrays(len(forward.Indptr)*8 + len(transposed.Indptr)*8 + len(transposed.Indices)*4 +
		len(weights)*4 + verticesBytes(c.Back))
	indptr, indices := d.indptr(transposed.Indptr), d.indices(kernel, transposed, dpair.Rows)
	rows, cols := size(dh.RowsAt(0, transposed.Len()))
	dout, end := half(dpair, 1), d.ending(c)
	end.own, end.rows = half(dpair, 0), C.int64_t(dpair.Rows)
	switch how {
	case compute.ReduceMean:
		must(kernel, C.gpu_segment_mean_backward(d.c, matrix(dh), rows, cols, indptr, indices,
			d.indptr(forward.Indptr), dout, end))
	case compute.ReduceMax:
		must(kernel, C.gpu_segment_max_backward(d.c, matrix(dh), rows, cols, indptr, indices,
			bits(arg.Data), dout, end))
	default:
		must(kernel, C.gpu_segment_sum(d.c, matrix(dh), rows, cols, indptr, indices,
			(*C.float)(onDevice(d, weights)), dout, 0, end))
	}
	d.zero(dh.RowsAt(transposed.Len(), dh.Rows))
}
