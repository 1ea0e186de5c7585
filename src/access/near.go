package access

import (
	"fmt"

	"halognn/src/graph"
	"halognn/src/mem"
	"halognn/src/sample"
)

// Near returns the vertices that locality-aware sampling makes likelier in each hop, seed hop
// first: in the last, whose sources are the input frontier, those that are held; in the hop l
// before it the most vertices, at most so many, with the most paths of l edges into them. Ties go
// to the higher out-degree, then to the lower id. Paths are counted in float32.
//
// Time O(hops (M+N)), memory 8 N bytes and the result, hops N/8 bytes outside the Go heap.
// Source: data placement (Song and Jiang, ICS '22), section 4.
func (m *Graph) Near(held Set, hops, most int) (sample.Near, error) {
	n := m.in.NumVertices()
	near := make(sample.Near, hops)
	paths, next := mem.Make[float32](n), mem.Make[float32](n)
	defer func() { mem.Free(paths); mem.Free(next) }()
	near[hops-1] = NewSet(n)
	copy(near[hops-1], held)
	for v := range paths {
		if held.Has(graph.VertexID(v)) {
			paths[v] = 1
		}
	}
	for h := hops - 2; h >= 0; h-- {
		err := m.chunks(func(_, lo, hi int) {
			for v := lo; v < hi; v++ {
				sum := float32(0)
				for _, u := range m.in.InNeighbours(graph.VertexID(v)) {
					sum += paths[u]
				}
				next[v] = sum
			}
		})
		var top []graph.VertexID
		if err == nil {
			top, err = m.Top(next, nil, most)
		}
		if err != nil {
			near.Free()
			return nil, fmt.Errorf("access: near vertices: %w", err)
		}
		near[h] = NewSet(n)
		Set(near[h]).AddAll(top)
		mem.Free(top)
		paths, next = next, paths
	}
	return near, nil
}
