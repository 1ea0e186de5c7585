package sample

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"halognn/src/base/mem"
	"halognn/src/topology/graph"
)

// Remote makes the minibatches of Fused where each rank holds only the rows of its own vertices
// (FastSample's partitioned topology). A hop asks the owners of the frontier's vertices to draw for
// them. They draw with the key of the asking rank, so the blocks are those of Fused, bit for bit:
//
//	asker                                              owners
//	Begin    seeds are the first frontier
//	Ask      frontier, by owner  ── ids and word ──>   Answer    draws, without edges left out
//	Extend   block, next frontier <── neighbours ──
//	End      transposes
//
// For kind LADIES owners return all neighbours, and the asker draws among the neighbours of the
// whole frontier. A reply also has what the weights of edges depend on (Reply). If the data has
// weights, it has the weight of each edge. For kinds that estimate, it has the total of each
// vertex, from which the probabilities follow. If edges are left out, it has the degree without
// them.
//
// On a graph with relations owners draw for each column of a vertex. They also return the number of
// neighbours of columns without edges, because the asker does not know which columns have none. The
// columns for one asker are in the order of relations and, within a relation, in the order asked.
// The rows of the asker's block have the same order, so that it can merge the answers.
//
// Remote sends nothing: its caller moves IDs, Sizes and Neighbours. Between two calls the state of
// a minibatch is in its Minibatch and Asking, so each call may use another Remote. One goroutine at
// a time may use a Remote. Its memory, besides the topology, grows with the largest frontier so
// far.
type Remote struct {
	fused *Fused
	layer Ladies // draws for kind LADIES, by means of fused
}

// NewRemote makes a Remote over rows of consecutive vertices. The option Workers is ignored,
// because several minibatches are prepared at the same time. Near vertices work only with kind
// LADIES: for other kinds the owners draw, and they do not know what is near to the asker.
func NewRemote(t *Topology, o Options) (*Remote, error) {
	o.Workers = 1
	var weights, near error
	if o.Weights && t.Weights == nil {
		weights = errNoWeights
	}
	if !o.Near.None() && o.HasFanouts() {
		near = fmt.Errorf("with topology.kind partitioned and sample.kind %s the owners of "+
			"vertices draw, and they do not know which rows the rank that asks holds, as "+
			"sample.locality needs; choose sample.kind %s, or topology.kind replicated",
			o.kind(), LADIES)
	}
	if o.Map == MapAuto {
		// A dense map would take 4 bytes for every vertex of the whole graph, though this rank
		// holds only a part of it.
		o.Map = MapHash
	}
	if err := errors.Join(t.check(), o.Spec.Check(), o.check(), weights, near,
		o.Near.check(o.Spec, t), o.checkRelations(t)); err != nil {
		return nil, fmt.Errorf("sample: %w", err)
	}
	f, err := newAnywhere(t, o)
	if err != nil {
		return nil, err
	}
	return &Remote{f, Ladies{fused: f}}, nil
}

// Free frees the memory.
func (r *Remote) Free() { r.layer.Free() }

// Bytes returns the memory held now.
func (r *Remote) Bytes() int64 { return r.layer.Bytes() }

// Begin makes the seeds the first frontier of a minibatch with the given number of hops. It returns
// the errors of Sampler.Sample about seeds.
func (r *Remote) Begin(mb *Minibatch, seeds []graph.VertexID, hops int) error {
	return r.fused.beginBy(mb, seeds, hops)
}

// Reply has the sizes, in bytes, of what an owner returns about a column (without relations, a
// vertex). Size bytes hold the number of neighbours drawn. Total bytes hold the number of all
// neighbours or the sum of their weights. Edge bytes hold each neighbour drawn, and what is sent
// with it (Carried).
type Reply struct {
	Size, Total, Edge int
	Carried
}

// Carried says which words follow each neighbour in a message, in this order.
type Carried struct {
	Weights bool // the weight of the edge
	Places  bool // the position of the edge in the whole topology
}

// Column returns the bytes of a column without its neighbours.
func (r Reply) Column() int { return r.Size + r.Total }

