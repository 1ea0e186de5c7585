package sample

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"halognn/src/graph"
	"halognn/src/mem"
)

// Remote makes the minibatches of Fused where every rank holds the rows of its own vertices alone
// (FastSample's partitioned topology). A hop asks the owners of a frontier for the draws of its
// vertices, which they make under the key of whoever asks, so the blocks are the same bit for bit:
//
//	asker                                              owners
//	Begin    seeds are the first frontier
//	Ask      frontier, by owner  ── ids and word ──>   Answer    draws
//	Extend   block, next frontier <── neighbours ──
//	End      transposes
//
// Remote sends nothing: who calls it moves IDs, Sizes and Neighbours. What a minibatch is between
// two calls lies in its Minibatch and Asking, so each call may be of another Remote. One goroutine
// at a time uses one. Beside the rows it holds it takes memory for the largest frontier so far.
type Remote struct{ fused *Fused }

// NewRemote makes a Remote over rows of consecutive vertices. Workers is ignored: minibatches are
// prepared side by side. A kind of sampling that needs more than the rows of single vertices is
// refused.
func NewRemote(t *Topology, o Options) (*Remote, error) {
	o.Workers = 1
	for _, s := range []Spec{o.Spec, o.Eval} {
		if s.NeedsWhole() {
			return nil, fmt.Errorf("sample.kind %s needs the whole topology on every rank; choose "+
				"topology.kind replicated, or sample.kind %s", s.kind(), Neighbour)
		}
	}
	if o.Weights {
		return nil, errors.New("sample: ranks do not send each other weights of edges; choose " +
			"topology.kind replicated, or draw without them")
	}
	if o.Map == MapAuto {
		o.Map = MapHash // of 4 bytes for every vertex of the graph there would be as many as before
	}
	if err := errors.Join(t.check(), o.Spec.Check(), o.check()); err != nil {
		return nil, fmt.Errorf("sample: %w", err)
	}
	if o.valueBits == 0 { // the edges of a hop may be any of the graph's
		o.valueBits = o.mapBits(len(t.Original), math.MaxInt32)
	}
	s, err := newFused(t, o)
	if err != nil {
		return nil, err
	}
	return &Remote{s.(*Fused)}, nil
}

// Free returns the memory.
func (r *Remote) Free() { r.fused.Free() }

// Bytes returns the memory held now.
func (r *Remote) Bytes() int64 { return r.fused.Bytes() }

// Begin makes the seeds the first frontier of a minibatch of so many hops. Errors: as those of
// Sampler.Sample about seeds.
func (r *Remote) Begin(mb *Minibatch, seeds []graph.VertexID, hops int) error {
	s := r.fused
	if err := s.checkSeeds(len(seeds)); err != nil {
		return err
	}
	s.mb = mb
	return s.contain(func() error {
		mb.layers(hops)
		if err := s.start(seeds); err != nil {
			return fmt.Errorf("sample: %w", err)
		}
		mb.Seeds = mb.Frontier
		return nil
	})
}

// Asking is one hop of a minibatch between its calls. Its arrays lie outside the Go heap and are
// reused by the next hop; the zero value is ready for use.
type Asking struct {
	Word   uint64 // names the draws
	Fanout int
	when   moment // of the minibatch

	// What goes to the owners, and what comes back. The rows of the asker itself are not among
	// them.
	Count      []int            // [K] vertices asked of each rank
	IDs        []graph.VertexID // [V] by rank, then in frontier order
	Sizes      []byte           // [V] neighbours of each, in SizeBytes(Fanout) bytes
	Neighbours []graph.VertexID // [E] in order of IDs

	rank  int
	owner []int32          // [n] of the frontier
	own   []graph.VertexID // those of the asker itself, in frontier order
	mine  Answer           // and what they draw
	next  []cursor         // [K]
	count [1]int           // len(own), Word: as Answer takes them
	word  [1]uint64
}

// cursor is how far the answer of one rank has been read.
type cursor struct{ vertex, edge int }

// Ask groups a frontier by owner, for draws of hop h, from 1, of a minibatch that is trained or not;
// rank is the asker's own. parts are the vertices of each rank. O(n+K).
func (r *Remote) Ask(a *Asking, parts *graph.PartIndex, ranks, rank int,
	frontier []graph.VertexID, key Key, h int, train bool) {
	spec := r.fused.options.Spec
	if !train {
		spec = r.fused.options.evaluated()
	}
	a.Word, a.Fanout, a.when = spec.word(key, h), spec.Fanouts[h-1], spec.moment(key)
	a.divide(parts, ranks, rank, frontier)
}

