package compute

import "fmt"

// Segments is a sampled bipartite graph in CSC form, as in graph.Block. Each destination d has the
// segment Indices[Indptr[d]:Indptr[d+1]]. An index is the number of a row of the input matrix.
//
// A segment of an input layer may consist of groups (Host.SegmentRows, Inputs.Input). A group
// begins with a negative index ^i, which means row i.
type Segments struct {
	Indptr  []int64 // [D+1]
	Indices []int32 // [E]

	// Counts [D] has the number by which the mean of each segment divides. It is given if sums of
	// groups replace rows. If it is nil, a mean divides by the number of indices in the segment.
	Counts []int32

	// Edges [E] is for transposed segments. It has the position of each edge in the forward
	// segments. It may be nil if no kernel with arrays of edges is called.
	Edges []int32

	// If Above is not 0, a Drawing has made the arrays. They are in device memory, which the host
	// cannot read, and all indices are below Above.
	Above int32
}

// SourceOf returns the row to which an index refers, also if the index begins a group.
func SourceOf(index int32) int32 { return index ^ index>>31 }

// Len returns the number of segments, D.
func (s Segments) Len() int { return len(s.Indptr) - 1 }

// bytes returns the bytes of Indptr and Indices. It leaves out Edges, because few kernels read it.
func (s Segments) bytes() int { return 8*len(s.Indptr) + 4*len(s.Indices) }

// SegmentKernels are reductions of rows over the segments of a block, and their gradients. The rows
// h that are reduced, the rows Completion.Own, and the results of a reduction may be of float32 or
// bfloat16.
type SegmentKernels interface {
	// SegmentMean sets out[d] to the mean of h[i] over the indices i in segment d. The mean of an
	// empty segment is zero.
	SegmentMean(out Matrix, s Segments, h Matrix)
	// SegmentMeanBackward is the gradient of SegmentMean. It sets dh[s] to the sum of dout[t] /
	// degree(t) over the destinations t in transposed segment s, and then completes dh as c says.
	// The argument `transposed` is the transpose of the forward segments, and degree(t) =
	// forward.Indptr[t+1] - forward.Indptr[t]. The division is a multiplication by the float32
	// reciprocal. The matrix dh may be of float32 or bfloat16. If it has more rows than transposed
	// has segments, the further rows are set to zero.
	SegmentMeanBackward(dh Matrix, forward, transposed Segments, dout Matrix, c Completion)
	// SegmentSum sets out[d] to the sum of weights[e]*h[i] over the edges e in segment d, where i =
	// s.Indices[e]. If add is true, it computes this sum and then adds it to out[d]. The array
	// weights [E] is in host memory. If it is nil, all weights are 1.
	SegmentSum(out Matrix, s Segments, weights []float32, h Matrix, add bool)
	// SegmentSumCompleted does what SegmentSum does without add, and then completes out as c says.
	// With transposed segments, and weights in their order, it gives the gradient of SegmentSum.
	SegmentSumCompleted(out Matrix, s Segments, weights []float32, h Matrix, c Completion)
	// SegmentMax sets out[d,j] to the largest h[i,j] over the indices i in segment d. For an empty
	// segment, out[d,j] is zero. A NaN counts as larger than every number. The element arg[d,j]
	// gets the row i that has the largest number, as the bits of an int32. If several rows have it,
	// arg gets the row of the first edge; for an empty segment, -1. Without a backward, arg is the
	// zero Matrix.
	SegmentMax(out, arg Matrix, s Segments, h Matrix)
	// SegmentMaxBackward is the gradient of SegmentMax. It sets dh[s,j] to the sum of dout[t,j]
	// over the destinations t in transposed segment s for which arg[t,j] == s, and then completes
	// dh as c says. A destination counts once even if two edges lead to it from s. dh may be of
	// float32 or bfloat16. If it has more rows than transposed has segments, the rest is set to 0.
	SegmentMaxBackward(dh Matrix, transposed Segments, arg, dout Matrix, c Completion)
}

// CheckSegmentMean checks the arguments of SegmentMean.
func CheckSegmentMean(out Matrix, s Segments, h Matrix) Call {
	checkStoredReduction("SegmentMean", out, s)
	checkStoredColumns("SegmentMean", h, out.Cols)
	return Call{Kernel: "SegmentMean", Bytes: s.gatherBytes(h) + out.bytes()}
}

// CheckSegmentMeanBackward checks the arguments of SegmentMeanBackward.
func CheckSegmentMeanBackward(dh Matrix, forward, transposed Segments, dout Matrix,
	c Completion) Call {
	const kernel = "SegmentMeanBackward"
	checkSegments(kernel, transposed)
	if !dh.stored() || !dout.holds() || dh.Cols != dout.Cols || transposed.Len() > dh.Rows ||
		forward.Len() != dout.Rows {
		panic(fmt.Sprintf("compute: %s: dh %v from %d transposed segments, dout %v of %d segments",
			kernel,
			dh, transposed.Len(), dout, forward.Len()))
	}
	const degree = 16 // bytes of Indptr that are read for the degree of an edge's destination
	return Call{Kernel: kernel, Bytes: transposed.gatherBytes(dout) +
		degree*len(transposed.Indices) + c.check(kernel, dh.RowsAt(0, transposed.Len())) +
		dh.bytes()}
}

