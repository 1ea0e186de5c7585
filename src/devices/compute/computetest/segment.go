package computetest

import (
	"fmt"
	"math"

	"halognn/src/devices/compute"
)

var segmentShapes = []struct {
	name                            string
	segments, sources, degree, cols int // degree: as in the method segments
}{
	{"no segments", 0, 3, 2, 8}, {"no edges", 4, 4, 0, 8}, {"one of everything", 1, 1, 1, 1},
	{"one feature", 16, 64, 5, 1},
	{"narrower than a vector", 9, 33, 4, 7}, {"width no multiple of a vector", 16, 64, 5, 37},
	{"hub", 7, 1000, hub, 64}, {"degrees around a warp", 400, 300, aroundWarp, 12},
	{"70,000 edges of a segment", 5, 70_000, long, 2}, {"one source", 20_000, 1, 1, 3},
	{"several tiles", 513, 900, 11, 100}, {"a strip and a feature", 65, 80, 3, 257},
	{"wide", 13, 50, 6, 602},
}

var segmentTests = family{
	cases: func() (all []testCase) {
		for _, s := range segmentShapes {
			for _, add := range []bool{false, true} {
				all = append(all, testCase{fmt.Sprintf("segments/%s/add=%t", s.name, add),
					func(b *bench) []result {
						return segmentMeans(b, b.segments(s.segments, s.sources, s.degree),
							s.sources, s.cols, add)
					}}, testCase{fmt.Sprintf("segment sums/%s/add=%t", s.name, add),
					func(b *bench) []result {
						return segmentSums(b, b.segments(s.segments, s.sources, s.degree),
							s.sources, s.cols, add)
					}})
			}
			all = append(all, testCase{"segment maxima/" + s.name, func(b *bench) []result {
				return segmentMaxima(b, b.segments(s.segments, s.sources, s.degree), s.sources,
					s.cols)
			}})
		}
		return all
	},
	misuse: func(b *bench) []wrong {
		segments := compute.Segments{Indptr: []int64{0, 1, 3}, Indices: []int32{0, 3, 1}}
		falling := compute.Segments{Indptr: []int64{0, 2, 1}, Indices: []int32{0, 0}}
		return []wrong{
			{"index beyond the rows",
				func() { b.dev.SegmentMean(b.zeros(2, 4), segments, b.zeros(3, 4)) }},
			{"index beyond the rows that are summed", func() {
				b.dev.SegmentSum(b.zeros(2, 4), segments, nil, b.zeros(3, 4), false)
			}},
			{"a weight too few", func() {
				b.dev.SegmentSum(b.zeros(2, 4), segments, make([]float32, 2), b.zeros(4, 4), false)
			}},
			{"index beyond the gradient", func() {
				b.dev.SegmentMeanBackward(b.zeros(2, 4), segments, segments, b.zeros(2, 4),
					compute.Completion{})
			}},
			{"index beyond the rows whose largest is sought", func() {
				b.dev.SegmentMax(b.zeros(2, 4), b.zeros(2, 4), segments, b.zeros(3, 4))
			}},
			{"maxima and their rows differ", func() {
				b.dev.SegmentMax(b.zeros(2, 4), b.zeros(2, 3), segments, b.zeros(4, 4))
			}},
			{"index beyond the gradient of maxima", func() {
				b.dev.SegmentMaxBackward(b.zeros(2, 4), segments, b.zeros(2, 4), b.zeros(2, 4),
					compute.Completion{})
			}},
			{"more rows to add than there are sums", func() {
				good := compute.Segments{Indptr: segments.Indptr, Indices: []int32{0, 2, 1}}
				b.dev.SegmentSumCompleted(b.zeros(2, 4), good, nil, b.zeros(3, 4),
					compute.Completion{Own: b.zeros(3, 4)})
			}},
			{"index beyond the rows that are summed, and others added", func() {
				b.dev.SegmentSumCompleted(b.zeros(2, 4), segments, nil, b.zeros(3, 4),
					compute.Completion{Own: b.zeros(1, 4), Scale: b.zeros(1, 1).Data})
			}},
			{"falling indptr", func() { b.dev.SegmentMean(b.zeros(2, 4), falling, b.zeros(3, 4)) }},
			{"segments and rows differ", func() {
				b.dev.SegmentMean(b.zeros(3, 4), segments, b.zeros(4, 4))
			}},
		}
	},
	calls: func(l *Layer) []Call {
		edges, in := l.Destinations*l.Degree, l.Destinations*l.In
		forward, transposed := 8*(l.Destinations+1)+4*edges, 8*(l.Sources+1)+4*edges
		h, dh, out := l.matrix(l.Sources, l.In), l.matrix(l.Sources, l.In),
			l.matrix(l.Destinations, l.In)
		arg := l.matrix(l.Destinations, l.In)
		return []Call{
			{"SegmentMean", func() { l.dev.SegmentMean(out, l.Forward, h) },
				4*(edges*l.In+in) + forward, 0},
			{"SegmentMeanBackward", func() {
				l.dev.SegmentMeanBackward(dh, l.Forward, l.Transposed, out, compute.Completion{})
			}, 4*(edges*l.In+l.Sources*l.In) + transposed + 2*8*edges, 0},
			{"SegmentMax", func() { l.dev.SegmentMax(out, arg, l.Forward, h) },
				4*(edges*l.In+2*in) + forward, 0},
			{"SegmentMax alone", func() { l.dev.SegmentMax(out, compute.Matrix{}, l.Forward, h) },
				4*(edges*l.In+in) + forward, 0},
			{"SegmentMaxBackward", func() {
				l.dev.SegmentMaxBackward(dh, l.Transposed, arg, out, compute.Completion{})
			}, 4*(2*edges*l.In+l.Sources*l.In) + transposed, 0},
			{"SegmentSum", func() { l.dev.SegmentSum(out, l.Forward, nil, h, false) },
				4*(edges*l.In+in) + forward, 0},
			{"SegmentSumCompleted", func() {
				l.dev.SegmentSumCompleted(out, l.Forward, l.Weights, h,
					compute.Completion{Own: arg, Scale: h.Data[:1]})
			}, 4*(edges*l.In+2*in+edges) + forward, 0},
			{"SegmentSum weighted, added", func() {
				l.dev.SegmentSum(out, l.Forward, l.Weights, h, true)
			}, 4*(edges*l.In+2*in+edges) + forward, 0},
		}
	},
}

