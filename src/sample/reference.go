package sample

import (
	"halognn/src/graph"
	"halognn/src/mem"
)

// Reference samples a minibatch with plain maps and loops: the Sampler of the Spec must give the
// same bits, with Options.Weights if the topology has weights. t holds all rows; seeds are distinct
// vertices of it. The caller frees the result.
func Reference(t *Topology, spec Spec, seeds []graph.VertexID, key Key) *Minibatch {
	layers := spec.Hops()
	m := &Minibatch{Blocks: make([]graph.Block, layers),
		Transposes: make([]graph.BlockTranspose, layers), Estimates: spec.Estimates()}
	local := make(map[graph.VertexID]int32)
	var frontier []graph.VertexID
	number := func(v graph.VertexID) int32 {
		if _, seen := local[v]; !seen {
			local[v] = int32(len(frontier))
			frontier = append(frontier, v)
		}
		return local[v]
	}
	for _, v := range seeds {
		number(v)
	}
	for h := range layers {
		destinations := frontier
		indptr, indices, weights := []int64{0}, []int32(nil), []float32(nil)
		for _, v := range destinations {
			drawn, inverse := referenceDraw(t, v, spec, h, key.hop(h+1))
			for _, e := range drawn {
				indices = append(indices, number(t.Graph.Indices[e]))
				switch {
				case t.Weights != nil:
					weights = append(weights, t.Weights[e]*inverse)
				case m.Estimates:
					weights = append(weights, inverse)
				}
			}
			indptr = append(indptr, int64(len(indices)))
		}
		l := layers - 1 - h
		m.Blocks[l] = graph.Block{NumSrc: len(frontier), NumDst: len(destinations),
			Indptr: keep(indptr), Indices: keep(indices), Weights: keep(weights)}
		if l > 0 {
			m.Blocks[l].Transpose(&m.Transposes[l])
		}
	}
	original := make([]int32, len(frontier))
	for i, v := range frontier {
		original[i] = t.Original[v]
	}
	m.Frontier, m.Original = keep(frontier), keep(original)
	m.Seeds = m.Frontier[:len(seeds)]
	return m
}

// referenceDraw returns the edges that v draws, by their positions in Indices: all in stored order,
// or Floyd's choice in the order drawn, of as many as the fanout says or a binomial draw; and 1/q.
func referenceDraw(t *Topology, v graph.VertexID, spec Spec, h int, hop uint64) (drawn []int64,
	inverse float32) {
	begin, end := t.Graph.Indptr[v-t.First], t.Graph.Indptr[v-t.First+1]
	fanout, degree := int64(spec.Fanouts[h]), end-begin
	count := min(fanout, degree)
	if fanout == All {
		count = degree
	}
	inverse = 1
	if spec.kind() == Poisson && count < degree {
		s := countStream(hop, t.Original[v])
		count = s.binomial(degree, float64(fanout)/float64(degree))
		inverse = float32(float64(degree) / float64(fanout))
	}
	if count == degree {
		for e := begin; e < end; e++ {
			drawn = append(drawn, e)
		}
		return drawn, inverse
	}
	s := vertexStream(hop, t.Original[v])
	taken := make(map[uint64]bool)
	for j := uint64(degree - count); j < uint64(degree); j++ {
		pick := s.below(j + 1)
		if taken[pick] {
			pick = j
		}
		taken[pick] = true
		drawn = append(drawn, begin+int64(pick))
	}
	return drawn, inverse
}

// keep moves s off the heap, where a Minibatch has its arrays.
func keep[T mem.Number](s []T) []T {
	out := mem.Make[T](len(s))
	copy(out, s)
	return out
}