// Reply returns the Reply of hop h, counted from 1.
func (s Spec) Reply(h int, with Carried) Reply {
	r := Reply{Size: 4, Edge: VertexBytes, Carried: with}
	if s.Estimates() || s.Links.Excludes() {
		r.Total = 4
	} else if f := s.most(h); f != All && f <= math.MaxUint8 {
		r.Size = 1
	}
	for _, more := range []bool{with.Weights, with.Places} {
		if more {
			r.Edge += 4
		}
	}
	return r
}

// most returns the largest fanout of hop h, counted from 1, over all relations. For kind LADIES it
// returns All, because a layer chooses among all neighbours.
func (s Spec) most(h int) int {
	if !s.HasFanouts() {
		return All
	}
	if len(s.Relations) == 0 {
		return s.Fanouts[h-1]
	}
	most := 0
	for _, fanouts := range s.Relations {
		if fanouts[h-1] == All {
			return All
		}
		most = max(most, fanouts[h-1])
	}
	return most
}

// Asking is the state, between calls, of one hop of a minibatch that asks other ranks. Its arrays
// lie outside the Go heap and are reused by the next hop; the zero value is ready for use.
type Asking struct {
	Word   uint64 // keys the draws
	Fanout int    // the largest fanout of any relation
	Reply  Reply
	each   []int // fanouts by relation; nil if all are Fanout
	kind   Kind
	when   moment   // moment of the minibatch
	favour float64  // Key.Favour: how many times likelier the asker draws the vertices in near
	near   []uint64 // set of the vertices that the asker draws likelier; nil if there are none
	layer  int      // number of vertices that the asker draws for the layer; 0 if owners draw

	// The fields Count to Neighbours are what the asker sends to the owners and receives from them.
	// The asker's own vertices are not in them.
	Count []int // [K] number of columns asked from each rank
	Words []int // [K] number of words of IDs for each rank
	// Vertices that owners are asked about: by owner, and for each owner in frontier order. After
	// each vertex follow the sources whose edges to it are left out, ascending, each as the
	// complement ^u of its id u.
	IDs []graph.VertexID
	// Reply.Column() bytes about each column asked for, in the order that Remote describes.
	Sizes []byte
	// [E] in the order of Sizes; the words that are sent with each neighbour (Carried) follow it
	Neighbours []graph.VertexID

	asked int // number of vertices asked for
	rank  int
	owner []int32          // [length of the frontier] owner of each vertex of the frontier
	own   []graph.VertexID // own vertices of the asker, in frontier order, in the form of IDs
	list  leftOut          // edges that the frontier leaves out
	mine  Answer           // draws for the vertices in own
	next  []cursor         // [K] position in the answer of each rank
	words [1]int           // words has len(own), and word has Word, in the form that Answer takes
	word  [1]uint64
}

// cursor is the position up to which the answer of one rank has been read.
type cursor struct{ column, edge int }

// Ask groups a frontier by owner, for draws of hop h, counted from 1. The asker is the given rank.
// The index parts finds the rank that owns a vertex. If the minibatch is trained, `train` is true.
// If edges are left out, the frontier must begin with the minibatch's seeds; otherwise Ask returns
// an error. O(n+K).
func (r *Remote) Ask(a *Asking, parts *graph.PartIndex, ranks, rank int,
	frontier []graph.VertexID, key Key, h int, train bool) error {
	spec := r.fused.options.spec(train)
	a.Word, a.Fanout, a.when = spec.word(key, h), spec.most(h), spec.moment(key)
	a.each = a.each[:0]
	for _, fanouts := range spec.Relations {
		a.each = append(a.each, fanouts[h-1])
	}
	a.kind, a.Reply, a.layer = spec.kind(),
		spec.Reply(h, Carried{r.fused.options.Weights, r.fused.options.Places}), 0
	if a.kind == LADIES {
		a.layer, a.favour = spec.Vertices[h-1], key.Favour
		a.near = likelier(r.fused.options.Near.Vertices, h-1, key)
	}
	if err := a.list.find(spec.Links, key, frontier, r.fused.mine); err != nil {
		return err
	}
	a.divide(parts, ranks, rank, frontier, &r.fused.topology.Columns)
	return nil
}

