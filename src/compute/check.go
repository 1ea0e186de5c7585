package compute

import (
	"fmt"
	"slices"
)

// The checks below are the shape rules of the Device and Host methods. Every backend calls them first, so a wrong shape
// panics with the same text everywhere. They allocate only when they panic.

func (m Matrix) String() string {
	return fmt.Sprintf("[%d,%d] in %d elements", m.Rows, m.Cols, len(m.Data))
}

// holds reports whether Data holds the elements.
func (m Matrix) holds() bool { return m.Rows >= 0 && m.Cols >= 0 && len(m.Data) >= m.Rows*m.Cols }

// CheckProduct holds y [R,O], x [R,F] and w [O,F] of y = x wᵀ, or their gradients, together.
func CheckProduct(kernel string, y, x, w Matrix) {
	if !y.holds() || !x.holds() || !w.holds() || y.Rows != x.Rows || y.Cols != w.Rows || x.Cols != w.Cols {
		panic(fmt.Sprintf("compute: %s: [R,O], [R,F], [O,F] are %v, %v, %v", kernel, y, x, w))
	}
}

// CheckSame holds two matrices of one shape together.
func CheckSame(kernel string, a, b Matrix) {
	if !a.holds() || !b.holds() || a.Rows != b.Rows || a.Cols != b.Cols {
		panic(fmt.Sprintf("compute: %s: matrices %v and %v differ in shape", kernel, a, b))
	}
}

// CheckColumns holds a matrix and vectors with an element for each of its columns, given by their lengths, together.
func CheckColumns(kernel string, m Matrix, vectors ...int) {
	if !m.holds() || !allAre(m.Cols, vectors) {
		panic(fmt.Sprintf("compute: %s: matrix %v and vectors of %v elements for its columns", kernel, m, slices.Clone(vectors)))
	}
}

// CheckRows holds a matrix and vectors with an element for each of its rows, given by their lengths, together.
func CheckRows(kernel string, m Matrix, vectors ...int) {
	if !m.holds() || !allAre(m.Rows, vectors) {
		panic(fmt.Sprintf("compute: %s: matrix %v and vectors of %v elements for its rows", kernel, m, slices.Clone(vectors)))
	}
}

// CheckLengths holds arrays of one length together.
func CheckLengths(kernel string, n int, others ...int) {
	if !allAre(n, others) {
		panic(fmt.Sprintf("compute: %s: arrays of %d and %v elements", kernel, n, slices.Clone(others)))
	}
}

func allAre(n int, lengths []int) bool {
	for _, l := range lengths {
		if l != n {
			return false
		}
	}
	return true
}

// CheckSegments panics unless every segment lies within Indices. Whether the indices name rows is for the kernel to
// check, which reads them anyway.
func CheckSegments(kernel string, s Segments) {
	if len(s.Indptr) == 0 {
		panic(fmt.Sprintf("compute: %s: no Indptr; for no segments it is [0]", kernel))
	}
	at := s.Indptr[0]
	rises := at >= 0
	for _, next := range s.Indptr[1:] {
		rises = rises && next >= at
		at = next
	}
	if !rises || at > int64(len(s.Indices)) {
		panic(fmt.Sprintf("compute: %s: Indptr falls, or ends at %d of %d indices", kernel, at, len(s.Indices)))
	}
}

// CheckSegmentSum holds the arguments of Device.SegmentSum together.
func CheckSegmentSum(out Matrix, s Segments, weights []float32, h Matrix) {
	const kernel = "SegmentSum"
	CheckSegments(kernel, s)
	CheckRows(kernel, out, s.Len())
	CheckColumns(kernel, h, out.Cols)
	if weights != nil {
		CheckLengths(kernel, len(s.Indices), len(weights))
	}
}

// CheckSegmentMeanBackward holds the arguments of Device.SegmentMeanBackward together.
func CheckSegmentMeanBackward(dh Matrix, forward, transposed Segments, dout Matrix) {
	const kernel = "SegmentMeanBackward"
	CheckSegments(kernel, transposed)
	if !dh.holds() || !dout.holds() || dh.Cols != dout.Cols || transposed.Len() > dh.Rows || forward.Len() != dout.Rows {
		panic(fmt.Sprintf("compute: %s: dh %v from %d transposed segments, dout %v of %d segments", kernel, dh, transposed.Len(),
			dout, forward.Len()))
	}
}

// CheckLoss holds the logits of a loss and their gradient, which may be absent, together.
func CheckLoss(kernel string, dlogits, logits Matrix) {
	if dlogits.Data == nil {
		CheckRows(kernel, logits)
	} else {
		CheckSame(kernel, dlogits, logits)
	}
}

// CheckLabels panics unless there is a label in [0,C) for every row of the logits [R,C].
func CheckLabels(kernel string, logits Matrix, labels []int32) {
	CheckLengths(kernel, logits.Rows, len(labels))
	for r, l := range labels {
		if l < 0 || int(l) >= logits.Cols {
			panic(fmt.Sprintf("compute: %s: label %d of row %d is not one of %d classes", kernel, l, r, logits.Cols))
		}
	}
}
