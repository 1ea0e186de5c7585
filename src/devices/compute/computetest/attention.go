package computetest

import (
	"fmt"
	"math"

	"halognn/src/devices/compute"
)

// attentionShapes vary the segments, the heads and their widths. There are heads narrower than a
// vector, heads that lie across two vectors, heads as wide as vectors, and more heads than a vector
// has lanes.
var attentionShapes = []struct {
	name                                    string
	segments, sources, degree, heads, width int // degree: as in the method segments
}{
	{"no segments", 0, 3, 2, 2, 4}, {"no edges", 4, 4, 0, 2, 4},
	{"one of everything", 1, 1, 1, 1, 1},
	{"narrower than a vector", 9, 33, 4, 3, 2}, {"one head", 16, 64, 5, 1, 37},
	{"heads across vectors", 16, 64, 5, 3, 17}, {"eight by eight", 70, 200, 10, 8, 8},
	{"whole vectors", 65, 80, 6, 4, 32}, {"hub", 7, 1000, hub, 2, 16},
	{"around a warp, one head", 24, 70, aroundWarp, 1, 8},
	{"around a warp, two heads", 24, 70, aroundWarp, 2, 7},
	{"around a warp, four heads", 24, 70, aroundWarp, 4, 8},
	{"around a warp, eight heads", 24, 70, aroundWarp, 8, 20},
	{"one source", 5_000, 1, 1, 2, 3},
	{"many heads", 13, 50, 6, 40, 3},
	{"wide", 5, 30, 3, 2, 301}, {"chunks of rows", 5, 1100, 3, 2, 9},
	{"chunks of destinations", 1100, 60, 3, 2, 9},
}

const slope = 0.2

