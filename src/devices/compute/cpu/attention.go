//go:build cgo

package cpu

// #include "halognn_cpu.h"
import "C"

import (
	"fmt"

	"halognn/src/base/mem"
	"halognn/src/devices/compute"
)

// heads returns the number of heads, and the width of a head in z, as C numbers. The array s has a
// number for each head.
func heads(s, z compute.Matrix) (n, width C.int64_t) {
	return C.int64_t(s.Cols), C.int64_t(z.Cols / s.Cols)
}

// headDots computes the dot products with asrc and with adst for a tile of rows, while the rows are
// in the cache. This works for both because the destinations are the first sources.
type headDots struct {
	src, dst, z compute.Matrix
	asrc, adst  []float32
}

// HeadDots implements compute.Device.
func (d *Device) HeadDots(src, dst, z compute.Matrix, asrc, adst []float32) {
	defer d.probe.Start(compute.CheckHeadDots(src, dst, z, asrc, adst)).Done()
	run(d, src.Rows, streamRows(z.Cols), headDots{src, dst, z, asrc, adst})
}

func (a *headDots) tile(d *Device, lo, hi int) {
	z := d.widen(a.z.RowsAt(lo, hi))
	headDot(d, a.src, lo, hi, z.wide, a.asrc)
	headDot(d, a.dst, lo, hi, z.wide, a.adst)
	z.forget()
}

// headDot computes rows [lo,hi) of s from z, which has only the rows [lo,hi). If s has fewer than
// hi rows, it computes only the rows that s has.
func headDot(d *Device, s compute.Matrix, lo, hi int, z compute.Matrix, a []float32) {
	if hi = min(hi, s.Rows); lo >= hi {
		return
	}
	n, width := heads(s, z)
	C.halognn_head_dot(d.level, floats(s.RowsAt(lo, hi).Data), C.int64_t(hi-lo), n, width,
		floats(z.Data), floats(a))
}

// headDotsBackward computes the gradients of both dot products for a tile of rows.
type headDotsBackward struct {
	dz, dsrc, ddst, z compute.Matrix
	asrc, adst        []float32
	dst               int // index at which the partial sums for adst begin
}

// HeadDotsBackward implements compute.Device.
func (d *Device) HeadDotsBackward(dz compute.Matrix, dasrc, dadst []float32,
	dsrc, ddst, z compute.Matrix, asrc, adst []float32) {
	defer d.probe.Start(compute.CheckHeadDotsBackward(dz, dasrc, dadst, dsrc, ddst, z, asrc,
		adst)).Done()
	chunks, more := chunkCount(dsrc.Rows), chunkCount(ddst.Rows)
	d.reservePartials(chunks+more, z.Cols)
	run(d, dsrc.Rows, compute.ChunkRows,
		headDotsBackward{dz, dsrc, ddst, z, asrc, adst, chunks * z.Cols})
	d.addPartials(dasrc, chunks, z.Cols, 0)
	d.addPartials(dadst, more, z.Cols, chunks*z.Cols)
}

func (a *headDotsBackward) tile(d *Device, lo, hi int) {
	z := d.widen(a.z.RowsAt(lo, hi))
	dz, at := a.dz.RowsAt(lo, hi), lo/compute.ChunkRows*a.z.Cols
	headDotBackward(d, dz, d.partial[at:], a.dsrc.RowsAt(lo, hi), z.wide, a.asrc)
	if hi = min(hi, a.ddst.Rows); lo < hi {
		headDotBackward(d, dz, d.partial[a.dst+at:], a.ddst.RowsAt(lo, hi), z.wide, a.adst)
	}
	z.forget()
}

// headDotBackward sets da to the gradient of a. It adds to the first rows of dz the gradients that
// the rows of ds give.
func headDotBackward(d *Device, dz compute.Matrix, da []float32, ds, z compute.Matrix,
	a []float32) {
	n, width := heads(ds, z)
	C.halognn_head_dot_backward(d.level, floats(dz.Data), floats(da), C.int64_t(ds.Rows), n, width,
		floats(ds.Data), floats(z.Data), floats(a))
}

type edgeSoftmax struct {
	alpha    compute.Matrix
	s        compute.Segments
	src, dst compute.Matrix
	slope    float32
}

