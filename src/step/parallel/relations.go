package parallel

import (
	"halognn/src/base/mem"
	"halognn/src/devices/compute"
	"halognn/src/model/nn"
	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
)

// related holds the edges that a layer with weights for each relation has besides its block. A row
// of the block belongs to a destination and a relation; related says which destination and which
// group of relations the row goes to.
type related struct {
	ends, ownEnds []int32
	targets       graph.Block // for each destination, its rows of z (nn.Hop.Targets)
	rowsOf        graph.BlockTranspose
	// [pairs] for each pair the place of its source, then for each row the place of its destination
	// (nn.Hop.Pairs)
	pairs    graph.Block
	pairsOf  graph.BlockTranspose
	pairEnds []int32
	last     []int32 // [sources] last pair of each source, counted from 1; 0 if it has none
}

// byType is an input frontier sorted by vertex type; within a type the order is kept. With a single
// type, byType is the frontier itself.
type byType struct {
	vertices []graph.VertexID
	place    []int32 // place of each frontier vertex in vertices
	ends     []int   // [T] where each type ends in vertices
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

// relate makes the edges of layers that tell relations apart: the rows of a block, then for each
// destination one row with an edge from itself.
func (e *LayerEdges) relate(s *sample.Minibatch, needs nn.Needs, train bool, t *sample.Topology) {
	for len(e.blocks) < len(s.Blocks) {
		e.blocks, e.transposes = append(e.blocks, graph.Block{}),
			append(e.transposes, graph.BlockTranspose{})
	}
	for len(e.related) < len(e.blocks) {
		e.related = append(e.related, related{})
	}
	e.sorted = needs.Types && len(s.Blocks) > 0
	if e.sorted || needs.Averages && len(s.Blocks) > 0 {
		e.order.sort(&t.Columns, s.Frontier)
	}
	for l := range s.Blocks {
		r, sources := &e.related[l], &e.blocks[l]
		folds := l == 0 && needs.Averages &&
			e.means.count(&s.Blocks[0], s.Frontier, &e.order, &t.Columns, needs.Folding)
		if needs.Relations == nn.Paired {
			r.pair(&e.blocks[l], &s.Blocks[l], s.Frontier, &t.Columns)
			sources = &r.pairs
		} else {
			r.fillBlock(&e.blocks[l], &s.Blocks[l], s.Frontier, needs.Relations, &t.Columns, !folds)
		}
		if l == 0 && needs.Averages {
			e.average(&s.Blocks[0], s.Frontier, &t.Columns, needs.Folding)
			if folds {
				r.fold(&e.blocks[0])
			}
		} else if l == 0 && e.sorted {
			for k, source := range sources.Indices {
				sources.Indices[k] = e.order.place[source]
			}
		}
		if train {
			if !folds { // if rows are folded, sources get no gradient
				e.blocks[l].Transpose(&e.transposes[l])
			}
			r.targets.Transpose(&r.rowsOf)
			if needs.Relations == nn.Paired {
				r.pairs.Transpose(&r.pairsOf)
			}
		}
	}
}

// fillBlock fills a block (`into`) with the rows of b, followed by one row for each destination,
// whose only edge comes from the destination itself. In r it sets the destinations and groups of
// these rows. If `biases` is true, it also gives each destination the bias of its group. The
// frontier begins with the destinations.
func (r *related) fillBlock(into, b *graph.Block, frontier []graph.VertexID, own nn.Relating,
	c *graph.Columns, biases bool) {
	rows, edges := b.NumRows(), b.NumEdges()
	into.NumSrc, into.NumDst = b.NumSrc, rows+b.NumDst
	into.Indptr = mem.Grow(into.Indptr[:0], rows+b.NumDst+1)
	into.Indices = mem.Grow(into.Indices[:0], edges+b.NumDst)
	copy(into.Indptr, b.Indptr)
	copy(into.Indices, b.Indices)
	for d := range b.NumDst {
		into.Indptr[rows+d+1] = int64(edges + d + 1)
	}
	more := int64(1)
	if biases {
		more++
	}
	set := r.begin(b, own, c, more)
	n, next := b.NumDst, 0
	if r.targets.NumSrc = rows + n; biases {
		r.targets.NumSrc += len(r.ownEnds)
	}
	for g := range r.ownEnds {
		for d, v := range frontier[:n] {
			if set(v) != g {
				continue
			}
			into.Indices[edges+next] = int32(d)
			r.target(int32(d), rows+next)
			if biases {
				r.target(int32(d), rows+n+g)
			}
			next++
		}
		r.ownEnds[g] = int32(next)
	}
	r.end()
}

// fold is for a block b whose segments have one row each. In targets it replaces the number of a
// segment by the number of its row, so that targets refer to the rows of types directly.
func (r *related) fold(b *graph.Block) {
	for i, row := range r.targets.Indices {
		r.targets.Indices[i] = b.Indices[row]
	}
}

// begin lists the rows of each destination, and leaves room for further rows. A destination has
// `extra` further rows. It returns a function from a vertex to its group.
func (r *related) begin(b *graph.Block, own nn.Relating, c *graph.Columns,
	extra int64) func(graph.VertexID) int {
	rows, t, n := b.NumRows(), &r.targets, b.NumDst
	r.ends = append(r.ends[:0], b.Ends...)
	if len(b.Ends) == 0 {
		r.ends = append(r.ends, int32(rows))
	}
	t.NumDst = n
	t.Indptr = mem.Grow(t.Indptr[:0], n+1)
	t.Indices = mem.Grow(t.Indices[:0], rows+int(extra)*n)
	clear(t.Indptr)
	for row := range rows {
		t.Indptr[b.Target(row)+1]++
	}
	for d := range n {
		t.Indptr[d+1] += t.Indptr[d] + extra
	}
	for row := range rows {
		r.target(b.Target(row), row)
	}
	return r.sets(own, c)
}

// target adds a row to the rows of a destination. While rows are added, Indptr[d] is the place of
// the next row.
func (r *related) target(d int32, row int) {
	r.targets.Indices[r.targets.Indptr[d]] = int32(row)
	r.targets.Indptr[d]++
}

func (r *related) end() {
	t := &r.targets
	copy(t.Indptr[1:], t.Indptr[:t.NumDst])
	t.Indptr[0] = 0
}

// pair fills a block (`into`) with the rows of b, in which pairs of a source and a relation take
// the place of sources. Pairs are in the order of relations, then in first-seen order. O(edges +
// sources).
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

// sets makes room for the groups of own rows. It returns a function from a vertex to its group.
func (r *related) sets(own nn.Relating, c *graph.Columns) func(graph.VertexID) int {
	if own == nn.OwnTogether {
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

// hop adds to a hop what relations need.
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

// averaged says which rows are averaged before the linear map. The mean of mapped rows equals the
// map of their mean, so instead of the rows of a type's sources the input layer may read
//
//	for each relation and destination the mean of the sources    the destinations' own rows
//
// in this order. It reads means if means and own rows together are not more than the sources, or if
// the rows of all types are folded (nn.Folding). Both conditions depend only on the minibatch. Then
// fewer rows are made and mapped, and owners may sum them (docs/design/26-sums.md).
type averaged struct {
	of      []bool  // [T] whether the type is averaged
	indptr  []int64 // index pointers of the rows of averaged types, type by type
	indices []int32 // places among the vertices that Sources returns
	whole   []int32 // places of the destinations
	types   []ofType
	from    []int32 // [R] type of each relation's sources; -1 for a relation without edges
	folds   bool
	ends    [][]int32 // nn.Hop.TypeEnds; only if folds is set
}

// ofType describes the rows of one vertex type that the input layer reads.
type ofType struct {
	// number of means over sources of the type, of edges in these means, and of destinations of the
	// type
	means, edges, own int
	row, first        int // next row and first row of the type in indptr
	edge              int // next place in indices
	x                 int // first row of the type among all rows that are read
	end               int
}

// average rewrites the edges of the input layer, which relate has made from b, so that the edges
// read means. The method `count` must have been called before.
func (e *LayerEdges) average(b *graph.Block, frontier []graph.VertexID, c *graph.Columns,
	f *nn.Folding) {
	a, into, ends := &e.means, &e.blocks[0], e.related[0].ends
	kindOf := func(source int32) int { kind, _, _ := c.Of(frontier[source]); return kind }
	place := func(source int32) int32 {
		if e.sorted {
			return e.order.place[source]
		}
		return source
	}
	row, to, edges := 0, 0, len(b.Indices)
	read := func(kind int, sources []int32) { // adds the next row to the block into
		if of := &a.types[kind]; a.of[kind] {
			into.Indices[to] = int32(of.x + of.row - of.first)
			to++
			for _, s := range sources {
				a.indices[of.edge] = place(s)
				of.edge++
			}
			of.row++
			a.indptr[of.row] = int64(of.edge)
		} else {
			begin := e.order.begin(kind)
			for _, s := range sources {
				into.Indices[to] = int32(of.x-begin) + e.order.place[s]
				to++
			}
		}
		row++
		into.Indptr[row] = int64(to)
	}
	for r, end := range ends {
		for row < int(end) {
			read(int(a.from[r]), b.Indices[b.Indptr[row]:b.Indptr[row+1]])
		}
		if a.folds {
			a.ends[f.Sources[r]] = append(a.ends[f.Sources[r]], a.rows(f.Sources[r]))
		}
	}
	for k := range b.NumDst {
		own := into.Indices[edges+k : edges+k+1]
		d := own[0]
		a.whole[k] = place(d)
		read(kindOf(d), []int32{d})
	}
	into.Indices, into.NumSrc = into.Indices[:to], a.types[len(a.types)-1].end
	for t := range a.types {
		if a.folds {
			a.ends[t] = append(a.ends[t], a.rows(t))
		}
	}
}

// rows returns how many rows of a type are listed so far.
func (a *averaged) rows(t int) int32 { return int32(a.types[t].row - a.types[t].first) }

// count decides which types are averaged, and makes room for their rows. It reports whether the
// rows of all types are folded.
func (a *averaged) count(b *graph.Block, frontier []graph.VertexID, o *byType, c *graph.Columns,
	f *nn.Folding) bool {
	n, ends := len(o.ends), b.Ends
	if len(ends) == 0 {
		ends = []int32{int32(b.NumRows())}
	}
	a.of, a.from = append(a.of[:0], make([]bool, n)...), mem.Grow(a.from[:0], len(ends))
	a.types = append(a.types[:0], make([]ofType, n)...)
	row := 0
	for r, end := range ends {
		if a.from[r] = -1; row < int(end) {
			kind, _, _ := c.Of(frontier[b.Indices[b.Indptr[row]]])
			a.from[r] = int32(kind)
			of := &a.types[kind]
			of.means += int(end) - row
			of.edges += int(b.Indptr[end] - b.Indptr[row])
		}
		row = int(end)
	}
	for _, d := range frontier[:b.NumDst] {
		kind, _, _ := c.Of(d)
		a.types[kind].own++
	}
	a.folds = f != nil && f.Pays(func(t int) int { return a.types[t].means + a.types[t].own },
		func(t int) int { return o.ends[t] - o.begin(t) })
	if len(a.ends) != n {
		a.ends = make([][]int32, n)
	}
	for t := range a.ends {
		a.ends[t] = a.ends[t][:0]
	}
	rows, edges, x := 0, 0, 0
	for t := range a.types {
		of, sources := &a.types[t], o.ends[t]-o.begin(t)
		of.x, of.row, of.first, of.edge = x, rows, rows, edges
		if a.of[t] = a.folds || of.means+of.own <= sources; a.of[t] {
			sources = of.means + of.own
			rows, edges = rows+sources, edges+of.edges+of.own
		}
		x += sources
		of.end = x
	}
	a.indptr, a.indices = mem.Grow(a.indptr[:0], rows+1), mem.Grow(a.indices[:0], edges)
	a.indptr[0] = 0
	a.whole = mem.Grow(a.whole[:0], b.NumDst)
	return a.folds
}

func (a *averaged) bytes() int64 {
	return int64(cap(a.indptr))*8 + int64(cap(a.indices)+cap(a.whole)+cap(a.from))*4
}

func (a *averaged) free() {
	mem.Free(a.indptr)
	mem.Free(a.indices)
	mem.Free(a.whole)
	mem.Free(a.from)
}

// Means returns the segments by which the rows of a type are averaged for the input layer; the
// result averaged is false if the layer reads the rows themselves.
func (e *LayerEdges) Means(kind int) (s compute.Segments, averaged bool) {
	a := &e.means
	if len(a.of) == 0 || !a.of[kind] {
		return s, false
	}
	lo, hi := a.types[kind].first, a.types[kind].row
	s = compute.Segments{Indptr: e.input.Indptr[lo : hi+1], Indices: e.input.Indices}
	if e.input.Counts != nil {
		s.Counts = e.input.Counts[lo:hi]
	}
	return s, true
}

// Types returns where the sources of each type end, if the input layer's sources are sorted by
// type.
func (e *LayerEdges) Types() []int { return e.order.ends }

// begin returns where the sources of a type begin.
func (o *byType) begin(kind int) int {
	if kind == 0 {
		return 0
	}
	return o.ends[kind-1]
}

// First returns where the rows of a type begin among those that the input layer reads.
func (e *LayerEdges) First(kind int) int {
	if len(e.means.of) > 0 {
		return e.means.types[kind].x
	}
	return e.order.begin(kind)
}

// Sources returns the vertices whose rows the input layer reads, in the order of its sources.
func (e *LayerEdges) Sources(s *sample.Minibatch) []graph.VertexID {
	if e.sorted {
		return e.order.vertices
	}
	return s.Frontier
}
