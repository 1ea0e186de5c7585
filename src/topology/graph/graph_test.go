package graph

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"halognn/src/base/mem"
)

func randomGraph(t *testing.T, seed uint64, n, edges int) *CSC {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 0))
	src, dst := make([]VertexID, edges), make([]VertexID, edges)
	for i := range src {
		src[i] = VertexID(rng.ExpFloat64() * float64(n) / 8) // skewed
		src[i], dst[i] = src[i]%VertexID(n), VertexID(rng.IntN(n))
	}
	g, err := FromEdges(n, src, dst)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// sizes are shapes that break loops: no edges, one vertex, and enough vertices for several workers.
var sizes = []struct {
	name     string
	n, edges int
}{{"no edges", 5, 0}, {"one vertex", 1, 3}, {"two vertices", 2, 9}, {"dense", 30, 2000},
	{"wide", 3000, 9000}, {"sparse", 5000, 2000}}

func edgeList(g *CSC) map[Edge]int {
	count := make(map[Edge]int)
	g.edges(false)(func(batch []Edge) {
		for _, e := range batch {
			count[e]++
		}
	})
	return count
}

func TestFromEdgesKeepsTheOrderOfEdges(t *testing.T) {
	g, err := FromEdges(4, []VertexID{3, 1, 0, 3, 2}, []VertexID{0, 2, 0, 2, 0})
	if err != nil {
		t.Fatal(err)
	}
	want := &CSC{Indptr: []int64{0, 3, 3, 5, 5}, Indices: []VertexID{3, 0, 2, 1, 3}}
	if !reflect.DeepEqual(g, want) {
		t.Errorf("got %v, want %v", g, want)
	}
}

func TestBadEdges(t *testing.T) {
	for _, c := range []struct {
		name     string
		src, dst []VertexID
		want     string
	}{
		{"source too large", []VertexID{0, 4}, []VertexID{1, 1}, "edge 1 names vertex 4"},
		{"negative destination", []VertexID{0}, []VertexID{-1}, "names vertex -1"},
	} {
		_, err := FromEdges(4, c.src, c.dst)
		if !errors.Is(err, ErrVertexRange) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("FromEdges, %s: %v", c.name, err)
		}
		var b Builder
		for i := range c.src {
			b.Add(c.src[i], c.dst[i])
		}
		if _, _, err := b.Build(4, CleanOptions{}); !errors.Is(err, ErrVertexRange) {
			t.Errorf("Builder, %s: %v", c.name, err)
		}
	}
	var b Builder
	b.Add(0, -1)
	if _, _, err := b.Build(-1, CleanOptions{}); !errors.Is(err, ErrVertexRange) {
		t.Errorf("a negative vertex and no vertex count: %v", err)
	}
	if _, err := FromEdges(4, []VertexID{1}, nil); err == nil {
		t.Error("a source without a destination was taken")
	}
}

func TestTransposeLaws(t *testing.T) {
	for seed, s := range sizes {
		g := randomGraph(t, uint64(seed), s.n, s.edges)
		tr := g.Transpose()
		if err := tr.Validate(); err != nil {
			t.Fatalf("%s (seed %d): %v", s.name, seed, err)
		}
		back := make(map[Edge]int)
		for e, k := range edgeList(tr) {
			back[MakeEdge(e.Dst(), e.Src())] = k
		}
		if !reflect.DeepEqual(back, edgeList(g)) {
			t.Errorf("%s (seed %d): the transpose has other edges", s.name, seed)
		}
		sorted, _ := Clean(g, CleanOptions{KeepLoops: true, KeepDuplicates: true})
		if twice := tr.Transpose(); !reflect.DeepEqual(twice, sorted) {
			t.Errorf("%s (seed %d): transposing twice is not the identity on a sorted graph",
				s.name, seed)
		}
	}
}

// cleanReference is Clean by maps instead of sorting.
func cleanReference(g *CSC, o CleanOptions) map[Edge]int {
	given, out := edgeList(g), make(map[Edge]int)
	for e, k := range given {
		if e.Src() == e.Dst() && !o.KeepLoops {
			continue
		}
		if !o.KeepDuplicates {
			k = 1
		}
		out[e] = max(out[e], k)
		if r := MakeEdge(e.Dst(), e.Src()); o.Undirected {
			out[r] = max(out[r], k)
		}
	}
	return out
}

