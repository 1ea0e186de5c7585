package sample

import (
	"fmt"

	"halognn/src/base/invariant"
	"halognn/src/base/mem"
	"halognn/src/topology/graph"
)

// LADIES draws for a whole layer (layer-dependent importance sampling, Zou et al., NeurIPS 2019).
// In each hop it draws about Spec.Vertices[hop] of all in-neighbours of the destinations.
// In-neighbours of many destinations are likelier to be drawn. A block has every edge between the
// destinations and the vertices drawn, so a frontier grows by a bounded number of vertices at each
// hop.
//
//	m_u = sum over the edges from u to a destination d of (v_ud / sum of v over d's in-edges)²
//	q_u = min(1, c m_u), with c such that the sum of q is Spec.Vertices[hop]; if there are no more
//	      in-neighbours than that, q_u = 1
//
// Here v is the weight of an edge in the data, or 1. The paper draws with replacement. This program
// draws each vertex independently with probability q_u, by the vertex's own random bits, so q is
// exact and the order of vertices does not matter. An edge weighs v/q_u.
const LADIES Kind = "ladies"

// Ladies is the sampler of kind LADIES. Its memory grows with the largest set of in-neighbours so
// far.
type Ladies struct {
	fused *Fused // expands a hop to all in-neighbours, and draws minibatches for evaluation
	layer
}

// layer is the hop of kind LADIES that is being drawn.
type layer struct {
	// wide is the hop with all in-neighbours. Its first frontier is the minibatch's frontier before
	// the hop.
	wide    Minibatch
	mass    []float64 // [sources of wide] m_u, later q_u (see LADIES)
	number  []int32   // [sources of wide] position in the next frontier; -1 if not drawn
	inverse []float32 // [sources of wide] 1/q; 0 if not drawn
}

func newLadies(t *Topology, o Options) (Sampler, error) {
	s, err := newFused(t, o)
	if err != nil {
		return nil, err
	}
	return &Ladies{fused: s.(*Fused)}, nil
}

// checkVertices does what Spec.Check does, for kind LADIES.
func checkVertices(s Spec) error {
	if len(s.Vertices) == 0 {
		return fmt.Errorf("sample.layer_vertices is empty; give a number for every layer, seed " +
			"hop first")
	}
	for i, n := range s.Vertices {
		if n < 1 || n > graph.MaxVertices {
			return fmt.Errorf("sample.layer_vertices[%d] is %d; it must be 1 to %d", i, n,
				graph.MaxVertices)
		}
	}
	return nil
}

// Free implements Sampler.
func (s *Ladies) Free() {
	s.fused.Free()
	s.layer.free()
	*s = Ladies{}
}

func (s *layer) free() {
	s.wide.Free()
	mem.Free(s.mass)
	mem.Free(s.number)
	mem.Free(s.inverse)
}

// Bytes implements Sampler.
func (s *Ladies) Bytes() int64 {
	return s.fused.Bytes() + s.layer.bytes()
}

func (s *layer) bytes() int64 {
	return s.wide.Bytes() + int64(cap(s.mass))*8 + int64(cap(s.number)+cap(s.inverse))*4
}

// Sample implements Sampler. It reads all in-edges of the destinations of each hop and assigns
// numbers to their sources, so it costs as much as a fanout of All.
func (s *Ladies) Sample(mb *Minibatch, seeds []graph.VertexID, key Key) error {
	return s.sampleBy(s.fused.options.Spec, mb, seeds, key)
}

// SampleEval implements Sampler.
func (s *Ladies) SampleEval(mb *Minibatch, seeds []graph.VertexID, key Key) error {
	return s.sampleBy(s.fused.options.evaluated(), mb, seeds, key)
}

func (s *Ladies) sampleBy(spec Spec, mb *Minibatch, seeds []graph.VertexID, key Key) error {
	if spec.kind() != LADIES {
		return s.fused.sampleBy(spec, mb, seeds, key)
	}
	if err := s.fused.checkWhole(len(seeds)); err != nil {
		return err
	}
	s.fused.mb, s.fused.kind, s.fused.when = &s.wide, LADIES, moment{}
	return s.fused.contain(func() error { return s.sample(spec, mb, seeds, key) })
}

