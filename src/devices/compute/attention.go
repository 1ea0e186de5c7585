package compute

import "fmt"

// AttentionKernels are the kernels of graph attention layers. The columns of z, a and y are divided
// into H heads of equal width C: head h has the columns [h*C, (h+1)*C). An array of edges is a
// matrix [E,H] with a row for each edge of the forward segments, in order. Kernels of gradients
// read the transposed segments; their list Edges has the row of each edge.
//
//	z [S,H*C] ─ HeadDots ─> src [S,H], dst [D,H] ─ EdgeSoftmax ─> alpha [E,H] ─┐
//	      └───────────────────────────────────────────────────────────────── EdgeSum ─> y [D,H*C]
//
// The matrix z may be of float32 or bfloat16. Attend does the work of EdgeSoftmax and EdgeSum in
// one kernel. For GATv2, EdgeDotSoftmax computes alpha from src [S,H*C] and dst [D,H*C], and
// EdgeSum reads src instead of z.
//
// Sources: GAT (Velickovic et al., ICLR 2018) and GATv2 (Brody et al., ICLR 2022), as GATConv and
// GATv2Conv of PyTorch Geometric have them.
type AttentionKernels interface {
	// HeadDots sets src[r,h] to the sum of z[r,j]*asrc[j] over the columns j of head h. In the
	// first D rows it sets dst[r,h] to the same sum with adst. Shapes: src [S,H], dst [D,H], z
	// [S,H*C], asrc and adst [H*C].
	HeadDots(src, dst, z Matrix, asrc, adst []float32)
	// HeadDotsBackward is the gradient of HeadDots. It adds dsrc[r,h]*asrc[j] to dz[r,j] and then,
	// in the first D rows, ddst[r,h]*adst[j]. It sets dasrc[j] to the sum over the rows of
	// dsrc[r,h]*z[r,j], and dadst[j] to the sum over the first D rows of ddst[r,h]*z[r,j]. Rows are
	// summed in chunks.
	HeadDotsBackward(dz Matrix, dasrc, dadst []float32, dsrc, ddst, z Matrix, asrc, adst []float32)
	// EdgeSoftmax sets alpha[e,h] to the softmax, over the edges e of a segment d, of the scores
	// LeakyReLU(src[i,h] + dst[d,h]), where i = s.Indices[e]. LeakyReLU multiplies numbers that are
	// not above 0 by slope. Shapes: alpha [E,H], src [S,H], dst [D,H].
	EdgeSoftmax(alpha Matrix, s Segments, src, dst Matrix, slope float32)
	// EdgeSoftmaxBackward computes dsrc [S,H] and ddst [D,H] from dalpha [E,H], which it
	// overwrites. The other arguments are those of EdgeSoftmax and its result. If dsrc has more
	// rows than transposed has segments, the further rows are set to zero.
	EdgeSoftmaxBackward(dsrc, ddst, dalpha Matrix, s, transposed Segments, alpha, src, dst Matrix,
		slope float32)
	// EdgeDotSoftmax sets alpha[e,h] to the softmax, over the edges e of a segment d, of the edges'
	// scores. The score is the sum of a[j] * LeakyReLU(src[i,j] + dst[d,j]) over the columns j of
	// head h, where i = s.Indices[e]. Here a [H*C] is the vector of the group to which d belongs.
	// Shapes: alpha [E,H], src [S,H*C], dst [D,H*C].
	EdgeDotSoftmax(alpha Matrix, s Segments, src, dst Matrix, a Vectors, slope float32)
	// EdgeDotSoftmaxBackward computes gradients from dalpha [E,H], which it overwrites. It adds to
	// dsrc [S,H*C], and sets ddst [D,H*C] and da, which has the same layout as a. The other
	// arguments are those of EdgeDotSoftmax and its result. The sum over a source's edges is
	// complete before it is added to dsrc. For da, the sum over each destination's edges is
	// computed first. These sums are added over the destinations of a group, in chunks that begin
	// at the group's first destination.
	EdgeDotSoftmaxBackward(dsrc, ddst Matrix, da []float32, dalpha Matrix, s, transposed Segments,
		alpha, src, dst Matrix, a Vectors, slope float32)
	// EdgeSum sets y[d,j] to the sum of alpha[e,h]*z[i,j] over the edges e of segment d. Here i is
	// s.Indices[e], and h the head of column j. Shapes: y [D,H*C], alpha [E,H], z [S,H*C].
	EdgeSum(y Matrix, s Segments, alpha, z Matrix)
	// AttendPairs does the same as EdgeDotSoftmax and then EdgeSum of src (see AttendPairsInParts),
	// for one group. Afterwards alpha has the weights.
	AttendPairs(y, alpha Matrix, s Segments, src, dst Matrix, a Vectors, slope float32)
	// EdgeSumBackward is the gradient of EdgeSum: it computes dz [S,H*C] and dalpha [E,H] from dy
	// [D,H*C]. If dz has more rows than transposed has segments, the further rows are set to zero.
	// The matrix z must have the same number of rows as dz.
	EdgeSumBackward(dz, dalpha Matrix, transposed Segments, alpha, z, dy Matrix)
	// Attend does what EdgeSoftmax and then EdgeSum do (see AttendInParts). It sets alpha to the
	// weights.
	Attend(y, alpha Matrix, s Segments, src, dst, z Matrix, slope float32)
	// AttendBackward is the gradient of Attend: it computes dz [S,H*C], dsrc [S,H] and ddst [D,H]
	// from dy [D,H*C]. It overwrites dalpha [E,H]. The other arguments are those of Attend and its
	// results.
	AttendBackward(dz, dsrc, ddst, dalpha Matrix, s, transposed Segments, alpha, src, dst, z,
		dy Matrix, slope float32)
	// HeadMean sets y [R,C] to the mean over the heads of x [R,H*C].
	HeadMean(y, x Matrix)
	// HeadMeanBackward sets dx [R,H*C] from dy [R,C].
	HeadMeanBackward(dx, dy Matrix)
	// HeadMax sets y [R,C] to the maximum over the heads of x [R,H*C]. A NaN counts as larger than
	// every number.
	HeadMax(y, x Matrix)
	// HeadMaxBackward sets dx [R,H*C]. For each column, the first head with the largest number of x
	// gets dy [R,C], and all other heads get 0. The matrices dx and x may be the same.
	HeadMaxBackward(dx, dy, x Matrix)
}

