package access

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"halognn/src/base/mem/memtest"
	"halognn/src/topology/graph"
	"halognn/src/topology/graph/graphtest"
)

func TestReach(t *testing.T) {
	r := graphtest.Random(t)
	const n = 3000
	g := graphtest.Of(t, n, graphtest.Edges(r, n, n)...)
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
	m := mustNew(t, graphtest.Of(t, 5, [2]int{1, 0}, [2]int{2, 0}, [2]int{3, 2}), Options{})
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
	m := mustNew(t, graphtest.Of(t, 9, [2]int{1, 0}, [2]int{2, 0}, [2]int{3, 0}, [2]int{2, 5},
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

func TestPageRank(t *testing.T) {
	r := graphtest.Random(t)
	const n = 200
	g := graphtest.Of(t, n, graphtest.Edges(r, n, 800)...)
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
	g := graphtest.Of(t, n, graphtest.Edges(r, n, 100)...)
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
	m := mustNew(t, graphtest.Of(t, 2, edges...), Options{})
	paths := memtest.Must[float32](t)(m.Paths(graphtest.IDs(0), 20))
	if paths[0] != math.MaxFloat32 || paths[1] != math.MaxFloat32 {
		t.Errorf("%g, want the largest float32", paths)
	}
}

// Top is the head of a sort by score, out-degree and id, for scores with many ties and for all
// capacities.
func TestTopIsHeadOfSort(t *testing.T) {
	r := graphtest.Random(t)
	const n = 500
	g := graphtest.Of(t, n, graphtest.Edges(r, n, 2000)...)
	m := mustNew(t, g, Options{})
	for _, c := range []struct {
		name  string
		local []Range
		score func() float32
	}{
		{"distinct", []Range{{0, 100}}, r.Float32},
		{"few values", []Range{{400, 500}}, func() float32 { return float32(r.IntN(4)) }},
		{"all ties", []Range{{50, 60}, {60, 70}, {90, 200}}, func() float32 { return 1 }},
		{"nothing local", nil, r.Float32},
		{"all local", []Range{{0, n}}, r.Float32},
		{"all zero", nil, func() float32 { return 0 }},
		{"wide range", nil, func() float32 { return float32(math.Exp(80 * (r.Float64() - 0.5))) }},
		{"largest and infinite", nil, func() float32 {
			return []float32{math.MaxFloat32, float32(math.Inf(1)), 1}[r.IntN(3)]
		}},
	} {
		score := make([]float32, n)
		var sorted []graph.VertexID
		for v := range score {
			score[v] = c.score()
			isLocal := slices.ContainsFunc(c.local,
				func(l Range) bool {
					return graph.VertexID(v) >= l.First &&
						graph.VertexID(v) < l.End
				})
			if score[v] > 0 && !isLocal {
				sorted = append(sorted, graph.VertexID(v))
			}
		}
		slices.SortFunc(sorted, func(a, b graph.VertexID) int {
			return cmp.Or(cmp.Compare(score[b], score[a]),
				cmp.Compare(m.out.InDegree(b), m.out.InDegree(a)), cmp.Compare(a, b))
		})
		for _, capacity := range []int{0, 1, 2, 17, 100, 299, 300, len(sorted), len(sorted) + 1,
			10 * n} {
			want := slices.Clone(sorted[:min(capacity, len(sorted))])
			slices.Sort(want)
			got, err := m.Top(score, c.local, capacity)
			if err != nil || !slices.Equal(got, want) {
				t.Fatalf("%s, capacity %d: %d (%v), want %d", c.name, capacity, got, err, want)
			}
		}
	}
}

func TestExpected(t *testing.T) {
	p := make([]float32, 100)
	for v := range p {
		p[v] = float32(v) / 128
	}
	for _, c := range []struct {
		name   string
		local  []Range
		cached []graph.VertexID
		want   float64
	}{
		{"all remote", nil, nil, 99 * 100 / 2 / 128.},
		{"a part", []Range{{0, 90}}, nil, (90 + 99) * 10 / 2 / 128.},
		{"two parts and a cache", []Range{{0, 90}, {95, 100}}, graphtest.IDs(91, 94),
			(90 + 92 + 93) / 128.},
		{"all cached", []Range{{1, 100}}, graphtest.IDs(0), 0},
	} {
		if got, err := Expected(p, c.local, c.cached); err != nil || math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%s: %g (%v), want %g", c.name, got, err, c.want)
		}
	}
}

// Selection finds the key at every rank of any 64-bit keys.
func TestSelectKey(t *testing.T) {
	r := graphtest.Random(t)
	for range 50 {
		keys := make([]uint64, 1+r.IntN(300))
		for i := range keys {
			keys[i] = rand.Uint64() >> (8 * r.IntN(8)) & (math.MaxUint64 << (8 * r.IntN(4)))
		}
		sorted := slices.Clone(keys)
		slices.SortFunc(sorted, func(a, b uint64) int { return cmp.Compare(b, a) })
		count := 1 + r.IntN(len(keys))
		least, rest := selectKey(func(yield func(graph.VertexID, uint64, int)) {
			for i, k := range keys {
				yield(graph.VertexID(i), k, 1)
			}
		}, count)
		if want := sorted[count-1]; least != want || count-rest != slices.Index(sorted, want) {
			t.Errorf("%d of %d: key %x with room for %d equal ones, want %x", count, len(keys),
				least, rest, want)
		}
	}
}