// EdgeSoftmax implements compute.Device.
func (d *Device) EdgeSoftmax(alpha compute.Matrix, s compute.Segments, src, dst compute.Matrix,
	slope float32) {
	defer d.probe.Start(compute.CheckEdgeSoftmax(alpha, s, src, dst)).Done()
	run(d, s.Len(), segmentRows, edgeSoftmax{alpha, s, src, dst, slope})
	d.panicIfBad("EdgeSoftmax", s, src.Rows)
}

func (a *edgeSoftmax) tile(d *Device, lo, hi int) {
	if s := part(a.s, lo, hi); d.inRange(s, a.src.Rows) {
		rows, n := size(a.dst.RowsAt(lo, hi))
		C.halognn_edge_softmax(d.level, floats(a.alpha.Data), rows, n, int64s(s.Indptr),
			int32s(s.Indices), floats(a.src.Data), floats(a.dst.RowsAt(lo, hi).Data),
			C.float(a.slope))
	}
}

type edgeSoftmaxBackward struct {
	ddst, dalpha    compute.Matrix
	s               compute.Segments
	alpha, src, dst compute.Matrix
	slope           float32
}

// EdgeSoftmaxBackward implements compute.Device.
func (d *Device) EdgeSoftmaxBackward(dsrc, ddst, dalpha compute.Matrix, s,
	transposed compute.Segments,
	alpha, src, dst compute.Matrix, slope float32) {
	defer d.probe.Start(compute.CheckEdgeSoftmaxBackward(dsrc, ddst, dalpha, s, transposed, alpha,
		src, dst)).Done()
	run(d, s.Len(), segmentRows, edgeSoftmaxBackward{ddst, dalpha, s, alpha, src, dst, slope})
	d.panicIfBad("EdgeSoftmaxBackward", s, src.Rows)
	referred := transposed.Len()
	run(d, referred, segmentRows, edgeCollect{dsrc.RowsAt(0, referred), dalpha, transposed})
	d.panicIfBad("EdgeSoftmaxBackward", transposed, s.Len())
	clear(dsrc.RowsAt(referred, dsrc.Rows).Data)
}

func (a *edgeSoftmaxBackward) tile(d *Device, lo, hi int) {
	if s := part(a.s, lo, hi); d.inRange(s, a.src.Rows) {
		ddst, dst := a.ddst.RowsAt(lo, hi), a.dst.RowsAt(lo, hi)
		rows, n := size(dst)
		C.halognn_edge_softmax_backward(d.level, floats(a.dalpha.Data), floats(ddst.Data), rows, n,
			int64s(s.Indptr), int32s(s.Indices), floats(a.alpha.Data), floats(a.src.Data),
			floats(dst.Data), C.float(a.slope))
	}
}

// edgeCollect adds up, for each source, the numbers that belong to its edges.
type edgeCollect struct {
	dsrc, de   compute.Matrix
	transposed compute.Segments
}

func (a *edgeCollect) tile(d *Device, lo, hi int) {
	if s := part(a.transposed, lo, hi); d.edgesInRange(s) {
		rows, n := size(a.dsrc.RowsAt(lo, hi))
		C.halognn_edge_collect(d.level, floats(a.dsrc.RowsAt(lo, hi).Data), rows, n,
			int64s(s.Indptr), int32s(s.Edges), floats(a.de.Data))
	}
}

// edgeDotSoftmax computes weights of edges in tiles of segments. All segments of a tile belong to
// the same group.
type edgeDotSoftmax struct {
	alpha    compute.Matrix
	s        compute.Segments
	src, dst compute.Matrix
	a        compute.Vectors
	slope    float32
}

// EdgeDotSoftmax implements compute.Device.
func (d *Device) EdgeDotSoftmax(alpha compute.Matrix, s compute.Segments, src, dst compute.Matrix,
	a compute.Vectors, slope float32) {
	defer d.probe.Start(compute.CheckEdgeDotSoftmax(alpha, s, src, dst, a)).Done()
	d.cutGroups(a.Segments(s.Len()), segmentRows, 0)
	run(d, len(d.groupTiles), 1, edgeDotSoftmax{alpha, s, src, dst, a, slope})
	d.panicIfBad("EdgeDotSoftmax", s, src.Rows)
}

