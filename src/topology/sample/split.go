package sample

import (
	"errors"
	"fmt"

	"halognn/src/base/mem"
	"halognn/src/topology/graph"
)

// Split makes one rank's share of minibatches that a group of ranks makes together (GSplit,
// Polisetty et al., section 4). Every vertex belongs to one rank of the group (Owners). That rank
// draws for the vertex, no matter which rank has found it. So no edge is drawn twice, and all
// shares together have the edges that Fused would draw alone:
//
//	this rank                                          the other ranks
//	Begin    own seeds are the frontier
//	Draw 1   block of their draws; own vertices join
//	         the frontier, others go to their owners  ── IDs ──>  Join
//	Join 1   vertices that others have found join     <── IDs ──  Draw
//	Draw 2   ...
//	Last     the vertices of the last hop stay where they were found: this rank reads their rows
//	Serve    only if owners are to find these rows: determines which rows these are
//
// If this rank does not hold the in-edges of all vertices that it draws for, Ask and Extend replace
// Draw, with the steps of Remote between them. For kind LADIES, Find and Choose replace Draw, with
// an exchange of candidates between them (Layer).
//
// The sources of a block are [own frontier | vertices of other ranks, by owner]. The destinations
// come first in the own frontier, which is also the frontier of the block below. So the layer below
// computes the rows of the own frontier where this layer reads them, and the rows of other ranks
// are received behind them.
//
// Split sends nothing: its caller moves Crossing.IDs. Between two calls the state of a minibatch is
// in its Minibatch and Crossings, so a Join, with the Draw after it, may use another Split. One
// goroutine at a time may use a Split.
type Split struct {
	fused  *Fused
	owners *Owners
	rank   int
	member int      // index of the rank in its group
	read   []uint64 // [own/64] a bit for each own vertex, for Distinct
}

// Owners says which rank of a group owns a vertex of a minibatch that the group shares. Groups are
// of Size consecutive ranks, and the vertices of rank r belong to member r mod Size of every group:
//
//	8 ranks, groups of 4
//	vertices of rank         0 1 2 3 4 5 6 7
//	ranks 0 to 3: owned by   0 1 2 3 0 1 2 3
//	ranks 4 to 7             4 5 6 7 4 5 6 7
//
// So a rank owns its own vertices; vertices of one part, which lie close together in the graph,
// have one owner in every group; and a rank asks only ranks with the same index in other groups.
type Owners struct {
	Size int

	rows   []int64         // [K+1] first vertex of each rank
	parts  graph.PartIndex // finds the rank that owns a vertex
	member []int32         // [K] index of each rank in its group
}

// NewOwners returns the owners in groups of `size` ranks. Rank r has the vertices rows[r] to
// rows[r+1]-1.
func NewOwners(rows []int64, size int) *Owners {
	o := &Owners{Size: size, rows: rows, parts: graph.NewPartIndex(rows)}
	for r := range len(rows) - 1 {
		o.member = append(o.member, int32(r%size))
	}
	return o
}

// Owner returns the owner of vertex v, as the index of a rank in its group.
func (o *Owners) Owner(v graph.VertexID) int { return int(o.member[o.parts.Find(uint32(v))]) }

// Vertices returns how many vertices a member of a group owns.
func (o *Owners) Vertices(member int) (n int) {
	for r := member; r < len(o.member); r += o.Size {
		n += int(o.rows[r+1] - o.rows[r])
	}
	return n
}

// first returns the first rank of the group of a rank.
func (o *Owners) first(rank int) int { return rank - rank%o.Size }

