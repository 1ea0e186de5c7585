package access

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/topology/graph"
	"halognn/src/topology/graph/graphtest"
	"halognn/src/topology/sample"
)

func mustNew(t testing.TB, g *graph.CSC, o Options) *Graph {
	t.Helper()
	m, err := New(g, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Free)
	return m
}

func TestSymmetry(t *testing.T) {
	for _, c := range []struct {
		name      string
		edges     [][2]int
		symmetric bool
	}{
		{"no edges", nil, true},
		{"both directions", [][2]int{{0, 1}, {1, 0}, {2, 3}, {3, 2}}, true},
		{"a loop", [][2]int{{2, 2}}, true},
		{"one direction", [][2]int{{0, 1}, {1, 0}, {2, 3}}, false},
		{"a cycle, degrees equal", [][2]int{{0, 1}, {1, 2}, {2, 3}, {3, 0}}, false},
		{"parallel edges in one direction", [][2]int{{0, 1}, {0, 1}, {1, 0}}, false},
		{"parallel edges in both", [][2]int{{0, 1}, {0, 1}, {1, 0}, {1, 0}}, true},
	} {
		m := mustNew(t, graphtest.NewGraph(t, 5, c.edges...), Options{})
		if m.Transposed() == c.symmetric {
			t.Errorf("%s: symmetric is %t, want %t", c.name, !m.Transposed(), c.symmetric)
		}
	}
}

// The chunks cover the vertices once, whatever the degrees, and end at multiples of 64.
func TestChunks(t *testing.T) {
	r := graphtest.Random(t)
	for _, n := range []int{0, 1, 63, 64, 65, 100_000} {
		g := &graph.CSC{Indptr: make([]int64, n+1)}
		for v := range n {
			g.Indptr[v+1] = g.Indptr[v] + int64(r.IntN(4)*r.IntN(4)*r.IntN(100))
			if r.IntN(20_000) == 0 {
				g.Indptr[v+1] += 3 * chunkEdges
			}
		}
		cuts := cut(g)
		if cuts[0] != 0 || cuts[len(cuts)-1] != n || !slices.IsSorted(cuts) {
			t.Fatalf("%d vertices: cut at %d", n, cuts)
		}
		for _, c := range cuts[:len(cuts)-1] {
			if c%wordBits != 0 {
				t.Errorf("%d vertices: cut at %d, no multiple of %d", n, c, wordBits)
			}
		}
	}
}

// Sums are those of a plain loop, and the same bits for every number of workers; the path for
// values that are mostly zero gives the same sums.
func TestGather(t *testing.T) {
	r := graphtest.Random(t)
	const n = 30_000
	// the hub's row spans many blocks, and empty rows outnumber a block
	g := graphtest.NewGraph(t, n, graphtest.Edges(r, n, 100_000)...)
	for _, zeros := range []float64{0, 0.5, 0.99} {
		w := make([]float32, n)
		for v := range w {
			if r.Float64() >= zeros {
				w[v] = -r.Float32()
			}
		}
		var first []float64
		for _, workers := range []int{1, 2, 5} {
			m := mustNew(t, g, Options{Workers: workers})
			got := make([]float64, n)
			seen := make([]int, n)
			if err := m.gather(w, func(first int, sums []float64) {
				copy(got[first:], sums)
				for i := range sums {
					seen[first+i]++
				}
			}); err != nil {
				t.Fatal(err)
			}
			for u := range n {
				want := 0.0
				for _, v := range m.out.InNeighbours(graph.VertexID(u)) {
					want += float64(w[v])
				}
				if seen[u] != 1 || math.Abs(got[u]-want) > 1e-9*math.Abs(want) {
					t.Fatalf("%g zero, %d workers: vertex %d got %g, %d times, want %g once", zeros,
						workers, u, got[u], seen[u], want)
				}
			}
			if first == nil {
				first = got
			}
			if !slices.Equal(first, got) {
				t.Errorf("%g zero: %d workers gave other bits than 1", zeros, workers)
			}
		}
	}
}

