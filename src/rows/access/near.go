package access

import (
	"fmt"

	"halognn/src/base/mem"
	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
)

// Near returns, for each hop (seed hop first), the vertices that spec shall draw with a higher
// probability than others. For the last hop, whose sources are the input frontier, these are the
// vertices in held. For the hop that comes l hops before the last one, they are the vertices with
// the most paths of l edges from held vertices. For such a hop there are at most `limit` vertices.
// Ties go to the higher out-degree, then to the lower id. Paths are counted in float32.
//
// Time is O(hops (M+N)). It takes 8 N bytes, and for the result, which lies outside the Go heap,
// N/8 bytes for each hop, and M/8 bytes more if the kind of sampling is Poisson. Source: data
// placement (Song and Jiang, ICS '22), section 4.
func (m *Graph) Near(held Set, spec sample.Spec, limit int) (sample.Near, error) {
	n, hops := m.in.NumVertices(), spec.Hops()
	near := sample.NewNear(spec, n, len(m.in.Indices))
	fail := func(err error) (sample.Near, error) {
		near.Free()
		return sample.Near{}, fmt.Errorf("access: near vertices: %w", err)
	}
	paths, next := mem.Make[float32](n), mem.Make[float32](n)
	defer func() { mem.Free(paths); mem.Free(next) }()
	copy(near.Vertices[hops-1], held)
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
			top, err = m.Top(next, nil, limit)
		}
		if err != nil {
			return fail(err)
		}
		Set(near.Vertices[h]).AddAll(top)
		mem.Free(top)
		paths, next = next, paths
	}
	if near.Edges == nil {
		return near, nil
	}
	// Each goroutine marks the bits of its chunk's edges. If a word of 64 bits spans two chunks,
	// the goroutine whose chunk has the word's first edge marks all of it.
	err := m.chunks(func(_, lo, hi int) {
		first, end := m.in.Indptr[lo], m.in.Indptr[hi]
		near.MarkEdges(m.in.Indices, int((first+63)/64), int((end+63)/64))
	})
	if err != nil {
		return fail(err)
	}
	return near, nil
}
