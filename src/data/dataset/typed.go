package dataset

import (
	"fmt"

	"halognn/src/base/mem"
	"halognn/src/topology/graph"
)

// TypedEdges are the edges of one relation. They name vertices by their numbers within their types.
type TypedEdges struct {
	graph.Relation
	Sources, Targets []int32
}

// reversed returns the edges, and after them the reverse of every relation as a relation of its
// own.
func reversed(edges []TypedEdges) []TypedEdges {
	for _, e := range edges[:len(edges):len(edges)] {
		edges = append(edges, TypedEdges{e.Relation.Reverse(), e.Targets, e.Sources})
	}
	return edges
}

// TypedTopology writes a graph of typed vertices. Meta has the names of the types, and counts has
// the number of vertices of each type. The edges determine the relations. Within a relation,
// repeated edges and edges from a vertex to itself are dropped, unless o keeps them. The in-edges
// of a vertex are in the order of the relations, and within a relation in ascending order of their
// sources. Memory: 8 bytes for each edge, 16 for each pair of a vertex and a relation into its
// type, and 8 for each vertex. While a relation is sorted, each of its edges takes another 8 bytes.
func (w *Writer) TypedTopology(counts []int64, edges []TypedEdges, o graph.CleanOptions) (
	report graph.CleanReport, err error) {
	m := &w.Meta
	m.Schema.Relations = nil
	for _, e := range edges {
		m.Schema.Relations = append(m.Schema.Relations, e.Relation)
	}
	if err := m.Schema.Check(); err != nil {
		return report, err
	}
	if len(counts) != m.Schema.NumTypes() {
		return report, fmt.Errorf("%w: there are %d numbers of vertices, but %d vertex types "+
			"need one number each",
			ErrMismatch,
			len(counts), m.Schema.NumTypes())
	}
	m.Tables = make([]Table, len(counts))
	for t, n := range counts {
		m.Tables[t] = Table{Vertices: n, FeatureType: Float32}
	}
	starts := m.Starts()
	if err := checkVertices(starts[len(counts)]); err != nil {
		return report, err
	}
	all := make([]relationRows, len(edges))
	defer func() {
		for _, rows := range all {
			rows.free()
		}
	}()
	for r, e := range edges {
		g, cleaned, err := e.build(&m.Schema, r, starts, o)
		if err != nil {
			return report, err
		}
		all[r].g = g
		report.Add(cleaned)
	}
	return report, w.putRelations(starts, all)
}

// relationRows are the in-edges of a relation. Row v of g has the in-edges of vertex v of the
// target type. Sources are numbered among the vertices of all types.
type relationRows struct {
	g       *graph.CSC
	weights []float32 // weight of each edge; nil if all weights are 1
	cols    int
	rows    []float32 // [edges, cols] features of the edges; nil if all are 0
}

func (r *relationRows) free() {
	if r.g != nil {
		r.g.Free()
	}
	mem.Free(r.weights)
	mem.Free(r.rows)
	*r = relationRows{}
}

// putRelations writes the rows of all relations of the schema as one graph, and frees them. The
// in-edges of a vertex come one relation after the other. starts[t] is the first vertex of type t.
func (w *Writer) putRelations(starts []int64, all []relationRows) error {
	one := &all[0]
	if w.Meta.Schema.Typed() {
		columns, err := graph.NewColumns(&w.Meta.Schema, starts, nil)
		if err != nil {
			return err
		}
		joined, ends := joinRows(&columns, starts, all)
		defer func() { joined.free(); mem.Free(ends) }()
		if err := put(w, ColumnsFile, ends, len(ends)); err != nil {
			return err
		}
		one = joined
	}
	if err := w.Topology(one.g); err != nil {
		return err
	}
	one.g.Free()
	if one.weights != nil {
		if err := w.EdgeWeights(one.weights); err != nil {
			return err
		}
	}
	if len(one.rows) > 0 {
		return w.EdgeFeatures(one.rows, one.cols)
	}
	return nil
}