// fanout returns the fanout of a relation.
func (a *Asking) fanout(relation int) int {
	if len(a.each) > 0 {
		return a.each[relation]
	}
	return a.Fanout
}

// divide groups a frontier by owner.
func (a *Asking) divide(parts *graph.PartIndex, ranks, rank int, frontier []graph.VertexID,
	columns *graph.Columns) {
	a.rank, a.asked = rank, len(frontier)
	if len(a.Count) != ranks {
		a.Count, a.Words, a.next = make([]int, ranks), make([]int, ranks), make([]cursor, ranks)
	}
	clear(a.Count)
	clear(a.Words)
	a.owner = mem.Grow(a.owner, len(frontier))
	for i, v := range frontier {
		o := parts.Find(uint32(v))
		_, _, n := columns.Of(v)
		a.owner[i] = int32(o)
		a.Count[o] += n
		a.Words[o] += 1 + len(a.list.sourcesOf(i))
		if o == rank {
			a.asked--
		}
	}
	a.own = mem.Grow(a.own, a.Words[rank])
	a.Count[rank], a.Words[rank] = 0, 0
	total := 0
	for o, n := range a.Words {
		a.next[o].column = total
		total += n
	}
	a.IDs = mem.Grow(a.IDs, total)
	own := 0
	for i, v := range frontier {
		to, at := a.own, &own
		if o := int(a.owner[i]); o != rank {
			to, at = a.IDs, &a.next[o].column
		}
		to[*at] = v
		for k, u := range a.list.sourcesOf(i) {
			to[*at+1+k] = ^u
		}
		*at += 1 + len(a.list.sourcesOf(i))
	}
}

// rewind puts the cursor of each rank at its first column.
func (a *Asking) rewind() {
	total := 0
	for o, n := range a.Count {
		a.next[o] = cursor{column: total}
		total += n
	}
}

// Vertices returns the number of vertices about which other ranks are asked.
func (a *Asking) Vertices() int { return a.asked }

// size reads the number of neighbours in row i of an answer.
func (r Reply) size(rows []byte, i int) int {
	if at := i * r.Column(); r.Size == 1 {
		return int(rows[at])
	} else {
		return int(binary.LittleEndian.Uint32(rows[at:]))
	}
}

// total reads the total in row i of an answer.
func (r Reply) total(rows []byte, i int) float64 {
	word := binary.LittleEndian.Uint32(rows[i*r.Column()+r.Size:])
	if r.Weights {
		return float64(math.Float32frombits(word))
	}
	return float64(word)
}

// words returns the number of 4-byte words that a neighbour takes in an answer.
func (r Reply) words() int { return max(1, r.Edge/VertexBytes) }

// Reserve makes room for the answers about IDs. If edges is nil, it makes room for Sizes. Once the
// Sizes have arrived, the caller calls Reserve again, to make room for Neighbours. In that call,
// edges [K] has the number of neighbours that each rank returns (method Edges).
func (a *Asking) Reserve(edges []int) {
	total := 0
	if edges == nil {
		for _, n := range a.Count {
			total += n
		}
		a.Sizes = mem.Grow(a.Sizes, total*a.Reply.Column())
		return
	}
	for _, n := range edges {
		total += n
	}
	a.Neighbours = mem.Grow(a.Neighbours, total*a.Reply.words())
}

// Edges sets edges [K] to the number of neighbours that each rank returns, which follows from
// Sizes. An impossible size is an error that names the rank.
func (a *Asking) Edges(edges []int) error {
	i, most := 0, a.Fanout
	if most == All || a.kind == Poisson {
		most = math.MaxInt32
	}
	for o, n := range a.Count {
		sum := 0
		for range n {
			k := a.Reply.size(a.Sizes, i)
			if k > most {
				return fmt.Errorf("sample: rank %d returned %d neighbours of a vertex, with a "+
					"fanout of %d; %s", o, k, a.Fanout, sameParts)
			}
			sum += k
			i++
		}
		edges[o] = sum
	}
	return nil
}

const sameParts = "the ranks see different parts or memory is damaged: give all ranks the same " +
	"directory of parts, and run `halognn check` on it"

