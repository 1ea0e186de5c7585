package access

import (
	"math/rand/v2"
	"slices"
	"testing"

	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
)

// The example of the paper (section 4): vertices 1 to 4 are held, and of the others those with the
// most edges into them are near, three at most.
func TestNearOfThePaper(t *testing.T) {
	// Figure 2a, as far as its path counts [1, 3, 4, 3, 2, 1] say: a symmetric graph.
	neighbours := [][]graph.VertexID{{3}, {2, 3, 4}, {1, 3, 4, 5, 0}, {0, 1, 2}, {1, 2}, {2}}
	held := NewSet(6)
	defer held.Free()
	for v := graph.VertexID(1); v <= 4; v++ {
		held.Add(v)
	}
	m := nearGraph(t, neighbours)
	defer m.Free()
	near, err := m.Near(held, sample.Spec{Kind: sample.LADIES, Vertices: []int{1, 1}}, 3)
	if err != nil {
		t.Fatal(err)
	}
	defer near.Free()
	if got := members(Set(near.Vertices[1]), 6); !slices.Equal(got, []graph.VertexID{1, 2, 3, 4}) {
		t.Errorf("of the input hop %v are near", got)
	}
	if got := members(Set(near.Vertices[0]), 6); !slices.Equal(got, []graph.VertexID{1, 2, 3}) {
		t.Errorf("of the hop before %v are near", got)
	}
}

// nearGraph is a graph of these in-neighbours.
func nearGraph(t *testing.T, neighbours [][]graph.VertexID) *Graph {
	t.Helper()
	g := &graph.CSC{Indptr: []int64{0}}
	for _, row := range neighbours {
		g.Indices = append(g.Indices, row...)
		g.Indptr = append(g.Indptr, int64(len(g.Indices)))
	}
	m, err := New(g, Options{Workers: 2})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func members(s Set, n int) (all []graph.VertexID) {
	for v := range n {
		if s.Has(graph.VertexID(v)) {
			all = append(all, graph.VertexID(v))
		}
	}
	return all
}

// On a directed graph paths lead along the edges that are sampled, from a vertex to those it is
// drawn by, and those of two edges are counted by their number.
func TestNearCountsPaths(t *testing.T) {
	const n = 80
	r := rand.New(rand.NewPCG(61, 0))
	neighbours := make([][]graph.VertexID, n)
	for v := range neighbours {
		for _, u := range r.Perm(n)[:r.IntN(9)] {
			neighbours[v] = append(neighbours[v], graph.VertexID(u))
		}
	}
	held := NewSet(n)
	defer held.Free()
	paths := make([]int, n)
	for range 12 {
		v := r.IntN(n)
		held.Add(graph.VertexID(v))
		paths[v] = 1
	}
	m := nearGraph(t, neighbours)
	defer m.Free()
	near, err := m.Near(held, sample.Spec{Kind: sample.Poisson, Fanouts: []int{1, 1, 1}}, 10)
	if err != nil {
		t.Fatal(err)
	}
	defer near.Free()
	for h := 1; h >= 0; h-- {
		next := make([]int, n)
		for v, row := range neighbours {
			for _, u := range row {
				next[v] += paths[u]
			}
		}
		paths = next
		least, most := 1<<30, 0 // of those that are near and that are not
		for v, x := range paths {
			if Set(near.Vertices[h]).Has(graph.VertexID(v)) {
				least = min(least, x)
			} else {
				most = max(most, x)
			}
		}
		if got := Set(near.Vertices[h]).Len(); got != 10 || least < most {
			t.Errorf("hop %d: %d are near, with at least %d paths, and others have %d", h, got,
				least, most)
		}
	}
	for h, set := range near.Edges {
		for e, u := range m.in.Indices {
			if marked := set[e/64]>>(e%64)&1 != 0; marked != Set(near.Vertices[h]).Has(u) {
				t.Errorf("hop %d: edge %d is marked %t, and comes from %d", h, e, marked, u)
			}
		}
	}
	if len(near.Edges) != 3 {
		t.Errorf("edges of %d hops", len(near.Edges))
	}
}
