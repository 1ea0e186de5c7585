//go:build cgo

package cpu

// #include "halognn_cpu.h"
import "C"

import (
	"fmt"
	"unsafe"

	"halognn/src/devices/compute"
)

// segmentRows is the number of segments in a tile. It is large enough that the cost of a call into
// C, and of the call's first rows, which are not prefetched, is negligible. It is small enough that
// a tile with a vertex of very high degree does not delay the rest.
const segmentRows = 64

type segmentMean struct {
	out compute.Matrix
	s   compute.Segments
	h   compute.Matrix
}

// SegmentMean implements compute.Device.
func (d *Device) SegmentMean(out compute.Matrix, s compute.Segments, h compute.Matrix) {
	defer d.probe.Start(compute.CheckSegmentMean(out, s, h)).Done()
	run(d, out.Rows, segmentRows, segmentMean{out, s, h})
	d.panicIfBad("SegmentMean", s, h.Rows)
}

func (a *segmentMean) tile(d *Device, lo, hi int) {
	if s := part(a.s, lo, hi); d.inRange(s, a.h.Rows) {
		out := a.out.RowsAt(lo, hi)
		rows, cols := size(out)
		C.halognn_segment_mean(d.level, written(out), rows, cols, int64s(s.Indptr),
			int32s(s.Indices), read(a.h))
	}
}

type segmentMeanBackward struct {
	dh                  compute.Matrix // gradient of the rows that have a segment in transposed
	forward, transposed compute.Segments
	dout                compute.Matrix
	c                   compute.Completion
}

// SegmentMeanBackward implements compute.Device.
func (d *Device) SegmentMeanBackward(dh compute.Matrix, forward, transposed compute.Segments,
	dout compute.Matrix, c compute.Completion) {
	defer d.probe.Start(compute.CheckSegmentMeanBackward(dh, forward, transposed, dout, c)).Done()
	referred := transposed.Len()
	run(d, referred, segmentRows,
		segmentMeanBackward{dh.RowsAt(0, referred), forward, transposed, dout, c})
	d.panicIfBad("SegmentMeanBackward", transposed, dout.Rows)
	dh.RowsAt(referred, dh.Rows).Clear()
	c.GoBack(d, dh.RowsAt(0, referred))
}

func (a *segmentMeanBackward) tile(d *Device, lo, hi int) {
	if s := part(a.transposed, lo, hi); d.inRange(s, a.dout.Rows) {
		dh := a.dh.RowsAt(lo, hi)
		rows, cols := size(dh)
		own := ownAt(&a.c, lo, hi)
		C.halognn_segment_mean_backward(d.level, written(dh), rows, cols, int64s(s.Indptr),
			int32s(s.Indices), int64s(a.forward.Indptr), floats(a.dout.Data), read(own),
			C.int64_t(own.Rows))
		d.roundWide(dh, a.c.Rounded)
	}
}

// ownAt returns the rows of c.Own that are added to rows [lo,hi) of the result.
func ownAt(c *compute.Completion, lo, hi int) compute.Matrix {
	return c.Own.RowsAt(min(lo, c.Own.Rows), min(hi, c.Own.Rows))
}

type segmentSum struct {
	out     compute.Matrix
	s       compute.Segments
	weights []float32
	h       compute.Matrix
	c       compute.Completion
	add     bool
}

// SegmentSum implements compute.Device.
func (d *Device) SegmentSum(out compute.Matrix, s compute.Segments, weights []float32,
	h compute.Matrix, add bool) {
	defer d.probe.Start(compute.CheckSegmentSum(out, s, weights, h, add)).Done()
	run(d, out.Rows, segmentRows, segmentSum{out: out, s: s, weights: weights, h: h, add: add})
	d.panicIfBad("SegmentSum", s, h.Rows)
}

func (a *segmentSum) tile(d *Device, lo, hi int) {
	if s := part(a.s, lo, hi); d.inRange(s, a.h.Rows) {
		out := a.out.RowsAt(lo, hi)
		rows, cols := size(out)
		own := ownAt(&a.c, lo, hi)
		C.halognn_segment_sum(d.level, written(out), rows, cols, int64s(s.Indptr),
			int32s(s.Indices), floats(a.weights), read(a.h), read(own), C.int64_t(own.Rows),
			floats(a.c.Scale), cBool(a.add))
		d.roundWide(out, a.c.Rounded)
	}
}

