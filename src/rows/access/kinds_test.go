package access

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/base/mem/memtest"
	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
)

// Vertices of two types in two parts: papers 0 to 3 and 6 to 8, authors 4, 5 and 9. Of papers 0 and
// 6 the neighbours by relation are below; rows of papers have 8 bytes, of authors 4.
//
//	cites paper -> paper    0: 1 2 3 7    6: 8
//	writes author -> paper  0: 4 5        6: 4 9
func typed(t *testing.T) (*Graph, *Kinds) {
	t.Helper()
	schema := graph.Schema{Types: []string{"paper", "author"}, Relations: []graph.Relation{
		{Source: "paper", Name: "cites", Target: "paper"},
		{Source: "author", Name: "writes", Target: "paper"}}}
	starts := []int64{0, 4, 6, 9, 10}
	of := map[graph.VertexID][2][]graph.VertexID{0: {{1, 2, 3, 7}, {4, 5}}, 6: {{8}, {4, 9}}}
	g, columns := graph.CSC{Indptr: []int64{0}}, []int64{0}
	for v := range graph.VertexID(10) {
		for k := range 2 {
			if v < 4 || v >= 6 && v < 9 {
				g.Indices = append(g.Indices, of[v][k]...)
				columns = append(columns, int64(len(g.Indices)))
			}
		}
		g.Indptr = append(g.Indptr, int64(len(g.Indices)))
	}
	c, err := graph.NewColumns(&schema, starts, columns)
	if err != nil {
		t.Fatal(err)
	}
	m, err := New(&g, Options{Workers: 2, Columns: &c})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Free)
	return m, NewKinds(starts, []int{8, 4})
}

// A vertex draws by each of its relations: on a tree the probabilities are exact, whatever fanouts
// the relations have, and all analyses see the same edges.
func TestAnalysesOfRelations(t *testing.T) {
	m, kinds := typed(t)
	r := &Workload{Local: []Range{{0, 6}}, Kinds: kinds, Sample: sample.Spec{Kind: sample.Neighbour,
		Fanouts: []int{2}, Relations: [][]int{{2}, {1}}},
		Sources: []Source{{Seeds: []graph.VertexID{0, 6}, PerBatch: 1, Minibatches: 1}}}
	// Each seed with 1/2: of 4 papers 2 are drawn, of 2 authors 1; 4 is an author of both.
	want := []float64{0.5, 0.25, 0.25, 0.25, 1 - 0.75*0.75, 0.25, 0.5, 0.25, 0.5, 0.25}
	near := func(what string, got []float32, want []float64) {
		t.Helper()
		for v, p := range got {
			if math.Abs(float64(p)-want[v]) > 1e-6 {
				t.Errorf("%s: %v, want %v", what, got, want)
				return
			}
		}
	}
	near("inclusion", memtest.Must[float32](t)(m.Reads(r)), want)
	want[0], want[6] = 0, 0 // no seeds' own rows
	near("vip", memtest.Must[float32](t)(m.VIP(r.Seeds(), 1, []int{2})),
		[]float64{0, 0.25, 0.25, 0.25, 0.75, 0.5, 0, 0.25, 0.5, 0.5})
	near("vip with fanouts of relations", memtest.Must[float32](t)(m.vip(r.Seeds(), 1,
		draws{r.Sample.Fanouts, r.Sample.Relations})), want)
	near("paths", memtest.Must[float32](t)(m.Paths(r.Seeds(), 1)),
		[]float64{1, 1, 1, 1, 2, 1, 1, 1, 1, 1})
	near("degree", memtest.Must[float32](t)(m.Degree(r.Seeds(), 1)),
		[]float64{0, 1, 1, 1, 2, 1, 0, 1, 1, 1})
	halo, err := m.HaloSize(r)
	if err != nil || halo != 8 { // paper 7
		t.Errorf("a halo of %d bytes (%v), want 8", halo, err)
	}
}

// The best rows that fit are kept, those of equal scores as far as they do; types without rows are
// local, and a reader of one kind has all others at hand.
func TestRowsOfKinds(t *testing.T) {
	m, kinds := typed(t)
	r := &Workload{Local: []Range{{0, 1}}, Kinds: kinds}
	score := []float32{9, 5, 1, 5, 7, 3, 2, 1, 0, 5}
	for capacity, want := range map[int][]graph.VertexID{
		0: {}, 3: {}, 4: {4}, 7: {4}, 11: {4, 9}, 12: {1, 4}, 16: {1, 4, 9},
		24: {1, 3, 4, 9}, 27: {1, 3, 4, 9}, 28: {1, 3, 4, 5, 9}, 1000: {1, 2, 3, 4, 5, 6, 7, 9},
	} {
		got, err := m.Best(score, r, capacity)
		if bytes := kinds.Sizes(got); err != nil || !slices.Equal(got, want) ||
			bytes > int64(capacity) {
			t.Errorf("room for %d bytes: %v of %d bytes (%v), want %v", capacity, got, bytes, err,
				want)
		}
		mem.Free(got)
	}
	if n := kinds.PerKind([]graph.VertexID{0, 4, 9, 6, 8}); !slices.Equal(n, []int{3, 2}) {
		t.Errorf("%v of each kind", n)
	}
	if kinds.Total() != 7*8+3*4 {
		t.Errorf("%d bytes in all", kinds.Total())
	}
	papers := kinds.Outside([]Range{{1, 5}, {8, 9}}, func(kind int) bool { return kind == 0 })
	if want := []Range{{1, 6}, {8, 10}}; !slices.Equal(papers, want) {
		t.Errorf("besides papers %v, want %v", papers, want)
	}
	if got := r.Of(1).Local; !slices.Equal(got, []Range{{0, 4}, {6, 9}}) || r.Of(1).Kinds != nil {
		t.Errorf("a reader of authors has %v", got)
	}
}

// A graph without types is one type with one relation: with names for both, the analyses are the
// same to the bit. Where all rows have one size, a row takes one of a capacity.
func TestOneKindIsNone(t *testing.T) {
	g, train := randomForest(t, rand.New(rand.NewPCG(3, 0)), 60)
	named := graph.Schema{Types: []string{"page"},
		Relations: []graph.Relation{{Source: "page", Name: "links", Target: "page"}}}
	c, err := graph.NewColumns(&named, []int64{0, 20, 60}, g.Indptr)
	if err != nil {
		t.Fatal(err)
	}
	plain, one := mustNew(t, g, Options{Workers: 2}),
		mustNew(t, g, Options{Workers: 2, Columns: &c})
	for name, analyse := range map[string]func(*Graph) ([]float32, error){
		"vip": func(m *Graph) ([]float32, error) { return m.VIP(train, 2, []int{2, 1}) },
		"inclusion": func(m *Graph) ([]float32, error) {
			return m.Inclusion(train, 2, []int{2, 1})
		},
		"PageRank": func(m *Graph) ([]float32, error) { return m.PageRank(train) },
		"degree":   func(m *Graph) ([]float32, error) { return m.Degree(train, 2) },
	} {
		want := memtest.Must[float32](t)(analyse(plain))
		if got := memtest.Must[float32](t)(analyse(one)); !slices.Equal(got, want) {
			t.Errorf("%s: %v, without names %v", name, got, want)
		}
	}
	var rows *Kinds
	if rows.Of(7) != 0 || rows.Takes(7) != 1 ||
		!slices.Equal(rows.PerKind(train), []int{len(train)}) {
		t.Errorf("row 7 is of kind %d and takes %d; of each kind %v", rows.Of(7), rows.Takes(7),
			rows.PerKind(train))
	}
}
