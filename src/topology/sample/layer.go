package sample

import (
	"fmt"
	"math"

	"halognn/src/base/mem"
	"halognn/src/topology/graph"
)

// Layer is one hop, of kind LADIES, of a minibatch that a group of ranks makes together (Split). It
// is one draw from the in-neighbours of all ranks' destinations, with masses summed over all
// destinations. So each rank sends the other ranks the in-neighbours that it has found, with their
// masses:
//
//	this rank                                          all ranks
//	Find     all in-edges of own destinations      ── Own ──>  All, in rank order
//	Choose   masses added up, probabilities; the
//	         drawn vertices that were found here are the
//	         sources of the block, as after Draw
//
// All ranks add the same numbers in the same order, so they have the same probabilities, to the
// bit. As the random bits of a vertex are the same on all ranks, either all of them draw it or
// none.
//
// A Layer holds the state of one hop between the calls. Its arrays lie outside the Go heap and are
// reused; the zero value is ready for use.
type Layer struct {
	layer
	Own []uint32 // [3n] vertices found here, each with the 64 bits of its mass, low word first
	All []uint32 // the lists Own of all ranks, one after the other

	// the vertices of All: found has duplicates, all has each vertex once
	found, all []graph.VertexID
	// [length of found] position in the list all of each vertex of found
	at  []int32
	sum []float64 // [len(all)] mass of each vertex in `all`, later its probability
}

// candidateWords is the number of words of a candidate: a vertex that a rank has found, and its
// mass.
const candidateWords = 3

// CandidateBytes is the size of one candidate in a message.
const CandidateBytes = 4 * candidateWords

// Free frees the arrays.
func (l *Layer) Free() {
	l.free()
	mem.Free(l.Own)
	mem.Free(l.All)
	mem.Free(l.found)
	mem.Free(l.all)
	mem.Free(l.at)
	mem.Free(l.sum)
	*l = Layer{}
}

// Bytes returns the memory of the arrays.
func (l *Layer) Bytes() int64 {
	words := cap(l.Own) + cap(l.All) + cap(l.found) + cap(l.all) + cap(l.at) + 2*cap(l.sum)
	return l.bytes() + int64(words)*4
}

// Layered reports whether each hop of a minibatch is drawn as a whole, by Find and Choose.
func (o *Options) Layered(train bool) bool {
	return o.spec(train).Layers() > 0
}

// Find finds the in-neighbours of the frontier for hop h. If other ranks hold in-edges, the
// argument a has their answers, and Remote.Draw has been called; otherwise a is nil.
func (s *Split) Find(mb *Minibatch, l *Layer, h int, train bool, key Key, a *Asking) error {
	f := s.fused
	f.mb, f.kind, f.when = &l.wide, LADIES, moment{}
	return f.contain(func() error {
		l.begin(mb)
		block, err := &l.wide.Blocks[0], error(nil)
		if a != nil {
			if err = f.extend(block, a); err == nil {
				l.copyTotals(mb)
			}
		} else {
			f.number(l.wide.Frontier)
			if err = f.leaveOut(f.options.spec(train), key); err == nil {
				err = f.expand(block, &wholeRows, 0, 0)
			}
			l.copyTotals(mb)
		}
		if err != nil {
			return fmt.Errorf("sample: hop %d: %w", h, err)
		}
		l.weigh(f.topology.WeightSums)
		l.Own = mem.Grow(l.Own, candidateWords*len(l.mass))
		n := 0
		for u, m := range l.mass {
			if m > 0 {
				bits := math.Float64bits(m)
				l.Own[n], l.Own[n+1], l.Own[n+2] = uint32(l.wide.Frontier[u]), uint32(bits),
					uint32(bits>>32)
				n += candidateWords
			}
		}
		l.Own = l.Own[:n]
		return nil
	})
}

// Expect makes room for the vertices that the ranks of a group have found. The argument count has
// their number for each rank. An impossible number is an error that names the rank.
func (l *Layer) Expect(o *Owners, rank int, count []int) error {
	total, vertices := 0, int(o.parts.Vertices())
	for m, n := range count {
		if n < 0 || n > vertices {
			return fmt.Errorf("sample: rank %d has found %d of %d vertices; %s", o.first(rank)+m, n,
				vertices, sameParts)
		}
		total += n
	}
	l.All = mem.Grow(l.All, candidateWords*total)
	return nil
}

// Choose draws hop h from the vertices that all ranks have found. The argument count has, for each
// rank, the number of vertices that it has found. Apart from the way of drawing, Choose does what
// Draw does.
func (s *Split) Choose(mb *Minibatch, l *Layer, count []int, c *Crossing, h int, train bool,
	key Key, edges *uint64) error {
	f, spec := s.fused, s.fused.options.spec(train)
	f.mb = mb
	f.begin(spec, key)
	return f.contain(func() error {
		n := spec.Vertices[h-1]
		if s.owners.Size == 1 {
			l.prefer(n, nil, 1)
		} else if err := s.agree(l, count, n); err != nil {
			return err
		}
		block := &mb.Blocks[len(mb.Blocks)-h]
		l.draw(key.hop(h))
		l.keep(block)
		l.wide.copyFrontier(mb)
		*edges += EdgesDigest(block, mb.Original, h, key)
		s.divide(mb, c, block.NumDst)
		mb.Seeds = mb.Frontier[:len(mb.Seeds)]
		return nil
	})
}

// agree replaces this rank's masses by probabilities of drawing about n of the vertices that all
// ranks have found.
func (s *Split) agree(l *Layer, count []int, n int) error {
	f, found := s.fused, len(l.All)/candidateWords
	l.found, l.at = mem.Grow(l.found, found), mem.Grow(l.at, found)
	for i := range l.found {
		v := l.All[candidateWords*i]
		if int(v) >= len(f.topology.Original) {
			return fmt.Errorf("sample: a rank has found vertex %d: %w (the graph has %d "+
				"vertices); %s", v, graph.ErrVertexRange, len(f.topology.Original), sameParts)
		}
		l.found[i] = graph.VertexID(v)
	}
	l.all = mem.Grow(l.all, min(found, len(f.topology.Original))+1)
	f.vertices.reset()
	total := renumber(f.vertices, l.found, l.at, l.all, 0)
	l.sum = mem.Grow(l.sum, total)
	clear(l.sum)
	for i, at := range l.at {
		l.sum[at] += math.Float64frombits(uint64(l.All[candidateWords*i+1]) |
			uint64(l.All[candidateWords*i+2])<<32)
	}
	probabilities(l.sum, n)
	own := 0
	for _, k := range count[:s.member] {
		own += k
	}
	for u, m := range l.mass {
		if m > 0 {
			l.mass[u] = l.sum[l.at[own]]
			own++
		}
	}
	return nil
}

// Candidates sets found[r][l] to the number of vertices that rank r finds for Blocks[l] in a Layer,
// where ownerOf returns the rank of a vertex and t holds all rows. Edges of weight 0 count too.
// O(in-edges).
func (m *Minibatch) Candidates(t *Topology, ownerOf func(graph.VertexID) int, found [][]int) {
	for l := range m.Blocks {
		seen := make([]map[graph.VertexID]bool, len(found))
		for r := range seen {
			seen[r] = map[graph.VertexID]bool{}
		}
		for _, v := range m.Frontier[:m.Blocks[l].NumDst] {
			of := seen[ownerOf(v)]
			for _, u := range t.Graph.InNeighbours(v) {
				of[u] = true
			}
		}
		for r := range found {
			found[r][l] = len(seen[r])
		}
	}
}