var attentionTests = family{
	cases: func() (all []testCase) {
		for _, s := range attentionShapes {
			all = append(all, testCase{"attention/" + s.name, func(b *bench) []result {
				return attention(b, b.segments(s.segments, s.sources, s.degree), s.sources, s.heads,
					s.width)
			}}, testCase{"pairs/" + s.name, func(b *bench) []result {
				return pairs(b, b.segments(s.segments, s.sources, s.degree), s.sources, s.heads,
					s.width)
			}}, testCase{"heads/" + s.name, func(b *bench) []result {
				return heads(b, s.sources, s.sources-s.sources/3, s.heads, s.width)
			}})
		}
		// In both cases, whole chunks of rows have no destinations.
		for _, first := range []int{0, 10} {
			all = append(all, testCase{fmt.Sprintf("heads/%d destinations", first),
				func(b *bench) []result { return heads(b, 4*compute.ChunkRows+100, first, 2, 5) }})
		}
		return append(all, testCase{"pairs/groups", groupedPairs})
	},
	misuse: func(b *bench) []wrong {
		s := compute.Segments{Indptr: []int64{0, 1, 3}, Indices: []int32{0, 3, 1}}
		t := compute.Segments{Indptr: []int64{0, 1, 2, 3}, Indices: []int32{0, 1, 1},
			Edges: []int32{0, 2, 1}}
		far := t
		far.Edges = []int32{0, 3, 1}
		bare := t
		bare.Edges = nil
		return []wrong{
			{"heads that do not divide",
				func() {
					b.dev.HeadDots(b.zeros(3, 3), b.zeros(2, 3), b.zeros(3, 4), make([]float32, 4),
						make([]float32, 4))
				}},
			{"scores of more rows than there are", func() {
				b.dev.HeadDots(b.zeros(3, 2), b.zeros(4, 2), b.zeros(3, 4), make([]float32, 4),
					make([]float32, 4))
			}},
			{"scores of other heads", func() {
				b.dev.HeadDots(b.zeros(3, 2), b.zeros(2, 4), b.zeros(3, 4), make([]float32, 4),
					make([]float32, 4))
			}},
			{"an edge from no source", func() {
				b.dev.EdgeSoftmax(b.zeros(3, 2), s, b.zeros(3, 2), b.zeros(2, 2), slope)
			}},
			{"a row of alpha too few",
				func() { b.dev.EdgeSum(b.zeros(2, 4), s, b.zeros(2, 2), b.zeros(4, 4)) }},
			{"an edge beyond the rows that are weighed", func() {
				b.dev.EdgeSum(b.zeros(2, 4), s, b.zeros(3, 2), b.zeros(3, 4))
			}},
			{"a vector of part of the columns", func() {
				b.dev.EdgeDotSoftmax(b.zeros(3, 2), s, b.zeros(4, 4), b.zeros(2, 4),
					b.vectors(3, nil), slope)
			}},
			{"a vector too few", func() {
				b.dev.EdgeDotSoftmax(b.zeros(3, 2), s, b.zeros(4, 4), b.zeros(2, 4),
					b.vectors(7, []int32{1, 2}), slope)
			}},
			{"groups of part of the segments", func() {
				b.dev.EdgeDotSoftmax(b.zeros(3, 2), s, b.zeros(4, 4), b.zeros(2, 4),
					b.vectors(8, []int32{0, 1}), slope)
			}},
			{"groups that fall", func() {
				b.dev.EdgeDotSoftmax(b.zeros(3, 2), s, b.zeros(4, 4), b.zeros(2, 4),
					b.vectors(12, []int32{2, 1, 2}), slope)
			}},
			{"groups of other numbers of sources", func() {
				good := compute.Segments{Indptr: s.Indptr, Indices: []int32{0, 2, 1}}
				b.dev.EdgeDotSoftmaxBackward(b.zeros(3, 4), b.zeros(2, 4), b.zeros(1, 8).Data,
					b.zeros(3, 2), good, t, b.zeros(3, 2), b.zeros(3, 4), b.zeros(2, 4),
					b.vectors(8, []int32{1, 2}), slope)
			}},
			{"a pair with an edge from no source", func() {
				b.dev.EdgeDotSoftmax(b.zeros(3, 2), s, b.zeros(3, 4), b.zeros(2, 4),
					b.vectors(4, nil), slope)
			}},
			{"sums of pairs of groups", func() {
				good := compute.Segments{Indptr: s.Indptr, Indices: []int32{0, 2, 1}}
				b.dev.AttendPairs(b.zeros(2, 4), b.zeros(3, 2), good, b.zeros(3, 4), b.zeros(2, 4),
					b.vectors(8, []int32{1, 2}), slope)
			}},
			{"a pair with a position beyond the edges", func() {
				good := compute.Segments{Indptr: s.Indptr, Indices: []int32{0, 2, 1}}
				b.dev.EdgeDotSoftmaxBackward(b.zeros(3, 4), b.zeros(2, 4), b.zeros(1, 4).Data,
					b.zeros(3, 2), good, far, b.zeros(3, 2), b.zeros(3, 4), b.zeros(2, 4),
					b.vectors(4, nil), slope)
			}},
			{"no positions of edges", func() {
				b.dev.EdgeSumBackward(b.zeros(3, 4), b.zeros(3, 2), bare, b.zeros(3, 2),
					b.zeros(3, 4), b.zeros(2, 4))
			}},
			{"a position beyond the edges", func() {
				b.dev.EdgeSumBackward(b.zeros(3, 4), b.zeros(3, 2), far, b.zeros(3, 2),
					b.zeros(3, 4), b.zeros(2, 4))
			}},
			{"attention to an edge from no source", func() {
				b.dev.Attend(b.zeros(2, 4), b.zeros(3, 2), s, b.zeros(3, 2), b.zeros(2, 2),
					b.zeros(3, 4), slope)
			}},
			{"attention to more rows than have scores", func() {
				b.dev.Attend(b.zeros(2, 4), b.zeros(3, 2), s, b.zeros(4, 2), b.zeros(2, 2),
					b.zeros(5, 4), slope)
			}},
			{"its gradient with a position beyond the edges", func() {
				good := compute.Segments{Indptr: s.Indptr, Indices: []int32{0, 2, 1}}
				b.dev.AttendBackward(b.zeros(3, 4), b.zeros(3, 2), b.zeros(2, 2), b.zeros(3, 2),
					good, far, b.zeros(3, 2), b.zeros(3, 2), b.zeros(2, 2), b.zeros(3, 4),
					b.zeros(2, 4), slope)
			}},
			{"the largest of part of a head",
				func() { b.dev.HeadMax(b.zeros(2, 3), b.zeros(2, 4)) }},
			{"the largest of another matrix", func() {
				b.dev.HeadMaxBackward(b.zeros(2, 4), b.zeros(2, 2), b.zeros(3, 4))
			}},
			{"a mean of part of a head", func() { b.dev.HeadMean(b.zeros(2, 3), b.zeros(2, 4)) }},
		}
	},
	calls: func(l *Layer) []Call {
		heads := 1
		for _, n := range []int{8, 4, 2} {
			if l.In%n == 0 {
				heads = n
				break
			}
		}
		edges, wide, rows := l.Destinations*l.Degree, l.Sources*l.In, l.Destinations*l.In
		forward, transposed := 8*(l.Destinations+1)+4*edges, 8*(l.Sources+1)+4*edges
		numbers := edges * heads
		z, dz := l.matrix(l.Sources, l.In), l.matrix(l.Sources, l.In)
		y, dy := l.matrix(l.Destinations, l.In), l.matrix(l.Destinations, l.In)
		src, dst := l.matrix(l.Sources, heads), l.matrix(l.Destinations, heads)
		dsrc, ddst := l.matrix(l.Sources, heads), l.matrix(l.Destinations, heads)
		alpha, dalpha := l.matrix(edges, heads), l.matrix(edges, heads)
		a, da, da2 := l.array(l.In), l.array(l.In), l.array(l.In)
		vector := compute.Vectors{Data: a}
		mean := l.matrix(l.Destinations, l.In/heads)
		return []Call{
			{"HeadDots", func() { l.dev.HeadDots(src, dst, z, a, da) },
				4 * (wide + (l.Sources+l.Destinations)*heads + 2*l.In), 0},
			{"HeadDotsBackward",
				func() { l.dev.HeadDotsBackward(dz, da, da2, src, dst, z, a, a) },
				4 * (3*wide + (l.Sources+l.Destinations)*heads + 4*l.In), 0},
			{"EdgeSoftmax", func() { l.dev.EdgeSoftmax(alpha, l.Forward, src, dst, slope) },
				forward + 4*(2*numbers+l.Destinations*heads), 0},
			{"EdgeSoftmaxBackward", func() {
				l.dev.EdgeSoftmaxBackward(dsrc, ddst, dalpha, l.Forward, l.Transposed, alpha, src,
					dst, slope)
			}, forward + transposed + 4*(5*numbers+2*l.Destinations*heads+l.Sources*heads), 0},
			{"EdgeDotSoftmax",
				func() { l.dev.EdgeDotSoftmax(alpha, l.Forward, z, y, vector, slope) },
				forward + 4*(edges*l.In+numbers+rows+l.In), 0},
			{"AttendPairs",
				func() { l.dev.AttendPairs(y, alpha, l.Forward, z, y, vector, slope) },
				forward + 4*(edges*l.In+numbers+2*rows+l.In), 0},
			{"EdgeDotSoftmaxBackward", func() {
				l.dev.EdgeDotSoftmaxBackward(dz, dy, da, dalpha, l.Forward, l.Transposed, alpha, z,
					y, vector, slope)
			}, forward + transposed + 4*(edges+2*edges*l.In+4*numbers+2*rows+3*wide+2*l.In), 0},
			{"EdgeSum", func() { l.dev.EdgeSum(y, l.Forward, alpha, z) },
				forward + 4*(edges*l.In+numbers+rows), 0},
			{"EdgeSumBackward",
				func() { l.dev.EdgeSumBackward(dz, dalpha, l.Transposed, alpha, z, y) },
				transposed + 4*(edges+edges*l.In+2*numbers+2*wide), 0},
			{"Attend", func() { l.dev.Attend(y, alpha, l.Forward, src, dst, z, slope) },
				forward + 4*(edges*l.In+2*numbers+l.Destinations*heads+rows), 0},
			{"AttendBackward", func() {
				l.dev.AttendBackward(dz, dsrc, ddst, dalpha, l.Forward, l.Transposed, alpha, src,
					dst, z, y, slope)
			}, forward + transposed + 4*(edges+edges*l.In+5*numbers+2*l.Destinations*heads+
				l.Sources*heads+2*wide), 0},
			{"HeadMean", func() { l.dev.HeadMean(mean, y) }, 4 * (rows + rows/heads), 0},
			{"HeadMax", func() { l.dev.HeadMax(mean, y) }, 4 * (rows + rows/heads), 0},
			{"HeadMaxBackward", func() { l.dev.HeadMaxBackward(y, mean, y) },
				4 * (2*rows + rows/heads), 0},
			{"HeadMeanBackward", func() { l.dev.HeadMeanBackward(y, mean) },
				4 * (rows + rows/heads), 0},
		}
	},
}

