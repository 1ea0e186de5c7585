// Package sample draws minibatches from a graph: from a list of seeds it cuts one block per layer,
// and it decides the seeds of every step of an epoch.
//
//	seeds ─ hop 1 ─> frontier ─ hop 2 ─> frontier ─ hop 3 ─> input frontier
//	           \                  \                  \
//	         Blocks[2]          Blocks[1]          Blocks[0]      the input layer is the last hop
//
//	Frontier  s s s s | a b c d e | f g h i j k l                  one array has all frontiers:
//	          seeds     new at     new at                          the sources of a block are a
//	                    hop 1      hop 2                           prefix: destinations first
//
// A minibatch is a pure function of (graph, Spec, Near, seeds, Key). Every vertex draws from a
// random stream of its own, keyed by the key, the hop and the vertex's original id. Or it draws by
// random numbers of its neighbours, which are keyed in the same way (Numbers). So threads, pipeline
// depth, vertex order, part and rank affect no draw, and any rank that holds a vertex's row can
// draw for it (Remote.Answer).
//
// A Spec says which neighbours are drawn, and New makes its Sampler. Fused is the sampler of kinds
// Neighbour, Labor and Poisson; Reference is written to be read, and gives the same bits. Streams
// defines the order of the seeds, Share the streams of each rank, and Reader the minibatches of a
// rank and their keys. Replay and Sweep sample minibatches without training them. The package does
// no I/O and sends no messages: a rank or a stream is just a number in it.
package sample

import (
	"halognn/src/base/mem"
	"halognn/src/topology/graph"
)

// Key keys the random draws of one minibatch.
type Key struct {
	Seed   uint64 // seed of the run
	Epoch  int
	Step   int
	Stream int // stream (or split group) of the seeds; never the rank that draws

	// Favour is how many times likelier near vertices are drawn (Options.Near); 0 and 1 mean that
	// they are no likelier. It changes which vertices are drawn, but no random number.
	Favour float64
}

// All is the fanout that takes every in-neighbour.
const All = -1

// Topology is the graph as one rank sees it: all rows, or the consecutive rows of the vertices it
// holds.
//
//	Graph.Indptr   [H+1]  rows of vertices First..First+H-1: in-neighbours of v are
//	                      Graph.Indices[Graph.Indptr[v-First] : Graph.Indptr[v-First+1]]
//	Graph.Indices         source vertices by their id in the whole graph
//	Original       [N]    original id of every vertex of the whole graph, in [0,2^31)
//	Rows           [N+1]  row pointers of the whole graph, if Graph is a part of it and Degree
//	                      is called for any vertex; nil otherwise
//	Weights               weights of the edges, in the order of Graph.Indices; nil if none
//	WeightSums     [N]    sum of the weights of each vertex's in-edges; a rank that holds only
//	                      some rows needs only the sums of their vertices
//
// A rank that holds only some rows may pass a range of the whole graph's Indptr, so Indptr[0] need
// not be 0. The arrays may be memory-mapped; if a mapped file shrinks, the call that reads it
// returns an error.
type Topology struct {
	Graph    graph.CSC
	First    graph.VertexID
	Original []int32
	Rows     []int64
	Columns  graph.Columns // for a graph with relations: the columns of the whole graph

	Weights, WeightSums []float32
}

// Degree returns the in-degree of a vertex. The topology must have Rows, or hold the row of the
// vertex.
func (t *Topology) Degree(v graph.VertexID) int64 {
	if t.Rows != nil {
		return t.Rows[v+1] - t.Rows[v]
	}
	v -= t.First
	return t.Graph.Indptr[v+1] - t.Graph.Indptr[v]
}

// rows returns the row pointers of the columns that this rank holds, and the number of the first of
// them. In a graph without relations, each vertex is one column.
func (t *Topology) rows() (indptr []int64, first graph.VertexID) {
	if t.Columns.Plain() {
		return t.Graph.Indptr, t.First
	}
	return t.Columns.Indptr, 0
}

// row returns the sources of a column's edges.
func (t *Topology) row(column graph.VertexID) []graph.VertexID {
	indptr, first := t.rows()
	return t.Graph.Indices[indptr[column-first]:indptr[column-first+1]]
}

// LinksInto calls the function f for each relation whose edges are links (Columns.Links), with the
// sources of the edges of that relation into vertex v.
func (t *Topology) LinksInto(v graph.VertexID, f func(sources []graph.VertexID)) {
	kind, first, _ := t.Columns.Of(v)
	for k, relation := range t.Columns.Into(kind) {
		if t.Columns.Links(relation) {
			f(t.row(first + graph.VertexID(k)))
		}
	}
}

