package metis

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/topology/graph"
)

// random returns a directed graph with loops and duplicates.
func random(t *testing.T, rng *rand.Rand, n, m int) *graph.CSC {
	src, dst := make([]graph.VertexID, m), make([]graph.VertexID, m)
	for i := range src {
		src[i], dst[i] = graph.VertexID(rng.IntN(n)), graph.VertexID(rng.IntN(n))
	}
	g, err := graph.FromEdges(n, src, dst)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestUndirectedSumsBothDirectionsAndDuplicates(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 1))
		n := 1 + rng.IntN(60)
		g := random(t, rng, n, rng.IntN(6*n))
		var weights []int32
		if seed%2 == 1 {
			weights = make([]int32, g.NumEdges())
			for e := range weights {
				weights[e] = 1 + rng.Int32N(9)
			}
		}
		compareAdjacency[int32](t, seed, g, weights)
		compareAdjacency[int64](t, seed, g, weights)
	}
}

func compareAdjacency[I index](t *testing.T, seed uint64, g *graph.CSC, weights []int32) {
	n := g.NumVertices()
	want := map[[2]int]I{}
	for v := range n {
		for e := g.Indptr[v]; e < g.Indptr[v+1]; e++ {
			u, x := int(g.Indices[e]), I(1)
			if weights != nil {
				x = I(weights[e])
			}
			if u != v {
				want[[2]int{u, v}] += x
				want[[2]int{v, u}] += x
			}
		}
	}
	before := mem.Allocated()
	a, err := undirected[I](g, weights, maxIndex[I]())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		a.free()
		if leak := mem.Allocated() - before; leak != 0 {
			t.Errorf("seed %d: %d bytes were not freed", seed, leak)
		}
	}()
	if len(a.adjncy) != len(want) || int(a.xadj[n]) != len(want) {
		t.Fatalf("seed %d: %d entries up to %d, want %d", seed, len(a.adjncy), a.xadj[n], len(want))
	}
	for v := range n {
		list := a.adjncy[a.xadj[v]:a.xadj[v+1]]
		for i, u := range list {
			if got := a.adjwgt[int(a.xadj[v])+i]; got != want[[2]int{v, int(u)}] ||
				slices.Contains(list[:i], u) {
				t.Fatalf("seed %d: vertex %d has neighbours %v; weight to %d is %d, want %d", seed,
					v, list, u, got, want[[2]int{v, int(u)}])
			}
		}
	}
}

func TestUndirectedRefusesWhatIndicesCannotHold(t *testing.T) {
	g, err := graph.FromEdges(4, []graph.VertexID{0, 1, 2}, []graph.VertexID{1, 2, 3})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		limit int64
		want  string
	}{{"vertices", 4, "4 vertices"}, {"edges", 6, "6 adjacency entries"}} {
		_, err := undirected[int32](g, nil, c.limit)
		if !errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), c.want) ||
			!strings.Contains(err.Error(), "--method ldg") {
			t.Errorf("%s: got %v", c.name, err)
		}
	}
	// Six entries fit below 7, but their weights, 2 x 3 x 3, do not: they are scaled down.
	a, err := undirected[int32](g, []int32{3, 3, 3}, 7)
	if err != nil {
		t.Fatal(err)
	}
	defer a.free()
	if !slices.Equal(a.adjwgt, []int32{1, 1, 1, 1, 1, 1}) {
		t.Errorf("weights %v", a.adjwgt)
	}
}

func TestDivisorKeepsSumsBelowTheLimit(t *testing.T) {
	if d := divisor(99, 10, 100); d != 1 {
		t.Errorf("a sum that fits is divided by %d", d)
	}
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 2))
		limit := int64(50 + rng.IntN(1000))
		weights := make([]int64, rng.Int64N(limit))
		var total, sum int64
		for i := range weights {
			weights[i] = 1 + rng.Int64N(1+math.MaxInt32>>rng.IntN(31))
			total += weights[i]
		}
		d := divisor(total, int64(len(weights)), limit)
		for _, x := range weights {
			sum += max(x/d, 1)
		}
		if sum > limit {
			t.Errorf("seed %d: %d weights of total %d divided by %d sum to %d, the limit is %d",
				seed, len(weights), total, d, sum, limit)
		}
	}
}