// attention runs the softmax, the weighted sum and their gradients. It compares each result with
// float64 arithmetic on the same inputs.
func attention(b *bench, s compute.Segments, sources, heads, width int) []result {
	const spare = 2 // rows that no edge refers to
	edges, cols, segments := len(s.Indices), heads*width, s.Len()
	src, dst := b.normal((sources+spare)*heads), b.normal(segments*heads)
	z, dy := b.normal((sources+spare)*cols), b.normal(segments*cols)
	t := transpose(s, sources)
	msrc, mdst := b.matrix(sources+spare, heads, src), b.matrix(segments, heads, dst)
	mz, mdy := b.matrix(sources+spare, cols, z), b.matrix(segments, cols, dy)
	dirty := func(rows, cols int) compute.Matrix {
		return compute.Matrix{Rows: rows, Cols: cols, Data: b.dirty(rows * cols)}
	}
	malpha, y := dirty(edges, heads), dirty(segments, cols)
	dz, mdalpha := dirty(sources+spare, cols), dirty(edges, heads)
	dsrc, ddst := dirty(sources+spare, heads), dirty(segments, heads)

	b.dev.EdgeSoftmax(malpha, s, msrc, mdst, slope)
	b.dev.EdgeSum(y, s, malpha, mz)
	b.dev.EdgeSumBackward(dz, mdalpha, t, malpha, mz, mdy)
	alpha, dalpha := b.get(malpha.Data), b.get(mdalpha.Data)
	odd, oddly := dirty(sources+spare, cols), dirty(edges, heads)
	odd.Data = b.dirty(len(odd.Data) + 1)[1:] // aligned only as a float32 must be
	b.dev.EdgeSumBackward(odd, oddly, t, malpha, mz, mdy)
	b.dev.EdgeSoftmaxBackward(dsrc, ddst, mdalpha, s, t, malpha, msrc, mdst, slope)
	de := b.get(mdalpha.Data)
	whole := struct{ y, alpha, dz, dsrc, ddst, de compute.Matrix }{dirty(segments, cols),
		dirty(edges, heads), dirty(sources+spare, cols), dirty(sources+spare, heads),
		dirty(segments, heads), dirty(edges, heads)}
	b.dev.Attend(whole.y, whole.alpha, s, msrc, mdst, mz, slope)
	b.dev.AttendBackward(whole.dz, whole.dsrc, whole.ddst, whole.de, s, t, whole.alpha, msrc, mdst,
		mz, mdy, slope)

	of, longest := segmentOf(s)
	score := func(e, h int) float64 {
		v := float64(src[int(s.Indices[e])*heads+h] + dst[of[e]*heads+h])
		return math.Max(v, 0) + float64(float32(slope))*math.Min(v, 0)
	}
	segment := func(e int) (lo, hi int) { return int(s.Indptr[of[e]]), int(s.Indptr[of[e]+1]) }
	at := func(e, h int) float64 { return float64(alpha[e*heads+h]) }
	gradient := func(e, h int) (g sum) {
		lo, hi := segment(e)
		g.add(at(e, h) * float64(dalpha[e*heads+h]))
		for k := lo; k < hi; k++ {
			g.add(-at(e, h) * at(k, h) * float64(dalpha[k*heads+h]))
		}
		if score(e, h) < 0 {
			g.value *= slope
		}
		return g
	}
	collected := func(edges []int32, h int) (g sum) {
		for _, e := range edges {
			g.add(float64(de[int(e)*heads+h]))
		}
		return g
	}
	return []result{
		// exp turns the rounding error of a score into a relative error, and adds its own error
		grid("EdgeSoftmax", alpha, edges, heads, longest+80, func(e, h int) (v sum) {
			lo, hi := segment(e)
			total := 0.0
			for k := lo; k < hi; k++ {
				total += math.Exp(score(k, h) - score(e, h))
			}
			v.add(1 / total)
			return v
		}),
		grid("EdgeSum", b.get(y.Data), segments, cols, longest, func(d, j int) (v sum) {
			for e := s.Indptr[d]; e < s.Indptr[d+1]; e++ {
				v.add(at(int(e), j/width) * float64(z[int(s.Indices[e])*cols+j]))
			}
			return v
		}),
		grid("EdgeSumBackward, rows", b.get(dz.Data), sources+spare, cols, edges,
			func(i, j int) (v sum) {
				for k := 0; i < sources && k < int(t.Indptr[i+1]-t.Indptr[i]); k++ {
					k := int(t.Indptr[i]) + k
					v.add(at(int(t.Edges[k]), j/width) * float64(dy[int(t.Indices[k])*cols+j]))
				}
				return v
			}),
		grid("EdgeSumBackward, edges", dalpha, edges, heads, width, func(e, h int) (v sum) {
			for j := h * width; j < (h+1)*width; j++ {
				v.add(float64(dy[of[e]*cols+j]) * float64(z[int(s.Indices[e])*cols+j]))
			}
			return v
		}),
		grid("EdgeSoftmaxBackward, edges", de, edges, heads, longest+2, gradient),
		grid("EdgeSoftmaxBackward, destinations", b.get(ddst.Data), segments, heads, longest,
			func(d, h int) (v sum) {
				for e := s.Indptr[d]; e < s.Indptr[d+1]; e++ {
					v.add(float64(de[int(e)*heads+h]))
				}
				return v
			}),
		grid("EdgeSoftmaxBackward, sources", b.get(dsrc.Data), sources+spare, heads, edges,
			func(i, h int) sum {
				if i >= sources {
					return sum{}
				}
				return collected(t.Edges[t.Indptr[i]:t.Indptr[i+1]], h)
			}),
		same("EdgeSumBackward, rows of any alignment", b.get(odd.Data), b.get(dz.Data)),
		same("EdgeSumBackward, edges of rows of any alignment", b.get(oddly.Data), dalpha),
		same("Attend and its parts", b.get(whole.y.Data), b.get(y.Data)),
		same("Attend, edges", b.get(whole.alpha.Data), alpha),
		same("AttendBackward and its parts, rows", b.get(whole.dz.Data), b.get(dz.Data)),
		same("AttendBackward, edges", b.get(whole.de.Data), de),
		same("AttendBackward, destinations", b.get(whole.ddst.Data), b.get(ddst.Data)),
		same("AttendBackward, sources", b.get(whole.dsrc.Data), b.get(dsrc.Data)),
	}
}

