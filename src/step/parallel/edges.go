package parallel

import (
	"math"

	"halognn/src/base/mem"
	"halognn/src/devices/compute"
	"halognn/src/model/nn"
	"halognn/src/rows/exchange"
	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
)

// LayerEdges are the edges of a minibatch as the layers of a model read them. If a model needs more
// than the sampled edges, the sampled edges are copied. The copy may also have an edge from each
// destination to itself, and weights. The zero value is ready for use; the arrays are reused.
type LayerEdges struct {
	blocks     []graph.Block
	transposes []graph.BlockTranspose
	weights    []float32 // weights of the edges of all blocks, one block after the other
	transposed []float32 // weights of the edges of all transposes
	related    []related // for each block, if the model tells relations apart
	order      byType    // the input layer's sources by type; used if sorted is set
	sorted     bool
	means      averaged // rows of types that the input layer reads as means
	groups     graph.Grouper
	input      exchange.Edges // edges of the input layer; used if grouped is set
	grouped    bool
}

// Build makes the edges and weights that a model needs besides the sampled edges. With
// Needs.SelfEdges the transposes of the minibatch are not read, and may be absent.
func (e *LayerEdges) Build(s *sample.Minibatch, needs nn.Needs, train bool, t *sample.Topology) {
	e.grouped, e.sorted, e.means.of, e.means.folds = false, false, e.means.of[:0], false
	if needs.SelfEdges {
		e.addSelfEdges(s, needs, train)
	}
	if needs.Relations != nn.NoRelations {
		e.relate(s, needs, train, t)
	}
	switch {
	case !train || needs.Copies():
	case needs.EdgeRows:
		e.transpose(s)
	// The sampler has made the transposes of the other blocks.
	case needs.Transposed && len(s.Blocks) > 0:
		s.Blocks[0].Transpose(&s.Transposes[0])
	}
	if needs.Weights != nn.NoWeights {
		e.weigh(s, needs, train, t)
	}
}

// transpose makes the transposes of the sampled blocks, with the positions of edges.
func (e *LayerEdges) transpose(s *sample.Minibatch) {
	for len(e.transposes) < len(s.Blocks) {
		e.transposes = append(e.transposes, graph.BlockTranspose{})
	}
	for l := range s.Blocks {
		s.Blocks[l].Transpose(&e.transposes[l])
	}
}

func (e *LayerEdges) addSelfEdges(s *sample.Minibatch, needs nn.Needs, train bool) {
	for len(e.blocks) < len(s.Blocks) {
		e.blocks, e.transposes = append(e.blocks, graph.Block{}),
			append(e.transposes, graph.BlockTranspose{})
	}
	for l := range s.Blocks {
		b := &e.blocks[l]
		s.Blocks[l].SelfEdges(b)
		if train && (l > 0 || needs.Transposed) {
			b.Transpose(&e.transposes[l])
		}
	}
}

// layerBlock returns the block of a layer, as the layer reads it, and its transpose.
func (e *LayerEdges) layerBlock(s *sample.Minibatch, l int, needs nn.Needs) (*graph.Block,
	*graph.BlockTranspose) {
	if needs.Copies() {
		return &e.blocks[l], &e.transposes[l]
	}
	if needs.EdgeRows && len(e.transposes) > l {
		return &s.Blocks[l], &e.transposes[l]
	}
	return &s.Blocks[l], &s.Transposes[l]
}

// weigh sets the weights of the edges of all layers.
func (e *LayerEdges) weigh(s *sample.Minibatch, needs nn.Needs, train bool, t *sample.Topology) {
	edges := 0
	for l := range s.Blocks {
		b, _ := e.layerBlock(s, l, needs)
		edges += b.NumEdges()
	}
	e.weights = mem.Grow(e.weights, edges)
	if train {
		e.transposed = mem.Grow(e.transposed, edges)
	}
	at := 0
	for l := range s.Blocks {
		b, transpose := e.layerBlock(s, l, needs)
		w := e.weights[at : at+b.NumEdges()]
		v := values{of: s.Blocks[l].Weights, data: needs.OfData, estimates: s.Estimates,
			ids: sourcesOf(s, l), topology: t, totals: s.RowTotals(l)}
		if !v.data && !v.estimates {
			v.of = nil
		}
		switch {
		case needs.Relations != nn.NoRelations: // relate has put self-edges after the sampled edges
			n := s.Blocks[l].NumEdges()
			shares(w[:n], &s.Blocks[l], &v, false)
			for e := range w[n:] {
				w[n+e] = 1
			}
		case needs.Weights == nn.WeightsSymmetric:
			symmetric(w, b, &v)
		case needs.Weights == nn.WeightsMean:
			shares(w, b, &v, needs.SelfEdges)
		default:
			v.plain(w)
		}
		if train && (l > 0 || needs.Transposed) {
			for k, edge := range transpose.Edges {
				e.transposed[at+k] = w[edge]
			}
		}
		at += len(w)
	}
}

