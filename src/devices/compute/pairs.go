package compute

import "fmt"

// PairKernels are kernels on pairs. A pair [R,2F] has the rows of two matrices [R,F] side by side.
// If a layer multiplies two matrices by weights of the same shape and adds the results, a single
// product of the pair of matrices and the pair of weights gives this sum. The gradient of the pair
// of matrices also takes a single product, and so does the gradient of the pair of weights.
type PairKernels interface {
	// Join makes pairs. It rounds the numbers of a pair to its type.
	Join(all ...Joining)
	// Part sets a to the left half of pair, and b to the right half. All three are of float32. The
	// halves are complete after Device.Settle; until then pair must not change.
	Part(a, b, pair Matrix)
	// SegmentJoined sets row d of pair to row d of h and, beside it, the reduction of segment d.
	// The kind of reduction is given (`how`); SegmentMean, SegmentSum and SegmentMax define them.
	SegmentJoined(pair, arg Matrix, how Reduction, s Segments, weights []float32, h Matrix)
	// SegmentJoinedBackward sets dh to the gradient of h. This is the gradient of the reduction,
	// computed from the right half of dpair, plus the left half of dpair, completed as c says. Own
	// of c has no columns. The matrix dh may be of float32 or bfloat16; dpair is of float32. The
	// weights are those of the transposed segments.
	SegmentJoinedBackward(dh Matrix, how Reduction, forward, transposed Segments,
		weights []float32, arg, dpair Matrix, c Completion)
}

// Joining says that Pair becomes [A | B]. Each of the three may be of float32 or bfloat16.
type Joining struct{ Pair, A, B Matrix }

// CheckJoin checks the arguments of Join.
func CheckJoin(all []Joining) Call {
	c := Call{Kernel: "Join"}
	for _, j := range all {
		checkStored("Join", j.A, j.B)
		checkPair("Join", j.Pair, j.A)
		c.Bytes += j.A.bytes() + j.B.bytes() + j.Pair.bytes()
	}
	return c
}

// CheckPart checks the arguments of Part.
func CheckPart(a, b, pair Matrix) Call {
	checkSame("Part", a, b)
	checkPair("Part", pair, a)
	checkColumns("Part", pair)
	return Call{Kernel: "Part", Bytes: 2 * pair.bytes()}
}

// checkPair panics unless pair has the rows of m and twice the columns of m.
func checkPair(kernel string, pair, m Matrix) {
	if !pair.stored() || pair.Rows != m.Rows || pair.Cols != 2*m.Cols {
		panic(fmt.Sprintf("compute: %s: %v is no pair of matrices like %v", kernel, pair, m))
	}
}

// CheckSegmentJoined checks the arguments of SegmentJoined.
func CheckSegmentJoined(pair, arg Matrix, how Reduction, s Segments, weights []float32,
	h Matrix) Call {
	const kernel = "SegmentJoined"
	checkStoredReduction(kernel, pair, s)
	checkStoredColumns(kernel, h)
	checkHow(how, s, weights)
	if h.Rows < s.Len() {
		panic(fmt.Sprintf("compute: %s: %d segments, and rows %v", kernel, s.Len(), h))
	}
	checkPair(kernel, pair, h.RowsAt(0, s.Len()))
	c := Call{Kernel: kernel, Bytes: s.gatherBytes(h) + floatBytes*len(weights) +
		h.RowsAt(0, s.Len()).bytes() + pair.bytes()}
	if arg.Cols > 0 {
		checkPair(kernel, pair, arg)
		checkColumns(kernel, arg)
		c.Bytes += arg.bytes()
	}
	return c
}

// CheckSegmentJoinedBackward checks the arguments of SegmentJoinedBackward.
func CheckSegmentJoinedBackward(dh Matrix, how Reduction, forward, transposed Segments,
	weights []float32, arg, dpair Matrix, c Completion) Call {
	const kernel = "SegmentJoinedBackward"
	checkSegments(kernel, transposed)
	checkHow(how, transposed, weights)
	checkColumns(kernel, dpair)
	if !dh.stored() || dpair.Cols != 2*dh.Cols || transposed.Len() > dh.Rows ||
		dpair.Rows > transposed.Len() || how == ReduceMean && forward.Len() != dpair.Rows ||
		c.Own.Cols > 0 {
		panic(fmt.Sprintf("compute: %s: dh %v from %d transposed segments, dpair %v of %d segments",
			kernel, dh, transposed.Len(), dpair, forward.Len()))
	}
	if how == ReduceMax {
		checkPair(kernel, dpair, arg)
		checkColumns(kernel, arg)
	}
	gathered := floatBytes * len(transposed.Indices) * dh.Cols
	if how == ReduceMean {
		// for reading the degree of each edge's destination
		gathered += 16 * len(transposed.Indices)
	}
	return Call{Kernel: kernel, Bytes: gathered + transposed.bytes() + floatBytes*len(weights) +
		arg.bytes() + dpair.bytes()/2 + c.check(kernel, dh.RowsAt(0, transposed.Len())) +
		dh.bytes()}
}
