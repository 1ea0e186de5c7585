package sample

// Limits are upper bounds on the sizes of minibatches.
type Limits struct {
	Vertices []int // [hops+1] number of seeds, then of frontier vertices after each hop
	Edges    []int // [hops] number of edges of each hop, seed hop first
}

// Limits returns the limits of minibatches in a graph without relations that has the given numbers
// of vertices and edges. The result ok is false for kind Poisson, which may draw more neighbours of
// a vertex than the fanout says, and for kind LADIES, whose options do not limit the neighbours of
// a single vertex.
func (s Spec) Limits(seeds, vertices int, edges int64) (l Limits, ok bool) {
	if s.kind() != Neighbour && s.kind() != Labor {
		return l, false
	}
	frontier := min(seeds, vertices)
	l.Vertices = append(l.Vertices, frontier)
	for _, f := range s.Fanouts {
		most := edges // each edge has one destination
		if f != All && int64(f) <= edges/int64(max(1, frontier)) {
			most = int64(frontier) * int64(f)
		}
		frontier += int(min(int64(vertices-frontier), most))
		l.Vertices, l.Edges = append(l.Vertices, frontier), append(l.Edges, int(most))
	}
	return l, true
}

// Growth has the factors by which the sizes of one block may grow.
type Growth struct{ Destinations, Sources, Edges float64 }

// Most returns the largest of the factors.
func (g Growth) Most() float64 { return max(g.Destinations, g.Sources, g.Edges) }

// Growth returns the factors by which the blocks and the seeds of m may grow to reach the limits.
// The result ok is false if m has no vertices, or no edges where other minibatches may have some.
func (l *Limits) Growth(m *Minibatch) (blocks []Growth, seeds float64, ok bool) {
	if len(m.Seeds) == 0 || len(m.Blocks) != len(l.Edges) {
		return nil, 0, false
	}
	for at := range m.Blocks {
		b, h := &m.Blocks[at], len(m.Blocks)-1-at
		if b.NumEdges() == 0 && l.Edges[h] > 0 {
			return nil, 0, false
		}
		blocks = append(blocks, Growth{float64(l.Vertices[h]) / float64(b.NumDst),
			float64(l.Vertices[h+1]) / float64(b.NumSrc),
			float64(l.Edges[h]) / float64(max(1, b.NumEdges()))})
	}
	return blocks, float64(l.Vertices[0]) / float64(len(m.Seeds)), true
}