// joinRows joins the rows of all relations into one graph. A column has the in-edges of one vertex
// in one relation. The result ends has, for each column, the position in the graph's Indices where
// the column ends.
func joinRows(columns *graph.Columns, starts []int64, all []relationRows) (joined *relationRows,
	ends []int64) {
	edges, weighted := 0, false
	joined = new(relationRows)
	for _, of := range all {
		edges += len(of.g.Indices)
		weighted = weighted || of.weights != nil
		joined.cols = max(joined.cols, of.cols)
	}
	joined.g = &graph.CSC{Indptr: mem.Make[int64](int(starts[len(starts)-1]) + 1),
		Indices: mem.Make[graph.VertexID](edges)}
	if ends = mem.Make[int64](columns.Len() + 1); weighted {
		joined.weights = mem.Make[float32](edges)
	}
	if joined.cols > 0 {
		joined.rows = mem.Make[float32](edges * joined.cols)
	}
	at, c, cols := int64(0), 0, int64(joined.cols)
	for kind := range len(starts) - 1 {
		for v := starts[kind]; v < starts[kind+1]; v++ {
			for _, r := range columns.Into(kind) {
				of := &all[r]
				first, end := of.g.Indptr[v-starts[kind]], of.g.Indptr[v-starts[kind]+1]
				next := at + int64(copy(joined.g.Indices[at:], of.g.Indices[first:end]))
				if of.rows != nil {
					copy(joined.rows[at*cols:], of.rows[first*cols:end*cols])
				}
				if of.weights != nil {
					copy(joined.weights[at:], of.weights[first:end])
				} else if weighted {
					for i := at; i < next; i++ {
						joined.weights[i] = 1
					}
				}
				at = next
				c++
				ends[c] = at
			}
			joined.g.Indptr[v+1] = at
		}
	}
	return joined, ends
}

// checkVertices returns an error if there are more vertices than a vertex number can count.
func checkVertices(n int64) error {
	if n > graph.MaxVertices {
		return fmt.Errorf("%w: there are %d vertices, but at most %d are supported", ErrValue, n,
			graph.MaxVertices)
	}
	return nil
}

// build makes the in-edge rows of relation r, one row for each vertex of its target type.
func (e *TypedEdges) build(s *graph.Schema, r int, starts []int64,
	o graph.CleanOptions) (*graph.CSC, graph.CleanReport, error) {
	var b graph.Builder
	defer b.Free()
	if err := e.each(s, r, starts, func(l graph.Link) { b.Add(l.Source, l.Target) }); err != nil {
		return nil, graph.CleanReport{}, err
	}
	_, target := s.Ends(r)
	return b.BuildRows(int(starts[len(starts)-1]), int(starts[target]), int(starts[target+1]), o)
}

// each calls the function f with all edges of relation r, in their order. Links name vertices by
// their numbers among the vertices of all types; the list `starts` has the number of the first
// vertex of each type.
func (e *TypedEdges) each(s *graph.Schema, r int, starts []int64, f func(l graph.Link)) error {
	source, target := s.Ends(r)
	if len(e.Sources) != len(e.Targets) {
		return fmt.Errorf("%w: relation %s has %d sources and %d targets", ErrMismatch, e.Relation,
			len(e.Sources), len(e.Targets))
	}
	for i, u := range e.Sources {
		v := e.Targets[i]
		for _, end := range []struct {
			id   int32
			kind int
		}{{u, source}, {v, target}} {
			if n := starts[end.kind+1] - starts[end.kind]; end.id < 0 || int64(end.id) >= n {
				return fmt.Errorf("edge %d of relation %s joins vertex %d of type %s, which has "+
					"%d: %w", i, e.Relation, end.id, s.Types[end.kind], n, graph.ErrVertexRange)
			}
		}
		f(graph.Link{Source: graph.VertexID(starts[source]) + graph.VertexID(u),
			Target: graph.VertexID(starts[target]) + graph.VertexID(v)})
	}
	return nil
}