// Values of degree for which segments have special instead of random lengths.
const (
	hub = -1 // one segment has all sources, the others none
	// lengths just below, at and above those at which kernels for a warp change their method
	aroundWarp = -2
	long       = -3 // one segment has 70,000 edges, the others 0 to 2
)

// The method segments returns n random segments of indices in [0,sources). Each has 0 to 2*degree
// indices, unless degree is one of the values above.
func (b *bench) segments(n, sources, degree int) compute.Segments {
	s := compute.Segments{Indptr: []int64{0}}
	around := []int{0, 1, 31, 1, 32, 0, 0, 33, 2, 64, 65}
	for d := range n {
		count := 0
		switch {
		case degree >= 0:
			count = b.random.IntN(2*degree + 1)
		case degree == aroundWarp:
			count = around[d%len(around)]
		case degree == long && d != 1:
			count = b.random.IntN(3)
		case degree == long:
			count = 70_000
		case d == 1:
			count = sources
		}
		for range count {
			s.Indices = append(s.Indices, int32(b.random.IntN(sources)))
		}
		s.Indptr = append(s.Indptr, int64(len(s.Indices)))
	}
	return s
}

// groups returns random segments, which are divided into groups at random.
func (b *bench) groups(n, sources, degree int) compute.Segments {
	s := b.segments(n, sources, degree)
	for e, i := range s.Indices {
		if b.random.IntN(3) == 0 {
			s.Indices[e] = ^i
		}
	}
	return s
}

