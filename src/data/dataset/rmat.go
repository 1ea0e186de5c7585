package dataset

import (
	"math/bits"

	"halognn/src/base/mem"
	"halognn/src/topology/graph"
)

// The probabilities of the four quadrants of Graph500, in percent, as running sums. A random number
// in [0,100) is compared with them. If it is below rmatA, the next bit of both ends of the edge is
// 0. Otherwise, if it is below rmatAB, only the bit of the first end is 0; if it is below rmatABC,
// only the bit of the second end is 0. In all other cases both bits are 1.
const (
	rmatA   = 57
	rmatAB  = 57 + 19
	rmatABC = 57 + 19 + 19
)

// drawRMAT draws Vertices*Degree/2 edges of a recursive matrix (Chakrabarti, Zhan, Faloutsos, SDM
// 2004): each draw among the four quadrants decides one bit of the vertex number of each end. An
// edge with an end beyond the last vertex is drawn again. Vertices are renumbered at random, so
// that numbers do not depend on degrees. Only edges with an end in the span are kept.
func (o GenerateOptions) drawRMAT(b *graph.Builder, of span) {
	levels := bits.Len(uint(o.Vertices - 1))
	id := shuffledIDs(o.Vertices, o.Seed)
	defer mem.Free(id)
	edges := int(float64(o.Vertices) * o.Degree / 2)
	own := make([]graph.Builder, workers())
	mem.Pieces(edges, 2048, func(worker, lo, hi int) {
		for e := lo; e < hi; e++ {
			s := newStream(o.Seed, keyEdge, uint64(e))
			u, v := o.Vertices, o.Vertices
			for u >= o.Vertices || v >= o.Vertices {
				u, v = rmatEdge(&s, levels)
			}
			if of.has(id[u]) || of.has(id[v]) {
				own[worker].Add(id[u], id[v])
			}
		}
	})
	for w := range own {
		b.Merge(&own[w])
	}
}

func rmatEdge(s *stream, levels int) (u, v int) {
	var x uint64
	for level := range levels {
		if level%2 == 0 {
			x = s.next()
		}
		percent := (x & 0xffffffff) * 100 >> 32
		x >>= 32
		u, v = u<<1, v<<1
		switch {
		case percent < rmatA:
		case percent < rmatAB:
			v++
		case percent < rmatABC:
			u++
		default:
			u, v = u+1, v+1
		}
	}
	return u, v
}

// shuffledIDs returns the numbers 0..n-1 in random order, outside the heap.
func shuffledIDs(n int, seed uint64) []graph.VertexID {
	id := mem.Make[graph.VertexID](n)
	for v := range id {
		id[v] = graph.VertexID(v)
	}
	s := newStream(seed, keyID)
	shuffle(&s, id)
	return id
}