// Minibatch is the result of one call of Sample. Its arrays lie outside the Go heap, belong to the
// Minibatch, and are reused by the next Sample into it; the zero value is ready for use.
//
//	Blocks[l]      layer l: Blocks[0] is the input layer (the last hop); the destinations of
//	               Blocks[L-1] are the seeds
//	Frontier [S]   the input frontier: the sources of Blocks[l] are Frontier[:Blocks[l].NumSrc]
//	Original [S]   original ids of the frontier
//	Seeds    [B]   the seeds, Frontier[:B]
//	Transposes[l]  transpose of Blocks[l] for l >= 1; of Blocks[0] only if gradients of the
//	               input rows are wanted
//	Others[l]      for a rank's share of a minibatch (Split) and l >= 1: vertices of other ranks,
//	               which are the last sources of Blocks[l], so that only the sources before them
//	               are a prefix of Frontier; nil in a minibatch that is not shared
//	Totals         degrees or sums of weights that layers need besides the blocks, see below
//
// Totals is for estimates by a Remote, and for minibatches that leave edges out. For each
// destination of the input layer it has the degree without these edges or, if the data has weights,
// the sum of the weights of all its in-edges. For estimates in a graph with relations, it has the
// degree of each row of all blocks, beginning with the block of the seeds. Otherwise it is empty.
//
// Blocks[l].Weights are the weights of the data if Options.Weights is set, otherwise 1. With
// Estimates each weight is divided by the probability that its edge was drawn. They are empty if
// neither is set.
type Minibatch struct {
	Seeds      []graph.VertexID
	Blocks     []graph.Block
	Frontier   []graph.VertexID
	Original   []int32
	Transposes []graph.BlockTranspose
	Others     [][]graph.VertexID
	Totals     []float64
	Estimates  bool // weighted sums over a block's edges estimate the sums over all in-edges
}

// Free frees the arrays; the minibatch is then its zero value.
func (m *Minibatch) Free() {
	for l := range m.Blocks {
		mem.Free(m.Blocks[l].Indptr)
		mem.Free(m.Blocks[l].Indices)
		mem.Free(m.Blocks[l].Weights)
		mem.Free(m.Blocks[l].Places)
		mem.Free(m.Blocks[l].Targets)
		mem.Free(m.Blocks[l].Ends)
		mem.Free(m.Transposes[l].Indptr)
		mem.Free(m.Transposes[l].Indices)
		mem.Free(m.Transposes[l].Edges)
	}
	mem.Free(m.Frontier)
	mem.Free(m.Original)
	mem.Free(m.Totals)
	*m = Minibatch{}
}

// Bytes returns the memory of the arrays.
func (m *Minibatch) Bytes() int64 {
	n := int64(cap(m.Frontier)+cap(m.Original))*4 + int64(cap(m.Totals))*8
	for l := range m.Blocks {
		b, t := &m.Blocks[l], &m.Transposes[l]
		n += int64(cap(b.Indptr)+cap(t.Indptr))*8 +
			int64(cap(b.Indices)+cap(b.Weights)+cap(b.Places)+cap(b.Targets)+cap(b.Ends)+cap(
				t.Indices)+
				cap(t.Edges))*4
	}
	return n
}

// NumEdges returns the number of sampled edges of all blocks.
func (m *Minibatch) NumEdges() int {
	n := 0
	for l := range m.Blocks {
		n += m.Blocks[l].NumEdges()
	}
	return n
}

// RowTotals returns the part of Totals for the rows of Blocks[l] or, without relations, all of
// Totals.
func (m *Minibatch) RowTotals(l int) []float64 {
	if len(m.Totals) == 0 || len(m.Blocks[l].Ends) == 0 {
		return m.Totals
	}
	at := 0
	for k := len(m.Blocks) - 1; k > l; k-- {
		at += m.Blocks[k].NumRows()
	}
	return m.Totals[at : at+m.Blocks[l].NumRows()]
}

// layers makes room for n blocks; existing blocks keep their arrays.
func (m *Minibatch) layers(n int) {
	for len(m.Blocks) > n {
		last := len(m.Blocks) - 1
		drop := Minibatch{Blocks: m.Blocks[last:], Transposes: m.Transposes[last:]}
		drop.Free()
		m.Blocks, m.Transposes = m.Blocks[:last], m.Transposes[:last]
	}
	for len(m.Blocks) < n {
		m.Blocks = append(m.Blocks, graph.Block{})
		m.Transposes = append(m.Transposes, graph.BlockTranspose{})
	}
}
