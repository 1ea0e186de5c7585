package access

import (
	"fmt"
	"math"

	"halognn/src/base/mem"
	"halognn/src/topology/graph"
)

// The weighted reverse PageRank of the policy wpr, as SALIENT++ section 3.2 runs it.
const (
	PageRankIterations = 5
	PageRankDamping    = 0.85
)

// PageRank scores vertices by the weighted reverse PageRank of the policy wpr. Walkers start at the
// training vertices. They step from a vertex to one of its in-neighbours (against the edges, as
// sampling does), and restart with probability 1-d.
//
//	r_0(v)     = 1/T for v in train, else 0
//	r_{i+1}(u) = (1-d) r_0(u) + d * sum over v that may sample u of r_i(v) / indegree(v)
//	             d = 0.85, i < 5
//
// The result is r_5 [N]. "Weighted" means that walkers start at the training vertices instead of at
// any vertex. A walker at a vertex without in-neighbours is lost. Unlike VIP, PageRank ignores
// fanouts and the batch size.
//
// It takes the time of 5 hops of VIP and 8 N + N/8 bytes, of which the result takes 4 N. Source:
// policy "wPR" of SALIENT++, section 3.2, after Min et al., Large Graph Convolutional Network
// Training with GPU-Oriented Data Communication Architecture (2021).
func (m *Graph) PageRank(train []graph.VertexID) ([]float32, error) {
	share := 1 / float64(max(len(train), 1))
	r, err := m.walk(train, PageRankIterations, share, share*(1-PageRankDamping),
		func(v int) float64 {
			return PageRankDamping / float64(max(m.in.InDegree(graph.VertexID(v)), 1))
		})
	if err != nil {
		return nil, fmt.Errorf("access: PageRank: %w", err)
	}
	return r, nil
}

// Paths counts, for each vertex, the paths of at most hops edges from the training vertices to it,
// in the direction of sampling. A training vertex has one path of length 0, and a path may pass a
// vertex twice. The result [N] is rounded to float32 at every hop, and saturates at the largest
// float32.
//
// It takes the time of VIP with the same number of hops, and 8 N + N/8 bytes, of which the result
// takes 4 N. Source: policy "#paths" of SALIENT++, section 3.2.
func (m *Graph) Paths(train []graph.VertexID, hops int) ([]float32, error) {
	paths, err := m.walk(train, hops, 1, 1, func(int) float64 { return 1 })
	if err != nil {
		return nil, fmt.Errorf("access: paths: %w", err)
	}
	return paths, nil
}

// walk returns x_i [N] for i = steps, where
//
//	x_0 = start at the training vertices, else 0
//	x_{i+1}(u) = (restart at the training vertices, else 0) +
//	             sum over v that may sample u of weight(v) x_i(v)
func (m *Graph) walk(train []graph.VertexID, steps int, start, restart float64,
	weight func(v int) float64) ([]float32, error) {
	if err := checkTrain(m.NumVertices(), train); err != nil {
		return nil, err
	}
	if steps < 1 {
		return nil, fmt.Errorf("%d hops; at least 1 is needed", steps)
	}
	n := m.in.NumVertices()
	w, next := mem.Make[float32](n), mem.Make[float32](n) // w is weight times x
	for _, v := range train {
		w[v] = float32(start * weight(int(v)))
	}
	for i := range steps {
		if i == steps-1 {
			weight = func(int) float64 { return 1 }
		}
		passed, free := m.columns.spread(w)
		err := m.gather(passed, func(first int, sums []float64) {
			for i, sum := range sums {
				next[first+i] = float32(min(weight(first+i)*sum, math.MaxFloat32))
			}
		})
		free()
		if err != nil {
			mem.Free(w)
			mem.Free(next)
			return nil, fmt.Errorf("hop %d: %w", i+1, err)
		}
		for _, v := range train {
			next[v] = float32(min(float64(next[v])+weight(int(v))*restart, math.MaxFloat32))
		}
		w, next = next, w
	}
	mem.Free(next)
	return w, nil
}
