package sample

import (
	"halognn/src/graph"
	"halognn/src/mem"
)

// Reference samples a minibatch of kind Neighbour with plain maps and loops: Fused must give the
// same bits. t holds all rows; seeds are distinct vertices of it. The caller frees the
// result.
func Reference(t *Topology, fanouts []int, seeds []graph.VertexID, key Key) *Minibatch {
	layers := len(fanouts)
	m := &Minibatch{Blocks: make([]graph.Block, layers),
		Transposes: make([]graph.BlockTranspose, layers)}
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
	for h, fanout := range fanouts {
		destinations := frontier
		indptr, indices, weights := []int64{0}, []int32(nil), []float32(nil)
		for _, v := range destinations {
			for _, e := range referenceDraw(t, v, fanout, key.hop(h+1)) {
				indices = append(indices, number(t.Graph.Indices[e]))
				if t.Weights != nil {
					weights = append(weights, t.Weights[e])
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
// or Floyd's choice in the order drawn.
func referenceDraw(t *Topology, v graph.VertexID, fanout int, hop uint64) (drawn []int64) {
	begin, end := t.Graph.Indptr[v-t.First], t.Graph.Indptr[v-t.First+1]
	if fanout == All || end-begin <= int64(fanout) {
		for e := begin; e < end; e++ {
			drawn = append(drawn, e)
		}
		return drawn
	}
	s := vertexStream(hop, t.Original[v])
	taken := make(map[uint64]bool)
	degree := uint64(end - begin)
	for j := degree - uint64(fanout); j < degree; j++ {
		pick := s.below(j + 1)
		if taken[pick] {
			pick = j
		}
		taken[pick] = true
		drawn = append(drawn, begin+int64(pick))
	}
	return drawn
}

// keep moves s off the heap, where a Minibatch has its arrays.
func keep[T mem.Number](s []T) []T {
	out := mem.Make[T](len(s))
	copy(out, s)
	return out
}