// CheckHeadDots checks the arguments of HeadDots.
func CheckHeadDots(src, dst, z Matrix, asrc, adst []float32) Call {
	checkBothEnds("HeadDots", src, dst, z)
	checkStoredColumns("HeadDots", z, len(asrc), len(adst))
	return Call{Kernel: "HeadDots",
		Bytes: z.bytes() + src.bytes() + dst.bytes() + 2*floatBytes*len(asrc)}
}

// CheckHeadDotsBackward checks the arguments of HeadDotsBackward.
func CheckHeadDotsBackward(dz Matrix, dasrc, dadst []float32, dsrc, ddst, z Matrix,
	asrc, adst []float32) Call {
	const kernel = "HeadDotsBackward"
	checkBothEnds(kernel, dsrc, ddst, z)
	checkStored(kernel, dz, z)
	checkColumns(kernel, dz, len(asrc), len(dasrc), len(adst), len(dadst))
	return Call{Kernel: kernel,
		Bytes: 2*dz.bytes() + z.bytes() + dsrc.bytes() + ddst.bytes() + 4*floatBytes*len(asrc)}
}

// checkBothEnds checks that src and z have the same number of rows, that dst does not have more
// rows, and that src and dst have the same number of heads.
func checkBothEnds(kernel string, src, dst, z Matrix) {
	checkHeads(kernel, src, z)
	if dst.Rows < 0 || dst.Rows > z.Rows {
		panic(fmt.Sprintf("compute: %s: the destinations, %v, must be 0 to all of the rows of %v",
			kernel, dst, z))
	}
	checkHeads(kernel, dst, z.RowsAt(0, dst.Rows))
	if dst.Cols != src.Cols {
		panic(fmt.Sprintf("compute: %s: sources %v and destinations %v differ in heads", kernel,
			src, dst))
	}
}

// Vectors are the vectors with which EdgeDotSoftmax scores pairs of rows: one vector for all pairs,
// or one for each group. Segments and sources are divided into the same groups of consecutive rows.
// An edge joins rows of the same group.
type Vectors struct {
	Data    []float32
	Stride  int     // the vector of group g begins at element g*Stride
	Ends    []int32 // [G] 1 + last segment of each group; nil if all rows are in one group
	Sources []int32 // [G] 1 + last source of each group; only the gradient reads it
}

