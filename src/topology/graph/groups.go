package graph

import (
	"math/bits"

	"halognn/src/base/mem"
)

// Grouper sorts the in-edges of each destination by the part that holds the edge's source, the
// order in which an input layer sums rows. The zero value is ready for use; the arrays are reused.
type Grouper struct {
	// [P] used by segment(): first the number of edges from each part, then the position of the
	// part's next edge; all zero between calls
	at      []int32
	present []uint64 // [P/64] bit set for each part with edges in the segment; zero between calls
	indices []int32  // a copy of the segment
	weights []float32
}

// ByPart sorts each segment indices[indptr[d]:indptr[d+1]] by part[s], the part of each source s.
// Unless weights is nil, it sorts weights in the same way. The argument `parts` is the number of
// parts. Edges from the same part stay in order. Where another part begins within a segment, the
// first index s of that part is inverted to ^s, which marks a new group (package compute,
// Segments). O(E + D*P/64), and O(1) for a single part.
func (g *Grouper) ByPart(indptr []int64, indices []int32, weights []float32, part []uint16,
	parts int) {
	if parts < 2 {
		return
	}
	g.at = mem.Grow(g.at[:0], parts)
	g.present = mem.Grow(g.present[:0], (parts+63)/64)
	clear(g.at)
	clear(g.present)
	for d := range len(indptr) - 1 {
		lo, hi := indptr[d], indptr[d+1]
		var w []float32
		if weights != nil {
			w = weights[lo:hi]
		}
		g.segment(indices[lo:hi], w, part)
	}
}

func (g *Grouper) segment(indices []int32, weights []float32, part []uint16) {
	if len(indices) < 2 {
		return
	}
	last, mixed := part[indices[0]], false
	for _, s := range indices[1:] {
		p := part[s]
		mixed = mixed || p < last
		last = p
	}
	// the edges are in order already, as is usual if the destination's part holds most of its
	// neighbours
	if !mixed {
		for k := len(indices) - 1; k > 0; k-- {
			if part[indices[k]] != part[indices[k-1]] {
				indices[k] = ^indices[k]
			}
		}
		return
	}
	for _, s := range indices {
		p := part[s]
		g.at[p]++
		g.present[p/64] |= 1 << (p % 64)
	}
	next := int32(0)
	for i, word := range g.present {
		for ; word != 0; word &= word - 1 {
			p := 64*i + bits.TrailingZeros64(word)
			next, g.at[p] = next+g.at[p], next
		}
	}
	g.indices = mem.Grow(g.indices[:0], len(indices))
	copy(g.indices, indices)
	if weights != nil {
		g.weights = mem.Grow(g.weights[:0], len(weights))
		copy(g.weights, weights)
	}
	for k, s := range g.indices {
		at := &g.at[part[s]]
		indices[*at] = s
		if weights != nil {
			weights[*at] = g.weights[k]
		}
		*at++
	}
	for i, word := range g.present {
		// g.at[p] is now where the edges from p end and the edges from the next part begin
		for ; word != 0; word &= word - 1 {
			p := 64*i + bits.TrailingZeros64(word)
			if end := g.at[p]; int(end) < len(indices) {
				indices[end] = ^indices[end]
			}
			g.at[p] = 0
		}
		g.present[i] = 0
	}
}

// Bytes returns the memory of the arrays.
func (g *Grouper) Bytes() int64 {
	return int64(cap(g.present))*8 + int64(cap(g.at)+cap(g.indices)+cap(g.weights))*4
}

// Free frees the arrays.
func (g *Grouper) Free() {
	mem.Free(g.at)
	mem.Free(g.present)
	mem.Free(g.indices)
	mem.Free(g.weights)
	*g = Grouper{}
}