// divide groups a frontier by owner.
func (a *Asking) divide(parts *graph.PartIndex, ranks, rank int, frontier []graph.VertexID) {
	a.rank = rank
	if len(a.Count) != ranks {
		a.Count, a.next = make([]int, ranks), make([]cursor, ranks)
	}
	clear(a.Count)
	a.owner = mem.Grow(a.owner, len(frontier))
	for i, v := range frontier {
		o := parts.Find(uint32(v))
		a.owner[i] = int32(o)
		a.Count[o]++
	}
	a.own = mem.Grow(a.own, a.Count[rank])
	a.Count[rank] = 0
	a.IDs = mem.Grow(a.IDs, a.rewind())
	at := 0
	for i, v := range frontier {
		if o := int(a.owner[i]); o != rank {
			a.IDs[a.next[o].vertex] = v
			a.next[o].vertex++
		} else {
			a.own[at] = v
			at++
		}
	}
}

// rewind puts the cursor of each rank at its first vertex, and returns their number.
func (a *Asking) rewind() int {
	total := 0
	for o, n := range a.Count {
		a.next[o] = cursor{vertex: total}
		total += n
	}
	return total
}

// SizeBytes is the width of a number of neighbours that are at most a fanout.
func SizeBytes(fanout int) int {
	if fanout >= 1 && fanout <= math.MaxUint8 {
		return 1
	}
	return 4
}

// size reads entry i of sizes.
func size(sizes []byte, width, i int) int {
	if width == 1 {
		return int(sizes[i])
	}
	return int(binary.LittleEndian.Uint32(sizes[4*i:]))
}

// Room makes room for the answers about IDs: first Sizes and, when these have come, with their sum
// by rank in edges [K], Neighbours.
func (a *Asking) Room(edges []int) {
	if edges == nil {
		a.Sizes = mem.Grow(a.Sizes, len(a.IDs)*SizeBytes(a.Fanout))
		return
	}
	total := 0
	for _, n := range edges {
		total += n
	}
	a.Neighbours = mem.Grow(a.Neighbours, total)
}

// Edges sets edges [K] to the neighbours that each rank returns, by Sizes. A size that no draw has
// is an error that names the rank.
func (a *Asking) Edges(edges []int) error {
	width, i := SizeBytes(a.Fanout), 0
	for o, n := range a.Count {
		sum := 0
		for range n {
			k := size(a.Sizes, width, i)
			if k < 0 || a.Fanout != All && k > a.Fanout {
				return fmt.Errorf("sample: rank %d returned %d neighbours of vertex %d, with a "+
					"fanout of %d; %s", o, k, a.IDs[i], a.Fanout, sameParts)
			}
			sum += k
			i++
		}
		edges[o] = sum
	}
	return nil
}

const sameParts = "the ranks see different parts or memory is damaged: give all ranks the same " +
	"parts and check those"

// Free returns the arrays.
func (a *Asking) Free() {
	mem.Free(a.IDs)
	mem.Free(a.Sizes)
	mem.Free(a.Neighbours)
	mem.Free(a.owner)
	mem.Free(a.own)
	a.mine.Free()
	*a = Asking{}
}

// Bytes returns their memory.
func (a *Asking) Bytes() int64 {
	ids := cap(a.IDs) + cap(a.Neighbours) + cap(a.owner) + cap(a.own)
	return int64(ids)*4 + int64(cap(a.Sizes)) + a.mine.Bytes()
}

// Answer is what a rank returns to those that ask it in one hop: like Asking it is reused.
type Answer struct {
	Edges      []int            // [K] neighbours for each rank
	Sizes      []byte           // as in Asking
	Neighbours []graph.VertexID // by rank, in the order asked

	indptr   []int64
	original []int32
}

// Free returns the arrays.
func (a *Answer) Free() {
	mem.Free(a.Sizes)
	mem.Free(a.Neighbours)
	mem.Free(a.indptr)
	mem.Free(a.original)
	*a = Answer{}
}

// Bytes returns their memory.
func (a *Answer) Bytes() int64 {
	return int64(cap(a.Sizes)) + int64(cap(a.Neighbours)+cap(a.original))*4 + int64(cap(a.indptr))*8
}

// Answer draws for vertices whose rows are held here: count[r] of ids are asked by rank r, for
// draws that word[r] names; all ranks ask for the same hop of the same step as own does. A vertex
// that is not held is graph.ErrVertexRange.
func (r *Remote) Answer(
	a *Answer, ids []graph.VertexID, count []int, word []uint64, own *Asking,
) error {
	s := r.fused
	first, rows := int(s.topology.First), s.topology.Graph.NumVertices()
	at := 0
	for from, n := range count {
		for _, v := range ids[at : at+n] {
			if int(v) < first || int(v) >= first+rows {
				return fmt.Errorf("sample: rank %d asks for neighbours of vertex %d: %w (rows %d "+
					"to %d are held here); %s", from, v, graph.ErrVertexRange, first, first+rows-1,
					sameParts)
			}
		}
		at += n
	}
	return s.contain(func() error { return s.answer(a, ids, count, word, own.Fanout, own.when) })
}