func (s *Ladies) sample(spec Spec, mb *Minibatch, seeds []graph.VertexID, key Key) error {
	layers := len(spec.Vertices)
	mb.layers(layers)
	s.wide.layers(1)
	mb.Estimates, s.wide.Totals = true, s.wide.Totals[:0]
	if err := s.fused.start(seeds); err != nil {
		return fmt.Errorf("sample: %w", err)
	}
	if err := s.fused.leaveOut(spec, key); err != nil {
		return err
	}
	for h, n := range spec.Vertices {
		if h > 0 { // the map also has vertices that were not drawn
			s.fused.number(s.wide.Frontier)
		}
		if err := s.fused.expand(&s.wide.Blocks[0], &wholeRows, 0, 0); err != nil {
			return fmt.Errorf("sample: hop %d: %w", h+1, err)
		}
		s.choose(&mb.Blocks[layers-1-h], n, key.hop(h+1),
			likelier(s.fused.options.Near.Vertices, h, key), key.Favour)
	}
	s.copyTotals(mb)
	s.wide.copyFrontier(mb)
	mb.Seeds = mb.Frontier[:len(seeds)]
	for l := 1; l < layers && !s.fused.options.ForwardOnly; l++ {
		mb.Blocks[l].Transpose(&mb.Transposes[l])
	}
	if invariant.On {
		invariant.Holds(s.fused.check(&spec, mb))
	}
	return nil
}

// copyFrontier copies the frontier to another minibatch.
func (m *Minibatch) copyFrontier(to *Minibatch) {
	to.Frontier, to.Original = mem.Grow(to.Frontier, len(m.Frontier)),
		mem.Grow(to.Original, len(m.Frontier))
	copy(to.Frontier, m.Frontier)
	copy(to.Original, m.Original)
}

// extend makes the block of a Remote's hop once all in-neighbours of the frontier have arrived.
func (s *Ladies) extend(mb *Minibatch, block *graph.Block, a *Asking) error {
	s.begin(mb)
	if err := s.fused.extend(&s.wide.Blocks[0], a); err != nil {
		return err
	}
	s.choose(block, a.layer, a.Word, a.near, a.favour)
	s.copyTotals(mb)
	s.wide.copyFrontier(mb)
	return nil
}

// begin begins a hop of a minibatch whose other hops were made elsewhere.
func (s *layer) begin(mb *Minibatch) {
	s.wide.layers(1)
	s.wide.Totals = s.wide.Totals[:0]
	mb.copyFrontier(&s.wide)
}

// copyTotals copies the destinations' totals, which their owners have returned, to mb.
func (s *layer) copyTotals(mb *Minibatch) {
	mb.Totals = mem.Grow(mb.Totals, len(s.wide.Totals))
	copy(mb.Totals, s.wide.Totals)
}

// choose draws about n of the hop's in-neighbours, and makes the hop's block from those drawn.
func (s *Ladies) choose(block *graph.Block, n int, hop uint64, near []uint64, favour float64) {
	s.weigh(s.fused.topology.WeightSums)
	s.prefer(n, near, favour)
	s.draw(hop)
	s.keep(block)
}

// weigh sets the mass of each source. The argument `sums` has the sum of the weights of each
// vertex's in-edges.
func (s *layer) weigh(sums []float32) {
	b := &s.wide.Blocks[0]
	s.mass = mem.Grow(s.mass, b.NumSrc)
	clear(s.mass)
	for d := range b.NumDst {
		row := b.Indices[b.Indptr[d]:b.Indptr[d+1]]
		if len(b.Weights) == 0 {
			share := 1 / float64(len(row))
			share = float64(share * share)
			for _, u := range row {
				s.mass[u] += share
			}
			continue
		}
		total := 0.0
		if len(s.wide.Totals) > 0 {
			total = s.wide.Totals[d]
		} else {
			total = float64(sums[s.wide.Frontier[d]])
		}
		if total == 0 {
			continue
		}
		for i, w := range b.Weights[b.Indptr[d]:b.Indptr[d+1]] {
			share := float64(w) / total
			// the conversion rounds the square before it is added, so that all machines get the
			// same sum
			s.mass[row[i]] += float64(share * share)
		}
	}
}