// CheckSegmentSum checks the arguments of SegmentSum.
func CheckSegmentSum(out Matrix, s Segments, weights []float32, h Matrix, add bool) Call {
	const kernel = "SegmentSum"
	checkStoredReduction(kernel, out, s)
	checkStoredColumns(kernel, h, out.Cols)
	if add {
		checkColumns(kernel, out, out.Cols)
	}
	if weights != nil {
		CheckLengths(kernel, len(s.Indices), len(weights))
	}
	return Call{Kernel: kernel, Bytes: s.gatherBytes(h) + floatBytes*len(weights) +
		out.bytesWritten(add)}
}

// SegmentSumCompletedInParts defines SegmentSumCompleted for float32, with a kernel for each step.
func SegmentSumCompletedInParts(k Kernels, out Matrix, s Segments, weights []float32, h Matrix,
	c Completion) {
	k.SegmentSum(out, s, weights, h, false)
	c.Apply(k, out)
}

// CheckSegmentSumCompleted checks the arguments of SegmentSumCompleted.
func CheckSegmentSumCompleted(out Matrix, s Segments, weights []float32, h Matrix,
	c Completion) Call {
	const kernel = "SegmentSumCompleted"
	sum := CheckSegmentSum(out, s, weights, h, false)
	if c.Of.Cols > 0 {
		checkColumns(kernel, h, h.Cols)
	}
	return Call{Kernel: kernel, Bytes: sum.Bytes + c.check(kernel, out)}
}

// CheckSegmentMax checks the arguments of SegmentMax.
func CheckSegmentMax(out, arg Matrix, s Segments, h Matrix) Call {
	checkStoredReduction("SegmentMax", out, s)
	checkStoredColumns("SegmentMax", h, out.Cols)
	c := Call{Kernel: "SegmentMax", Bytes: s.gatherBytes(h) + out.bytes()}
	if arg.Cols > 0 {
		checkStored("SegmentMax", out, arg)
		checkColumns("SegmentMax", arg, arg.Cols)
		c.Bytes += arg.bytes()
	}
	return c
}

// CheckSegmentMaxBackward checks the arguments of SegmentMaxBackward.
func CheckSegmentMaxBackward(dh Matrix, transposed Segments, arg, dout Matrix, c Completion) Call {
	const kernel = "SegmentMaxBackward"
	checkSegments(kernel, transposed)
	checkSame(kernel, arg, dout)
	if !dh.stored() || dh.Cols != dout.Cols || transposed.Len() > dh.Rows {
		panic(fmt.Sprintf("compute: %s: dh %v from %d transposed segments, dout %v", kernel, dh,
			transposed.Len(), dout))
	}
	// bytes that are read from arg and from dout for each edge
	gathered := 2 * floatBytes * len(transposed.Indices) * dh.Cols
	return Call{Kernel: kernel, Bytes: gathered + transposed.bytes() +
		c.check(kernel, dh.RowsAt(0, transposed.Len())) + dh.bytes()}
}

// gatherBytes returns the bytes that are moved if a row of h is read for each edge.
func (s Segments) gatherBytes(h Matrix) int {
	return h.Elements().Size()*len(s.Indices)*h.Cols + s.bytes()
}

func checkReduction(kernel string, out Matrix, s Segments) {
	checkSegments(kernel, s)
	checkRows(kernel, out, s.Len())
}

// checkStoredReduction does what checkReduction does, for a matrix of float32 or bfloat16.
func checkStoredReduction(kernel string, out Matrix, s Segments) {
	checkSegments(kernel, s)
	if !out.stored() || out.Rows != s.Len() {
		panic(fmt.Sprintf("compute: %s: matrix %v must have all its elements, and a row for each "+
			"of %d segments", kernel, out, s.Len()))
	}
}

// checkSegments panics unless every segment lies within Indices. The kernel itself checks the range
// of the indices, because it reads them anyway.
func checkSegments(kernel string, s Segments) {
	if len(s.Indptr) == 0 {
		panic(fmt.Sprintf("compute: %s: Indptr is empty; without segments it must be [0]",
			kernel))
	}
	if s.Above > 0 {
		return
	}
	at := s.Indptr[0]
	rises := at >= 0
	for _, next := range s.Indptr[1:] {
		rises = rises && next >= at
		at = next
	}
	if !rises || at > int64(len(s.Indices)) {
		panic(fmt.Sprintf("compute: %s: Indptr falls, or ends at %d of %d indices", kernel, at,
			len(s.Indices)))
	}
}