// transpose returns, for each source, the segments that refer to it, in the order of edges.
func transpose(s compute.Segments, sources int) compute.Segments {
	by, edges := make([][]int32, sources), make([][]int32, sources)
	for d := range s.Len() {
		for e := s.Indptr[d]; e < s.Indptr[d+1]; e++ {
			i := s.Indices[e]
			by[i], edges[i] = append(by[i], int32(d)), append(edges[i], int32(e))
		}
	}
	t := compute.Segments{Indptr: []int64{0}}
	for i, segments := range by {
		t.Indices, t.Edges = append(t.Indices, segments...), append(t.Edges, edges[i]...)
		t.Indptr = append(t.Indptr, int64(len(t.Indices)))
	}
	return t
}

func segmentMeans(b *bench, s compute.Segments, sources, cols int, add bool) []result {
	const spare = 3 // number of rows of dh to which no edge refers
	h, dout, dh0 := b.normal(sources*cols), b.normal(s.Len()*cols), b.normal((sources+spare)*cols)
	out := compute.Matrix{Rows: s.Len(), Cols: cols, Data: b.dirty(s.Len() * cols)}
	dh := b.matrix(sources+spare, cols, nans((sources+spare)*cols))
	t, own := transpose(s, sources), 0
	var c compute.Completion
	if add {
		own = (sources + 1) / 2
		c.Own = b.matrix(own, cols, dh0[:own*cols])
	}
	b.dev.SegmentMean(out, s, b.matrix(sources, cols, h))
	b.dev.SegmentMeanBackward(dh, s, t, b.matrix(s.Len(), cols, dout), c)
	longest := 1
	for d := range s.Len() {
		longest = max(longest, int(s.Indptr[d+1]-s.Indptr[d]))
	}
	return []result{
		grid("SegmentMean", b.get(out.Data), s.Len(), cols, longest, func(d, j int) (mean sum) {
			segment := s.Indices[s.Indptr[d]:s.Indptr[d+1]]
			for _, i := range segment {
				mean.add(float64(h[int(i)*cols+j]) / float64(len(segment)))
			}
			return mean
		}),
		grid("SegmentMeanBackward", b.get(dh.Data), sources+spare, cols, s.Len()+1,
			func(i, j int) (g sum) {
				if i < own {
					g.add(float64(dh0[i*cols+j]))
				}
				if i < sources {
					for _, d := range t.Indices[t.Indptr[i]:t.Indptr[i+1]] {
						g.add(float64(dout[int(d)*cols+j]) / float64(s.Indptr[d+1]-s.Indptr[d]))
					}
				}
				return g
			}),
	}
}

// segmentSums runs SegmentSum with and without weights. It also runs it over the transpose, which
// gives the gradient of the weighted sum.
func segmentSums(b *bench, s compute.Segments, sources, cols int, add bool) []result {
	h, dout, weights := b.normal(sources*cols), b.normal(s.Len()*cols), b.normal(len(s.Indices))
	before, dh0 := b.normal(s.Len()*cols), b.normal(sources*cols)
	plain, weighted, dh := b.matrix(s.Len(), cols, before), b.matrix(s.Len(), cols, before),
		b.matrix(sources, cols, dh0)
	t, edges := transpose(s, sources), make([][]int, sources)
	for e, i := range s.Indices {
		edges[i] = append(edges[i], e)
	}
	var transposed []float32
	for _, of := range edges {
		for _, e := range of {
			transposed = append(transposed, weights[e])
		}
	}
	b.dev.SegmentSum(plain, s, nil, b.matrix(sources, cols, h), add)
	b.dev.SegmentSum(weighted, s, weights, b.matrix(sources, cols, h), add)
	b.dev.SegmentSum(dh, t, transposed, b.matrix(s.Len(), cols, dout), add)
	own, scale := b.matrix(s.Len()/2, cols, b.normal(s.Len()/2*cols)), b.array(b.normal(1))
	scaled, parts := b.matrix(s.Len(), cols, before), b.matrix(s.Len(), cols, before)
	c := compute.Completion{Own: own, Scale: scale}
	b.dev.SegmentSumCompleted(scaled, s, weights, b.matrix(sources, cols, h), c)
	compute.SegmentSumCompletedInParts(b.dev, parts, s, weights, b.matrix(sources, cols, h), c)
	longest := 1
	for d := range s.Len() {
		longest = max(longest, int(s.Indptr[d+1]-s.Indptr[d]))
	}
	of := func(weight func(e int64) float64) func(d, j int) sum {
		return func(d, j int) (all sum) {
			if add {
				all.add(float64(before[d*cols+j]))
			}
			for e := s.Indptr[d]; e < s.Indptr[d+1]; e++ {
				all.add(weight(e) * float64(h[int(s.Indices[e])*cols+j]))
			}
			return all
		}
	}
	return []result{
		grid("SegmentSum", b.get(plain.Data), s.Len(), cols, longest+1,
			of(func(int64) float64 { return 1 })),
		grid("SegmentSum, weighted", b.get(weighted.Data), s.Len(), cols, longest+1,
			of(func(e int64) float64 { return float64(weights[e]) })),
		same("SegmentSumCompleted and its parts", b.get(scaled.Data), b.get(parts.Data)),
		grid("SegmentSum of the transpose", b.get(dh.Data), sources, cols, len(s.Indices)+1,
			func(i, j int) (g sum) {
				if add {
					g.add(float64(dh0[i*cols+j]))
				}
				for k, d := range t.Indices[t.Indptr[i]:t.Indptr[i+1]] {
					g.add(float64(weights[edges[i][k]]) * float64(dout[int(d)*cols+j]))
				}
				return g
			}),
	}
}