func (a *edgeDotSoftmax) tile(d *Device, i, _ int) {
	t := d.groupTiles[i]
	if s := part(a.s, t.lo, t.hi); d.inRange(s, a.src.Rows) {
		n, width := heads(a.alpha, a.src)
		C.halognn_edge_dot_softmax(d.level, floats(a.alpha.Data), C.int64_t(t.hi-t.lo), n, width,
			int64s(s.Indptr), int32s(s.Indices), floats(a.src.Data),
			floats(a.dst.RowsAt(t.lo, t.hi).Data), floats(a.a.Of(a.a.Data, t.group, a.src.Cols)),
			C.float(a.slope))
	}
}

type edgeDotSoftmaxBackward struct {
	ddst            compute.Matrix
	da              []float32
	dalpha          compute.Matrix
	s               compute.Segments
	alpha, src, dst compute.Matrix
	a               compute.Vectors
	slope           float32
}

// EdgeDotSoftmaxBackward implements compute.Device.
func (d *Device) EdgeDotSoftmaxBackward(dsrc, ddst compute.Matrix, da []float32,
	dalpha compute.Matrix, s, transposed compute.Segments, alpha, src, dst compute.Matrix,
	a compute.Vectors, slope float32) {
	const kernel = "EdgeDotSoftmaxBackward"
	defer d.probe.Start(compute.CheckEdgeDotSoftmaxBackward(dsrc, ddst, da, dalpha, s, transposed,
		alpha, src, dst, a)).Done()
	groups := a.Segments(s.Len())
	d.partial = mem.Grow(d.partial, d.cutGroups(groups, compute.ChunkRows, src.Cols))
	for g := range groups.Ends {
		if lo, hi := groups.Rows(g); lo == hi {
			clear(a.Of(da, g, src.Cols))
		}
	}
	run(d, len(d.groupTiles), 1,
		edgeDotSoftmaxBackward{ddst, da, dalpha, s, alpha, src, dst, a, slope})
	d.panicIfBad(kernel, s, src.Rows)
	for _, t := range d.groupTiles {
		if t.at >= 0 {
			addInto(d.level, a.Of(da, t.group, src.Cols), d.partial[t.at:][:src.Cols])
		}
	}
	d.cutGroups(a.OfSources(transposed.Len()), segmentRows, 0)
	run(d, len(d.groupTiles), 1, edgeDotCollect{dsrc, dalpha, transposed, src, dst, a, slope})
	d.panicIfBad(kernel, transposed, s.Len())
}

func (a *edgeDotSoftmaxBackward) tile(d *Device, i, _ int) {
	t := d.groupTiles[i]
	if s := part(a.s, t.lo, t.hi); d.inRange(s, a.src.Rows) {
		da := a.a.Of(a.da, t.group, a.src.Cols)
		if t.at >= 0 {
			da = d.partial[t.at:]
		}
		n, width := heads(a.alpha, a.src)
		C.halognn_edge_dot_softmax_backward(d.level, floats(a.dalpha.Data),
			floats(a.ddst.RowsAt(t.lo, t.hi).Data), floats(da), C.int64_t(t.hi-t.lo), n, width,
			int64s(s.Indptr), int32s(s.Indices), floats(a.alpha.Data), floats(a.src.Data),
			floats(a.dst.RowsAt(t.lo, t.hi).Data), floats(a.a.Of(a.a.Data, t.group, a.src.Cols)),
			C.float(a.slope))
	}
}

// edgeDotCollect adds up, for each source, the gradients of its row that come from its edges.
type edgeDotCollect struct {
	dsrc, de   compute.Matrix
	transposed compute.Segments
	src, dst   compute.Matrix
	a          compute.Vectors
	slope      float32
}