// Of returns the vector of a group, which has cols elements. The argument `data` has all vectors,
// or the gradients of all vectors.
func (v *Vectors) Of(data []float32, group, cols int) []float32 {
	return data[group*v.Stride:][:cols]
}

// Segments returns the groups into which n segments are divided.
func (v *Vectors) Segments(n int) Groups { return groupsOf(v.Ends, n) }

// OfSources returns the groups into which n sources are divided.
func (v *Vectors) OfSources(n int) Groups { return groupsOf(v.Sources, n) }

func groupsOf(ends []int32, n int) Groups {
	if ends == nil {
		ends = []int32{int32(n)}
	}
	return Groups{Ends: ends}
}

// CheckEdgeSoftmax checks the arguments of EdgeSoftmax.
func CheckEdgeSoftmax(alpha Matrix, s Segments, src, dst Matrix) Call {
	checkScores("EdgeSoftmax", alpha, s, src, dst)
	return Call{Kernel: "EdgeSoftmax", Bytes: s.bytes() + 2*alpha.bytes() + dst.bytes()}
}

// CheckEdgeSoftmaxBackward checks the arguments of EdgeSoftmaxBackward.
func CheckEdgeSoftmaxBackward(dsrc, ddst, dalpha Matrix, s, transposed Segments,
	alpha, src, dst Matrix) Call {
	const kernel = "EdgeSoftmaxBackward"
	checkScores(kernel, alpha, s, src, dst)
	checkSame(kernel, dsrc, src)
	checkSame(kernel, ddst, dst)
	checkSame(kernel, dalpha, alpha)
	checkTransposed(kernel, transposed, dalpha, dsrc)
	// The kernel reads scores, alpha and dalpha, and writes dalpha. Then it reads dalpha once more,
	// source by source.
	return Call{Kernel: kernel, Bytes: s.bytes() + 8*len(transposed.Indptr) +
		4*len(transposed.Edges) + 5*alpha.bytes() + 2*dst.bytes() + dsrc.bytes()}
}

// CheckEdgeDotSoftmax checks the arguments of EdgeDotSoftmax.
func CheckEdgeDotSoftmax(alpha Matrix, s Segments, src, dst Matrix, a Vectors) Call {
	bytes := checkPairs("EdgeDotSoftmax", alpha, s, src, dst, a.Data, a)
	return Call{Kernel: "EdgeDotSoftmax", Bytes: s.gatherBytes(src) + dst.bytes() +
		alpha.bytes() + bytes}
}

// CheckEdgeDotSoftmaxBackward checks the arguments of EdgeDotSoftmaxBackward.
func CheckEdgeDotSoftmaxBackward(dsrc, ddst Matrix, da []float32, dalpha Matrix,
	s, transposed Segments, alpha, src, dst Matrix, a Vectors) Call {
	const kernel = "EdgeDotSoftmaxBackward"
	bytes := checkPairs(kernel, alpha, s, src, dst, a.Data, a)
	checkPairs(kernel, alpha, s, src, dst, da, a)
	checkEnds(kernel, "sources", a.Sources, len(a.Ends), transposed.Len())
	checkSame(kernel, dsrc, src)
	checkSame(kernel, ddst, dst)
	checkSame(kernel, dalpha, alpha)
	checkTransposed(kernel, transposed, dalpha, dsrc)
	// Destination by destination, the kernel reads for each edge a row of src, alpha and dalpha,
	// and writes dalpha. Source by source, it reads for each edge a row of dst and dalpha.
	return Call{Kernel: kernel, Bytes: s.gatherBytes(src) + transposed.gatherBytes(dst) +
		4*len(transposed.Edges) + 4*alpha.bytes() + 2*dst.bytes() + 3*src.bytes() + 2*bytes}
}

// CheckEdgeSum checks the arguments of EdgeSum.
func CheckEdgeSum(y Matrix, s Segments, alpha, z Matrix) Call {
	const kernel = "EdgeSum"
	checkReduction(kernel, y, s)
	checkStoredColumns(kernel, z, y.Cols)
	checkHeads(kernel, Matrix{Cols: alpha.Cols}, Matrix{Cols: y.Cols})
	checkRows(kernel, alpha, len(s.Indices))
	return Call{Kernel: kernel, Bytes: s.gatherBytes(z) + alpha.bytes() + y.bytes()}
}

