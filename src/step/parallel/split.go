package parallel

import (
	"halognn/src/base/mem"
	"halognn/src/base/trace"
	"halognn/src/devices/compute"
	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
)

// composeSplit makes split parallelism (GSplit, Polisetty et al.): all ranks train each minibatch
// together, and each rank does the work for the vertices that it owns. They draw it together
// (splitDrawer), so that no edge is drawn and no vertex computed twice. Before a layer, ranks send
// the hidden rows that it reads on other ranks; after its backward, the gradients go back
// (shuffler). Feature rows of other ranks do not depend on the weights, so they are sent while
// minibatches are prepared, by the exchange, which holds only this rank's tables.
//
//	                local      collective  local      as data parallelism
//	seeds of all ─> sample ──> found ─────> join ──> plan ──> ids ──> slice ──> rows ──> assemble
//	                own ones                next hop
//
//	layer 0 ── shuffle ──> layer 1 ── shuffle ──> layer 2 ──> loss of own seeds
//	        <── shuffle ──        <── shuffle ──
func composeSplit(s *Strategy) error {
	drawer, err := s.share(s.o.Comm.Size(), false)
	if err != nil {
		return err
	}
	s.rows = newFetched(s, mates{frontier{s.o.Exchange}, drawer})
	return nil
}

// share makes groups of ranks train each minibatch together. A group has `size` ranks. If `serving`
// is true, the owners of vertices find the feature rows that other ranks of the group read.
// Collective.
func (s *Strategy) share(size int, serving bool) (*splitDrawer, error) {
	if err := s.degreesKnown(); err != nil {
		return nil, err
	}
	drawer, err := newSplitDrawer(&s.o, size, serving, s.drawerOptions(), s.drawn())
	if err != nil {
		return nil, err
	}
	s.draw = drawer
	if drawer.hops() == 0 && s.o.Model.Config.BatchNorms() == 0 && s.o.Sample.Links == nil {
		return drawer, nil // this rank reads nothing from other ranks
	}
	shuffled, err := newShuffler(&s.o, drawer, s.layers)
	if err == nil {
		s.between = Between{forward: shuffled.forward, backward: shuffled.backward,
			carries: shuffled}
	}
	return drawer, err
}

// mates implements readers for ranks that share all minibatches. Each rank finds the rows of its
// own vertices. It receives the other rows that its part of the input layer reads from their
// owners.
type mates struct {
	frontier
	drawer *splitDrawer
}

// serve counts the feature rows of this rank that any rank reads for a minibatch.
func (r mates) serve(m *Minibatch) error {
	d := r.drawer
	if d.hops() == 0 {
		m.shared.loaded = int64(len(m.Sampled.Frontier))
		return nil
	}
	own := m.Sampled.Frontier[:m.shared.hops[d.hops()-1].Own()]
	return d.samplers.with(func(s *sample.Split) error {
		m.shared.loaded = int64(s.Distinct(own, m.Fetch.Asked()))
		return nil
	})
}

// counters counts feature rows of other ranks as shuffled, not as remote.
func (r mates) counters(m *Minibatch, c *trace.Counters) {
	c.Shuffles.Rows, c.Shuffles.Bytes = c.Remote, c.RowBytes
	if c.Shuffles.Got = c.AskedBytes; len(r.x.Kinds()) == 1 {
		c.Shuffles.Got = c.Remote * int64(r.x.Kinds()[0].RowBytes())
	}
	c.Frontier, c.Remote, c.Served, c.RowBytes, c.AskedBytes = c.Local, 0, 0, 0, 0
	c.Loaded = m.shared.loaded
}

// sharing is the state of a minibatch that several ranks make together.
type sharing struct {
	loaded int64 // number of this rank's feature rows that any rank reads

	own  []graph.VertexID  // seeds that this rank owns
	hops []sample.Crossing // what crosses ranks in each hop, from the seeds on
	// shuffle index of each layer except 0, whose rows the exchange sends
	moves       []move
	asks, asked []int64       // [K] number of vertices sent to each rank, and received from it
	d           *splitDrawer  // drawer whose collective is under way
	hop         int           // hop of that collective, from 1
	layer       *sample.Layer // the layer that is drawn as a whole; nil if none is in progress
	rated       rated         // the links that this rank scores; none if the task has no links
	counts      []int         // [K] number of vertices that each rank has found for the layer
	sends       []int         // [K] number of vertices found here, repeated for every rank
}

