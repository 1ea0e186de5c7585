package compute

import "fmt"

// Segments is a sampled bipartite graph in CSC over destinations, as graph.Block holds it:
// segment d is Indices[Indptr[d]:Indptr[d+1]], each a row of the input matrix.
//
// The segments of an input layer may be cut into groups (Host.SegmentRows, Inputs.Input): an index
// ^i, which is negative, means row i too, and begins a group.
type Segments struct {
	Indptr  []int64 // [D+1]
	Indices []int32 // [E]

	// Counts [D], if sums of groups take the place of rows: the number that a mean divides by. nil:
	// the number of indices of the segment.
	Counts []int32

	// Edges [E], of a transpose: each edge's position in the forward segments. Only kernels with
	// arrays of edges read it; nil if no such kernel is called.
	Edges []int32

	// Above, unless 0: a Drawing made the arrays. They lie in device memory, where the host does
	// not read them, and all indices are below Above.
	Above int32
}

// SourceOf returns the row that an index refers to, whether or not it begins a group.
func SourceOf(index int32) int32 { return index ^ index>>31 }

// Len returns the number of segments, D.
func (s Segments) Len() int { return len(s.Indptr) - 1 }

// bytes returns the size of the segments themselves, without Edges, which few kernels read.
func (s Segments) bytes() int { return 8*len(s.Indptr) + 4*len(s.Indices) }

// SegmentKernels are reductions of rows over the segments of a block, and their gradients. The rows
// h that are reduced, own rows, and the results of a reduction may be of either type.
type SegmentKernels interface {
	// SegmentMean sets out[d] to the mean of h[i], i in segment d; zero for an empty segment.
	SegmentMean(out Matrix, s Segments, h Matrix)
	// SegmentMeanBackward is the gradient of SegmentMean: dh[s] = sum over t in transposed segment
	// s of dout[t] / degree(t), completed. The division is a multiplication by the float32
	// reciprocal. transposed is the transpose of the forward segments, degree(t) =
	// forward.Indptr[t+1]-forward.Indptr[t]. If dh, of either type, has more rows than transposed
	// has segments, the rest become zero.
	SegmentMeanBackward(dh Matrix, forward, transposed Segments, dout Matrix, c Completion)
	// SegmentSum sets out[d] to the sum over e in segment d of weights[e]*h[i], i = s.Indices[e],
	// or adds it to out[d] if add. weights [E] is host memory; nil for all 1. The sum is complete
	// before it is added.
	SegmentSum(out Matrix, s Segments, weights []float32, h Matrix, add bool)
	// SegmentSumCompleted is SegmentSum, completed. The gradient of SegmentSum is this over the
	// transposed segments, with the weights in their order.
	SegmentSumCompleted(out Matrix, s Segments, weights []float32, h Matrix, c Completion)
	// SegmentMax sets out[d,j] to the largest of h[i,j], i in segment d; zero for an empty segment.
	// A NaN is larger than every number. arg [D,C] gets, as the bits of an int32, the row i with
	// the largest number (of equal ones, that of the segment's first edge); -1 for an empty
	// segment. arg is the zero Matrix if no backward follows.
	SegmentMax(out, arg Matrix, s Segments, h Matrix)
	// SegmentMaxBackward is the gradient of SegmentMax: dh[s,j] = sum over the destinations t in
	// transposed segment s with arg[t,j] == s of dout[t,j], completed. A destination counts once
	// even if two edges join it to s. dh, of either type, may have more rows than edges refer to;
	// the others become zero.
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
	const degree = 16 // bytes of Indptr read for the degree of an edge's destination
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

// SegmentSumCompletedInParts is the definition of SegmentSumCompleted, of float32: a kernel for
// each step.
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
	// bytes gathered from arg and from dout
	gathered := 2 * floatBytes * len(transposed.Indices) * dh.Cols
	return Call{Kernel: kernel, Bytes: gathered + transposed.bytes() +
		c.check(kernel, dh.RowsAt(0, transposed.Len())) + dh.bytes()}
}

// gatherBytes returns the bytes moved by reading a row like h's for each edge.
func (s Segments) gatherBytes(h Matrix) int {
	return h.Elements().Size()*len(s.Indices)*h.Cols + s.bytes()
}

func checkReduction(kernel string, out Matrix, s Segments) {
	checkSegments(kernel, s)
	checkRows(kernel, out, s.Len())
}

// checkStoredReduction is checkReduction of a matrix of either type.
func checkStoredReduction(kernel string, out Matrix, s Segments) {
	checkSegments(kernel, s)
	if !out.stored() || out.Rows != s.Len() {
		panic(fmt.Sprintf("compute: %s: matrix %v must be whole, with a row for each of %d "+
			"segments", kernel, out, s.Len()))
	}
}

// checkSegments panics unless every segment lies within Indices. The kernel, which reads the
// indices anyway, checks their range.
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