// NewSplit makes a Split of a rank. The topology must hold the rows of the vertices that the rank
// owns. The option MaxSeeds limits the seeds of the whole group. The option Workers is ignored,
// because several minibatches are prepared at the same time.
func NewSplit(t *Topology, owners *Owners, rank int, o Options) (*Split, error) {
	o.Workers = 1
	if t.Graph.NumVertices() < len(t.Original) && o.Map == MapAuto {
		// a dense map would have entries for all vertices of the graph
		o.Map = MapHash
	}
	var weights error
	if o.Weights && t.Weights == nil {
		weights = errNoWeights
	}
	if err := errors.Join(t.check(), o.Spec.Check(), o.check(), weights); err != nil {
		return nil, fmt.Errorf("sample: %w", err)
	}
	f, err := newAnywhere(t, o)
	if err != nil {
		return nil, err
	}
	member := rank % owners.Size
	f.mine = func(v graph.VertexID) bool { return owners.Owner(v) == member }
	return &Split{fused: f, owners: owners, rank: rank, member: member}, nil
}

// Free frees the memory.
func (s *Split) Free() {
	s.fused.Free()
	mem.Free(s.read)
}

// Bytes returns the memory held now.
func (s *Split) Bytes() int64 { return s.fused.Bytes() + int64(cap(s.read))*8 }

// Crossing lists, for one hop of a shared minibatch, the vertices that this rank sends to other
// ranks and those that it gets (a shuffle index). Rows and gradients between two layers travel by
// the same lists. Its arrays lie outside the Go heap and are reused; the zero value is ready for
// use.
type Crossing struct {
	// Vertices of other ranks that were found here: Count [S] has their number for each rank, 0 for
	// this one, and IDs [R] lists them, by owner. They are the last sources of the block.
	Count []int
	IDs   []graph.VertexID

	// Own vertices that other ranks have found: Wanted [S] has their number for each rank of the
	// group, and WantIDs [W] lists them, by rank, then in the order found there. At [W] has the
	// positions of WantIDs in the own frontier or, after Serve, in Reads.
	Wanted  []int
	WantIDs []graph.VertexID
	At      []int32

	// Reads are, after Serve, the own vertices whose feature rows some rank of the group reads:
	// first the vertices of the own frontier, in its order, then vertices that only other ranks
	// have found.
	Reads []graph.VertexID

	own int // number of sources of the block that come before the vertices in IDs

	// Set between Draw and Join, for each source of the block that is no destination. If this rank
	// owns the source, the entry is its position in the own frontier. Otherwise the entry is the
	// complement ^p of its position p in IDs.
	place []int32
	next  []int // [S] where in IDs the next vertex of each owner goes
}

// Free frees the arrays.
func (c *Crossing) Free() {
	mem.Free(c.IDs)
	mem.Free(c.WantIDs)
	mem.Free(c.At)
	mem.Free(c.Reads)
	mem.Free(c.place)
	*c = Crossing{}
}

// Bytes returns the memory of the arrays.
func (c *Crossing) Bytes() int64 {
	return int64(cap(c.IDs)+cap(c.WantIDs)+cap(c.At)+cap(c.Reads)+cap(c.place)) * 4
}

// Own returns the number of the block's sources that come before the sources of other ranks, once
// Join or Last has been called.
func (c *Crossing) Own() int { return c.own }

// size makes room for the counts of a group of n ranks.
func (c *Crossing) size(n int) {
	if len(c.Count) != n {
		c.Count, c.Wanted, c.next = make([]int, n), make([]int, n), make([]int, n)
	}
}

// Expect makes room for the vertices of the given rank that others have found: Wanted[m] vertices
// by member m of the group. An impossible number is an error that names the ranks.
func (c *Crossing) Expect(o *Owners, rank int) error {
	total, own := 0, o.Vertices(rank%o.Size)
	for m, n := range c.Wanted {
		if r := o.first(rank) + m; n < 0 || n > own || r == rank && n > 0 {
			return fmt.Errorf("sample: rank %d has found %d vertices of rank %d, which has only "+
				"%d; %s",
				r, n, rank, own, sameParts)
		}
		total += n
	}
	c.WantIDs = mem.Grow(c.WantIDs, total)
	return nil
}

// Begin makes the rank's own seeds the frontier of a minibatch with the given number of hops. It
// returns the errors about seeds that Sampler.Sample returns.
func (s *Split) Begin(mb *Minibatch, own []graph.VertexID, hops int) error {
	return s.fused.beginBy(mb, own, hops)
}

