package sample

import (
	"fmt"
	"math"
	"sync"

	"halognn/src/base/invariant"
	"halognn/src/base/mem"
	"halognn/src/devices/compute/cpu"
	"halognn/src/topology/graph"
)

// Fused is the sampler of kinds Neighbour, Labor and Poisson. It draws neighbours straight into the
// Indices of a block and renumbers them there (FastSample, Mostafa et al. 2023, Algorithm 1).
type Fused struct {
	topology Topology
	options  Options
	vertices vertexMap
	workers  []worker
	wait     sync.WaitGroup
	phase    func(s *Fused, w int) // the function that all workers are running now

	hop   hop
	list  columnList // columns of the hop in progress
	mb    *Minibatch // the minibatch in progress
	kind  Kind       // kind of the minibatch
	when  moment     // the step of the minibatch, on which numbers of vertices depend
	known tables     // tables of the vertices' numbers

	// reports whether a seed is in this rank's minibatches; nil if all seeds are
	mine func(graph.VertexID) bool

	near   []uint64 // set of the edges that the current hop draws likelier; nil if there are none
	favour float64  // how many times likelier the edges in near are drawn
	rows   []int32  // Indices of the current block, in the memory of hop.drawn
	// [edges of the hop] each edge's value in the vertex map; only for parallel renumbering
	values []uint32
}

// newFused makes a Fused from options that are known to be valid.
func newFused(t *Topology, o Options) (Sampler, error) {
	s := &Fused{topology: *t, options: o}
	s.workers = make([]worker, o.Workers)
	for i := range s.workers {
		s.workers[i] = newWorker(s, i)
	}
	if o.Numbered() {
		host, err := cpu.NewHost("")
		if err != nil {
			return nil, err
		}
		s.hop.host = host
	}
	vertices := len(t.Original)
	valueBits := o.valueBits
	if valueBits == 0 {
		valueBits = o.mapBits(t, t.Graph.NumEdges()-t.Graph.Indptr[0])
	}
	if o.Map == MapDense || o.Map == MapAuto && vertices <= denseVertices {
		s.vertices = newDense(vertices, valueBits)
	} else {
		s.vertices = newHash(valueBits)
	}
	return s, nil
}

// Free implements Sampler.
func (s *Fused) Free() {
	s.vertices.free()
	s.hop.free()
	s.known.free()
	s.list.free()
	mem.Free(s.values)
	for i := range s.workers {
		s.workers[i].free()
	}
	*s = Fused{}
}

// Bytes implements Sampler.
func (s *Fused) Bytes() int64 {
	n := s.vertices.bytes() + s.hop.bytes() + s.known.bytes() + s.list.bytes() +
		int64(cap(s.values))*4
	for i := range s.workers {
		n += s.workers[i].bytes()
	}
	return n
}

// Sample implements Sampler. Its cost is one random read of Indices and one of the vertex map for
// each sampled edge; the reads overlap.
func (s *Fused) Sample(mb *Minibatch, seeds []graph.VertexID, key Key) error {
	return s.sampleBy(s.options.Spec, mb, seeds, key)
}

// SampleEval implements Sampler.
func (s *Fused) SampleEval(mb *Minibatch, seeds []graph.VertexID, key Key) error {
	return s.sampleBy(s.options.evaluated(), mb, seeds, key)
}

func (s *Fused) sampleBy(spec Spec, mb *Minibatch, seeds []graph.VertexID, key Key) error {
	if err := s.checkWhole(len(seeds)); err != nil {
		return err
	}
	s.mb = mb
	return s.contain(func() error { return s.sample(spec, seeds, key) })
}

// checkWhole returns an error for a topology that lacks rows, and for too many seeds.
func (s *Fused) checkWhole(seeds int) error {
	if rows, vertices := s.topology.Graph.NumVertices(),
		len(s.topology.Original); rows != vertices {
		return fmt.Errorf("sample: the topology holds %d of %d rows, so no hop can be drawn here "+
			"alone; use a Remote", rows, vertices)
	}
	return s.checkSeeds(seeds)
}

// checkSeeds returns an error for too many seeds.
func (s *Fused) checkSeeds(seeds int) error {
	if limit := s.options.MaxSeeds; limit > 0 && seeds > limit {
		return fmt.Errorf("sample: %d seeds, but the sampler was made for at most %d; raise "+
			"MaxSeeds", seeds, limit)
	}
	return nil
}

// newAnywhere makes the sampler of a rank that also gets vertices from other ranks. Its vertex map
// has room for more vertices than the rank's own edges reach.
func newAnywhere(t *Topology, o Options) (*Fused, error) {
	if o.valueBits == 0 {
		o.valueBits = o.mapBits(t, math.MaxInt32)
	}
	s, err := newFused(t, o)
	if err != nil {
		return nil, err
	}
	return s.(*Fused), nil
}