// Free frees the arrays.
func (a *Asking) Free() {
	mem.Free(a.IDs)
	mem.Free(a.Sizes)
	mem.Free(a.Neighbours)
	mem.Free(a.owner)
	mem.Free(a.own)
	a.mine.Free()
	*a = Asking{}
}

// Bytes returns the memory of the arrays.
func (a *Asking) Bytes() int64 {
	ids := cap(a.IDs) + cap(a.Neighbours) + cap(a.owner) + cap(a.own)
	return int64(ids)*4 + int64(cap(a.Sizes)) + a.mine.Bytes()
}

// Draw makes the draws of the asker's own vertices, for which it asks no other rank.
func (r *Remote) Draw(a *Asking) error {
	a.words[0], a.word[0] = len(a.own), a.Word
	return r.Answer(&a.mine, a.own, a.words[:], a.word[:], a)
}

// Extend makes the block of hop h, counted from 1, once the answers for the Asking a have arrived
// and Draw has been called. It appends new vertices to the frontier. It numbers the vertices of the
// edges, and of the frontier once more, because the hop before may have been made by another
// Remote.
func (r *Remote) Extend(mb *Minibatch, h int, a *Asking) error {
	s, block := r.fused, &mb.Blocks[len(mb.Blocks)-h]
	extend := func() error { return s.extend(block, a) }
	if s.mb = mb; a.kind == LADIES {
		s.mb = &r.layer.wide
		extend = func() error { return r.layer.extend(mb, block, a) }
	}
	mb.Estimates = Spec{Kind: a.kind}.Estimates()
	return s.contain(func() error {
		if err := extend(); err != nil {
			return fmt.Errorf("sample: hop %d: %w", h, err)
		}
		mb.Seeds = mb.Frontier[:len(mb.Seeds)]
		return nil
	})
}

func (s *Fused) extend(block *graph.Block, a *Asking) error {
	mb, n, rows := s.mb, len(s.mb.Frontier), 0
	for _, r := range s.list.listColumns(&s.topology, mb.Frontier, mb.Original, block, nil) {
		rows += len(r.vertices)
	}
	block.Indptr = mem.Grow(block.Indptr, rows+1)
	if err := s.join(block, a); err != nil {
		return err
	}
	drawn := asVertices(block.Indices)
	for _, v := range drawn {
		if uint(v) >= uint(len(s.topology.Original)) {
			return &graph.LayoutError{Array: graph.Indices, Reason: fmt.Errorf(
				"an edge comes from vertex %d: %w (the graph has %d vertices)",
				v, graph.ErrVertexRange, len(s.topology.Original))}
		}
	}
	mb.Frontier = mem.Grow(mb.Frontier, min(n+len(drawn), len(s.topology.Original))+1)
	s.number(mb.Frontier[:n])
	total := renumber(s.vertices, drawn, block.Indices, mb.Frontier, n)
	mb.Original = mem.Grow(mb.Original, total)
	s.gatherOriginal(n, total)
	block.NumDst, block.NumSrc = n, total
	mb.Frontier = mb.Frontier[:total]
	return nil
}

