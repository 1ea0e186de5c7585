//go:build cgo

package cpu

import (
	"fmt"

	"halognn/src/compute"
)

// segmentRows is the number of segments of a tile: enough that a call into C and its first, unprefetched rows are nothing
// beside it, few enough that a tile with a hub does not hold up the rest.
const segmentRows = 64

// SegmentMean implements compute.Device.
func (d *Device) SegmentMean(out compute.Matrix, s compute.Segments, h compute.Matrix) {
	compute.CheckSegments("SegmentMean", s)
	compute.CheckRows("SegmentMean", out, s.Len())
	compute.CheckColumns("SegmentMean", h, out.Cols)
	d.run(out.Rows, task{run: segmentMeanTile, rowsPerTile: segmentRows, y: out, segments: s, x: h})
	d.panicIfBad("SegmentMean", s, h.Rows)
}

func segmentMeanTile(d *Device, t *task, tile int) {
	lo, hi := t.bounds(t.y.Rows, tile)
	if s := part(t.segments, lo, hi); d.inRange(s, t.x.Rows) {
		d.kernels.segmentMean(t.y.RowsAt(lo, hi), s, t.x)
	}
}

// SegmentSum implements compute.Device.
func (d *Device) SegmentSum(out compute.Matrix, s compute.Segments, weights []float32, h compute.Matrix, add bool) {
	compute.CheckSegmentSum(out, s, weights, h)
	d.run(out.Rows, task{run: segmentSumTile, rowsPerTile: segmentRows, y: out, segments: s, weights: weights, x: h, add: add})
	d.panicIfBad("SegmentSum", s, h.Rows)
}

func segmentSumTile(d *Device, t *task, tile int) {
	lo, hi := t.bounds(t.y.Rows, tile)
	if s := part(t.segments, lo, hi); d.inRange(s, t.x.Rows) {
		d.kernels.segmentSum(t.y.RowsAt(lo, hi), s, t.weights, t.x, t.add)
	}
}

// SegmentMeanBackward implements compute.Device.
func (d *Device) SegmentMeanBackward(dh compute.Matrix, forward, transposed compute.Segments, dout compute.Matrix, add bool) {
	compute.CheckSegmentMeanBackward(dh, forward, transposed, dout)
	referred := transposed.Len()
	d.run(referred, task{run: segmentMeanBackwardTile, rowsPerTile: segmentRows, dx: dh.RowsAt(0, referred), forward: forward,
		segments: transposed, y: dout, add: add})
	d.panicIfBad("SegmentMeanBackward", transposed, dout.Rows)
	if !add {
		clear(dh.RowsAt(referred, dh.Rows).Data)
	}
}

func segmentMeanBackwardTile(d *Device, t *task, tile int) {
	lo, hi := t.bounds(t.dx.Rows, tile)
	if s := part(t.segments, lo, hi); d.inRange(s, t.y.Rows) {
		d.kernels.segmentMeanBackward(t.dx.RowsAt(lo, hi), t.forward, s, t.y, t.add)
	}
}

// part returns segments [lo,hi) of s.
func part(s compute.Segments, lo, hi int) compute.Segments {
	return compute.Segments{Indptr: s.Indptr[lo : hi+1], Indices: s.Indices}
}

// inRange reports whether the indices of the segments name rows of a matrix of that many; if not, panicIfBad will panic: on
// the calling goroutine, where it can be told whose fault it is.
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
	at += checkIDs(s.Indices[at:s.Indptr[s.Len()]], rows)
	panic(fmt.Sprintf("compute: %s: index %d is %d, but there are %d rows", kernel, at, s.Indices[at], rows))
}
