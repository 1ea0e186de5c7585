package dataset

import (
	"fmt"
	"slices"

	"halognn/src/graph"
	"halognn/src/mem"
)

// TypedEdges are the edges of one relation. Vertices are numbered within their type.
type TypedEdges struct {
	graph.Relation
	Sources, Targets []int32
}

// reversed returns the same edges with the reverses of all relations beside them.
func reversed(edges []TypedEdges) []TypedEdges {
	for _, e := range edges[:len(edges):len(edges)] {
		edges = append(edges, TypedEdges{e.Relation.Reverse(), e.Targets, e.Sources})
	}
	return edges
}

// TypedTopology writes the graph of a Meta with Types and counts of their vertices; the edges say
// which Relations it has. Within a relation repeated edges are dropped, and edges from a vertex to
// itself, unless o keeps them. The in-edges of a vertex are in the order of the relations, and of one
// relation ascending by source. Memory: 8 bytes an edge, 16 for each vertex and relation that ends
// in its type, and 8 more a vertex; while a relation is sorted, 8 for each of its edges.
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
		return report, fmt.Errorf("%w: %d counts of the vertices of %d types", ErrMismatch, len(counts),
			m.Schema.NumTypes())
	}
	m.Tables = make([]Table, len(counts))
	for t, n := range counts {
		m.Tables[t] = Table{Vertices: n, FeatureType: Float32}
	}
	starts := m.Starts()
	n := starts[len(counts)]
	if n > graph.MaxVertices {
		return report, fmt.Errorf("%w: %d vertices; at most %d are supported", ErrValue, n,
			graph.MaxVertices)
	}
	of := make([]*graph.CSC, len(edges))
	defer func() {
		for _, g := range of {
			if g != nil {
				g.Free()
			}
		}
	}()
	for r, e := range edges {
		g, cleaned, err := e.build(&m.Schema, r, starts, o)
		if err != nil {
			return report, err
		}
		of[r] = g
		report.Add(cleaned)
	}
	columns, err := graph.NewColumns(&m.Schema, starts, nil)
	if err != nil {
		return report, err
	}
	return report, w.putColumns(&columns, of, starts, report.After)
}

// build makes the rows of one relation, those of the vertices of its target type.
func (e *TypedEdges) build(s *graph.Schema, r int, starts []int64, o graph.CleanOptions) (*graph.CSC,
	graph.CleanReport, error) {
	var b graph.Builder
	defer b.Free()
	if err := e.each(s, r, starts, func(l graph.Link) { b.Add(l.Source, l.Target) }); err != nil {
		return nil, graph.CleanReport{}, err
	}
	_, target := s.Ends(r)
	return b.BuildRows(int(starts[len(starts)-1]), int(starts[target]), int(starts[target+1]), o)
}

// each calls f with the edges of relation r in their order, by the vertices of all types, which begin at
// starts.
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
				return fmt.Errorf("edge %d of relation %s joins vertex %d of type %s, which has %d: %w", i,
					e.Relation, end.id, s.Types[end.kind], n, graph.ErrVertexRange)
			}
		}
		f(graph.Link{Source: graph.VertexID(starts[source]) + graph.VertexID(u),
			Target: graph.VertexID(starts[target]) + graph.VertexID(v)})
	}
	return nil
}

// putColumns writes the rows of all relations, vertex by vertex.
func (w *Writer) putColumns(columns *graph.Columns, of []*graph.CSC, starts []int64,
	edges int64) error {
	n := starts[len(starts)-1]
	g := graph.CSC{Indptr: mem.Make[int64](int(n) + 1), Indices: mem.Make[graph.VertexID](int(edges))}
	rows := mem.Make[int64](columns.Len() + 1)
	defer func() { g.Free(); mem.Free(rows) }()
	at, c := int64(0), 0
	for kind := range len(starts) - 1 {
		for v := starts[kind]; v < starts[kind+1]; v++ {
			for _, r := range columns.Into(kind) {
				at += int64(copy(g.Indices[at:], of[r].InNeighbours(graph.VertexID(v-starts[kind]))))
				c++
				rows[c] = at
			}
			g.Indptr[v+1] = at
		}
	}
	if err := w.Topology(&g); err != nil {
		return err
	}
	return put(w, ColumnsFile, rows, len(rows))
}

