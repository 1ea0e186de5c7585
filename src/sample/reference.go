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
		indptr, indices := []int64{0}, []int32(nil)
		for _, v := range destinations {
			for _, u := range referenceDraw(t, v, fanout, key.hop(h+1)) {
				indices = append(indices, number(u))
			}
			indptr = append(indptr, int64(len(indices)))
		}
		l := layers - 1 - h
		m.Blocks[l] = graph.Block{NumSrc: len(frontier), NumDst: len(destinations),
			Indptr: keep(indptr), Indices: keep(indices)}
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

// referenceDraw returns the in-neighbours that v draws: all in stored order, or Floyd's choice in
// the order drawn.
func referenceDraw(t *Topology, v graph.VertexID, fanout int, hop uint64) []graph.VertexID {
	row := t.Graph.InNeighbours(v - t.First)
	if fanout == All || len(row) <= fanout {
		return row
	}
	s := vertexStream(hop, t.Original[v])
	taken := make(map[uint64]bool)
	var drawn []graph.VertexID
	for j := uint64(len(row) - fanout); j < uint64(len(row)); j++ {
		pick := s.below(j + 1)
		if taken[pick] {
			pick = j
		}
		taken[pick] = true
		drawn = append(drawn, row[pick])
	}
	return drawn
}

// keep moves s off the heap, where a Minibatch has its arrays.
func keep[T mem.Number](s []T) []T {
	out := mem.Make[T](len(s))
	copy(out, s)
	return out
}
