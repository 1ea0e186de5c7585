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
	if !needs.SelfEdges {
		return
	}
	layers := len(s.Blocks)
	for len(e.blocks) < layers {
		e.blocks, e.transposes = append(e.blocks, graph.Block{}), append(e.transposes, graph.BlockTranspose{})
	}
	edges := 0
	for l := range s.Blocks {
		b := &e.blocks[l]
		s.Blocks[l].SelfEdges(b)
		if train && (l > 0 || needs.Transposed) {
			b.Transpose(&e.transposes[l])
		}
		edges += b.NumEdges()
	}
	if !needs.Weights {
		return
	}
	e.weights = mem.Grow(e.weights, edges)
	if train {
		e.transposed = mem.Grow(e.transposed, edges)
	}
	at := 0
	for l := range s.Blocks {
		w := e.weights[at : at+e.blocks[l].NumEdges()]
		symmetric(w, &e.blocks[l], s.Frontier, t)
		if train && l > 0 {
			for k, edge := range e.transposes[l].Edges {
				e.transposed[at+k] = w[edge]
			}
		}
		at += len(w)
	}
}

// symmetric sets the weights of a block with edges from the destinations to themselves: those of GCN's
// symmetric normalisation of the whole graph,
//
//	w_ij = 1/sqrt((deg_i+1)(deg_j+1)) * deg_i/k_i    for an edge from j to i, k_i of whose deg_i in-edges
//	w_ii = 1/(deg_i+1)                               were sampled
//
// so that the weighted sum over a uniform sample is an unbiased estimate of the sum over all edges.
func symmetric(w []float32, b *graph.Block, frontier []graph.VertexID, t *sample.Topology) {
	degree := func(position int32) float64 {
		v := frontier[position] - t.First
		return float64(t.Graph.Indptr[v+1] - t.Graph.Indptr[v])
	}
	for d := range b.NumDst {
		lo, last := b.Indptr[d], b.Indptr[d+1]-1
		deg := degree(int32(d))
		share := deg / math.Max(1, float64(last-lo)) / math.Sqrt(deg+1)
		for e := lo; e < last; e++ {
			w[e] = float32(share / math.Sqrt(degree(b.Indices[e])+1))
		}
		w[last] = float32(1 / (deg + 1))
	}
}

// Hop returns the edges of layer l of the minibatch of the last Build.
func (e *LayerEdges) Hop(s *sample.Minibatch, l int, needs nn.Needs, train bool) (h nn.Hop) {
	b, t := &s.Blocks[l], &s.Transposes[l]
	if needs.SelfEdges {
		b, t = &e.blocks[l], &e.transposes[l]
	}
	h.Sources, h.Destinations, h.Edges = b.NumSrc, b.NumDst, b.NumEdges()
	h.Forward = compute.Segments{Indptr: b.Indptr, Indices: b.Indices}
	if train && (l > 0 || needs.Transposed) {
		h.Transposed = compute.Segments{Indptr: t.Indptr, Indices: t.Indices}
	}
	if needs.Transposed {
		h.Transposed.Edges = t.Edges[:len(h.Transposed.Indices)]
	}
	if needs.Weights {
		at := 0
		for k := range l {
			at += e.blocks[k].NumEdges()
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
