package access

import (
	"fmt"
	"math/bits"
	"slices"

	"halognn/src/base/mem"
	"halognn/src/topology/graph"
)

// Range is the vertices First to End-1, for example of a part or of the consecutive parts of a
// rank.
type Range struct{ First, End graph.VertexID }

// Has reports whether v is in the range.
func (r Range) Has(v graph.VertexID) bool { return v >= r.First && v < r.End }

// Among reports whether one of the ranges has v.
func Among(ranges []Range, v graph.VertexID) bool {
	return slices.ContainsFunc(ranges, func(r Range) bool { return r.Has(v) })
}

// Set is a set of vertices, one bit each.
type Set []uint64

// NewSet returns an empty set for a graph of n vertices. It takes n/8 bytes outside the Go heap.
func NewSet(n int) Set { return mem.Make[uint64]((n + wordBits - 1) / wordBits) }

// Free frees the memory of the set.
func (s Set) Free() { mem.Free(s) }

// Add puts v into the set.
func (s Set) Add(v graph.VertexID) { s[v/wordBits] |= 1 << (v % wordBits) }

// AddAll puts vertices into the set.
func (s Set) AddAll(vertices []graph.VertexID) {
	for _, v := range vertices {
		s.Add(v)
	}
}

// AddRanges puts the vertices of ranges into the set.
func (s Set) AddRanges(ranges []Range) {
	for _, r := range ranges {
		for v := r.First; v < r.End; v++ {
			s.Add(v)
		}
	}
}

// Has reports whether v is in the set.
func (s Set) Has(v graph.VertexID) bool { return s[v/wordBits]>>(v%wordBits)&1 != 0 }

// Mask sets the scores of vertices outside the set to 0. A nil set has all vertices.
func (s Set) Mask(score []float32) {
	for v := range score {
		if s != nil && !s.Has(graph.VertexID(v)) {
			score[v] = 0
		}
	}
}

// Len counts the vertices of the set. It takes O(N/64) time.
func (s Set) Len() int {
	n := 0
	for _, word := range s {
		n += bits.OnesCount64(word)
	}
	return n
}

// remoteRanges calls yield for the ranges outside the local ranges, which ascend and do not
// overlap.
func remoteRanges(n int, local []Range, yield func(lo, hi int)) {
	lo := 0
	for _, r := range local {
		yield(lo, int(r.First))
		lo = int(r.End)
	}
	yield(lo, n)
}

// checkLocal returns an error unless the ranges ascend, do not overlap and lie within n vertices.
func checkLocal(n int, local []Range) error {
	lo := graph.VertexID(0)
	for _, r := range local {
		if r.First < lo || r.End < r.First || int(r.End) > n {
			return fmt.Errorf("local vertices %d to %d: %w (ranges must ascend, not overlap, and "+
				"end at %d)", r.First, r.End-1, graph.ErrVertexRange, n)
		}
		lo = r.End
	}
	return nil
}

// Within returns the vertices that sampling reaches from the vertices in start in at most the given
// number of hops. The result includes start itself. With 0 hops it returns a copy of start.
//
// Time is at most O(hops (M+N)), divided among the workers. It looks at the edges of a vertex only
// up to the first neighbour that may sample the vertex, so it often reads fewer edges. It takes N/4
// bytes, of which the result takes N/8.
func (m *Graph) Within(start Set, hops int) (Set, error) {
	reached, next := NewSet(m.in.NumVertices()), NewSet(m.in.NumVertices())
	defer func() { next.Free() }()
	copy(reached, start)
	sampling := func(v graph.VertexID) bool { return reached.Has(m.columns.owner(v)) }
	for h := range hops {
		err := m.chunks(func(_, lo, hi int) {
			for u := lo; u < hi; u++ {
				if reached.Has(graph.VertexID(u)) ||
					slices.ContainsFunc(m.out.InNeighbours(graph.VertexID(u)), sampling) {
					next.Add(graph.VertexID(u))
				}
			}
		})
		if err != nil {
			reached.Free()
			return nil, fmt.Errorf("access: reach: hop %d: %w", h+1, err)
		}
		// After the swap, next holds a subset of reached. The next hop only adds bits to it, so
		// none has to be cleared.
		reached, next = next, reached
	}
	return reached, nil
}

// Degree scores vertices by their out-degree, the number of vertices that may sample them. Vertices
// that are more than the given number of hops from all training vertices score 0. The result is
// [N]. On a symmetric graph in-degree and out-degree are the same.
//
// It takes the time of Within, and 4 N + N/4 bytes, of which the result takes 4 N. Source: policy
// "deg." of SALIENT++, section 3.2, after PaGraph (Lin et al., SoCC 2020).
func (m *Graph) Degree(train []graph.VertexID, hops int) ([]float32, error) {
	if err := checkTrain(m.NumVertices(), train); err != nil {
		return nil, fmt.Errorf("access: degree: %w", err)
	}
	start := NewSet(m.in.NumVertices())
	defer start.Free()
	start.AddAll(train)
	reached, err := m.Within(start, hops)
	if err != nil {
		return nil, err
	}
	defer reached.Free()
	return m.each(func(u graph.VertexID) float32 {
		if reached.Has(u) {
			return float32(m.degree(u))
		}
		return 0
	})
}

// Halo returns scores [N]. A vertex scores 1 if it lies outside the local ranges and sampling from
// inside reaches it in at most the given number of hops. All other vertices score 0. With one hop
// it is the policy halo1.
//
// It takes the time of Within, and 4 N + N/4 bytes, of which the result takes 4 N. Source: policy
// "1-hop" of SALIENT++, section 3.2.
func (m *Graph) Halo(local []Range, hops int) ([]float32, error) {
	n := m.in.NumVertices()
	if err := checkLocal(n, local); err != nil {
		return nil, fmt.Errorf("access: halo: %w", err)
	}
	inside := NewSet(n)
	defer inside.Free()
	inside.AddRanges(local)
	reached, err := m.Within(inside, hops)
	if err != nil {
		return nil, err
	}
	defer reached.Free()
	return m.each(func(u graph.VertexID) float32 {
		if reached.Has(u) && !inside.Has(u) {
			return 1
		}
		return 0
	})
}

// each returns scores [N]: the result of f for every vertex.
func (m *Graph) each(f func(u graph.VertexID) float32) ([]float32, error) {
	score := mem.Make[float32](m.in.NumVertices())
	err := m.chunks(func(_, lo, hi int) {
		for u := lo; u < hi; u++ {
			score[u] = f(graph.VertexID(u))
		}
	})
	if err != nil {
		mem.Free(score)
		return nil, fmt.Errorf("access: %w", err)
	}
	return score, nil
}