func TestErrors(t *testing.T) {
	g := graphtest.NewGraph(t, 4, [2]int{0, 1}, [2]int{1, 0})
	m := mustNew(t, g, Options{})
	score := make([]float32, 4)
	of := func(_ any, err error) error { return err }
	for _, c := range []struct {
		name string
		err  error
		want string
		is   error
	}{
		{"empty indptr", of(New(&graph.CSC{}, Options{})),
			"access: indptr is empty; it needs one entry more than there are vertices", nil},
		{"workers", of(New(g, Options{Workers: -1})),
			"access: workers is -1; it must be at least 1, or 0 for one per CPU", nil},
		{"another graph's transpose", of(New(g, Options{Out: &graph.CSC{Indptr: []int64{0, 0}}})),
			"access: the graph has 4 vertices and 2 edges, but its transpose has " +
				"1 and 0", nil},
		{"training vertex", of(m.VIP(graphtest.IDs(1, 4), 1, []int{1})),
			"access: VIP: training vertex 4: " +
				"vertex out of range (the graph has 4 vertices)", graph.ErrVertexRange},
		{"several faults", of(m.Inclusion(graphtest.IDs(1), 0, []int{2, 0})),
			"access: inclusion: batch is 0; it must be above 0\nfanouts[1] is 0; it must be at " +
				"least 1, or -1 for all neighbours", nil},
		{"no fanouts", of(m.VIP(graphtest.IDs(1), math.NaN(), nil)),
			"access: VIP: batch is NaN; it must be above 0\nno fanouts; give one for every " +
				"layer, seed hop first", nil},
		{"no hops", of(m.Paths(graphtest.IDs(1), 0)), "access: paths: 0 hops; at least 1 is needed",
			nil},
		{"negative vertex", of(m.PageRank(graphtest.IDs(-1))),
			"access: PageRank: training vertex -1: vertex out of range (the graph has 4 vertices)",
			graph.ErrVertexRange},
		{"degree", of(m.Degree(graphtest.IDs(9), 1)),
			"access: degree: training vertex 9: vertex out of " +
				"range (the graph has 4 vertices)", graph.ErrVertexRange},
		{"overlapping ranges", of(m.Halo([]Range{{0, 2}, {1, 3}}, 1)),
			"access: halo: local vertices 1 to 2: vertex out of range (ranges must ascend, not " +
				"overlap, and end at 4)", graph.ErrVertexRange},
		{"range beyond the graph", of(m.Top(score, []Range{{3, 5}}, 1)),
			"access: top: local vertices 3 to 4: vertex out of range (ranges must ascend, not " +
				"overlap, and end at 4)", graph.ErrVertexRange},
		{"scores of another graph", of(m.Top(score[:3], nil, 1)),
			"access: there are 3 scores, but 4 vertices need one score each",
			nil},
		{"capacity", of(m.Top(score, nil, -1)),
			"access: top: capacity is -1; it must be at least 0", nil},
		{"cached vertex", of(Expected(score, nil, graphtest.IDs(4))),
			"access: computing the expected rows: cached vertex 4: vertex out of range (there " +
				"are 4)",
			graph.ErrVertexRange},
	} {
		if fmt.Sprint(c.err) != c.want {
			t.Errorf("%s: error %q, want %q", c.name, c.err, c.want)
		}
		if c.is != nil && !errors.Is(c.err, c.is) {
			t.Errorf("%s: error is not %q", c.name, c.is)
		}
	}
}

// Analyses use the documented memory and free all of it except the result.
func TestMemory(t *testing.T) {
	const n = 1 << 19
	m := mustNew(t, &graph.CSC{Indptr: mem.Make[int64](n + 1)}, Options{})
	t.Cleanup(func() { mem.Free(m.in.Indptr) })
	train := graphtest.IDs(1, 2, 3)
	for _, c := range []struct {
		name     string
		analysis func() ([]float32, error)
		bytes    int64
	}{
		{"degree", func() ([]float32, error) { return m.Degree(train, 3) }, 4*n + n/4},
		{"halo", func() ([]float32, error) { return m.Halo([]Range{{0, n / 2}}, 1) }, 4*n + n/4},
		{"pagerank", func() ([]float32, error) { return m.PageRank(train) }, 8*n + n/8},
		{"paths", func() ([]float32, error) { return m.Paths(train, 3) }, 8*n + n/8},
		{"inclusion", func() ([]float32, error) { return m.Inclusion(train, 1, []int{2, 2}) }, 8*n +
			n/8},
		{"vip", func() ([]float32, error) { return m.VIP(train, 1, []int{2, 2}) }, 12*n + n/8},
		{"labor", func() ([]float32, error) { return m.Labor(train, 1, sample.Neighbours(2, 2)) },
			12*n + n/8},
		{"labor, one number", func() ([]float32, error) {
			return m.Labor(train, 1, sample.Spec{Fanouts: []int{2, 2},
				Numbers: sample.Numbers{Layers: true}})
		}, 24*n + n/8},
	} {
		// so that any further allocation is a new peak
		ballast := mem.Make[byte](int(mem.PeakAllocated() - mem.Allocated()))
		before := mem.Allocated()
		score, err := c.analysis()
		if err != nil {
			t.Fatal(err)
		}
		if held := mem.Allocated() - before; held != 4*n {
			t.Errorf("%s: %d bytes are held afterwards, want the result alone, %d", c.name, held,
				4*n)
		}
		if peak := mem.PeakAllocated() - before; peak != c.bytes {
			t.Errorf("%s: took %d bytes, want %d", c.name, peak, c.bytes)
		}
		mem.Free(score)
		mem.Free(ballast)
	}
}
