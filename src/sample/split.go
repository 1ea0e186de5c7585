package sample

import (
	"errors"
	"fmt"
	"math"

	"halognn/src/graph"
	"halognn/src/mem"
)

// Split makes one rank's share of minibatches that several ranks make together (GSplit, Polisetty
// et al., section 4). Every vertex belongs to one rank, which draws for it whoever has found it, so
// no edge is drawn twice, and all shares together have the edges that Fused draws alone:
//
//	this rank                                          the other ranks
//	Begin    own seeds are the frontier
//	Draw 1   block of their draws; own vertices join
//	         the frontier, others go to their owners  ── IDs ──>  Join
//	Join 1   vertices that others have found join     <── IDs ──  Draw
//	Draw 2   ...
//	Last     the vertices of the last hop stay where they were found: their rows come from there
//
// The sources of a block are [own frontier | vertices of other ranks, by owner]. The destinations
// come first, and the own frontier is that of the block below, so what the layer below computes
// lies where the layer reads it, and the rows of other ranks land behind it.
//
// Split sends nothing: who calls it moves Crossing.IDs. What a minibatch is between two calls lies
// in its Minibatch and Crossings, so a Join and the Draw after it may be of another Split. One
// goroutine at a time uses one.
type Split struct {
	fused       *Fused
	parts       graph.PartIndex // of ranks
	rank, ranks int
	first, end  graph.VertexID // own vertices
	read        []uint64       // [own/64] a bit each: see Distinct
}

// NewSplit makes a Split of a rank, one of those that have the vertices rows[r] to rows[r+1]-1. The
// topology must hold the rows of its own. MaxSeeds bounds the seeds of all ranks. Workers is
// ignored: minibatches are prepared side by side. Kinds that draw a hop as a whole, and the kernel
// to compare with, are refused.
func NewSplit(t *Topology, rows []int64, rank int, o Options) (*Split, error) {
	o.Workers = 1
	for _, s := range []Spec{o.Spec, o.Eval} {
		if k := s.kind(); k != Neighbour && k != Poisson {
			return nil, fmt.Errorf("sample: ranks that share a minibatch draw for single vertices, "+
				"which sample.kind %s does not; choose sample.kind %s, or parallel.mode data",
				s.kind(), Neighbour)
		}
	}
	if o.Kernel != KernelFused {
		return nil, errors.New("sample: ranks that share a minibatch draw by the fused kernel; " +
			"choose sample.kernel fused, or parallel.mode data")
	}
	if t.Graph.NumVertices() < len(t.Original) && o.Map == MapAuto {
		o.Map = MapHash // as in NewRemote
	}
	var weights error
	if o.Weights && t.Weights == nil {
		weights = errNoWeights
	}
	if err := errors.Join(t.check(), o.Spec.Check(), o.check(), weights); err != nil {
		return nil, fmt.Errorf("sample: %w", err)
	}
	if o.valueBits == 0 { // other ranks send vertices that the edges here do not reach
		o.valueBits = o.mapBits(len(t.Original), math.MaxInt32)
	}
	s, err := newFused(t, o)
	if err != nil {
		return nil, err
	}
	own := int(rows[rank+1] - rows[rank])
	return &Split{
		fused: s.(*Fused), parts: graph.NewPartIndex(rows), rank: rank, ranks: len(rows) - 1,
		first: graph.VertexID(rows[rank]), end: graph.VertexID(rows[rank+1]),
		read: mem.Make[uint64]((own + 63) / 64),
	}, nil
}

// Free returns the memory.
func (s *Split) Free() {
	s.fused.Free()
	mem.Free(s.read)
}

// Bytes returns the memory held now.
func (s *Split) Bytes() int64 { return s.fused.Bytes() + int64(cap(s.read))*8 }

// owns reports whether a vertex is this rank's.
func (s *Split) owns(v graph.VertexID) bool { return v >= s.first && v < s.end }

// Crossing is what a hop of a shared minibatch sends to other ranks and gets from them: the shuffle
// index. Rows and gradients between two layers travel along it. Its arrays lie outside the Go heap
// and are reused; the zero value is ready for use.
type Crossing struct {
	Count []int            // [K] vertices found here that each rank owns; none of the rank itself
	IDs   []graph.VertexID // [R] by owner, then in the order found: the last sources of the block

	Wanted  []int            // [K] own vertices that each rank has found
	WantIDs []graph.VertexID // [W] by rank, then in the order found there
	At      []int32          // [W] their positions in the own frontier

	own int // sources before IDs

	// Between Draw and Join: position of the sources from NumDst on in the own frontier, or the
	// complement of that in IDs.
	place []int32
	next  []int // [K]
}

// Free returns the arrays.
func (c *Crossing) Free() {
	mem.Free(c.IDs)
	mem.Free(c.WantIDs)
	mem.Free(c.At)
	mem.Free(c.place)
	*c = Crossing{}
}

// Bytes returns their memory.
func (c *Crossing) Bytes() int64 {
	return int64(cap(c.IDs)+cap(c.WantIDs)+cap(c.At)+cap(c.place)) * 4
}

// Own returns the sources of the block before those of other ranks, once Join or Last has been
// called.
func (c *Crossing) Own() int { return c.own }