// values are the values of a block's sampled edges: the weights of the data or 1. For samplers that
// estimate, they are divided by the probability that the edge was drawn.
type values struct {
	of        []float32 // nil if all are 1
	data      bool      // whether they come from edge weights of the data
	estimates bool
	ids       sources
	topology  *sample.Topology
	// Minibatch.RowTotals of the input layer's destinations or of a block's rows, if known.
	totals []float64
}

// edgeValue returns the value of a sampled edge.
func (v *values) edgeValue(edge int64) float64 {
	if v.of == nil {
		return 1
	}
	return float64(v.of[edge])
}

// totalOf returns the sum of the weights of all in-edges that a destination has in the graph. If
// the minibatch has such sums (`totals`), it is taken from them.
func (v *values) totalOf(d int) float64 {
	if len(v.totals) > 0 {
		return v.totals[d]
	}
	return v.total(int32(d))
}

// total returns the sum of the weights, not divided by probabilities, of all in-edges that a source
// has in the graph. If the data has no weights, this is the source's degree.
func (v *values) total(position int32) float64 {
	if v.data {
		return float64(v.topology.WeightSums[v.ids.at(position)])
	}
	return v.degree(position)
}

// degree returns a source's degree in the graph without the edges that the minibatch leaves out;
// only seeds have such edges. The full degree next to the remaining edges would reveal which seeds
// are ends of links.
func (v *values) degree(position int32) float64 {
	if int(position) < min(len(v.totals), len(v.ids.own)) && !v.data {
		return v.totals[position]
	}
	return float64(v.topology.Degree(v.ids.at(position)))
}

// plain sets the weights of a block to the values of its edges.
func (v *values) plain(w []float32) {
	if v.of != nil {
		copy(w, v.of)
		return
	}
	for e := range w {
		w[e] = 1
	}
}

// shares sets the weight of each edge of a block to the value of the edge divided by a sum of
// values. The sum is over the edges of the same row or, for samplers that estimate, over all
// in-edges of the vertex in the graph. An edge from a vertex to itself comes first and has value 1.
// If the sum is 0, the weights are 0.
func shares(w []float32, b *graph.Block, v *values, self bool) {
	at := int64(0) // index in v of the row's first edge
	for d := range b.NumRows() {
		lo, hi := b.Indptr[d], b.Indptr[d+1]
		sum := 0.0
		if self {
			lo++
			sum = 1
		}
		if v.estimates {
			sum += v.totalOf(d)
		} else {
			for k := range hi - lo {
				sum += v.edgeValue(at + k)
			}
		}
		scale := 0.0
		if sum > 0 {
			scale = 1 / sum
		}
		for k := range hi - lo {
			w[lo+k] = float32(v.edgeValue(at+k) * scale)
		}
		if self {
			w[lo-1] = float32(scale)
		}
		at += hi - lo
	}
}

// symmetric sets the weights of a block that has an edge from each destination to itself. They are
// the weights of GCN's symmetric normalisation of the whole graph, without the edges that the
// minibatch leaves out:
//
//	w_ij = v_ij/sqrt((W_i+1)(W_j+1)) * deg_i/k_i  weight of an edge from j to i
//	w_ii = 1/(W_i+1)                              weight of the edge from i to itself
//
// Here v is the value of an edge. Vertex i has deg_i in-edges in the graph, of which k_i were
// sampled. W is the sum of the weights of all in-edges, which is deg without edge weights. For
// samplers that estimate, the values already account for edges that were not sampled, so there is
// no factor deg_i/k_i. So the weighted sum over a sample is an unbiased estimate of the sum over
// all edges.
func symmetric(w []float32, b *graph.Block, v *values) {
	for d := range b.NumDst {
		self, end := b.Indptr[d], b.Indptr[d+1]
		// The edge with index e in the block has index e-before in v, because v has no self-edges.
		before := int64(d) + 1
		all := v.total(int32(d))
		share := 1.0
		if !v.estimates {
			share = v.degree(int32(d)) / math.Max(1, float64(end-self-1))
		}
		share /= math.Sqrt(all + 1)
		for e := self + 1; e < end; e++ {
			w[e] = float32(share / math.Sqrt(v.total(b.Indices[e])+1) * v.edgeValue(e-before))
		}
		w[self] = float32(1 / (all + 1))
	}
}

// sources are the vertices that a block reads: a prefix of the frontier, then vertices of other
// ranks.
type sources struct{ own, others []graph.VertexID }

func sourcesOf(s *sample.Minibatch, l int) sources {
	n := s.Blocks[l].NumSrc
	if l == 0 || s.Others == nil {
		return sources{own: s.Frontier[:n]}
	}
	return sources{s.Frontier[:n-len(s.Others[l])], s.Others[l]}
}

