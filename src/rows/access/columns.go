package access

import (
	"halognn/src/base/mem"
	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
)

// A column is a list of in-neighbours of one vertex. In a graph with relations, a vertex has one
// column for each relation that leads to it, and draws from each of these columns separately. So
// each hop computes one value for each column, and not for each vertex: arrays of these values are
// w [C] for C columns. In a graph without relations each vertex has one column.

// draws holds the fanouts of a model, seed hop first. The field `relations` is set only if
// relations have fanouts of their own.
type draws struct {
	fanouts   []int
	relations [][]int
}

// fanoutOf returns the fanout of a relation in a hop.
func (d draws) fanoutOf(hop, relation int) int {
	if d.relations != nil {
		return d.relations[relation][hop]
	}
	return d.fanouts[hop]
}

// columns are the columns of a graph. A column is a list of in-neighbours of one vertex, and the
// vertex draws from each of its columns separately.
type columns struct {
	graph.Columns
	owners []graph.VertexID // [C] vertex of each column; nil if each vertex has one column
}

// columnsOf returns the columns of g. These are the columns in c or, if c is nil, one column for
// each vertex.
func columnsOf(g *graph.CSC, c *graph.Columns) (m columns) {
	if c != nil {
		m.Columns = *c
	}
	if m.Plain() {
		m.Indptr = g.Indptr
	}
	return m
}

// width returns the number of columns.
func (m *columns) width() int { return len(m.Indptr) - 1 }

// each calls f for every column of v. It passes the column and a probability (`t`): if v draws in
// this hop, it draws each in-neighbour of the column with this probability.
func (m *columns) each(d draws, hop, v int, f func(column int, t float64)) {
	if m.Plain() { // without this branch BenchmarkVIP is a seventh slower
		f(v, transition(d.fanouts[hop], int(m.Indptr[v+1]-m.Indptr[v])))
		return
	}
	kind, first, _ := m.Of(graph.VertexID(v))
	for k, relation := range m.Into(kind) {
		c := int(first) + k
		f(c, transition(d.fanoutOf(hop, relation), int(m.Indptr[c+1]-m.Indptr[c])))
	}
}

// spread turns values of the vertices (w [N]) into values of the columns [C]. Every column gets the
// value of its vertex. The returned function frees the memory of the result.
func (m *columns) spread(w []float32) (of []float32, free func()) {
	if m.owners == nil {
		return w, func() {}
	}
	of = mem.Make[float32](m.width())
	for c := range of {
		of[c] = w[m.owners[c]]
	}
	return of, func() { mem.Free(of) }
}

// owner returns the vertex of a column.
func (m *columns) owner(column graph.VertexID) graph.VertexID {
	if m.owners == nil {
		return column
	}
	return m.owners[column]
}

// ownersOf returns the vertex of each column, outside the Go heap. Without relations it returns
// nil.
func ownersOf(c *graph.Columns, vertices int) []graph.VertexID {
	if c.Plain() {
		return nil
	}
	owners := mem.Make[graph.VertexID](c.Len())
	for v := range graph.VertexID(vertices) {
		_, first, n := c.Of(v)
		for k := range n {
			owners[int(first)+k] = v
		}
	}
	return owners
}

// transition returns the probability that a vertex draws a given in-neighbour; degree is its number
// of in-neighbours.
func transition(fanout, degree int) float64 {
	if fanout == sample.All || degree <= fanout {
		return 1
	}
	return float64(fanout) / float64(degree)
}
