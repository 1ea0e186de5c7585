package dataset

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"halognn/src/graph"
	"halognn/src/npy"
	"halognn/src/task"
)

// Both directions of a pair are on one side, of the size asked for; what is judged is no edge, and
// what trains still is; weights stay with their edges.
func TestSplitLinks(t *testing.T) {
	const n = 200
	r := rand.New(rand.NewPCG(3, 4))
	for _, symmetric := range []bool{true, false} {
		var edges graph.Builder
		for range 8 * n {
			edges.Add(graph.VertexID(r.IntN(n)), graph.VertexID(r.IntN(n)))
		}
		g, _, err := edges.Build(n, graph.CleanOptions{Undirected: symmetric, KeepLoops: true})
		if err != nil {
			t.Fatal(err)
		}
		weight := func(l graph.Link) float32 { return float32(l.Source) + float32(l.Target)/n }
		weights, before, loops := []float32(nil), map[graph.Link]bool{}, 0
		for v := range n {
			for _, u := range g.InNeighbours(graph.VertexID(v)) {
				l := graph.Link{Source: u, Target: graph.VertexID(v)}
				before[l], weights = true, append(weights, weight(l))
				if l.Source == l.Target {
					loops++
				}
			}
		}
		s, left := SplitLinks(g, weights, Fractions{0.7, 0.1, 0.2}, 9, symmetric)
		if err := s.Validate(g); err != nil {
			t.Error(err)
		}
		links := len(s.Train) + len(s.Valid) + len(s.Test)
		if want := len(before) - loops; symmetric && 2*links != want || !symmetric && links != want {
			t.Errorf("symmetric %v: %d links of %d edges", symmetric, links, want)
		}
		if share := float64(len(s.Test)) / float64(links); share < 0.18 || share > 0.22 {
			t.Errorf("symmetric %v: a share of %.3f tests", symmetric, share)
		}
		for _, l := range s.Train {
			if !before[l] || !g.Has(l) {
				t.Fatalf("the training link %v is no edge", l)
			}
		}
		for v := range n {
			for e := g.Indptr[v]; e < g.Indptr[v+1]; e++ {
				if l := (graph.Link{Source: g.Indices[e], Target: graph.VertexID(v)}); left[e] != weight(l) {
					t.Fatalf("edge %v has the weight %g of another", l, left[e])
				}
			}
		}
	}
}

// Links of files leave the graph; those of unknown vertices, on two sides, and no training links are
// refused, and so is a dataset in which a test link passes messages.
func TestImportLinks(t *testing.T) {
	dir := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	in := filepath.Join(dir, "edges.txt")
	must(os.WriteFile(in, []byte("10 20\n20 30\n30 40\n40 50\n50 10\n10 30\n"), 0o666))
	take := func(out string, train, valid, test []int64) error {
		from := filepath.Join(dir, "split")
		must(os.MkdirAll(from, 0o777))
		for name, ids := range map[string][]int64{"train": train, "valid": valid, "test": test} {
			if path := filepath.Join(from, name+".npy"); ids == nil {
				_ = os.Remove(path)
			} else if _, err := npy.WriteFile(path, ids, len(ids)/2, 2); err != nil {
				t.Fatal(err)
			}
		}
		_, err := Import(ImportOptions{Format: "edgelist", In: in, Out: filepath.Join(dir, out), Undirected: Yes,
			SplitLinks: from})
		return err
	}
	must(take("good", nil, []int64{20, 10}, []int64{40, 30}))
	d, err := Open(filepath.Join(dir, "good"))
	must(err)
	must(d.Verify())
	if d.Meta.Task != task.Links || len(d.Links.Train) != 4 || d.Meta.Edges != 8 ||
		d.Links.Valid[0] != (graph.Link{Source: 1, Target: 0}) {
		t.Errorf("%+v, %d edges", d.Links, d.Meta.Edges)
	}
	leaky := graph.LinkSplit{Train: d.Links.Train[:2], Valid: d.Links.Train[3:]}
	if err := leaky.Validate(d.Graph); err == nil || !strings.Contains(err.Error(), "is an edge of the graph") {
		t.Errorf("a validation link that is an edge: %v", err)
	}
	must(d.Close())
	for want, err := range map[string]error{
		"a link of vertex 99":          take("a", nil, []int64{99, 10}, []int64{40, 30}),
		"on two sides of the split":    take("b", []int64{10, 20}, []int64{20, 10}, []int64{40, 30}),
		"there are no training links":  take("c", []int64{}, []int64{20, 10}, []int64{40, 30}),
		"--split-links is shares such": take("d", nil, nil, []int64{40, 30}),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
}

// Shares without training links, and links of graphs with types, are refused before anything is drawn.
func TestGenerateLinks(t *testing.T) {
	for want, o := range map[string]GenerateOptions{
		"no training links":    {Vertices: 50, SplitLinks: "0/50/50"},
		"without vertex types": {Preset: MAG, SplitLinks: "80/10/10"},
	} {
		if _, err := o.Resolve(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
}
