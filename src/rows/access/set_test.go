package access

import (
	"slices"
	"testing"

	"halognn/src/base/mem/memtest"
	"halognn/src/topology/graph"
	"halognn/src/topology/graph/graphtest"
)

func TestReach(t *testing.T) {
	r := graphtest.Random(t)
	const n = 3000
	g := graphtest.NewGraph(t, n, graphtest.Edges(r, n, n)...)
	m := mustNew(t, g, Options{Workers: 3})
	local := []Range{{100, 140}, {500, 500}, {1000, 1064}}
	var train, inside []graph.VertexID
	for _, l := range local {
		for v := l.First; v < l.End; v++ {
			if inside = append(inside, v); r.IntN(2) == 0 {
				train = append(train, v)
			}
		}
	}
	outDegrees := make([]int, n)
	for _, u := range g.Indices {
		outDegrees[u]++
	}
	fromTrain, fromInside := graphtest.Distances(g, train), graphtest.Distances(g, inside)
	for hops := range 5 {
		degree := memtest.Must[float32](t)(m.Degree(train, hops))
		halo := memtest.Must[float32](t)(m.Halo(local, hops))
		for v := range n {
			wantDegree, wantHalo := float32(0), float32(0)
			if fromTrain[v] <= hops {
				wantDegree = float32(outDegrees[v])
			}
			if d := fromInside[v]; d > 0 && d <= hops {
				wantHalo = 1
			}
			if degree[v] != wantDegree || halo[v] != wantHalo {
				t.Fatalf("%d hops: vertex %d has degree score %g and halo score %g, want %g and %g",
					hops, v, degree[v], halo[v], wantDegree, wantHalo)
			}
		}
	}
}

// A vertex that can be reached at one hop but not at two stays reachable: published code replaced
// the mask at every hop.
func TestReachabilityIsMerged(t *testing.T) {
	// 0 samples 1 and 2, 2 samples 3
	m := mustNew(t, graphtest.NewGraph(t, 5, [2]int{1, 0}, [2]int{2, 0}, [2]int{3, 2}), Options{})
	start := NewSet(5)
	defer start.Free()
	start.Add(0)
	for hops, want := range [][]graph.VertexID{graphtest.IDs(0),
		graphtest.IDs(0, 1, 2), graphtest.IDs(0, 1, 2, 3),
		graphtest.IDs(0, 1, 2, 3)} {
		reached, err := m.Within(start, hops)
		if err != nil {
			t.Fatal(err)
		}
		for v := range graph.VertexID(5) {
			if reached.Has(v) != slices.Contains(want, v) {
				t.Errorf("%d hops: vertex %d reached is %t", hops, v, reached.Has(v))
			}
		}
		if reached.Len() != len(want) {
			t.Errorf("%d hops: %d vertices, want %d", hops, reached.Len(), len(want))
		}
		reached.Free()
	}
}

// The policy degree caches the vertices of high degree, not those of low degree.
func TestHigherDegreeRanksFirst(t *testing.T) {
	// Vertex 0 trains; 1, 2 and 3 are remote, sampled by 1, 3 and 2 vertices; 4 has the highest
	// degree but is out of reach.
	m := mustNew(t, graphtest.NewGraph(t, 9, [2]int{1, 0}, [2]int{2, 0}, [2]int{3, 0}, [2]int{2, 5},
		[2]int{2, 6}, [2]int{3, 5},
		[2]int{4, 5}, [2]int{4, 6}, [2]int{4, 7}, [2]int{4, 8}), Options{})
	score := memtest.Must[float32](t)(m.Degree(graphtest.IDs(0), 2))
	for capacity, want := range [][]graph.VertexID{{}, graphtest.IDs(2),
		graphtest.IDs(2, 3), graphtest.IDs(1, 2, 3),
		graphtest.IDs(1, 2, 3)} {
		if got := memtest.Must[graph.VertexID](t)(m.Top(score, []Range{{0, 1}},
			capacity)); !slices.Equal(got, want) {
			t.Errorf("capacity %d: %d, want %d", capacity, got, want)
		}
	}
}