func (a *edgeDotCollect) tile(d *Device, i, _ int) {
	t := d.groupTiles[i]
	if s := part(a.transposed, t.lo, t.hi); d.inRange(s, a.dst.Rows) && d.edgesInRange(s) {
		n, width := heads(a.de, a.src)
		C.halognn_edge_dot_collect(d.level, floats(a.dsrc.RowsAt(t.lo, t.hi).Data),
			C.int64_t(t.hi-t.lo), n, width, int64s(s.Indptr), int32s(s.Indices), int32s(s.Edges),
			floats(a.de.Data), floats(a.src.RowsAt(t.lo, t.hi).Data), floats(a.dst.Data),
			floats(a.a.Of(a.a.Data, t.group, a.src.Cols)), C.float(a.slope))
	}
}

type edgeSum struct {
	y        compute.Matrix
	s        compute.Segments
	alpha, z compute.Matrix
}

// EdgeSum implements compute.Device.
func (d *Device) EdgeSum(y compute.Matrix, s compute.Segments, alpha, z compute.Matrix) {
	defer d.probe.Start(compute.CheckEdgeSum(y, s, alpha, z)).Done()
	run(d, y.Rows, segmentRows, edgeSum{y, s, alpha, z})
	d.panicIfBad("EdgeSum", s, z.Rows)
}

func (a *edgeSum) tile(d *Device, lo, hi int) {
	if s := part(a.s, lo, hi); d.inRange(s, a.z.Rows) {
		n, width := heads(a.alpha, a.z)
		C.halognn_edge_sum(d.level, floats(a.y.RowsAt(lo, hi).Data), C.int64_t(hi-lo), n, width,
			int64s(s.Indptr), int32s(s.Indices), floats(a.alpha.Data), read(a.z))
	}
}

type edgeSumBackward struct {
	dz, dalpha   compute.Matrix
	transposed   compute.Segments
	alpha, z, dy compute.Matrix
}

// EdgeSumBackward implements compute.Device.
func (d *Device) EdgeSumBackward(dz, dalpha compute.Matrix, transposed compute.Segments,
	alpha, z, dy compute.Matrix) {
	defer d.probe.Start(compute.CheckEdgeSumBackward(dz, dalpha, transposed, alpha, z, dy)).Done()
	referred := transposed.Len()
	run(d, referred, segmentRows, edgeSumBackward{dz, dalpha, transposed, alpha, z, dy})
	d.panicIfBad("EdgeSumBackward", transposed, dy.Rows)
	clear(dz.RowsAt(referred, dz.Rows).Data)
}

func (a *edgeSumBackward) tile(d *Device, lo, hi int) {
	if s := part(a.transposed, lo, hi); d.inRange(s, a.dy.Rows) && d.edgesInRange(s) {
		n, width := heads(a.alpha, a.z)
		z := d.widen(a.z.RowsAt(lo, hi))
		C.halognn_edge_sum_backward(d.level, floats(a.dz.RowsAt(lo, hi).Data),
			floats(a.dalpha.Data), C.int64_t(hi-lo), n, width, int64s(s.Indptr), int32s(s.Indices),
			int32s(s.Edges), floats(a.alpha.Data), floats(z.wide.Data), floats(a.dy.Data))
		z.forget()
	}
}

// attend computes the weights of a tile's edges, and then the weighted sums while these weights are
// in the cache.
type attend struct {
	softmax edgeSoftmax
	sum     edgeSum
}

// AttendPairs implements compute.Device.
func (d *Device) AttendPairs(y, alpha compute.Matrix, s compute.Segments, src, dst compute.Matrix,
	a compute.Vectors, slope float32) {
	defer d.probe.Start(compute.CheckAttendPairs(y, alpha, s, src, dst, a)).Done()
	compute.AttendPairsInParts(d, y, alpha, s, src, dst, a, slope)
}

// Attend implements compute.Device.
func (d *Device) Attend(y, alpha compute.Matrix, s compute.Segments, src, dst, z compute.Matrix,
	slope float32) {
	defer d.probe.Start(compute.CheckAttend(y, alpha, s, src, dst, z)).Done()
	run(d, s.Len(), segmentRows,
		attend{edgeSoftmax{alpha, s, src, dst, slope}, edgeSum{y, s, alpha, z}})
	d.panicIfBad("Attend", s, src.Rows)
}

func (a *attend) tile(d *Device, lo, hi int) {
	a.softmax.tile(d, lo, hi)
	a.sum.tile(d, lo, hi)
}