// SegmentSumCompleted implements compute.Device.
func (d *Device) SegmentSumCompleted(out compute.Matrix, s compute.Segments, weights []float32,
	h compute.Matrix, c compute.Completion) {
	defer d.probe.Start(compute.CheckSegmentSumCompleted(out, s, weights, h, c)).Done()
	run(d, out.Rows, segmentRows, segmentSum{out, s, weights, h, c, false})
	d.panicIfBad("SegmentSumCompleted", s, h.Rows)
	c.GoBack(d, out)
}

type segmentMax struct {
	out, arg compute.Matrix
	s        compute.Segments
	h        compute.Matrix
}

// SegmentMax implements compute.Device.
func (d *Device) SegmentMax(out, arg compute.Matrix, s compute.Segments, h compute.Matrix) {
	defer d.probe.Start(compute.CheckSegmentMax(out, arg, s, h)).Done()
	run(d, out.Rows, segmentRows, segmentMax{out, arg, s, h})
	d.panicIfBad("SegmentMax", s, h.Rows)
}

func (a *segmentMax) tile(d *Device, lo, hi int) {
	if s := part(a.s, lo, hi); d.inRange(s, a.h.Rows) {
		out, arg := a.out.RowsAt(lo, hi), a.arg
		if arg.Cols > 0 {
			arg = arg.RowsAt(lo, hi)
		}
		rows, cols := size(out)
		C.halognn_segment_max(d.level, written(out), bits(arg.Data), rows, cols, int64s(s.Indptr),
			int32s(s.Indices), read(a.h))
	}
}

type segmentMaxBackward struct {
	dh         compute.Matrix // gradient of the rows that have a segment in transposed
	transposed compute.Segments
	arg, dout  compute.Matrix
	c          compute.Completion
}

// SegmentMaxBackward implements compute.Device.
func (d *Device) SegmentMaxBackward(dh compute.Matrix, transposed compute.Segments,
	arg, dout compute.Matrix, c compute.Completion) {
	defer d.probe.Start(compute.CheckSegmentMaxBackward(dh, transposed, arg, dout, c)).Done()
	referred := transposed.Len()
	run(d, referred, segmentRows, segmentMaxBackward{dh.RowsAt(0, referred), transposed, arg, dout,
		c})
	d.panicIfBad("SegmentMaxBackward", transposed, dout.Rows)
	dh.RowsAt(referred, dh.Rows).Clear()
	c.GoBack(d, dh.RowsAt(0, referred))
}

func (a *segmentMaxBackward) tile(d *Device, lo, hi int) {
	if s := part(a.transposed, lo, hi); d.inRange(s, a.dout.Rows) {
		r := d.begin(a.dh.RowsAt(lo, hi))
		rows, cols := size(r.wide)
		C.halognn_segment_max_backward(d.level, floats(r.wide.Data), rows, cols, C.int64_t(lo),
			int64s(s.Indptr), int32s(s.Indices), bits(a.arg.Data), floats(a.dout.Data))
		d.complete(r, &a.c, lo, hi)
	}
}

// bits returns an array of float32 as the int32 numbers that are stored in it.
func bits(x []float32) *C.int32_t { return (*C.int32_t)(unsafe.Pointer(unsafe.SliceData(x))) }

func part(s compute.Segments, lo, hi int) compute.Segments {
	return compute.Segments{Indptr: s.Indptr[lo : hi+1], Indices: s.Indices, Edges: s.Edges}
}

// inRange reports whether the indices of the segments lie in [0,rows). It does not panic, because
// it may run on any thread. Afterwards panicIfBad panics on the goroutine that called the kernel,
// so that the stack shows the caller.
func (d *Device) inRange(s compute.Segments, rows int) bool {
	ok := checkIDs(s.Indices[s.Indptr[0]:s.Indptr[s.Len()]], rows) < 0
	if !ok {
		d.bad.Store(true)
	}
	return ok
}

func (d *Device) panicIfBad(kernel string, s compute.Segments, rows int) {
	if !d.bad.Swap(false) {
		return
	}
	at := int(s.Indptr[0])
	if checkIDs(s.Indices[at:s.Indptr[s.Len()]], rows) < 0 {
		panicBadEdge(kernel, s)
	}
	at += checkIDs(s.Indices[at:s.Indptr[s.Len()]], rows)
	panic(fmt.Sprintf("compute: %s: index %d is %d, but there are %d rows", kernel, at,
		s.Indices[at], rows))
}