// CheckEdgeSumBackward checks the arguments of EdgeSumBackward.
func CheckEdgeSumBackward(dz, dalpha Matrix, transposed Segments, alpha, z, dy Matrix) Call {
	const kernel = "EdgeSumBackward"
	checkStored(kernel, dz, z)
	checkSame(kernel, dalpha, alpha)
	checkColumns(kernel, dz, dy.Cols)
	checkColumns(kernel, dy, dz.Cols)
	checkHeads(kernel, Matrix{Cols: alpha.Cols}, Matrix{Cols: dz.Cols})
	checkTransposed(kernel, transposed, dalpha, dz)
	return Call{Kernel: kernel, Bytes: transposed.gatherBytes(dz) + 4*len(transposed.Edges) +
		2*alpha.bytes() + dz.bytes() + z.bytes()}
}

// AttendPairsInParts defines what AttendPairs computes, with a kernel for each step.
func AttendPairsInParts(k Kernels, y, alpha Matrix, s Segments, src, dst Matrix, a Vectors,
	slope float32) {
	k.EdgeDotSoftmax(alpha, s, src, dst, a, slope)
	k.EdgeSum(y, s, alpha, src)
}

// CheckAttendPairs checks the arguments of AttendPairs.
func CheckAttendPairs(y, alpha Matrix, s Segments, src, dst Matrix, a Vectors) Call {
	const kernel = "AttendPairs"
	bytes := checkPairs(kernel, alpha, s, src, dst, a.Data, a)
	if a.Ends != nil {
		panic("compute: " + kernel + ": vectors of groups, but it takes one vector")
	}
	checkSame(kernel, y, dst)
	return Call{Kernel: kernel, Bytes: s.gatherBytes(src) + dst.bytes() + alpha.bytes() + bytes +
		y.bytes()}
}

// AttendInParts defines what Attend computes. It calls a kernel for each step.
func AttendInParts(k Kernels, y, alpha Matrix, s Segments, src, dst, z Matrix, slope float32) {
	k.EdgeSoftmax(alpha, s, src, dst, slope)
	k.EdgeSum(y, s, alpha, z)
}

// AttendBackwardInParts defines what AttendBackward computes. It calls a kernel for each step.
func AttendBackwardInParts(k Kernels, dz, dsrc, ddst, dalpha Matrix, s, transposed Segments,
	alpha, src, dst, z, dy Matrix, slope float32) {
	k.EdgeSumBackward(dz, dalpha, transposed, alpha, z, dy)
	k.EdgeSoftmaxBackward(dsrc, ddst, dalpha, s, transposed, alpha, src, dst, slope)
}

// CheckAttend checks the arguments of Attend.
func CheckAttend(y, alpha Matrix, s Segments, src, dst, z Matrix) Call {
	const kernel = "Attend"
	checkScores(kernel, alpha, s, src, dst)
	checkStoredRows(kernel, z, src.Rows)
	// the kernel reads one score for each edge, in addition to what EdgeSum reads and writes
	return Call{Kernel: kernel, Bytes: CheckEdgeSum(y, s, alpha, z).Bytes + alpha.bytes() +
		dst.bytes()}
}

// CheckAttendBackward checks the arguments of AttendBackward.
func CheckAttendBackward(dz, dsrc, ddst, dalpha Matrix, s, transposed Segments,
	alpha, src, dst, z, dy Matrix) Call {
	const kernel = "AttendBackward"
	scores := CheckEdgeSoftmaxBackward(dsrc, ddst, dalpha, s, transposed, alpha, src, dst)
	rows := CheckEdgeSumBackward(dz, dalpha, transposed, alpha, z, dy)
	checkRows(kernel, dy, s.Len())
	checkStoredRows(kernel, z, src.Rows)
	// A single kernel reads the transposed segments only once. It also need not write dalpha and
	// read it again in between.
	return Call{Kernel: kernel, Bytes: rows.Bytes + scores.Bytes - 2*alpha.bytes() -
		8*len(transposed.Indptr) - 4*len(transposed.Edges)}
}

// CheckHeadMean checks the arguments of HeadMean.
func CheckHeadMean(y, x Matrix) Call {
	checkHeads("HeadMean", Matrix{Rows: x.Rows, Cols: y.Cols}, x)
	checkRows("HeadMean", y, x.Rows)
	return Call{Kernel: "HeadMean", Bytes: x.bytes() + y.bytes()}
}

