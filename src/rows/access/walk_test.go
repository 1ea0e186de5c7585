package access

import (
	"math"
	"testing"

	"halognn/src/base/mem/memtest"
	"halognn/src/topology/graph"
	"halognn/src/topology/graph/graphtest"
)

func TestPageRank(t *testing.T) {
	r := graphtest.Random(t)
	const n = 200
	g := graphtest.NewGraph(t, n, graphtest.Edges(r, n, 800)...)
	train := graphtest.IDs(3, 5, 8)
	x := make([]float64, n)
	for _, v := range train {
		x[v] = 1. / 3
	}
	for range PageRankIterations {
		next := make([]float64, n)
		for v := range n {
			for _, u := range g.InNeighbours(graph.VertexID(v)) {
				next[u] += PageRankDamping * x[v] / float64(g.InDegree(graph.VertexID(v)))
			}
		}
		for _, v := range train {
			next[v] += (1 - PageRankDamping) / 3
		}
		x = next
	}
	equal(t, "PageRank", memtest.Must[float32](t)(mustNew(t, g, Options{}).PageRank(train)), x)
}

// Paths are counted one by one.
func TestPaths(t *testing.T) {
	r := graphtest.Random(t)
	const n = 40
	g := graphtest.NewGraph(t, n, graphtest.Edges(r, n, 100)...)
	train := graphtest.IDs(0, 4, 7)
	for hops := 1; hops <= 4; hops++ {
		want := make([]float64, n)
		var follow func(v graph.VertexID, left int)
		follow = func(v graph.VertexID, left int) {
			want[v]++
			if left > 0 {
				for _, u := range g.InNeighbours(v) {
					follow(u, left-1)
				}
			}
		}
		for _, v := range train {
			follow(v, hops)
		}
		equal(t, "paths", memtest.Must[float32](t)(mustNew(t, g, Options{}).Paths(train, hops)),
			want)
	}
}

// Counts saturate at the largest float32 instead of infinity, so that vertices keep different
// ranks.
func TestPathsDoNotOverflow(t *testing.T) {
	var edges [][2]int
	for range 1000 {
		edges = append(edges, [2]int{0, 0}, [2]int{1, 0})
	}
	m := mustNew(t, graphtest.NewGraph(t, 2, edges...), Options{})
	paths := memtest.Must[float32](t)(m.Paths(graphtest.IDs(0), 20))
	if paths[0] != math.MaxFloat32 || paths[1] != math.MaxFloat32 {
		t.Errorf("%g, want the largest float32", paths)
	}
}