// Expect makes room for the vertices that others have found, Wanted of each, of a rank that has so
// many. A number that is not possible is an error that names the ranks.
func (c *Crossing) Expect(rank, vertices int) error {
	total := 0
	for r, n := range c.Wanted {
		if n < 0 || n > vertices || r == rank && n > 0 {
			return fmt.Errorf("sample: rank %d has found %d vertices of rank %d, which has %d; %s", r,
				n, rank, vertices, sameParts)
		}
		total += n
	}
	c.WantIDs = mem.Grow(c.WantIDs, total)
	return nil
}

// Begin makes own seeds the frontier of a minibatch of so many hops. Errors: as those of
// Sampler.Sample about seeds.
func (s *Split) Begin(mb *Minibatch, own []graph.VertexID, hops int) error {
	f := s.fused
	if limit := f.options.MaxSeeds; limit > 0 && len(own) > limit {
		return fmt.Errorf("sample: %d seeds, but the sampler was made for at most %d; raise "+
			"MaxSeeds", len(own), limit)
	}
	f.mb = mb
	return f.contain(func() error {
		mb.layers(hops)
		if err := f.start(own); err != nil {
			return fmt.Errorf("sample: %w", err)
		}
		mb.Seeds = mb.Frontier
		return nil
	})
}

// Draw draws hop h, from 1, for the frontier, and adds the digest of its edges to *edges. Begin or
// Join of this Split came right before, on the same minibatch.
func (s *Split) Draw(
	mb *Minibatch, c *Crossing, h int, train bool, key Key, edges *uint64,
) error {
	f := s.fused
	spec := f.options.Spec
	if !train {
		spec = f.options.evaluated()
	}
	f.mb, f.kind, mb.Estimates = mb, spec.kind(), spec.Estimates()
	return f.contain(func() error {
		block := &mb.Blocks[len(mb.Blocks)-h]
		if err := f.expand(block, spec.Fanouts[h-1], key.hop(h)); err != nil {
			return fmt.Errorf("sample: hop %d: %w", h, err)
		}
		*edges += EdgesDigest(block, mb.Original, h, key)
		s.divide(mb, c, block.NumDst)
		mb.Seeds = mb.Frontier[:len(mb.Seeds)]
		return nil
	})
}

// divide keeps own vertices in the frontier, of which those from n on are new, and groups the
// others by owner.
func (s *Split) divide(mb *Minibatch, c *Crossing, n int) {
	if len(c.Count) != s.ranks {
		c.Count, c.Wanted = make([]int, s.ranks), make([]int, s.ranks)
		c.next = make([]int, s.ranks)
	}
	found := mb.Frontier[n:]
	c.place = mem.Grow(c.place, len(found))
	clear(c.Count)
	for i, v := range found {
		owner := s.parts.Find(uint32(v))
		c.place[i] = int32(owner)
		c.Count[owner]++
	}
	others := 0
	c.Count[s.rank] = 0
	for r, k := range c.Count {
		c.next[r] = others
		others += k
	}
	c.IDs = mem.Grow(c.IDs, others)
	own := n
	for i, v := range found {
		if owner := int(c.place[i]); owner != s.rank {
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

// Join appends to the frontier the vertices of hop h that other ranks have found, in WantIDs, and
// completes the block of that hop. A vertex that is not this rank's is an error that names the
// rank.
func (s *Split) Join(mb *Minibatch, c *Crossing, h int) error {
	f, at := s.fused, 0
	for r, k := range c.Wanted {
		for _, v := range c.WantIDs[at : at+k] {
			if !s.owns(v) {
				return fmt.Errorf("sample: rank %d takes vertex %d for one of rank %d; %s", r, v,
					s.rank, sameParts)
			}
		}
		at += k
	}
	f.mb = mb
	return f.contain(func() error {
		n := len(mb.Frontier)
		c.At = mem.Grow(c.At, len(c.WantIDs))
		mb.Frontier = mem.Grow(mb.Frontier, min(n+len(c.WantIDs), len(f.topology.Original))+1)
		f.vertices.reset()
		f.vertices.reserve(nil, n)
		blocks(mb.Frontier[:n], f.vertices.settle)
		total := renumber(f.vertices, c.WantIDs, c.At, mb.Frontier, n)
		mb.Original = mem.Grow(mb.Original, total)
		f.gatherOriginal(n, total)
		mb.Frontier = mb.Frontier[:total]
		s.complete(mb, c, h)
		return nil
	})
}

// Last completes the last block, and the minibatch: Frontier lists all its sources.
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

// complete numbers the sources of the block of hop h, whose frontier is complete.
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

// Distinct returns how many of this rank's vertices are in frontier, where none is twice, or in
// rows, which count from the rank's first vertex: those whose feature rows the rank reads for a
// minibatch, for itself or for others. Rows that it does not have are left out.
func (s *Split) Distinct(frontier []graph.VertexID, rows []int32) int {
	clear(s.read)
	for _, v := range frontier {
		i := uint32(v - s.first)
		s.read[i/64] |= 1 << (i % 64)
	}
	n := len(frontier)
	for _, row := range rows {
		i := uint32(row)
		if i >= uint32(s.end-s.first) {
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