// move is the shuffle index of a hop in the form that kernels read.
type move struct {
	pack graph.Block          // rows to send, by rank: row k is own row At[k]
	add  graph.BlockTranspose // for each own row, the gradients that arrive for it, by rank
}

// rated is the exchange of embeddings with which a rank scores its links: embeddings cross ranks in
// the same way as rows between layers.
type rated struct {
	known    bool
	crossing sample.Crossing
	move     move
}

// begin makes room for a minibatch of the given number of hops on the given number of ranks.
func (s *sharing) begin(hops, ranks int) {
	s.asks, s.asked = mem.Grow(s.asks, ranks), mem.Grow(s.asked, ranks)
	s.rated.known = false
	for len(s.hops) < hops {
		s.hops, s.moves = append(s.hops, sample.Crossing{}), append(s.moves, move{})
	}
}

func (s *sharing) index(l int, train bool) { s.moves[l].index(s.crossing(l), train) }

func (m *move) index(c *sample.Crossing, train bool) {
	n := len(c.At)
	m.pack.Indptr = mem.Grow(m.pack.Indptr, n+1)
	for k := range m.pack.Indptr {
		m.pack.Indptr[k] = int64(k)
	}
	m.pack.NumDst, m.pack.NumSrc, m.pack.Indices = n, c.Own(), c.At
	if train {
		m.pack.Transpose(&m.add)
	}
}

// send adds the shuffle indices to the inputs that are sent to a device.
func (s *sharing) send(in *compute.Inputs, train bool) {
	for l := 1; l < len(s.hops); l++ {
		s.moves[l].send(in, train)
	}
	if s.rated.known {
		s.rated.move.send(in, train)
	}
}

func (m *move) send(in *compute.Inputs, train bool) {
	in.Segments = append(in.Segments,
		compute.Segments{Indptr: m.pack.Indptr, Indices: m.pack.Indices})
	if train {
		in.Segments = append(in.Segments,
			compute.Segments{Indptr: m.add.Indptr, Indices: m.add.Indices})
	}
}

// others returns how many rows of other ranks layer l reads behind its own rows; 0 for the input
// layer, and if the minibatch is not shared. The loss counts as the layer after the last.
func (s *sharing) others(l, layers int) int {
	if l == layers && s.rated.known {
		return len(s.rated.crossing.IDs)
	}
	if l == 0 || l >= len(s.hops) {
		return 0
	}
	return len(s.crossing(l).IDs)
}

func (s *sharing) crossing(l int) *sample.Crossing { return &s.hops[len(s.hops)-1-l] }

// bytes returns the memory of the arrays.
func (s *sharing) bytes() int64 {
	n := int64(cap(s.asks)+cap(s.asked))*8 + int64(cap(s.own))*4
	for h := range s.hops {
		n += s.hops[h].Bytes()
	}
	if s.layer != nil {
		n += s.layer.Bytes()
	}
	for l := range s.moves {
		n += s.moves[l].bytes()
	}
	return n + s.rated.crossing.Bytes() + s.rated.move.bytes()
}

func (m *move) bytes() int64 {
	b, t := &m.pack, &m.add
	return int64(cap(b.Indptr)+cap(t.Indptr))*8 + int64(cap(t.Indices)+cap(t.Edges))*4
}

func (m *move) free() {
	mem.Free(m.pack.Indptr)
	m.add.Free()
}

// free frees the arrays.
func (s *sharing) free() {
	mem.Free(s.asks)
	mem.Free(s.asked)
	mem.Free(s.own)
	if s.layer != nil {
		s.layer.Free()
	}
	for h := range s.hops {
		s.hops[h].Free()
	}
	for l := range s.moves {
		s.moves[l].free()
	}
	s.rated.crossing.Free()
	s.rated.move.free()
}
