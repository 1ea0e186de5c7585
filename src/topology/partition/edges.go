package partition

import (
	"halognn/src/base/mem"
	"halognn/src/topology/graph"
)

// Edges is a graph stored by in-edges or by out-edges. Partitioning libraries need both directions.
type Edges struct {
	Indptr  []int64
	Indices []graph.VertexID
	Weights []int32 // cost of cutting each edge; nil means 1
}

// Neighbours returns the vertices at the other ends of the edges of v.
func (d Edges) Neighbours(v int) []graph.VertexID { return d.Indices[d.Indptr[v]:d.Indptr[v+1]] }

// Weight returns what cutting edge e costs.
func (d Edges) Weight(e int64) int64 {
	if d.Weights == nil {
		return 1
	}
	return int64(d.Weights[e])
}

// TotalWeight returns the cost of cutting all edges: the sum of their weights.
func (d Edges) TotalWeight() int64 {
	if d.Weights == nil {
		return int64(len(d.Indices))
	}
	var total int64
	for _, w := range d.Weights {
		total += int64(w)
	}
	return total
}

// Transpose returns the same edges seen from their other ends: in-edges become out-edges, and the
// reverse. It uses a counting sort. The result lies outside the Go heap until Free.
func (d Edges) Transpose() Edges {
	n := len(d.Indptr) - 1
	t := Edges{mem.Make[int64](n + 1), mem.Make[graph.VertexID](len(d.Indices)),
		mem.Make[int32](len(d.Weights))}
	for _, u := range d.Indices {
		t.Indptr[u+1]++
	}
	for v := range n {
		t.Indptr[v+1] += t.Indptr[v]
	}
	next := t.Indptr // counted up while filling, then moved back by one
	for v := range n {
		for e := d.Indptr[v]; e < d.Indptr[v+1]; e++ {
			u := d.Indices[e]
			t.Indices[next[u]] = graph.VertexID(v)
			if d.Weights != nil {
				t.Weights[next[u]] = d.Weights[e]
			}
			next[u]++
		}
	}
	copy(t.Indptr[1:], t.Indptr[:n])
	t.Indptr[0] = 0
	return t
}

// Free frees the arrays that Transpose made.
func (d Edges) Free() {
	mem.Free(d.Indptr)
	mem.Free(d.Indices)
	mem.Free(d.Weights)
}