// segmentOf returns the segment of each edge, and the length of the longest segment. If there are
// no edges, it returns length 1.
func segmentOf(s compute.Segments) (of []int, longest int) {
	of, longest = make([]int, len(s.Indices)), 1
	for d := range s.Len() {
		longest = max(longest, int(s.Indptr[d+1]-s.Indptr[d]))
		for e := s.Indptr[d]; e < s.Indptr[d+1]; e++ {
			of[e] = d
		}
	}
	return of, longest
}

// pairs runs GATv2's softmax and its gradient. It compares each result with float64 arithmetic on
// the same inputs.
func pairs(b *bench, s compute.Segments, sources, heads, width int) []result {
	const spare = 2 // rows that no edge refers to
	edges, cols, segments := len(s.Indices), heads*width, s.Len()
	src, dst, a := b.normal((sources+spare)*cols), b.normal(segments*cols), b.normal(cols)
	for j := range a { // this makes scores a few units large, whatever the width
		a[j] /= float32(math.Sqrt(float64(width)))
	}
	dalpha, dsrc := b.normal(edges*heads), b.normal((sources+spare)*cols)
	t := transpose(s, sources)
	msrc, mdst := b.matrix(sources+spare, cols, src), b.matrix(segments, cols, dst)
	malpha := compute.Matrix{Rows: edges, Cols: heads, Data: b.dirty(edges * heads)}
	mdalpha, mdsrc := b.matrix(edges, heads, dalpha), b.matrix(sources+spare, cols, dsrc)
	ddst := compute.Matrix{Rows: segments, Cols: cols, Data: b.dirty(segments * cols)}
	ma, da := compute.Vectors{Data: b.array(a)}, b.dirty(cols)

	b.dev.EdgeDotSoftmax(malpha, s, msrc, mdst, ma, slope)
	both, sums, parts := compute.Matrix{Rows: edges, Cols: heads, Data: b.dirty(edges * heads)},
		compute.Matrix{Rows: segments, Cols: cols, Data: b.dirty(segments * cols)},
		compute.Matrix{Rows: segments, Cols: cols, Data: b.dirty(segments * cols)}
	b.dev.EdgeSum(parts, s, malpha, msrc)
	b.dev.AttendPairs(sums, both, s, msrc, mdst, ma, slope)
	odd := compute.Matrix{Rows: segments, Cols: cols, Data: b.dirty(segments*cols + 1)[1:]}
	beside := compute.Matrix{Rows: edges, Cols: heads, Data: b.dirty(edges * heads)}
	b.dev.AttendPairs(odd, beside, s, msrc, mdst, ma, slope) // no number depends on an address
	b.dev.EdgeDotSoftmaxBackward(mdsrc, ddst, da, mdalpha, s, t, malpha, msrc, mdst, ma, slope)
	alpha, de := b.get(malpha.Data), b.get(mdalpha.Data)

	of, longest := segmentOf(s)
	// this sum must be rounded as devices round it, because its sign decides between the factors 1
	// and slope
	pair := func(e, j int) float64 {
		return float64(src[int(s.Indices[e])*cols+j] + dst[of[e]*cols+j])
	}
	factor := func(e, j int) float64 {
		if pair(e, j) > 0 {
			return 1
		}
		return float64(float32(slope))
	}
	score := func(e, h int) (v float64) {
		for j := h * width; j < (h+1)*width; j++ {
			v += float64(a[j]) * factor(e, j) * pair(e, j)
		}
		return v
	}
	scores := make([]float64, edges*heads)
	for i := range scores {
		scores[i] = score(i/heads, i%heads)
	}
	gradient := func(e, j int) float64 { return float64(de[e*heads+j/width]) * factor(e, j) }
	return []result{
		same("AttendPairs and its parts", b.get(sums.Data), b.get(parts.Data)),
		same("AttendPairs, edges", b.get(both.Data), alpha),
		same("AttendPairs at an odd address", b.get(odd.Data), b.get(parts.Data)),
		same("AttendPairs at an odd address, edges", b.get(beside.Data), alpha),
		grid("EdgeDotSoftmax", alpha, edges, heads, longest+width+80, func(e, h int) (v sum) {
			total := 0.0
			for k := s.Indptr[of[e]]; k < s.Indptr[of[e]+1]; k++ {
				total += math.Exp(scores[int(k)*heads+h] - scores[e*heads+h])
			}
			v.add(1 / total)
			return v
		}),
		grid("EdgeDotSoftmaxBackward, edges", de, edges, heads, longest+2, func(e, h int) (g sum) {
			at := func(k int) float64 { return float64(alpha[k*heads+h]) }
			g.add(at(e) * float64(dalpha[e*heads+h]))
			for k := int(s.Indptr[of[e]]); k < int(s.Indptr[of[e]+1]); k++ {
				g.add(-at(e) * at(k) * float64(dalpha[k*heads+h]))
			}
			return g
		}),
		grid("EdgeDotSoftmaxBackward, destinations", b.get(ddst.Data), segments, cols, longest+2,
			func(d, j int) (v sum) {
				for e := s.Indptr[d]; e < s.Indptr[d+1]; e++ {
					v.add(float64(a[j]) * gradient(int(e), j))
				}
				return v
			}),
		grid("EdgeDotSoftmaxBackward, sources", b.get(mdsrc.Data), sources+spare, cols, edges+2,
			func(i, j int) (v sum) {
				v.add(float64(dsrc[i*cols+j]))
				for k := 0; i < sources && k < int(t.Indptr[i+1]-t.Indptr[i]); k++ {
					v.add(float64(a[j]) * gradient(int(t.Edges[int(t.Indptr[i])+k]), j))
				}
				return v
			}),
		grid("EdgeDotSoftmaxBackward, vector", b.get(da), 1, cols, edges+2, func(_, j int) (v sum) {
			for e := range edges {
				v.add(gradient(e, j) * pair(e, j))
			}
			return v
		}),
	}
}