// beginBy makes the seeds the first frontier of a minibatch. The caller draws the hops of the
// minibatch afterwards, one by one.
func (s *Fused) beginBy(mb *Minibatch, seeds []graph.VertexID, hops int) error {
	if err := s.checkSeeds(len(seeds)); err != nil {
		return err
	}
	s.mb = mb
	return s.contain(func() error {
		mb.layers(hops)
		mb.Totals = mb.Totals[:0]
		if err := s.start(seeds); err != nil {
			return fmt.Errorf("sample: %w", err)
		}
		mb.Seeds = mb.Frontier
		return nil
	})
}

// number clears the vertex map, and stores the local numbers of the frontier's vertices in it.
func (s *Fused) number(frontier []graph.VertexID) {
	s.vertices.reset()
	s.vertices.reserve(nil, len(frontier))
	blocks(frontier, s.vertices.settle)
}

func (s *Fused) sample(spec Spec, seeds []graph.VertexID, key Key) error {
	mb, layers := s.mb, len(spec.Fanouts)
	mb.layers(layers)
	mb.Totals = mb.Totals[:0]
	s.begin(spec, key)
	if err := s.start(seeds); err != nil {
		return fmt.Errorf("sample: %w", err)
	}
	if err := s.leaveOut(spec, key); err != nil {
		return err
	}
	for h := range spec.Fanouts {
		if s.near, s.favour = nil, key.Favour; s.kind == Poisson {
			s.near = likelier(s.options.Near.Edges, h, key)
		}
		if err := s.expand(&mb.Blocks[layers-1-h], &spec, h, spec.word(key, h+1)); err != nil {
			return fmt.Errorf("sample: hop %d: %w", h+1, err)
		}
	}
	mb.Seeds = mb.Frontier[:len(seeds)]
	for l := 1; l < layers && !s.options.ForwardOnly; l++ {
		mb.Blocks[l].Transpose(&mb.Transposes[l])
	}
	if invariant.On {
		invariant.Holds(s.check(&spec, mb))
	}
	return nil
}

// leaveOut finds the edges that the minibatch leaves out.
func (s *Fused) leaveOut(spec Spec, key Key) error {
	return s.hop.skips.find(spec.Links, key, &s.topology, s.mb.Frontier, s.mine)
}

// begin sets the kind and the step of the minibatch to draw, and whether its weights are estimates.
func (s *Fused) begin(spec Spec, key Key) {
	s.kind, s.when, s.mb.Estimates = spec.kind(), spec.moment(key), spec.Estimates()
}

// start makes the seeds the first frontier.
func (s *Fused) start(seeds []graph.VertexID) error {
	vertices := len(s.topology.Original)
	for _, v := range seeds {
		if uint(v) >= uint(vertices) {
			return seedError("seed %d: %w (the graph has %d vertices)", v, graph.ErrVertexRange,
				vertices)
		}
	}
	mb := s.mb
	mb.Frontier = mem.Grow(mb.Frontier, len(seeds)+1)
	mb.Original = mem.Grow(mb.Original, len(seeds))
	rows := mb.Original // holds local numbers until the original ids overwrite them
	s.vertices.reset()
	if n := renumber(s.vertices, seeds, rows, mb.Frontier, 0); n != len(seeds) {
		i := 0
		for int(rows[i]) == i {
			i++
		}
		return seedError("seed %d is given twice; the seeds of a minibatch must be distinct",
			seeds[i])
	}
	mb.Frontier = mb.Frontier[:len(seeds)]
	s.gatherOriginal(0, len(seeds))
	return nil
}

// gatherOriginal fills Minibatch.Original for positions [lo,hi) of the frontier.
func (s *Fused) gatherOriginal(lo, hi int) {
	of, original := s.topology.Original, s.mb.Original[lo:hi]
	for i, v := range s.mb.Frontier[lo:hi] {
		original[i] = of[v]
	}
}

// expand makes the block whose destinations are the frontier so far, and appends to the frontier
// the vertices it finds.
func (s *Fused) expand(block *graph.Block, spec *Spec, h int, key uint64) error {
	n, total := len(s.mb.Frontier), len(s.mb.Frontier)
	ranges := s.list.listColumns(&s.topology, s.mb.Frontier, s.mb.Original, block, &s.hop.skips)
	rows := 0
	for _, r := range ranges {
		rows += len(r.vertices)
	}
	block.Indptr, block.Indices = mem.Grow(block.Indptr, rows+1), block.Indices[:0]
	block.Indptr[0] = 0
	at, err := 0, error(nil)
	for _, r := range ranges {
		s.hop.skips.first = at
		total, err = s.draw(block, r, at, total, spec.fanoutBy(h, r.relation),
			s.when.word(key, r.relation))
		if err != nil {
			return err
		}
		at += len(r.vertices)
	}
	block.NumDst, block.NumSrc = n, total
	s.mb.Frontier = s.mb.Frontier[:total]
	if s.topology.Columns.Plain() && !s.options.Weights && s.hop.skips.end() > 0 {
		// The totals are the degrees without the edges that the minibatch leaves out.
		s.mb.Totals = mem.Grow(s.mb.Totals, n)
		for i, degree := range s.hop.degree[:n] {
			s.mb.Totals[i] = float64(degree)
		}
	}
	return nil
}