// AttendBackward implements compute.Device.
func (d *Device) AttendBackward(dz, dsrc, ddst, dalpha compute.Matrix, s,
	transposed compute.Segments, alpha, src, dst, z, dy compute.Matrix, slope float32) {
	defer d.probe.Start(compute.CheckAttendBackward(dz, dsrc, ddst, dalpha, s, transposed, alpha,
		src, dst, z, dy)).Done()
	compute.AttendBackwardInParts(d, dz, dsrc, ddst, dalpha, s, transposed, alpha, src, dst, z, dy,
		slope)
}

type headMean struct{ y, x compute.Matrix }

// HeadMean implements compute.Device.
func (d *Device) HeadMean(y, x compute.Matrix) {
	defer d.probe.Start(compute.CheckHeadMean(y, x)).Done()
	run(d, y.Rows, streamRows(x.Cols), headMean{y, x})
}

func (a *headMean) tile(d *Device, lo, hi int) {
	C.halognn_head_mean(d.level, floats(a.y.RowsAt(lo, hi).Data), C.int64_t(hi-lo),
		C.int64_t(a.x.Cols/a.y.Cols), C.int64_t(a.y.Cols), floats(a.x.RowsAt(lo, hi).Data))
}

type headMeanBackward struct{ dx, dy compute.Matrix }

// HeadMeanBackward implements compute.Device.
func (d *Device) HeadMeanBackward(dx, dy compute.Matrix) {
	defer d.probe.Start(compute.CheckHeadMeanBackward(dx, dy)).Done()
	run(d, dx.Rows, streamRows(dx.Cols), headMeanBackward{dx, dy})
}

func (a *headMeanBackward) tile(d *Device, lo, hi int) {
	C.halognn_head_mean_backward(d.level, floats(a.dx.RowsAt(lo, hi).Data), C.int64_t(hi-lo),
		C.int64_t(a.dx.Cols/a.dy.Cols), C.int64_t(a.dy.Cols), floats(a.dy.RowsAt(lo, hi).Data))
}

type headMax struct{ y, x compute.Matrix }

// HeadMax implements compute.Device.
func (d *Device) HeadMax(y, x compute.Matrix) {
	defer d.probe.Start(compute.CheckHeadMax(y, x)).Done()
	run(d, y.Rows, streamRows(x.Cols), headMax{y, x})
}

func (a *headMax) tile(d *Device, lo, hi int) {
	C.halognn_head_max(d.level, floats(a.y.RowsAt(lo, hi).Data), C.int64_t(hi-lo),
		C.int64_t(a.x.Cols/a.y.Cols), C.int64_t(a.y.Cols), floats(a.x.RowsAt(lo, hi).Data))
}

type headMaxBackward struct{ dx, dy, x compute.Matrix }

// HeadMaxBackward implements compute.Device.
func (d *Device) HeadMaxBackward(dx, dy, x compute.Matrix) {
	defer d.probe.Start(compute.CheckHeadMaxBackward(dx, dy, x)).Done()
	run(d, dx.Rows, streamRows(dx.Cols), headMaxBackward{dx, dy, x})
}

func (a *headMaxBackward) tile(d *Device, lo, hi int) {
	C.halognn_head_max_backward(d.level, floats(a.dx.RowsAt(lo, hi).Data), C.int64_t(hi-lo),
		C.int64_t(a.dx.Cols/a.dy.Cols), C.int64_t(a.dy.Cols), floats(a.dy.RowsAt(lo, hi).Data),
		floats(a.x.RowsAt(lo, hi).Data))
}

// edgesInRange does what inRange does, for the field `Edges` of transposed segments.
func (d *Device) edgesInRange(s compute.Segments) bool {
	ok := checkIDs(s.Edges[s.Indptr[0]:s.Indptr[s.Len()]], len(s.Edges)) < 0
	if !ok {
		d.bad.Store(true)
	}
	return ok
}

// panicBadEdge panics with the first position in s.Edges whose number is out of range.
func panicBadEdge(kernel string, s compute.Segments) {
	at := checkIDs(s.Edges, len(s.Edges))
	panic(fmt.Sprintf("compute: %s: position %d of an edge is %d, but there are %d edges", kernel,
		at, s.Edges[at], len(s.Edges)))
}