// Draw draws hop h, counted from 1, for the frontier, and adds the digest of its edges to *edges.
// The call before it must be Begin or Join of this Split on the same minibatch.
func (s *Split) Draw(
	mb *Minibatch, c *Crossing, h int, train bool, key Key, edges *uint64,
) error {
	f := s.fused
	spec := f.options.spec(train)
	f.mb = mb
	f.begin(spec, key)
	return f.contain(func() error {
		if err := f.leaveOut(spec, key); err != nil {
			return err
		}
		block := &mb.Blocks[len(mb.Blocks)-h]
		if err := f.expand(block, &spec, h-1, spec.word(key, h)); err != nil {
			return fmt.Errorf("sample: hop %d: %w", h, err)
		}
		*edges += EdgesDigest(block, mb.Original, h, key)
		s.divide(mb, c, block.NumDst)
		mb.Seeds = mb.Frontier[:len(mb.Seeds)]
		return nil
	})
}

// Ask groups the frontier by the ranks that hold its in-edges, as Remote.Ask does.
func (s *Split) Ask(a *Asking, parts *graph.PartIndex, ranks int, mb *Minibatch, key Key, h int,
	train bool) error {
	return (&Remote{fused: s.fused}).Ask(a, parts, ranks, s.rank, mb.Frontier, key, h, train)
}

// Extend does the work of Draw once the answers for the Asking a have arrived and Remote.Draw has
// been called.
func (s *Split) Extend(mb *Minibatch, c *Crossing, h int, a *Asking, key Key, edges *uint64) error {
	if err := (&Remote{fused: s.fused}).Extend(mb, h, a); err != nil {
		return err
	}
	block := &mb.Blocks[len(mb.Blocks)-h]
	*edges += EdgesDigest(block, mb.Original, h, key)
	s.divide(mb, c, block.NumDst)
	mb.Seeds = mb.Frontier[:len(mb.Seeds)]
	return nil
}

// divide keeps own vertices in the frontier, and groups the others by owner. Only the frontier's
// vertices from position n on are examined, because the others are own vertices of earlier hops.
func (s *Split) divide(mb *Minibatch, c *Crossing, n int) {
	c.size(s.owners.Size)
	found := mb.Frontier[n:]
	c.place = mem.Grow(c.place, len(found))
	clear(c.Count)
	for i, v := range found {
		owner := s.owners.Owner(v)
		c.place[i] = int32(owner)
		c.Count[owner]++
	}
	others := 0
	c.Count[s.member] = 0
	for r, k := range c.Count {
		c.next[r] = others
		others += k
	}
	c.IDs = mem.Grow(c.IDs, others)
	own := n
	for i, v := range found {
		if owner := int(c.place[i]); owner != s.member {
			at := c.next[owner]
			c.next[owner]++
			c.IDs[at], c.place[i] = v, ^int32(at)
			continue
		}
		mb.Frontier[own], mb.Original[own] = v, mb.Original[n+i]
		c.place[i] = int32(own)
		own++
	}
	mb.Frontier = mb.Frontier[:own]
}

// Join appends to the frontier the own vertices that other ranks have found in hop h (WantIDs), and
// completes the block of that hop. A vertex that this rank does not own is an error that names the
// rank.
func (s *Split) Join(mb *Minibatch, c *Crossing, h int) error {
	if err := s.checkWanted(c); err != nil {
		return err
	}
	f := s.fused
	f.mb = mb
	return f.contain(func() error {
		n := len(mb.Frontier)
		mb.Frontier = s.joined(c, mb.Frontier)
		total := len(mb.Frontier)
		mb.Original = mem.Grow(mb.Original, total)
		f.gatherOriginal(n, total)
		s.complete(mb, c, h)
		return nil
	})
}

