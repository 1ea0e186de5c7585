package compute

import "fmt"

// PairKernels are kernels on pairs: a pair [R,2F] has the rows of two matrices [R,F] side by side.
// Where a layer multiplies two matrices by weights of one shape, the pair of the matrices times the
// pair of the weights is the sum of both products, made in one; so are both gradients.
type PairKernels interface {
	// Join makes pairs, each rounded to its type.
	Join(all ...Joining)
	// Part sets a and b to the halves of pair, all of float32. They are complete after Device.Settle;
	// until then pair must not change.
	Part(a, b, pair Matrix)
	// SegmentJoined sets pair = [h[d] | what how makes of segment d], by the definitions of
	// SegmentMean, SegmentSum and SegmentMax.
	SegmentJoined(pair, arg Matrix, how Reduction, s Segments, weights []float32, h Matrix)
	// SegmentJoinedBackward sets dh to the gradient of h: the gradient of the reduction, for the
	// second half of dpair, plus the first half. dh is of either type, dpair of float32. The weights
	// are those of the transposed segments.
	SegmentJoinedBackward(dh Matrix, how Reduction, forward, transposed Segments,
		weights []float32, arg, dpair Matrix, rounded bool)
}

// Joining is Pair = [A | B], of either type each.
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

// checkPair panics unless pair is as large as two matrices like m.
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
	weights []float32, arg, dpair Matrix, rounded bool) Call {
	const kernel = "SegmentJoinedBackward"
	checkSegments(kernel, transposed)
	checkHow(how, transposed, weights)
	checkColumns(kernel, dpair)
	if !dh.stored() || dpair.Cols != 2*dh.Cols || transposed.Len() > dh.Rows ||
		dpair.Rows > transposed.Len() || how == ReduceMean && forward.Len() != dpair.Rows {
		panic(fmt.Sprintf("compute: %s: dh %v from %d transposed segments, dpair %v of %d segments",
			kernel, dh, transposed.Len(), dpair, forward.Len()))
	}
	if how == ReduceMax {
		checkPair(kernel, dpair, arg)
		checkColumns(kernel, arg)
	}
	gathered := floatBytes * len(transposed.Indices) * dh.Cols
	if how == ReduceMean {
		gathered += 16 * len(transposed.Indices) // for the degree of an edge's destination
	}
	c := Completion{Rounded: rounded}
	return Call{Kernel: kernel, Bytes: gathered + transposed.bytes() + floatBytes*len(weights) +
		arg.bytes() + dpair.bytes()/2 + c.check(kernel, dh) + dh.bytes()}
}
