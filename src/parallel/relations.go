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
	pairs         graph.Block // places of sources and destinations (nn.Hop.Pairs)
	pairsOf       graph.BlockTranspose
	pairEnds      []int32
	last          []int32 // of each source the last pair with it, counted from 1; 0: none
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
		r, sources := &e.related[l], &e.blocks[l]
		if needs.Relations == nn.Paired {
			r.pair(&e.blocks[l], &s.Blocks[l], s.Frontier, &t.Columns)
			sources = &r.pairs
		} else {
			r.make(&e.blocks[l], &s.Blocks[l], s.Frontier, needs.Relations, &t.Columns)
		}
		if l == 0 && e.sorted {
			for k, source := range sources.Indices {
				sources.Indices[k] = e.order.place[source]
			}
		}
		if train {
			e.blocks[l].Transpose(&e.transposes[l])
			r.targets.Transpose(&r.rowsOf)
			if needs.Relations == nn.Paired {
				r.pairs.Transpose(&r.pairsOf)
			}
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
	set := r.begin(b, own, c, 2)
	n, next := b.NumDst, 0
	r.targets.NumSrc = rows + n + len(r.ownEnds)
	for g := range r.ownEnds {
		for d, v := range frontier[:n] {
			if set(v) != g {
				continue
			}
			into.Indices[edges+next] = int32(d)
			r.target(int32(d), rows+next)
			r.target(int32(d), rows+n+g)
			next++
		}
		r.ownEnds[g] = int32(next)
	}
	r.end()
}

// begin lists the rows of the destinations, with room for so many more of each, and returns the group
// of a vertex.
func (r *related) begin(b *graph.Block, own nn.Relating, c *graph.Columns,
	more int64) func(graph.VertexID) int {
	rows, t, n := b.NumRows(), &r.targets, b.NumDst
	r.ends = append(r.ends[:0], b.Ends...)
	if len(b.Ends) == 0 {
		r.ends = append(r.ends, int32(rows))
	}
	t.NumDst = n
	t.Indptr = mem.Grow(t.Indptr[:0], n+1)
	t.Indices = mem.Grow(t.Indices[:0], rows+int(more)*n)
	clear(t.Indptr)
	for row := range rows {
		t.Indptr[b.Target(row)+1]++
	}
	for d := range n {
		t.Indptr[d+1] += t.Indptr[d] + more
	}
	for row := range rows {
		r.target(b.Target(row), row)
	}
	return r.sets(own, c)
}

// target adds a row to those of a destination. Until the end Indptr[d] is the place of the next.
func (r *related) target(d int32, row int) {
	r.targets.Indices[r.targets.Indptr[d]] = int32(row)
	r.targets.Indptr[d]++
}

func (r *related) end() {
	t := &r.targets
	copy(t.Indptr[1:], t.Indptr[:t.NumDst])
	t.Indptr[0] = 0
}

// pair sets into to the rows of b, whose sources are pairs of a source and a relation, in the order of
// relations and then in first-seen order. O(edges + sources).
func (r *related) pair(into, b *graph.Block, frontier []graph.VertexID, c *graph.Columns) {
	set := r.begin(b, nn.Paired, c, 1)
	rows := b.NumRows()
	into.NumDst = rows
	into.Indptr = mem.Grow(into.Indptr[:0], rows+1)
	into.Indices = mem.Grow(into.Indices[:0], b.NumEdges())
	copy(into.Indptr, b.Indptr)
	p := &r.pairs
	p.NumSrc = b.NumSrc
	p.Indices = mem.Grow(p.Indices[:0], b.NumEdges()+rows)[:0]
	r.last = mem.Grow(r.last[:0], b.NumSrc)
	clear(r.last)
	r.pairEnds = r.pairEnds[:0]
	row := 0
	for _, end := range r.ends {
		before := int32(len(p.Indices))
		for ; row < int(end); row++ {
			for e := b.Indptr[row]; e < b.Indptr[row+1]; e++ {
				source := b.Indices[e]
				if r.last[source] <= before {
					p.Indices = append(p.Indices, source)
					r.last[source] = int32(len(p.Indices))
				}
				into.Indices[e] = r.last[source] - 1
			}
		}
		r.pairEnds = append(r.pairEnds, int32(len(p.Indices)))
	}
	into.NumSrc = len(p.Indices)
	for row := range rows {
		p.Indices = append(p.Indices, b.Target(row))
	}
	for _, end := range r.ends {
		r.pairEnds = append(r.pairEnds, int32(into.NumSrc)+end)
	}
	p.NumDst = len(p.Indices)
	p.Indptr = mem.Grow(p.Indptr[:0], p.NumDst+1)
	for i := range p.Indptr {
		p.Indptr[i] = int64(i)
	}
	r.targets.NumSrc = rows + len(r.ownEnds)
	for d, v := range frontier[:b.NumDst] {
		r.target(int32(d), rows+set(v))
	}
	r.end()
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
func (r *related) hop(h *nn.Hop, needs nn.Needs, train bool) {
	h.Ends, h.OwnEnds = r.ends, r.ownEnds
	h.Targets = compute.Segments{Indptr: r.targets.Indptr, Indices: r.targets.Indices}
	if needs.Relations == nn.Paired {
		h.Sources, h.PairEnds = r.pairs.NumSrc, r.pairEnds
		h.Pairs = compute.Segments{Indptr: r.pairs.Indptr, Indices: r.pairs.Indices}
		h.PairsOf = compute.Segments{Indptr: r.pairsOf.Indptr, Indices: r.pairsOf.Indices}
	}
	if train {
		h.RowsOf = compute.Segments{Indptr: r.rowsOf.Indptr, Indices: r.rowsOf.Indices}
	}
}

func (r *related) bytes() int64 {
	m := sample.Minibatch{Blocks: []graph.Block{r.targets, r.pairs},
		Transposes: []graph.BlockTranspose{r.rowsOf, r.pairsOf}}
	return m.Bytes() + int64(cap(r.last))*4
}

func (r *related) free() {
	m := sample.Minibatch{Blocks: []graph.Block{r.targets, r.pairs},
		Transposes: []graph.BlockTranspose{r.rowsOf, r.pairsOf}}
	m.Free()
	mem.Free(r.last)
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