// checkWanted returns an error if other ranks want a vertex that this rank does not own.
func (s *Split) checkWanted(c *Crossing) error {
	at := 0
	for m, k := range c.Wanted {
		for _, v := range c.WantIDs[at : at+k] {
			if uint32(v) >= s.owners.parts.Vertices() || s.owners.Owner(v) != s.member {
				return fmt.Errorf("sample: rank %d asks rank %[3]d for vertex %[2]d, which that "+
					"rank does not own; %[4]s", s.owners.first(s.rank)+m, v, s.rank, sameParts)
			}
		}
		at += k
	}
	return nil
}

// joined appends to the list own the vertices of WantIDs that are not in it yet, and sets At.
func (s *Split) joined(c *Crossing, own []graph.VertexID) []graph.VertexID {
	f, n := s.fused, len(own)
	c.At = mem.Grow(c.At, len(c.WantIDs))
	own = mem.Grow(own, min(n+len(c.WantIDs), len(f.topology.Original))+1)
	f.vertices.reset()
	f.vertices.reserve(nil, n)
	blocks(own[:n], f.vertices.settle)
	return own[:renumber(f.vertices, c.WantIDs, c.At, own, n)]
}

// Serve sets Reads after Last, from the own vertices that other ranks have found in the last hop
// (WantIDs). It returns the errors that Join returns.
func (s *Split) Serve(mb *Minibatch, c *Crossing) error {
	if err := s.checkWanted(c); err != nil {
		return err
	}
	s.fused.mb = mb
	return s.fused.contain(func() error {
		c.Reads = mem.Grow(c.Reads, c.own)
		copy(c.Reads, mb.Frontier)
		c.Reads = s.joined(c, c.Reads)
		return nil
	})
}

// Last completes the block of the last hop, and the minibatch. After that, Frontier lists all
// sources of this block.
func (s *Split) Last(mb *Minibatch, c *Crossing) {
	s.complete(mb, c, len(mb.Blocks))
	n := len(mb.Frontier)
	mb.Frontier = mem.Grow(mb.Frontier, n+len(c.IDs))
	mb.Original = mem.Grow(mb.Original, n+len(c.IDs))
	copy(mb.Frontier[n:], c.IDs)
	s.fused.mb = mb
	s.fused.gatherOriginal(n, len(mb.Frontier))
	mb.Seeds = mb.Frontier[:len(mb.Seeds)]
	for l := 1; l < len(mb.Blocks) && !s.fused.options.ForwardOnly; l++ {
		mb.Blocks[l].Transpose(&mb.Transposes[l])
	}
}

// complete numbers the sources of hop h's block, once its frontier is complete.
func (s *Split) complete(mb *Minibatch, c *Crossing, h int) {
	block, own := &mb.Blocks[len(mb.Blocks)-h], int32(len(mb.Frontier))
	n := int32(block.NumDst)
	for i, p := range c.place {
		if p < 0 {
			c.place[i] = own + ^p
		}
	}
	for e, source := range block.Indices {
		if source >= n {
			block.Indices[e] = c.place[source-n]
		}
	}
	c.own = int(own)
	block.NumSrc = c.own + len(c.IDs)
	mb.Seeds = mb.Frontier[:len(mb.Seeds)]
}

// Distinct returns the number of different vertices of this rank that are in frontier or in rows.
// These are the vertices whose feature rows the rank reads for a minibatch, for itself or for
// others. The list frontier has no duplicates. The entries of rows are numbers of vertices, counted
// from the rank's first vertex; entries beyond its last vertex are left out. The group must consist
// of all ranks of the job, so that frontier has only vertices of this rank.
func (s *Split) Distinct(frontier []graph.VertexID, rows []int32) int {
	first, own := s.owners.rows[s.rank], s.owners.Vertices(s.rank)
	if s.read == nil {
		s.read = mem.Make[uint64]((own + 63) / 64)
	}
	clear(s.read)
	for _, v := range frontier {
		i := uint32(int64(v) - first)
		s.read[i/64] |= 1 << (i % 64)
	}
	n := len(frontier)
	for _, row := range rows {
		i := uint32(row)
		if i >= uint32(own) {
			continue
		}
		bit := uint64(1) << (i % 64)
		if s.read[i/64]&bit == 0 {
			n++
		}
		s.read[i/64] |= bit
	}
	return n
}
