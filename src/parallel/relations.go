package parallel

import (
	"halognn/src/compute"
	"halognn/src/graph"
	"halognn/src/mem"
	"halognn/src/nn"
	"halognn/src/sample"
)

// related are the edges of a layer that tells relations apart, beside its block: where the rows of
// the block, which are of destinations and relations, go.
type related struct {
	ends, ownEnds []int32
	targets       graph.Block // of each destination its rows of z (nn.Hop.Targets)
	rowsOf        graph.BlockTranspose
}

// byType are the vertices of an input frontier, type by type and in their order. Where vertices have
// one type it is the frontier.
type byType struct {
	vertices []graph.VertexID
	place    []int32 // of each vertex of the frontier
	ends     []int   // [T] where the types end
}

// sort sorts the frontier by type. O(vertices).
func (o *byType) sort(c *graph.Columns, frontier []graph.VertexID) {
	n := len(frontier)
	o.vertices, o.place = mem.Grow(o.vertices[:0], n), mem.Grow(o.place[:0], n)
	if len(o.ends) != c.NumTypes() {
		o.ends = make([]int, c.NumTypes())
	}
	clear(o.ends)
	for i, v := range frontier {
		kind, _, _ := c.Of(v)
		o.place[i] = int32(kind)
		o.ends[kind]++
	}
	at := 0
	for kind, count := range o.ends {
		o.ends[kind], at = at, at+count
	}
	for i, v := range frontier {
		kind := o.place[i]
		o.place[i] = int32(o.ends[kind])
		o.vertices[o.ends[kind]] = v
		o.ends[kind]++
	}
}

// relate makes the edges of layers that tell relations apart: after the rows of a block one for each
// destination, with an edge from itself.
func (e *LayerEdges) relate(s *sample.Minibatch, needs nn.Needs, train bool, t *sample.Topology) {
	for len(e.blocks) < len(s.Blocks) {
		e.blocks, e.transposes = append(e.blocks, graph.Block{}),
			append(e.transposes, graph.BlockTranspose{})
	}
	for len(e.related) < len(e.blocks) {
		e.related = append(e.related, related{})
	}
	e.sorted = needs.Types && len(s.Blocks) > 0
	if e.sorted {
		e.order.sort(&t.Columns, s.Frontier)
	}
	for l := range s.Blocks {
		e.related[l].make(&e.blocks[l], &s.Blocks[l], s.Frontier, needs.Relations, &t.Columns)
		if l == 0 && e.sorted {
			for k, source := range e.blocks[l].Indices {
				e.blocks[l].Indices[k] = e.order.place[source]
			}
		}
		if train {
			e.blocks[l].Transpose(&e.transposes[l])
			e.related[l].targets.Transpose(&e.related[l].rowsOf)
		}
	}
}

// make sets into to the rows of b and the destinations' own, and where they go. frontier begins with
// the destinations.
func (r *related) make(into, b *graph.Block, frontier []graph.VertexID, own nn.Relating,
	c *graph.Columns) {
	rows, edges := b.NumRows(), b.NumEdges()
	into.NumSrc, into.NumDst = b.NumSrc, rows+b.NumDst
	into.Indptr = mem.Grow(into.Indptr[:0], rows+b.NumDst+1)
	into.Indices = mem.Grow(into.Indices[:0], edges+b.NumDst)
	copy(into.Indptr, b.Indptr)
	copy(into.Indices, b.Indices)
	for d := range b.NumDst {
		into.Indptr[rows+d+1] = int64(edges + d + 1)
	}
	r.ends = append(r.ends[:0], b.Ends...)
	if len(b.Ends) == 0 {
		r.ends = append(r.ends, int32(rows))
	}
	set := r.sets(own, c)
	targets, n := &r.targets, b.NumDst
	targets.NumDst, targets.NumSrc = n, rows+n+len(r.ownEnds)
	targets.Indptr = mem.Grow(targets.Indptr[:0], n+1)
	targets.Indices = mem.Grow(targets.Indices[:0], rows+2*n)
	clear(targets.Indptr)
	for row := range rows {
		targets.Indptr[b.Target(row)+1]++
	}
	for d := range n {
		targets.Indptr[d+1] += targets.Indptr[d] + 2 // its own row and its bias
	}
	add := func(d int32, row int) { // Indptr[d] serves as the place of the next
		targets.Indices[targets.Indptr[d]] = int32(row)
		targets.Indptr[d]++
	}
	for row := range rows {
		add(b.Target(row), row)
	}
	next := 0
	for g := range r.ownEnds {
		for d, v := range frontier[:n] {
			if set(v) != g {
				continue
			}
			into.Indices[edges+next] = int32(d)
			add(int32(d), rows+next)
			add(int32(d), rows+n+g)
			next++
		}
		r.ownEnds[g] = int32(next)
	}
	copy(targets.Indptr[1:], targets.Indptr[:n])
	targets.Indptr[0] = 0
}

// sets makes room for the groups of own rows, and returns the group of a vertex.
func (r *related) sets(own nn.Relating, c *graph.Columns) func(graph.VertexID) int {
	if own == nn.OwnTogether || c.Plain() {
		r.ownEnds = append(r.ownEnds[:0], 0)
		return func(graph.VertexID) int { return 0 }
	}
	r.ownEnds = r.ownEnds[:0]
	set := make([]int, c.NumTypes())
	for kind := range set {
		set[kind] = -1
		if len(c.Into(kind)) > 0 {
			set[kind] = len(r.ownEnds)
			r.ownEnds = append(r.ownEnds, 0)
		}
	}
	return func(v graph.VertexID) int {
		kind, _, _ := c.Of(v)
		return set[kind]
	}
}

// hop adds what relations need to a hop.
func (r *related) hop(h *nn.Hop, train bool) {
	h.Ends, h.OwnEnds = r.ends, r.ownEnds
	h.Targets = compute.Segments{Indptr: r.targets.Indptr, Indices: r.targets.Indices}
	if train {
		h.RowsOf = compute.Segments{Indptr: r.rowsOf.Indptr, Indices: r.rowsOf.Indices}
	}
}

func (r *related) bytes() int64 {
	return int64(cap(r.targets.Indptr)+cap(r.rowsOf.Indptr))*8 +
		int64(cap(r.targets.Indices)+cap(r.rowsOf.Indices)+cap(r.rowsOf.Edges))*4
}

func (r *related) free() {
	mem.Free(r.targets.Indptr)
	mem.Free(r.targets.Indices)
	r.rowsOf.Free()
}

// Types returns where the sources of each type end, if the input layer's come type by type.
func (e *LayerEdges) Types() []int { return e.order.ends }

// Sources returns the vertices whose rows the input layer reads, in the order of its sources.
func (e *LayerEdges) Sources(s *sample.Minibatch) []graph.VertexID {
	if e.sorted {
		return e.order.vertices
	}
	return s.Frontier
}