// vectors returns compute.Vectors whose array has n zeros. The argument `ends` has the ends of
// their groups, both of segments and of sources.
func (b *bench) vectors(n int, ends []int32) compute.Vectors {
	return compute.Vectors{Data: b.zeros(1, n).Data, Stride: 4, Ends: ends, Sources: ends}
}

// groupedPairs scores the pairs of several groups, each with its own vector, in one call. It
// compares the results with a call for each group alone. The groups include one without rows, one
// without edges, and one with several chunks of rows.
func groupedPairs(b *bench) []result {
	const heads, width, gap = 3, 5, 2 // gap is the number of unused elements between two vectors
	const cols = heads * width
	shapes := []struct{ segments, sources, degree int }{
		{7, 9, 4}, {0, 0, 0}, {3, 2, 0}, {2*compute.ChunkRows + 50, 40, 3}, {5, 700, 6}}
	var s compute.Segments
	var parts []compute.Segments
	a := compute.Vectors{Stride: cols + gap}
	s.Indptr = []int64{0}
	segments, sources := 0, 0
	for _, of := range shapes {
		part := b.segments(of.segments, of.sources, of.degree)
		parts = append(parts, part)
		for k := range of.segments {
			s.Indptr = append(s.Indptr, int64(len(s.Indices))+part.Indptr[k+1])
		}
		for _, i := range part.Indices {
			s.Indices = append(s.Indices, i+int32(sources))
		}
		segments, sources = segments+of.segments, sources+of.sources
		a.Ends, a.Sources = append(a.Ends, int32(segments)), append(a.Sources, int32(sources))
	}
	edges, vectors := len(s.Indices), b.normal(len(shapes)*a.Stride)
	src, dst := b.normal(sources*cols), b.normal(segments*cols)
	dalpha, dsrc := b.normal(edges*heads), b.normal(sources*cols)
	run := func(s compute.Segments, sources int, a compute.Vectors, src, dst, dalpha,
		dsrc []float32) (
		all [5][]float32) {
		msrc, mdst := b.matrix(sources, cols, src), b.matrix(s.Len(), cols, dst)
		alpha := compute.Matrix{Rows: len(s.Indices), Cols: heads,
			Data: b.dirty(len(s.Indices) * heads)}
		mdalpha, mdsrc := b.matrix(len(s.Indices), heads, dalpha), b.matrix(sources, cols, dsrc)
		ddst := compute.Matrix{Rows: s.Len(), Cols: cols, Data: b.dirty(s.Len() * cols)}
		da := b.array(make([]float32, len(a.Data)))
		a.Data = b.array(a.Data)
		b.dev.EdgeDotSoftmax(alpha, s, msrc, mdst, a, slope)
		b.dev.EdgeDotSoftmaxBackward(mdsrc, ddst, da, mdalpha, s, transpose(s, sources), alpha,
			msrc, mdst, a, slope)
		for i, x := range [][]float32{alpha.Data, mdalpha.Data, mdsrc.Data, ddst.Data, da} {
			all[i] = b.get(x)
		}
		return all
	}
	var want [5][]float32
	at := [3]int{} // segments, sources and edges so far
	for g, of := range shapes {
		end := [3]int{at[0] + of.segments, at[1] + of.sources, at[2] + len(parts[g].Indices)}
		vector := vectors[g*a.Stride:][:cols]
		for i, x := range run(parts[g], of.sources, compute.Vectors{Data: vector},
			src[at[1]*cols:end[1]*cols], dst[at[0]*cols:end[0]*cols],
			dalpha[at[2]*heads:end[2]*heads], dsrc[at[1]*cols:end[1]*cols]) {
			want[i] = append(want[i], x...)
		}
		// elements between vectors must not be written
		want[4] = append(want[4], make([]float32, gap)...)
		at = end
	}
	a.Data = vectors
	var all []result
	got := run(s, sources, a, src, dst, dalpha, dsrc)
	for i, name := range []string{"weights", "edges", "sources", "destinations", "vectors"} {
		all = append(all, same("grouped EdgeDotSoftmax, "+name, got[i], want[i]))
	}
	return all
}