// prefer turns masses into probabilities that draw about n of the sources. It makes a near source
// likelier than another, by the factor favour.
func (s *layer) prefer(n int, near []uint64, favour float64) {
	probabilities(s.mass, n)
	if near != nil {
		for u, v := range s.wide.Frontier {
			if isNear(near, v) {
				s.mass[u] = float64(s.mass[u] * favour)
			}
		}
		probabilities(s.mass, n)
	}
}

// draw draws sources, and gives new ones a place in the next frontier.
func (s *layer) draw(hop uint64) {
	b := &s.wide.Blocks[0]
	s.number = mem.Grow(s.number, b.NumSrc)
	s.inverse = mem.Grow(s.inverse, b.NumSrc)
	next := int32(b.NumDst)
	for u, q := range s.mass {
		s.number[u], s.inverse[u] = -1, 0
		if q == 0 {
			continue
		}
		if q < 1 {
			random := vertexStream(hop, s.wide.Original[u])
			if random.unit() >= q {
				continue
			}
		}
		s.inverse[u] = float32(1 / q)
		if s.number[u] = int32(u); u >= b.NumDst {
			s.number[u] = next
			next++
		}
	}
}

// probabilities replaces masses by probabilities min(1, c*mass) that add up to n, or by 1 for every
// mass above 0 if there are no more than n. Each round caps the probabilities that would exceed 1,
// and divides the rest among the others, which may raise some of these to 1. O(len) a round; rounds
// are few, at most len.
func probabilities(mass []float64, n int) {
	some, rest := 0, 0.0
	for _, m := range mass {
		if m > 0 {
			some++
			rest += m
		}
	}
	c, capped := 0.0, 0
	for some > n {
		c = float64(n-capped) / rest
		now, left := 0, 0.0
		for _, m := range mass {
			if float64(c*m) >= 1 {
				now++
			} else {
				left += m
			}
		}
		// c grows from round to round. Only rounding may let a mass fall below the cap again.
		if now <= capped || now >= n || left == 0 {
			break
		}
		capped, rest = now, left
	}
	for u, m := range mass {
		switch {
		case m == 0:
		case some <= n:
			mass[u] = 1
		default:
			mass[u] = min(1, float64(c*m))
		}
	}
}

// keep makes the block from the edges of the drawn sources, and shortens the frontier to the
// destinations and these sources.
func (s *layer) keep(to *graph.Block) {
	all := &s.wide.Blocks[0]
	to.Indptr = mem.Grow(to.Indptr, all.NumDst+1)
	edges := int64(0)
	for d := range all.NumDst {
		to.Indptr[d] = edges
		for _, u := range all.Indices[all.Indptr[d]:all.Indptr[d+1]] {
			if s.number[u] >= 0 {
				edges++
			}
		}
	}
	to.Indptr[all.NumDst] = edges
	to.Indices, to.Weights = mem.Grow(to.Indices, int(edges)), mem.Grow(to.Weights, int(edges))
	at := 0
	for e, u := range all.Indices {
		if s.number[u] < 0 {
			continue
		}
		to.Indices[at], to.Weights[at] = s.number[u], s.inverse[u]
		if len(all.Weights) > 0 {
			to.Weights[at] *= all.Weights[e]
		}
		at++
	}
	w := &s.wide
	n := all.NumDst
	for u := all.NumDst; u < all.NumSrc; u++ {
		if s.number[u] >= 0 {
			w.Frontier[n], w.Original[n] = w.Frontier[u], w.Original[u]
			n++
		}
	}
	to.NumDst, to.NumSrc = all.NumDst, n
	w.Frontier, w.Original = w.Frontier[:n], w.Original[:n]
}