// segmentMaxima computes maxima of numbers of which only few are different, so that most columns
// have several equal maxima. There is also a NaN. The gradient must go to the row of the first edge
// with the maximum.
func segmentMaxima(b *bench, s compute.Segments, sources, cols int) []result {
	const spare = 3 // number of rows of dh to which no edge refers
	h, dout := b.normal(sources*cols), b.normal(s.Len()*cols)
	for i := range h {
		h[i] = float32(math.Round(float64(h[i])))
		if i%97 == 96 {
			h[i] = float32(math.NaN())
		}
	}
	of := func() compute.Matrix {
		return compute.Matrix{Rows: s.Len(), Cols: cols, Data: b.dirty(s.Len() * cols)}
	}
	out, alone, arg, t := of(), of(), of(), transpose(s, sources)
	dh := compute.Matrix{Rows: sources + spare, Cols: cols, Data: b.dirty((sources + spare) * cols)}
	b.dev.SegmentMax(out, arg, s, b.matrix(sources, cols, h))
	b.dev.SegmentMax(alone, compute.Matrix{}, s, b.matrix(sources, cols, h))
	b.dev.SegmentMaxBackward(dh, t, arg, b.matrix(s.Len(), cols, dout), compute.Completion{})
	// The row of the first edge with the largest number, or -1 for a segment without edges. Also
	// the gradients that these rows get.
	first := make([]int32, s.Len()*cols)
	gradients := make([]sum, (sources+spare)*cols)
	for k := range first {
		at, d, j := int32(-1), k/cols, k%cols
		for _, i := range s.Indices[s.Indptr[d]:s.Indptr[d+1]] {
			x := h[int(i)*cols+j]
			if at < 0 || x != x && h[int(at)*cols+j] == h[int(at)*cols+j] || x > h[int(at)*cols+j] {
				at = i
			}
		}
		if first[k] = at; at >= 0 {
			gradients[int(at)*cols+j].add(float64(dout[k]))
		}
	}
	most := func(d, j int) (all sum) {
		if at := first[d*cols+j]; at >= 0 {
			all.add(float64(h[int(at)*cols+j]))
		}
		return all
	}
	rows := b.get(arg.Data)
	// the int32 rows are converted to float32, which represents such numbers exactly
	for i, x := range rows {
		rows[i] = float32(int32(math.Float32bits(x)))
	}
	return []result{
		grid("SegmentMax", b.get(out.Data), s.Len(), cols, 1, most),
		grid("SegmentMax alone", b.get(alone.Data), s.Len(), cols, 1, most),
		grid("rows of SegmentMax", rows, s.Len(), cols, 1, func(d, j int) (all sum) {
			all.add(float64(first[d*cols+j]))
			return all
		}),
		grid("SegmentMaxBackward", b.get(dh.Data), sources+spare, cols, len(s.Indices)+1,
			func(i, j int) sum { return gradients[i*cols+j] }),
	}
}