// heads runs the kernels that read no edges on rows of heads. The first dst rows are destinations.
func heads(b *bench, rows, dst, heads, width int) []result {
	cols := heads * width
	z, dz := b.normal(rows*cols), b.normal(rows*cols)
	a, a2, ds, ds2 := b.normal(cols), b.normal(cols), b.normal(rows*heads), b.normal(dst*heads)
	dm := b.normal(rows * width)
	mz, mdz := b.matrix(rows, cols, z), b.matrix(rows, cols, dz)
	s, s2 := b.matrix(rows, heads, nans(rows*heads)), b.matrix(dst, heads, nans(dst*heads))
	da, da2 := b.dirty(cols), b.dirty(cols)
	mean := compute.Matrix{Rows: rows, Cols: width, Data: b.dirty(rows * width)}
	dx := compute.Matrix{Rows: rows, Cols: cols, Data: b.dirty(rows * cols)}
	b.dev.HeadDots(s, s2, mz, b.array(a), b.array(a2))
	b.dev.HeadDotsBackward(mdz, da, da2, b.matrix(rows, heads, ds), b.matrix(dst, heads, ds2), mz,
		b.array(a), b.array(a2))
	b.dev.HeadMean(mean, mz)
	b.dev.HeadMeanBackward(dx, b.matrix(rows, width, dm))
	coarse := make([]float32, len(z)) // many of these numbers are equal, and some are NaN
	for i, v := range z {
		if coarse[i] = float32(math.Round(float64(v))); i%89 == 88 {
			coarse[i] = float32(math.NaN())
		}
	}
	most := compute.Matrix{Rows: rows, Cols: width, Data: b.dirty(rows * width)}
	dmost := b.matrix(rows, cols, coarse)
	b.dev.HeadMax(most, dmost)
	b.dev.HeadMaxBackward(dmost, b.matrix(rows, width, dm), dmost)
	// Index of the largest number or the first NaN. If several heads have it, the index is in the
	// first of them.
	largest := func(r, j int) int {
		at := r*cols + j
		for i := at; i < (r+1)*cols; i += width {
			if x := coarse[i]; coarse[at] == coarse[at] && (x != x || x > coarse[at]) {
				at = i
			}
		}
		return at
	}
	dots := func(a []float32) func(r, h int) sum {
		return func(r, h int) (v sum) {
			for j := h * width; j < (h+1)*width; j++ {
				v.add(float64(z[r*cols+j]) * float64(a[j]))
			}
			return v
		}
	}
	sums := func(ds []float32, rows int) func(_, j int) sum {
		return func(_, j int) (v sum) {
			for r := range rows {
				v.add(float64(ds[r*heads+j/width]) * float64(z[r*cols+j]))
			}
			return v
		}
	}
	return []result{
		grid("HeadDots, sources", b.get(s.Data), rows, heads, width, dots(a)),
		grid("HeadDots, destinations", b.get(s2.Data), dst, heads, width, dots(a2)),
		grid("HeadDotsBackward, rows", b.get(mdz.Data), rows, cols, 3, func(r, j int) (v sum) {
			v.add(float64(dz[r*cols+j]))
			v.add(float64(ds[r*heads+j/width]) * float64(a[j]))
			if r < dst {
				v.add(float64(ds2[r*heads+j/width]) * float64(a2[j]))
			}
			return v
		}),
		grid("HeadDotsBackward, sources' vector", b.get(da), 1, cols, rows, sums(ds, rows)),
		grid("HeadDotsBackward, destinations' vector", b.get(da2), 1, cols, rows, sums(ds2, dst)),
		grid("HeadMean", b.get(mean.Data), rows, width, heads+1, func(r, j int) (v sum) {
			for h := range heads {
				v.add(float64(z[r*cols+h*width+j]) / float64(heads))
			}
			return v
		}),
		grid("HeadMax", b.get(most.Data), rows, width, 1, func(r, j int) (v sum) {
			v.add(float64(coarse[largest(r, j)]))
			return v
		}),
		grid("HeadMaxBackward", b.get(dmost.Data), rows, cols, 1, func(r, j int) (v sum) {
			if largest(r, j%width) == r*cols+j {
				v.add(float64(dm[r*width+j%width]))
			}
			return v
		}),
		grid("HeadMeanBackward", b.get(dx.Data), rows, cols, 1, func(r, j int) (v sum) {
			v.add(float64(dm[r*width+j%width]) / float64(heads))
			return v
		}),
	}
}