func (s *Fused) answer(
	a *Answer, ids []graph.VertexID, count []int, word []uint64, fanout int, when moment,
) error {
	n := len(ids)
	a.original = mem.Grow(a.original, n)
	for i, v := range ids {
		a.original[i] = s.topology.Original[v]
	}
	a.indptr = mem.Grow(a.indptr, n+1)
	s.hop.start(&s.topology, ids, a.original, a.indptr, fanout, 0)
	if err := s.locate(); err != nil {
		return err
	}
	edges := int(a.indptr[n])
	if err := s.checkEdges(edges, n); err != nil {
		return fmt.Errorf("sample: %w", err)
	}
	a.Neighbours = mem.Grow(a.Neighbours, edges)
	s.hop.drawn = a.Neighbours
	if len(a.Edges) != len(count) {
		a.Edges = make([]int, len(count))
	}
	at := 0
	for from, n := range count {
		s.hop.key = word[from]
		s.hop.number(when)
		if s.pairs != nil {
			s.drawVertices(at, at+n, nil)
		} else {
			s.workers[0].drawChunks(&s.hop, at, at+n)
		}
		a.Edges[from] = int(a.indptr[at+n] - a.indptr[at])
		at += n
	}
	width := SizeBytes(fanout)
	a.Sizes = mem.Grow(a.Sizes, n*width)
	for i := range n {
		if size := a.indptr[i+1] - a.indptr[i]; width == 1 {
			a.Sizes[i] = byte(size)
		} else {
			binary.LittleEndian.PutUint32(a.Sizes[4*i:], uint32(size))
		}
	}
	return nil
}

// Draw makes the draws of the asker's own vertices, which no other rank is asked for.
func (r *Remote) Draw(a *Asking) error {
	a.count[0], a.word[0] = len(a.own), a.Word
	return r.Answer(&a.mine, a.own, a.count[:], a.word[:], a)
}

// Extend makes the block of hop h, from 1, when a's answers are there and Draw has been called, and
// appends the vertices that it finds to the frontier. The cost is that of numbering the edges, and
// the frontier, which another Remote may have numbered before.
func (r *Remote) Extend(mb *Minibatch, h int, a *Asking) error {
	s := r.fused
	s.mb = mb
	return s.contain(func() error {
		if err := s.extend(&mb.Blocks[len(mb.Blocks)-h], a); err != nil {
			return fmt.Errorf("sample: hop %d: %w", h, err)
		}
		return nil
	})
}

func (s *Fused) extend(block *graph.Block, a *Asking) error {
	mb, n := s.mb, len(s.mb.Frontier)
	block.Indptr = mem.Grow(block.Indptr, n+1)
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
	if s.pairs != nil {
		s.extendPairs(block)
		mb.Seeds = mb.Frontier[:len(mb.Seeds)]
		return nil
	}
	mb.Frontier = mem.Grow(mb.Frontier, min(n+len(drawn), len(s.topology.Original))+1)
	s.number(mb.Frontier[:n])
	total := renumber(s.vertices, drawn, block.Indices, mb.Frontier, n)
	mb.Original = mem.Grow(mb.Original, total)
	s.gatherOriginal(n, total)
	block.NumDst, block.NumSrc = n, total
	mb.Frontier = mb.Frontier[:total]
	mb.Seeds = mb.Frontier[:len(mb.Seeds)]
	return nil
}

// join puts the neighbours of the frontier's vertices, from wherever they have come, into its
// order.
func (s *Fused) join(block *graph.Block, a *Asking) error {
	width, mine := SizeBytes(a.Fanout), a.mine.indptr
	a.rewind()
	edge := 0
	for o, n := range a.Count {
		next := &a.next[o]
		next.edge = edge
		for i := next.vertex; i < next.vertex+n; i++ {
			edge += size(a.Sizes, width, i)
		}
	}
	block.Indptr[0] = 0
	own, edges := 0, 0
	for i, o := range a.owner {
		if int(o) == a.rank {
			edges += int(mine[own+1] - mine[own])
			own++
		} else {
			next := &a.next[o]
			edges += size(a.Sizes, width, next.vertex)
			next.vertex++
		}
		block.Indptr[i+1] = int64(edges)
	}
	if err := s.checkEdges(edges, len(a.owner)); err != nil {
		return err
	}
	block.Indices = mem.Grow(block.Indices, edges)
	drawn := asVertices(block.Indices)
	own = 0
	for i, o := range a.owner {
		to := drawn[block.Indptr[i]:block.Indptr[i+1]]
		if int(o) == a.rank {
			copy(to, a.mine.Neighbours[mine[own]:])
			own++
		} else {
			next := &a.next[o]
			copy(to, a.Neighbours[next.edge:])
			next.edge += len(to)
		}
	}
	return nil
}

// End completes a minibatch whose blocks are all there.
func (r *Remote) End(mb *Minibatch) {
	for l := 1; l < len(mb.Blocks) && !r.fused.options.ForwardOnly; l++ {
		mb.Blocks[l].Transpose(&mb.Transposes[l])
	}
}
