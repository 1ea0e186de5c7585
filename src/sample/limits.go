package sample

// Limits are what no minibatch exceeds.
type Limits struct {
	Vertices []int // [hops+1] of the frontier: the seeds, and after each hop
	Edges    []int // [hops] of each hop, that of the seeds first
}

// Limits returns those of a graph without relations of so many vertices and edges. ok is false for
// a kind that may draw more neighbours of a vertex than its fanout, or says nothing of one vertex.
func (s Spec) Limits(seeds, vertices int, edges int64) (l Limits, ok bool) {
	if s.kind() != Neighbour && s.kind() != Labor {
		return l, false
	}
	frontier := min(seeds, vertices)
	l.Vertices = append(l.Vertices, frontier)
	for _, f := range s.Fanouts {
		most := edges // each edge has one destination
		if f != All {
			most = min(most, int64(frontier)*int64(f))
		}
		frontier = int(min(int64(vertices), int64(frontier)+most))
		l.Vertices, l.Edges = append(l.Vertices, frontier), append(l.Edges, int(most))
	}
	return l, true
}

// Growth returns by how much, at most, the numbers of a minibatch of l exceed those of m: of the
// destinations and the sources of the input layer, and of any number. ok is false if m has none of
// what others may have.
func (l *Limits) Growth(m *Minibatch) (destinations, sources, any float64, ok bool) {
	if len(m.Seeds) == 0 || len(m.Blocks) != len(l.Edges) {
		return 0, 0, 0, false
	}
	any = float64(l.Vertices[0]) / float64(len(m.Seeds))
	destinations, sources = any, any
	for h := range l.Edges {
		b := &m.Blocks[len(m.Blocks)-1-h]
		if b.NumEdges() == 0 && l.Edges[h] > 0 {
			return 0, 0, 0, false
		}
		destinations = float64(l.Vertices[h]) / float64(b.NumDst)
		sources = float64(l.Vertices[h+1]) / float64(b.NumSrc)
		any = max(any, destinations, sources, float64(l.Edges[h])/float64(max(1, b.NumEdges())))
	}
	return destinations, sources, any, true
}