func (s *sources) at(position int32) graph.VertexID {
	if n := len(s.own); int(position) >= n {
		return s.others[int(position)-n]
	}
	return s.own[position]
}

// Group sorts the edges of each row of the input layer into the order in which the rows of their
// sources are added: by the part of the source and, within a part, in the order in which they were
// drawn. The argument `part` has the part of each frontier vertex. Group returns the edges, so that
// the exchange can replace rows by sums. It returns nil if the input layer adds nothing. After
// Group only Host.SegmentRows may read these edges.
func (e *LayerEdges) Group(s *sample.Minibatch, needs nn.Needs, part []uint16,
	parts int) *exchange.Edges {
	e.input = exchange.Edges{}
	if a := &e.means; len(a.of) > 0 {
		e.groups.ByPart(a.indptr, a.indices, nil, part, parts)
		e.input = exchange.Edges{Indptr: a.indptr, Indices: a.indices, Whole: a.whole}
		return &e.input
	}
	if needs.Aggregate == compute.NoReduction || len(s.Blocks) == 0 {
		return nil
	}
	h := e.Hop(s, 0, needs, false)
	e.groups.ByPart(h.Forward.Indptr, h.Forward.Indices, h.Weights, part, parts)
	e.input = exchange.Edges{Indptr: h.Forward.Indptr, Indices: h.Forward.Indices,
		Weights: h.Weights}
	e.grouped = true
	return &e.input
}

// List lists the groups of a minibatch. The exchange x has located the rows of its frontier, in the
// plan p. Predictions need the groups for the sums that owners make.
func (e *LayerEdges) List(s *sample.Minibatch, needs nn.Needs, t *sample.Topology,
	x *exchange.Exchange, p *exchange.Plan, g *exchange.Groups) {
	// The choice between rows and sums does not depend on weights or the order of types.
	needs.Weights, needs.Types = nn.NoWeights, false
	e.Build(s, needs, false, t)
	x.List(p, e.Group(s, needs, p.Parts, x.Parts()), g)
}

// Hop returns the edges of layer l of the minibatch that Build was last called for.
func (e *LayerEdges) Hop(s *sample.Minibatch, l int, needs nn.Needs, train bool) (h nn.Hop) {
	b, t := e.layerBlock(s, l, needs)
	h.Sources, h.Destinations, h.Edges = b.NumSrc, s.Blocks[l].NumDst, b.NumEdges()
	h.Forward = compute.Segments{Indptr: b.Indptr, Indices: b.Indices}
	if train && (l > 0 || needs.Transposed) {
		h.Transposed = compute.Segments{Indptr: t.Indptr, Indices: t.Indices}
	}
	if needs.Transposed && len(h.Transposed.Indices) > 0 {
		h.Transposed.Edges = t.Edges[:len(h.Transposed.Indices)]
	}
	if needs.Relations != nn.NoRelations {
		e.related[l].hop(&h, needs, train)
	}
	if l == 0 && e.means.folds {
		h.Folded, h.TypeEnds, h.Transposed = true, e.means.ends, compute.Segments{}
	}
	if needs.Weights != nn.NoWeights {
		at := 0
		for k := range l {
			lower, _ := e.layerBlock(s, k, needs)
			at += lower.NumEdges()
		}
		h.Weights = e.weights[at : at+h.Edges]
		if train && (l > 0 || needs.Transposed) {
			h.TransposedWeights = e.transposed[at : at+h.Edges]
		}
	}
	if in := &e.input; l == 0 && e.grouped {
		h.Forward.Indices, h.Forward.Counts, h.Weights = in.Indices, in.Counts, in.Weights
	}
	return h
}

// Rows returns how many rows of a vertex type the input layer reads.
func (e *LayerEdges) Rows(kind int) int {
	if len(e.means.of) > 0 {
		return e.means.types[kind].end - e.means.types[kind].x
	}
	return e.order.ends[kind] - e.order.begin(kind)
}

// Bytes returns the memory of the arrays.
func (e *LayerEdges) Bytes() int64 {
	m := sample.Minibatch{Blocks: e.blocks, Transposes: e.transposes}
	bytes := m.Bytes() + int64(cap(e.weights)+cap(e.transposed))*4 + e.groups.Bytes() +
		int64(cap(e.order.vertices)+cap(e.order.place))*4 + e.means.bytes()
	for l := range e.related {
		bytes += e.related[l].bytes()
	}
	return bytes
}

// Free frees the arrays.
func (e *LayerEdges) Free() {
	m := sample.Minibatch{Blocks: e.blocks, Transposes: e.transposes}
	m.Free()
	mem.Free(e.weights)
	mem.Free(e.transposed)
	e.groups.Free()
	mem.Free(e.order.vertices)
	mem.Free(e.order.place)
	e.means.free()
	for l := range e.related {
		e.related[l].free()
	}
	*e = LayerEdges{}
}