func TestCleanLaws(t *testing.T) {
	for seed, s := range sizes {
		g := randomGraph(t, uint64(seed), s.n, s.edges)
		for bits := range 8 {
			o := CleanOptions{Undirected: bits&1 != 0, KeepLoops: bits&2 != 0,
				KeepDuplicates: bits&4 != 0}
			c, r := Clean(g, o)
			if err := c.Validate(); err != nil {
				t.Fatalf("%s %+v: %v", s.name, o, err)
			}
			if !reflect.DeepEqual(edgeList(c), cleanReference(g, o)) {
				t.Errorf("%s %+v (seed %d): edges differ from the reference", s.name, o, seed)
			}
			for v := range VertexID(s.n) {
				if !slices.IsSorted(c.InNeighbours(v)) {
					t.Fatalf("%s %+v: list of %d is not sorted", s.name, o, v)
				}
			}
			if r.Before != g.NumEdges() || r.After != c.NumEdges() ||
				r.After != r.Before-r.Loops-r.Duplicates+r.Reversed {
				t.Errorf("%s %+v: the report does not add up: %v", s.name, o, r)
			}
			if again, r2 := Clean(c, o); !reflect.DeepEqual(again, c) || r2.Before != r2.After {
				t.Errorf("%s %+v: cleaning twice changes the graph: %v", s.name, o, r2)
			}
			if tr := c.Transpose(); o.Undirected && !reflect.DeepEqual(tr, c) {
				t.Errorf("%s %+v: not symmetric", s.name, o)
			}
		}
	}
}

func TestReciprocalCountsByDefinition(t *testing.T) {
	for _, c := range sizes {
		for _, o := range []CleanOptions{
			{}, {KeepLoops: true}, {KeepDuplicates: true}, {Undirected: true},
		} {
			g, _ := Clean(randomGraph(t, 7, c.n, c.edges), o)
			edges, want := edgeList(g), int64(0)
			for e, times := range edges {
				if u, v := e.Src(), VertexID(uint32(e)); edges[MakeEdge(v, u)] > 0 {
					want += int64(times)
				}
			}
			if got := g.Reciprocal(); got != want {
				t.Errorf("%s, %+v: %d of %d edges, want %d", c.name, o, got, g.NumEdges(), want)
			}
			if o.Undirected && want != g.NumEdges() {
				t.Errorf("%s: %d of %d edges of an undirected graph", c.name, want, g.NumEdges())
			}
		}
	}
}

func TestCleanReport(t *testing.T) {
	g, err := FromEdges(3, []VertexID{0, 0, 1, 2, 2, 1}, []VertexID{1, 1, 0, 2, 2, 2})
	if err != nil {
		t.Fatal(err)
	}
	_, r := Clean(g, CleanOptions{Undirected: true})
	if want := (CleanReport{Before: 6, After: 4, Loops: 2, Duplicates: 1, Reversed: 1}); r != want {
		t.Errorf("got %+v, want %+v", r, want)
	}
}

func TestBuilderIsCleanOfTheSameEdges(t *testing.T) {
	for seed, s := range sizes {
		g := randomGraph(t, uint64(seed), s.n, s.edges)
		want, wantReport := Clean(g, CleanOptions{Undirected: true})
		for _, procs := range []int{1, 2, 5} {
			old := runtime.GOMAXPROCS(procs)
			live := mem.Allocated()
			var b Builder
			for e, k := range edgeList(g) { // in any order: maps iterate at random
				for range k {
					b.Add(e.Src(), e.Dst())
				}
			}
			if b.NumEdges() != g.NumEdges() {
				t.Errorf("%s: %d edges counted, %d added", s.name, b.NumEdges(), g.NumEdges())
			}
			got, report, err := b.Build(s.n, CleanOptions{Undirected: true})
			if err != nil || report != wantReport || !reflect.DeepEqual(got, want) {
				t.Errorf("%s, %d CPUs (seed %d): got another graph, %v, %v", s.name, procs, seed,
					report, err)
			}
			got.Free()
			if leak := mem.Allocated() - live; leak != 0 {
				t.Errorf("%s: %d bytes not given back", s.name, leak)
			}
			runtime.GOMAXPROCS(old)
		}
	}
}