// draw draws the edges of one relation, and appends new vertices to the frontier. The rows of the
// relation begin at the block's row with the index at. The argument n is the length of the
// frontier; draw returns its new length.
func (s *Fused) draw(block *graph.Block, r columnRange, at, n, fanout int, key uint64) (int,
	error) {
	mb, before := s.mb, int(block.Indptr[at])
	block.Indptr[at] = 0 // during the draw, row pointers count from the relation's first edge
	indptr := block.Indptr[at : at+len(r.vertices)+1]
	s.hop.start(&s.topology, r.vertices, r.original, indptr)
	s.hop.poisson = s.kind == Poisson
	s.hop.setDraws(fanout, key, s.when)
	if g := &s.topology.Graph; s.when.lasts > 0 {
		mean := float64(g.NumEdges()-g.Indptr[0]) / float64(max(g.NumVertices(), 1))
		s.hop.table = s.known.find(s.when, key, s.topology.Original, len(mb.Blocks),
			int64(float64(n)*mean))
	}
	s.hop.prefer(s.near, s.favour)
	if err := s.locate(); err != nil {
		return 0, err
	}
	edges := int(indptr[len(r.vertices)])
	if err := s.checkEdges(before+edges, len(r.vertices)); err != nil {
		return 0, err
	}
	block.Indices = mem.Grow(block.Indices, before+edges)
	// Each edge may find a new vertex, and renumber needs one entry more.
	mb.Frontier = mem.Grow(mb.Frontier[:n], min(n+edges, len(s.topology.Original))+1)
	if s.topology.Columns.Plain() {
		s.hop.vertices = mb.Frontier[:n]
	}
	s.rows = block.Indices[before:]
	s.hop.drawn = asVertices(s.rows)
	block.Weights = s.weigh(block.Weights, before, edges)
	if s.mb.Estimates && !s.topology.Columns.Plain() {
		s.mb.addTotals(s.hop.degree)
	}

	total, err := 0, error(nil)
	if s.shared(edges) && n+edges <= s.vertices.capacity() && s.topology.Columns.Plain() {
		total, err = s.renumberShared(n)
	} else {
		total = s.renumberAlone(n)
	}
	for i := range indptr {
		indptr[i] += int64(before)
	}
	return total, err
}

// addTotals appends the degrees of columns to Totals.
func (m *Minibatch) addTotals(degrees []int64) {
	at := len(m.Totals)
	m.Totals = mem.Grow(m.Totals, at+len(degrees))
	for i, degree := range degrees {
		m.Totals[at+i] = float64(degree)
	}
}

// weigh makes room in an array of weights for the weights of this hop's edges (their number is
// `edges`). The array keeps the weights that it has already (their number is `previous`), which are
// those of the edges of other relations. weigh returns the array, which is empty if edges have no
// weights.
func (s *Fused) weigh(weights []float32, previous, edges int) []float32 {
	if s.options.Weights {
		s.hop.ofData = s.topology.Weights
	} else if !s.mb.Estimates {
		return weights[:0]
	}
	weights = mem.Grow(weights, previous+edges)
	s.hop.weights = weights[previous:]
	return weights
}

// checkEdges returns an error for a hop with more edges than a block can have.
func (s *Fused) checkEdges(edges, vertices int) error {
	if limit := s.options.maxEdges; edges > limit {
		return fmt.Errorf("%w: %d edges are drawn for %d vertices, but a block has at most %d; "+
			"lower sample.batch or sample.fanouts", errEdges, edges, vertices, limit)
	}
	return nil
}

// renumberAlone draws the hop and renumbers its neighbours, chunk by chunk. The argument n is the
// length of the frontier before the call, and the result is its length after the call.
func (s *Fused) renumberAlone(n int) int {
	h, total, rows := &s.hop, n, len(s.hop.vertices)
	for lo, hi := 0, 0; lo < rows; lo = hi {
		hi = min(lo+h.chunk, rows)
		s.workers[0].draw(h, lo, hi)
		first, last := h.indptr[lo], h.indptr[hi]
		total = renumber(s.vertices, h.drawn[first:last], s.rows[first:last], s.mb.Frontier, total)
	}
	s.mb.Original = mem.Grow(s.mb.Original, total)
	s.gatherOriginal(n, total)
	return total
}