// join puts the neighbours of the frontier's vertices, from all ranks, into the order of the
// block's rows, and weighs their edges.
func (s *Fused) join(block *graph.Block, a *Asking) error {
	reply, mine, rows, before := a.Reply, a.mine.indptr, block.NumRows(), 0
	if len(block.Ends) > 0 { // append to the totals of the rows of earlier hops
		before = len(s.mb.Totals)
	}
	if a.rewind(); reply.Total > 0 {
		s.mb.Totals = mem.Grow(s.mb.Totals, before+rows)
	}
	totals := s.mb.Totals[before:]
	edge := 0
	for o, n := range a.Count {
		next := &a.next[o]
		next.edge = edge
		for i := next.column; i < next.column+n; i++ {
			edge += reply.size(a.Sizes, i)
		}
	}
	block.Indptr[0] = 0
	own, edges := 0, 0
	for i := range rows {
		from, at := a.mine.Sizes, &own
		if o := a.owner[block.Target(i)]; int(o) != a.rank {
			from, at = a.Sizes, &a.next[o].column
		}
		edges += reply.size(from, *at)
		if reply.Total > 0 {
			totals[i] = reply.total(from, *at)
		}
		*at++
		block.Indptr[i+1] = int64(edges)
	}
	if err := s.checkEdges(edges, rows); err != nil {
		return err
	}
	block.Indices, block.Weights = mem.Grow(block.Indices, edges), block.Weights[:0]
	block.Places = block.Places[:0]
	if reply.Weights {
		block.Weights = mem.Grow(block.Weights, edges)
	}
	if reply.Places {
		block.Places = mem.Grow(block.Places, edges)
	}
	own = 0
	for i := range rows {
		if o := a.owner[block.Target(i)]; int(o) == a.rank {
			reply.take(block, i, a.mine.Neighbours, int(mine[own]))
			own++
		} else {
			next := &a.next[o]
			reply.take(block, i, a.Neighbours, next.edge)
			next.edge += int(block.Indptr[i+1] - block.Indptr[i])
		}
	}
	if a.kind == Poisson && !reply.Weights {
		s.weighDrawn(block, a, totals)
	}
	if len(block.Ends) > 0 {
		left := dropEmpty(block, totals)
		if a.kind != Poisson { // layers read the totals only for kind Poisson
			left = 0
		}
		s.mb.Totals = s.mb.Totals[:before+left]
	}
	return nil
}

// dropEmpty drops the columns without edges from a block, and from its totals if it has any. The
// asker could not leave them out before, because only the owners knew which columns have no edges.
// dropEmpty returns the number of remaining totals.
func dropEmpty(block *graph.Block, totals []float64) int {
	rows, row := 0, 0
	for r, end := range block.Ends {
		for ; row < int(end); row++ {
			// totals also count the edges of a column that has drawn none of its edges
			if len(totals) > 0 {
				if totals[row] == 0 {
					continue
				}
				totals[rows] = totals[row]
			} else if block.Indptr[row+1] == block.Indptr[row] {
				continue
			}
			block.Indptr[rows+1], block.Targets[rows] = block.Indptr[row+1], block.Targets[row]
			rows++
		}
		block.Ends[r] = int32(rows)
	}
	block.Indptr, block.Targets = block.Indptr[:rows+1], block.Targets[:rows]
	return min(rows, len(totals))
}

// take copies the neighbours of destination i from an answer, in which they begin at edge k.
func (r Reply) take(block *graph.Block, i int, from []graph.VertexID, k int) {
	lo, hi := block.Indptr[i], block.Indptr[i+1]
	to := asVertices(block.Indices)[lo:hi]
	words := r.words()
	if words == 1 {
		copy(to, from[k:])
		return
	}
	for e := range to {
		edge := from[words*(k+e):][:words]
		to[e] = edge[0]
		if r.Weights {
			block.Weights[int(lo)+e] = math.Float32frombits(uint32(edge[1]))
		}
		if r.Places {
			block.Places[int(lo)+e] = int32(edge[words-1])
		}
	}
}

// weighDrawn weighs the edges that Poisson has drawn, with the degrees of their rows.
func (s *Fused) weighDrawn(block *graph.Block, a *Asking, totals []float64) {
	h, n := &s.hop, block.NumRows()
	block.Weights = mem.Grow(block.Weights, len(block.Indices))
	h.start(&s.topology, nil, nil, block.Indptr)
	h.poisson, h.weights, h.degree = true, block.Weights, mem.Grow(h.degree, n)
	for i, total := range totals {
		h.degree[i] = int64(total)
	}
	at := 0
	for r := range max(1, len(block.Ends)) {
		end := n
		if len(block.Ends) > 0 {
			end = int(block.Ends[r])
		}
		h.setDraws(a.fanout(r), a.when.word(a.Word, r), a.when)
		h.weigh(at, end, nil)
		at = end
	}
}

// End completes a minibatch whose blocks are complete.
func (r *Remote) End(mb *Minibatch) {
	for l := 1; l < len(mb.Blocks) && !r.fused.options.ForwardOnly; l++ {
		mb.Blocks[l].Transpose(&mb.Transposes[l])
	}
}