// CheckHeadMeanBackward checks the arguments of HeadMeanBackward.
func CheckHeadMeanBackward(dx, dy Matrix) Call {
	c := CheckHeadMean(dy, dx)
	c.Kernel = "HeadMeanBackward"
	return c
}

// CheckHeadMax checks the arguments of HeadMax.
func CheckHeadMax(y, x Matrix) Call {
	c := CheckHeadMean(y, x)
	c.Kernel = "HeadMax"
	return c
}

// CheckHeadMaxBackward checks the arguments of HeadMaxBackward.
func CheckHeadMaxBackward(dx, dy, x Matrix) Call {
	c := CheckHeadMean(dy, dx)
	checkSame("HeadMaxBackward", dx, x)
	return Call{Kernel: "HeadMaxBackward", Bytes: c.Bytes + x.bytes()}
}

// checkHeads checks that the shapes of s [R,H] and z [R,H*C] fit. The matrix s has a number for
// each head, and z has C columns for each head.
func checkHeads(kernel string, s, z Matrix) {
	if s.Rows != z.Rows || s.Cols < 1 || z.Cols%s.Cols != 0 || len(s.Data) > 0 && !s.holds() {
		panic(fmt.Sprintf("compute: %s: rows %v are not cut into heads by %v", kernel, z, s))
	}
}

// checkScores checks that the inputs and the output of EdgeSoftmax fit.
func checkScores(kernel string, alpha Matrix, s Segments, src, dst Matrix) {
	checkReduction(kernel, dst, s)
	checkRows(kernel, alpha, len(s.Indices))
	if alpha.Cols != src.Cols || src.Cols != dst.Cols || !src.holds() {
		panic(fmt.Sprintf("compute: %s: alpha %v, src %v and dst %v differ in heads", kernel, alpha,
			src, dst))
	}
}

// checkPairs checks that the shapes of the inputs and the output of EdgeDotSoftmax fit. The array
// data must have vectors with the layout of a. checkPairs returns the bytes of the vectors.
func checkPairs(kernel string, alpha Matrix, s Segments, src, dst Matrix, data []float32,
	a Vectors) int {
	checkReduction(kernel, dst, s)
	checkColumns(kernel, src, dst.Cols)
	checkHeads(kernel, Matrix{Cols: alpha.Cols}, Matrix{Cols: src.Cols})
	checkRows(kernel, alpha, len(s.Indices))
	checkEnds(kernel, "segments", a.Ends, len(a.Ends), s.Len())
	groups, lacks := len(a.Ends), false
	if a.Ends == nil {
		groups, lacks = 1, len(data) != src.Cols
	} else if groups > 0 {
		lacks = a.Stride < src.Cols || len(data) < (groups-1)*a.Stride+src.Cols
	}
	if lacks {
		panic(fmt.Sprintf("compute: %s: %d vectors of %d columns, which begin every %d numbers, "+
			"do not fit into %d numbers", kernel, groups, src.Cols, a.Stride, len(data)))
	}
	return floatBytes * groups * src.Cols
}

// checkEnds checks that the ends of groups never decrease and that the last end is n. If there are
// no groups, it checks nothing.
func checkEnds(kernel, what string, ends []int32, groups, n int) {
	at, rises := int32(0), len(ends) == groups
	for _, end := range ends {
		rises = rises && end >= at
		at = end
	}
	if !rises || ends != nil && int(at) != n {
		panic(fmt.Sprintf("compute: %s: %d groups, of %d, end at row %d; there are %d %s", kernel,
			len(ends), groups, at, n, what))
	}
}

// checkTransposed checks that transposed segments fit an array of edges, and a matrix with the rows
// of the edges' sources.
func checkTransposed(kernel string, t Segments, edges, sources Matrix) {
	checkSegments(kernel, t)
	if len(t.Edges) != len(t.Indices) || edges.Rows != len(t.Edges) || t.Len() > sources.Rows {
		panic(fmt.Sprintf("compute: %s: %d transposed segments of %d indices with %d positions, "+
			"for edges "+
			"%v and sources %v", kernel, t.Len(), len(t.Indices), len(t.Edges), edges, sources))
	}
}
