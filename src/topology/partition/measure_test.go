package partition

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/base/npy"
	"halognn/src/topology/graph"
)

// plainMeasure counts by the definitions.
func plainMeasure(g *graph.CSC, part []int32, parts int, s graph.Split) []PartReport {
	r := make([]PartReport, parts)
	for k := range parts {
		halo := map[graph.VertexID]bool{}
		for v := range g.NumVertices() {
			if int(part[v]) != k {
				continue
			}
			r[k].Vertices++
			for _, u := range g.InNeighbours(graph.VertexID(v)) {
				r[k].Edges++
				if part[u] != part[v] {
					r[k].Cut++
					halo[u] = true
				}
			}
		}
		r[k].Halo = int64(len(halo))
	}
	for _, v := range s.Train {
		r[part[v]].Train++
	}
	for _, v := range append(append([]graph.VertexID{}, s.Valid...), s.Test...) {
		r[part[v]].Eval++
	}
	return r
}

// Measure reads on goroutines of its own; a Guard of the caller must cover them.
func TestAGraphThatShrinksUnderItsMappingIsAnError(t *testing.T) {
	const n, degree = 1000, 64
	indptr, part := make([]int64, n+1), make([]int32, n)
	for v := range n {
		indptr[v+1], part[v] = indptr[v]+degree, int32(v%4)
	}
	path := filepath.Join(t.TempDir(), "indices.npy")
	if _, err := npy.WriteFile(path, make([]graph.VertexID, n*degree), n*degree); err != nil {
		t.Fatal(err)
	}
	indices, err := npy.Map[graph.VertexID](path)
	if err != nil {
		t.Fatal(err)
	}
	defer indices.Close()
	if err := os.Truncate(path, 4096); err != nil {
		t.Fatal(err)
	}
	err = mem.Guard(func() error {
		Measure(&graph.CSC{Indptr: indptr, Indices: indices.Data}, part, 4, graph.Split{})
		return nil
	})
	if !errors.Is(err, mem.ErrShrank) || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v, want an error that names %s", err, path)
	}
}

func TestMeasureCountsWhatItsFieldsSay(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 7))
		n := 1 + rng.IntN(300)
		parts := 1 + rng.IntN(8)
		g, s := random(t, rng, n, 4*n)
		part := make([]int32, n)
		for v := range part {
			part[v] = int32(rng.IntN(parts))
		}
		r := Measure(g, part, parts, s)
		if want := plainMeasure(g, part, parts, s); !reflect.DeepEqual(r.Parts, want) {
			t.Errorf("seed %d:\n got %v\nwant %v", seed, r.Parts, want)
		}
		if r.Total.Vertices != int64(n) || r.Total.Edges != g.NumEdges() {
			t.Errorf("seed %d: totals %+v of %d vertices and %d edges", seed, r.Total, n,
				g.NumEdges())
		}
	}
}

func report(parts ...PartReport) Report {
	r := Report{Parts: parts}
	r.summarize()
	return r
}

func TestCheckHoldsImbalanceToItsLimits(t *testing.T) {
	for _, c := range []struct {
		name string
		r    Report
		want []string // nil: no error
	}{
		{"balanced", report(PartReport{Train: 105, Edges: 140}, PartReport{Train: 95, Edges: 60}),
			nil},
		{"seeds", report(PartReport{Train: 89}, PartReport{Train: 111}),
			[]string{"part 1 has 111 training seeds, which is 1.11 times the mean of 100.0; " +
				"the limit is 1.10", "--allow-imbalance"}},
		{"edges", report(PartReport{Edges: 151}, PartReport{Edges: 49}),
			[]string{"part 0 has 151 edges, which is 1.51 times", "--allow-imbalance"}},
		{"both", report(PartReport{Train: 9, Edges: 1}, PartReport{Train: 1, Edges: 9}),
			[]string{"part 0 has 9 training seeds", "part 1 has 9 edges"}},
		{"whole numbers force it",
			report(PartReport{Train: 2}, PartReport{Train: 2}, PartReport{Train: 2},
				PartReport{Train: 1}), nil},
		{"nothing to balance", report(PartReport{}, PartReport{}), nil},
	} {
		err := c.r.Check(DefaultLimits, "random")
		if (err != nil) != (c.want != nil) || err != nil && !errors.Is(err, ErrImbalance) {
			t.Errorf("%s: got %v", c.name, err)
		}
		for _, text := range c.want {
			if err != nil && !strings.Contains(err.Error(), text) {
				t.Errorf("%s: %q lacks %q", c.name, err, text)
			}
		}
	}
}

// A vertex that no cut can divide is no fault of the cut; what lies beside it is. Cures name what
// was not used.
func TestHubsAreAllowed(t *testing.T) {
	hub := []Hub{{Vertex: 7, Part: 1, Edges: 300}}
	for _, c := range []struct {
		name   string
		edges  [4]int64
		hubs   []Hub
		method string
		want   []string
	}{
		{"a hub", [4]int64{100, 400, 100, 100}, hub, "metis", nil},
		{"another part is large", [4]int64{100, 300, 300, 10}, hub, "metis",
			[]string{"part 1 has 300", "use --method kaminpar or ldg, fewer parts, another --seed",
				"vertex 7 alone has 300 edges, so at most 3 parts can be balanced"}},
		{"a hub that its part has room for", [4]int64{200, 400, 100, 100},
			[]Hub{{Vertex: 7, Part: 1, Edges: 200}}, "metis",
			[]string{"part 1 has 400 edges, which is 2.00 times the mean"}},
		{"no hub", [4]int64{100, 400, 100, 100}, nil, "contiguous",
			[]string{"use --method metis, kaminpar or ldg, fewer parts, or --allow-imbalance"}},
	} {
		var parts []PartReport
		for _, n := range c.edges {
			parts = append(parts, PartReport{Edges: n})
		}
		r := report(parts...)
		r.Hubs = c.hubs
		err := r.Check(DefaultLimits, c.method)
		if (err == nil) != (c.want == nil) {
			t.Errorf("%s: %v", c.name, err)
		}
		for _, want := range c.want {
			if err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v lacks %q", c.name, err, want)
			}
		}
	}
	star := make([][2]int, 30)
	for i := range star {
		star[i] = [2]int{i + 1, 0}
	}
	r := Measure(edges(t, 31, star...), make([]int32, 31), 3, graph.Split{})
	if len(r.Hubs) != 1 || r.Hubs[0] != (Hub{0, 0, 30}) ||
		!strings.Contains(r.Note(), "vertex 0 has 30 edges, 3.0 times") {
		t.Errorf("hubs of a star: %v, %s", r.Hubs, r.Note())
	}
}

func TestReportReadsAsATableAndAsJSON(t *testing.T) {
	r := Measure(edges(t, 4, [2]int{0, 1}, [2]int{2, 1}, [2]int{3, 1}, [2]int{0, 2}),
		[]int32{0, 0, 1, 1}, 2,
		graph.Split{Train: []graph.VertexID{0, 2}, Test: []graph.VertexID{3}})
	want := `          part  vertices  train  valid+test  edges    cut   halo
             0         2      1           0      3      2      2
             1         2      1           1      1      1      1
           all         4      2           1      4      3      3
  largest/mean     1.000  1.000       2.000  1.500              
         share                                      75.0%  75.0%
`
	if got := r.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	text, err := json.Marshal(r)
	var back Report
	if err != nil || json.Unmarshal(text, &back) != nil || !reflect.DeepEqual(back, r) {
		t.Errorf("JSON %s reads back as %+v", text, back)
	}
}
