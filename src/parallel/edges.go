package parallel

import (
	"math"

	"halognn/src/compute"
	"halognn/src/graph"
	"halognn/src/mem"
	"halognn/src/nn"
	"halognn/src/sample"
)

// LayerEdges are the edges of a minibatch as the layers of a model read them. If a model needs more
// than the sampled edges, they are copies with an edge from each destination to itself, and with
// weights. The zero value is ready for use; the arrays are reused.
type LayerEdges struct {
	blocks     []graph.Block
	transposes []graph.BlockTranspose
	weights    []float32 // of all blocks, one after the other
	transposed []float32 // of all transposes
}

// Build makes the edges and weights that a model needs besides the sampled edges. With
// Needs.SelfEdges the transposes of the minibatch are not read, and may be absent.
func (e *LayerEdges) Build(s *sample.Minibatch, needs nn.Needs, train bool, t *sample.Topology) {
	if needs.SelfEdges {
		e.addSelfEdges(s, needs, train)
	}
	if needs.Weights != nn.NoWeights {
		e.weigh(s, needs, train, t)
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

// of returns the block of a layer, as the layer reads it, and its transpose.
func (e *LayerEdges) of(s *sample.Minibatch, l int, needs nn.Needs) (*graph.Block,
	*graph.BlockTranspose) {
	if needs.SelfEdges {
		return &e.blocks[l], &e.transposes[l]
	}
	return &s.Blocks[l], &s.Transposes[l]
}

// weigh sets the weights of the edges of all layers.
func (e *LayerEdges) weigh(s *sample.Minibatch, needs nn.Needs, train bool, t *sample.Topology) {
	edges := 0
	for l := range s.Blocks {
		b, _ := e.of(s, l, needs)
		edges += b.NumEdges()
	}
	e.weights = mem.Grow(e.weights, edges)
	if train {
		e.transposed = mem.Grow(e.transposed, edges)
	}
	at := 0
	for l := range s.Blocks {
		b, transpose := e.of(s, l, needs)
		w := e.weights[at : at+b.NumEdges()]
		var of []float32 // the sampled edges
		if needs.OfData {
			of = s.Blocks[l].Weights
		}
		switch needs.Weights {
		case nn.WeightsSymmetric:
			symmetric(w, b, of, sourcesOf(s, l), t)
		case nn.WeightsMean:
			shares(w, b, of, needs.SelfEdges)
		default:
			copy(w, of)
		}
		if train && l > 0 {
			for k, edge := range transpose.Edges {
				e.transposed[at+k] = w[edge]
			}
		}
		at += len(w)
	}
}

// shares sets the weights of a block to those of its edges over the sum of the destination's, in
// which an edge from a vertex to itself, which is the last, counts 1. They are 0 where the sum is.
func shares(w []float32, b *graph.Block, of []float32, self bool) {
	at := 0 // in of
	for d := range b.NumDst {
		lo, hi := int(b.Indptr[d]), int(b.Indptr[d+1])
		sum := 0.0
		if self {
			hi--
			sum = 1
		}
		for k := range hi - lo {
			sum += float64(of[at+k])
		}
		scale := 0.0
		if sum > 0 {
			scale = 1 / sum
		}
		for k := range hi - lo {
			w[lo+k] = float32(float64(of[at+k]) * scale)
		}
		if self {
			w[hi] = float32(scale)
		}
		at += hi - lo
	}
}

// symmetric sets the weights of a block with edges from the destinations to themselves: those of
// GCN's symmetric normalisation of the whole graph,
//
//	w_ij = v_ij/sqrt((W_i+1)(W_j+1)) * deg_i/k_i    for an edge from j to i, k_i of whose deg_i in-edges
//	w_ii = 1/(W_i+1)                                were sampled
//
// where v is the weight of an edge and W the sum over all in-edges: 1 and deg where edges have
// none. So the weighted sum over a uniform sample is an unbiased estimate of the sum over all
// edges.
func symmetric(w []float32, b *graph.Block, of []float32, ids sources, t *sample.Topology) {
	degree := func(position int32) float64 { return float64(t.Degree(ids.at(position))) }
	total := degree
	if of != nil {
		total = func(position int32) float64 { return float64(t.WeightSums[ids.at(position)]) }
	}
	at := int64(0) // in of, less the edge in w
	for d := range b.NumDst {
		lo, last := b.Indptr[d], b.Indptr[d+1]-1
		all := total(int32(d))
		share := degree(int32(d)) / math.Max(1, float64(last-lo)) / math.Sqrt(all+1)
		for e := lo; e < last; e++ {
			x := share / math.Sqrt(total(b.Indices[e])+1)
			if of != nil {
				x *= float64(of[e+at])
			}
			w[e] = float32(x)
		}
		w[last] = float32(1 / (all + 1))
		at--
	}
}

// sources are the vertices of a block's sources: the first ones are a prefix of the frontier.
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

// Hop returns the edges of layer l of the minibatch of the last Build.
func (e *LayerEdges) Hop(s *sample.Minibatch, l int, needs nn.Needs, train bool) (h nn.Hop) {
	b, t := e.of(s, l, needs)
	h.Sources, h.Destinations, h.Edges = b.NumSrc, b.NumDst, b.NumEdges()
	h.Forward = compute.Segments{Indptr: b.Indptr, Indices: b.Indices}
	if train && (l > 0 || needs.Transposed) {
		h.Transposed = compute.Segments{Indptr: t.Indptr, Indices: t.Indices}
	}
	if needs.Transposed {
		h.Transposed.Edges = t.Edges[:len(h.Transposed.Indices)]
	}
	if needs.Weights != nn.NoWeights {
		at := 0
		for k := range l {
			lower, _ := e.of(s, k, needs)
			at += lower.NumEdges()
		}
		h.Weights = e.weights[at : at+h.Edges]
		if train && l > 0 {
			h.TransposedWeights = e.transposed[at : at+h.Edges]
		}
	}
	return h
}

// bytes returns the memory of the arrays.
func (e *LayerEdges) bytes() int64 {
	m := sample.Minibatch{Blocks: e.blocks, Transposes: e.transposes}
	return m.Bytes() + int64(cap(e.weights)+cap(e.transposed))*4
}

// Free frees the arrays.
func (e *LayerEdges) Free() {
	m := sample.Minibatch{Blocks: e.blocks, Transposes: e.transposes}
	m.Free()
	mem.Free(e.weights)
	mem.Free(e.transposed)
	*e = LayerEdges{}
}