// The weight of an edge is the sum of those that it was given with, or that of its reverse.
// TestBuildRows: the rows of ranges of vertices, built from the edges at them, are those of the
// graph, and their reports add up to its report.
func TestBuildRows(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 8))
		n, o := 1+rng.IntN(30), CleanOptions{Undirected: seed%2 == 0, KeepLoops: seed%3 == 0}
		var edges []Edge
		for range rng.IntN(200) {
			edges = append(edges, MakeEdge(VertexID(rng.IntN(n)), VertexID(rng.IntN(n))))
		}
		build := func(first, end int) *Builder {
			var b Builder
			at := func(v VertexID) bool { return int(v) >= first && int(v) < end }
			for _, e := range edges {
				if at(e.Src()) || at(e.Dst()) {
					b.Add(e.Src(), e.Dst())
				}
			}
			return &b
		}
		want, all, err := build(0, n).Build(n, o)
		if err != nil {
			t.Fatal(err)
		}
		var total CleanReport
		for first := 0; first < n; {
			end := min(n, first+1+rng.IntN(n))
			got, report, err := build(first, end).BuildRows(n, first, end, o)
			if err != nil || got.NumVertices() != end-first {
				t.Fatalf("seed %d: rows %d to %d: %v, %v", seed, first, end, got, err)
			}
			for v := first; v < end; v++ {
				if !slices.Equal(got.InNeighbours(VertexID(v-first)),
					want.InNeighbours(VertexID(v))) {
					t.Fatalf("seed %d: vertex %d has %v, want %v", seed, v,
						got.InNeighbours(VertexID(v-first)), want.InNeighbours(VertexID(v)))
				}
			}
			total.Add(report)
			got.Free()
			first = end
		}
		if total != all {
			t.Errorf("seed %d: reports add up to %v, want %v", seed, total, all)
		}
		want.Free()
	}
}

func TestBuildWeighted(t *testing.T) {
	for seed, s := range sizes {
		rng := rand.New(rand.NewPCG(uint64(seed), 7))
		g := randomGraph(t, uint64(seed), s.n, s.edges)
		for _, undirected := range []bool{false, true} {
			var b Builder
			var weights []float32
			want := map[Edge]float32{}
			for v := range VertexID(s.n) {
				for _, u := range g.InNeighbours(v) {
					b.Add(u, v)
					weights = append(weights, float32(rng.IntN(8)))
					want[MakeEdge(u, v)] += weights[len(weights)-1]
				}
			}
			o := CleanOptions{Undirected: undirected}
			plain, _ := Clean(g, o)
			got, of, _, err := b.BuildWeighted(s.n, o, weights)
			if err != nil || !reflect.DeepEqual(got, plain) || int64(len(of)) != got.NumEdges() {
				t.Fatalf("%s: another graph, or %d weights: %v", s.name, len(of), err)
			}
			for v := range VertexID(s.n) {
				for i, u := range got.InNeighbours(v) {
					w, given := want[MakeEdge(u, v)]
					if !given {
						w = want[MakeEdge(v, u)]
					}
					if x := of[got.Indptr[v]+int64(i)]; x != w {
						t.Fatalf("%s: edge %d -> %d has weight %v, want %v", s.name, u, v, x, w)
					}
				}
			}
			b.Free()
			got.Free()
			plain.Free()
			mem.Free(of)
		}
	}
}

// TestBuildMemory checks the peak memory of a build, when both edges and scattered entries exist:
// at most three times 8 bytes an edge beyond the result.
func TestBuildMemory(t *testing.T) {
	const n, edges = 1000, 300000
	rng := rand.New(rand.NewPCG(11, 12))
	for _, o := range []CleanOptions{{}, {Undirected: true}} {
		before := mem.Allocated()
		var b Builder
		for range edges {
			b.Add(VertexID(rng.IntN(n)), VertexID(rng.IntN(n)))
		}
		var peak int64
		g, _ := clean(0, n, b.Each, func() { peak = mem.Allocated() - before; b.Free() }, o)
		if beyond := peak - 8*int64(len(g.Indptr)) - 4*g.NumEdges(); beyond > 3*8*edges {
			t.Errorf("%+v: %d bytes beyond the result, %.1f an edge", o, beyond,
				float64(beyond)/edges)
		}
		g.Free()
	}
}

func TestBuilderCountsVertices(t *testing.T) {
	var b Builder
	if g, _, err := b.Build(-1, CleanOptions{}); err != nil || g.NumVertices() != 0 {
		t.Errorf("no edges: %v, %v", g, err)
	}
	b.Add(2, 7)
	var other Builder
	other.Add(7, 1)
	b.Merge(&other)
	other.Add(9, 7)
	b.Merge(&other)
	g, _, err := b.Build(-1, CleanOptions{})
	if err != nil || g.NumVertices() != 10 || !slices.Equal(g.InNeighbours(7), []VertexID{2, 9}) {
		t.Errorf("got %v, %v", g, err)
	}
}