// takeLinks makes the edges of the relation that an import names links: it returns the numbers of the
// relations, as graph.Schema.Links has them, and leaves the validation and test links out of all of
// these, in both directions. A relation is one of these if it is called the reverse, or if most of its
// pairs (leak) are those of the links in either direction, whatever its name: so is a reverse with an
// edge more or less, and the reverse of a reverse. Others keep their edges, which is noted; with
// KeepLeaks all do. 8 bytes a vertex, 16 an edge of the relation and 8 an edge of others between its types.
func (t *typedSource) takeLinks(o *ImportOptions) (of []int, links graph.LinkSplit, err error) {
	schema, starts := graph.Schema{Types: t.names}, []int64{0}
	for i, s := range t.of {
		starts = append(starts, starts[i]+int64(s.vertices))
	}
	for _, e := range t.edges {
		schema.Relations = append(schema.Relations, e.Relation)
	}
	if o.LinksOf == "" {
		return nil, links, badOption("--task links: the graph has relations; say whose edges are the links: "+
			"--relation %s", schema.Relations[0])
	}
	r, err := schema.Relation(o.LinksOf)
	if err != nil {
		return nil, links, badOption("--relation: %w", err)
	}
	var b graph.Builder
	defer b.Free()
	own := &t.edges[r]
	if err := own.each(&schema, r, starts, func(l graph.Link) { b.Add(l.Source, l.Target) }); err != nil {
		return nil, links, err
	}
	n := int(starts[len(starts)-1])
	g, _, err := b.Build(n, graph.CleanOptions{KeepLoops: true})
	if err != nil {
		return nil, links, err
	}
	defer g.Free()
	of = []int{r}
	symmetric := own.Source == own.Target && g.Reciprocal() == g.NumEdges()
	pairs := map[int][]graph.Link{} // of the relations between the same types
	for k := range t.edges {
		other := &t.edges[k]
		if k == r || !(other.Source == own.Target && other.Target == own.Source ||
			other.Source == own.Source && other.Target == own.Target) {
			continue
		}
		if pairs[k], err = other.pairs(&schema, k, starts); err != nil {
			return nil, links, err
		}
		byName := other.Relation == own.Reverse() || own.Relation == other.Reverse()
		if same := samePairs(g, pairs[k]); !o.KeepLeaks && (byName || same > 0 && same >= leak*float64(len(pairs[k]))) {
			of = append(of, k)
		}
	}
	source, target := schema.Ends(r)
	links, _, err = takeLinks(o, linkEnds{{t.of[source], starts[source]}, {t.of[target], starts[target]}}, g,
		nil, symmetric, nil)
	judged := Judged(&links)
	for _, k := range of {
		e := &t.edges[k]
		sources, targets := e.Sources, e.Targets // which another relation may have, too
		e.Sources, e.Targets = nil, nil
		all := TypedEdges{e.Relation, sources, targets}
		_ = all.each(&schema, k, starts, func(l graph.Link) { // has been called before
			if !judged(l) {
				e.Sources, e.Targets = append(e.Sources, sources[0]), append(e.Targets, targets[0])
			}
			sources, targets = sources[1:], targets[1:]
		})
	}
	for k := range t.edges {
		stay := 0
		for _, l := range pairs[k] {
			if judged(l) {
				stay++
			}
		}
		if stay > 0 && !slices.Contains(of, k) {
			t.notes = append(t.notes, fmt.Sprintf("%d edges of %s join the ends of validation and test links and stay "+
				"in the graph, so that a model reads them: leave the relation out if the one tells the other", stay,
				t.edges[k].Relation))
		}
	}
	return of, links, err
}

// leak is the share of a relation's pairs that are those of the links from which on it tells them: a
// reverse with an edge more or less.
const leak = 0.8

// pairs returns the distinct edges.
func (e *TypedEdges) pairs(s *graph.Schema, r int, starts []int64) (pairs []graph.Link, err error) {
	err = e.each(s, r, starts, func(l graph.Link) { pairs = append(pairs, l) })
	slices.SortFunc(pairs, graph.Link.Compare)
	return slices.Compact(pairs), err
}

// samePairs counts the pairs that are edges of g, in either direction.
func samePairs(g *graph.CSC, pairs []graph.Link) (same float64) {
	for _, l := range pairs {
		if g.Has(l) || g.Has(l.Reverse()) {
			same++
		}
	}
	return same
}