func randomBlock(rng *rand.Rand, dst, src, degree int) *Block {
	b := &Block{NumSrc: src, NumDst: dst, Indptr: []int64{0}}
	for range dst {
		for range rng.IntN(degree + 1) {
			b.Indices = append(b.Indices, int32(rng.IntN(src)))
		}
		b.Indptr = append(b.Indptr, int64(len(b.Indices)))
	}
	return b
}

func TestBlockTranspose(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var tr BlockTranspose
	defer tr.Free()
	for _, b := range []*Block{randomBlock(rng, 50, 80, 9), randomBlock(rng, 4, 4, 0),
		randomBlock(rng, 1, 900, 400), {Indptr: []int64{0}}} {
		if err := b.Validate(); err != nil {
			t.Fatal(err)
		}
		b.Transpose(&tr)
		if len(tr.Indptr) != b.NumSrc+1 || tr.Indptr[0] != 0 ||
			tr.Indptr[b.NumSrc] != int64(b.NumEdges()) {
			t.Fatalf("indptr %v", tr.Indptr)
		}
		for s := range b.NumSrc {
			edges := tr.Edges[tr.Indptr[s]:tr.Indptr[s+1]]
			if !slices.IsSorted(edges) {
				t.Errorf("edges of source %d are not in order", s)
			}
			for i, e := range edges {
				d := tr.Indices[tr.Indptr[s]+int64(i)]
				if b.Indices[e] != int32(s) || int64(e) < b.Indptr[d] || int64(e) >= b.Indptr[d+1] {
					t.Errorf("source %d claims edge %d to %d, which the block does not have", s, e,
						d)
				}
			}
		}
	}
}

func TestBlockTransposeAllocatesNothing(t *testing.T) {
	b := randomBlock(rand.New(rand.NewPCG(3, 4)), 100, 300, 10)
	var tr BlockTranspose
	defer tr.Free()
	b.Transpose(&tr)
	live := mem.Allocated()
	if n := testing.AllocsPerRun(10, func() { b.Transpose(&tr) }); n != 0 ||
		mem.Allocated() != live {
		t.Errorf("%g heap allocations, %d bytes more off the heap", n, mem.Allocated()-live)
	}
}

func TestSplitValidate(t *testing.T) {
	for _, c := range []struct {
		name string
		s    Split
		want string
	}{
		{"good", Split{Train: []VertexID{4, 0}, Valid: []VertexID{1}}, ""},
		{"out of range", Split{Valid: []VertexID{1, 70}}, "valid split, entry 1: vertex 70"},
		{"negative", Split{Test: []VertexID{-1}}, "vertex -1"},
		{"overlap", Split{Train: []VertexID{69}, Test: []VertexID{2, 69}},
			"test split, entry 1: vertex 69 is listed twice"},
		{"repeat", Split{Train: []VertexID{3, 3}}, "listed twice"},
	} {
		err := c.s.Validate(70)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

func TestValidateFindsEachFault(t *testing.T) {
	for _, c := range []struct {
		name string
		g    CSC
		want string
	}{
		{"empty", CSC{}, "indptr is empty"},
		{"begin", CSC{Indptr: []int64{1, 1}}, "indptr[0] is 1"},
		{"falls", CSC{Indptr: []int64{0, 2, 1}, Indices: []VertexID{0}},
			"falls from 2 to 1 at vertex 1"},
		{"end", CSC{Indptr: []int64{0, 2}, Indices: []VertexID{0}}, "ends at 2 but there are 1"},
		{"range", CSC{Indptr: []int64{0, 1}, Indices: []VertexID{1}}, "edge 0 comes from vertex 1"},
	} {
		if err := c.g.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// Chunks keep to the budget, and large ones are of whole tiles of matrix products.
func TestNextChunk(t *testing.T) {
	const n = 5000
	g := CSC{Indptr: make([]int64, n+1)}
	for v := range n {
		degree := 2
		if v == 3000 {
			degree = 9000
		}
		g.Indptr[v+1] = g.Indptr[v] + int64(degree)
	}
	for budget, want := range map[int64][]int64{
		2100: {512, 1024, 1536, 2048, 2560, 2816, 3000, 3001, 3513, 4025, 4537, 5000},
		4000: {1280, 2560, 2816, 3000, 3001, 4281, 5000},
	} {
		var ends []int64
		for lo := int64(0); lo < n; {
			lo = g.NextChunk(lo, n, budget)
			ends = append(ends, lo)
		}
		if !slices.Equal(ends, want) {
			t.Errorf("within a budget of %d chunks end at %v, want %v", budget, ends, want)
		}
	}
}
