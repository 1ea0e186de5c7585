package dataset

import (
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/base/npy"
	"halognn/src/model/task"
	"halognn/src/topology/graph"
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
		s := SplitLinks(g, Fractions{0.7, 0.1, 0.2}, 9, symmetric)
		left := g.DropEdges(weights, Judged(&s))
		if err := s.Validate(g); err != nil {
			t.Error(err)
		}
		links := len(s.Train) + len(s.Valid) + len(s.Test)
		if want := len(before) - loops; symmetric && 2*links != want ||
			!symmetric && links != want {
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
				l := graph.Link{Source: g.Indices[e], Target: graph.VertexID(v)}
				if left[e] != weight(l) {
					t.Fatalf("edge %v has the weight %g of another", l, left[e])
				}
			}
		}
	}
}

// Links of files leave the graph; those of unknown vertices, on two sides, and no training links
// are refused, and so is a dataset in which a test link passes messages.
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
		_, err := Import(ImportOptions{
			Format: "edgelist", In: in, Out: filepath.Join(dir, out), Undirected: Yes,
			SplitLinks: from,
		})
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
	// of a table, whose rows come in any order
	table := ImportOptions{Format: "csv", In: filepath.Join(dir, "edges.csv"), Undirected: Yes,
		Out: filepath.Join(dir, "table"), SplitLinks: filepath.Join(dir, "split")}
	table.Table.Nodes = filepath.Join(dir, "nodes.csv")
	must(os.WriteFile(table.Table.Nodes, []byte("id,label\n50,0\n10,1\n40,0\n20,1\n30,0\n"), 0o666))
	ring := "source,target\n10,20\n20,30\n30,40\n40,50\n50,10\n10,30\n"
	must(os.WriteFile(table.In, []byte(ring), 0o666))
	_, err = Import(table)
	must(err)
	other, err := Open(table.Out)
	must(err)
	if got := other.Links; got.Valid[0] != (graph.Link{Source: 3, Target: 1}) ||
		got.Test[0] != (graph.Link{Source: 2, Target: 4}) {
		t.Errorf("links of a table: %+v", got)
	}
	must(other.Close())
	leaky := graph.LinkSplit{Train: d.Links.Train[:2], Valid: d.Links.Train[3:]}
	if err := leaky.Validate(d.Graph); err == nil ||
		!strings.Contains(err.Error(), "is an edge of the graph") {
		t.Errorf("a validation link that is an edge: %v", err)
	}
	must(d.Close())
	for want, err := range map[string]error{
		"has a wrong end: vertex 99": take("a", nil, []int64{99, 10}, []int64{40, 30}),
		"on two sides of the split": take("b", []int64{10, 20}, []int64{20, 10},
			[]int64{40, 30}),
		"there are no training links":       take("c", []int64{}, []int64{20, 10}, []int64{40, 30}),
		"--split-links must be shares such": take("d", nil, nil, []int64{40, 30}),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
}

// Labels of links come from a column of edges or from files beside the links, and both directions
// of a pair have one. What is no label, and where nothing is to be learnt, is refused.
func TestImportLinkLabels(t *testing.T) {
	dir := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	in := filepath.Join(dir, "edges.csv")
	take := func(rows string, change func(o *ImportOptions)) (*Dataset, error) {
		must(os.WriteFile(in, []byte("source,target,kind,a,b\n"+rows), 0o666))
		o := ImportOptions{
			Format: "csv", In: in, Out: filepath.Join(dir, "out"), Undirected: Yes, Seed: 3,
			SplitLinks: "60/20/20", Task: task.LinkClasses, LinkLabels: []string{"kind"},
		}
		change(&o)
		must(os.RemoveAll(o.Out))
		if _, err := Import(o); err != nil {
			return nil, err
		}
		d, err := Open(o.Out)
		must(err)
		must(d.Verify())
		return d, nil
	}
	plain := func(*ImportOptions) {}
	numbers := func(o *ImportOptions) {
		o.Task, o.LinkLabels = task.LinkNumbers, []string{"a", "b"}
	}
	// kind and a are functions of the sum of both ids, b of their product
	nodes := filepath.Join(dir, "nodes.csv")
	must(os.WriteFile(nodes, []byte("id,label\n1,f\n2,m\n3,f\n4,x\n5,m\n"), 0o666))
	rows := "1,2,0,3,2\n" +
		"2,3,2,5,6\n" +
		"3,4,1,7,12\n" +
		"4,5,0,9,20\n" +
		"5,1,0,6,5\n" +
		"1,3,1,4,3\n" +
		"3,1,1,4,3\n" +
		"2,2,9,9,9\n"
	d, err := take(rows, func(o *ImportOptions) { o.Table.Nodes = nodes })
	must(err)
	if names := d.Meta.Provenance.Classes; names != nil {
		t.Errorf("links have the names of classes of vertices, %v", names)
	}
	must(d.Close())
	d, err = take(rows, plain)
	must(err)
	if d.Meta.Task != task.LinkClasses || d.Meta.Classes != 3 || len(d.Links.Train) != 4 ||
		d.LinkLabels[2].Width != 4 {
		t.Errorf("%+v", d.Meta)
	}
	for k, list := range d.Links.Lists() {
		for i, l := range *list {
			got := npy.View[int32](d.LinkLabels[k].Row(i))[0]
			if want := (int32(l.Source) + int32(l.Target) + 2) % 3; got != want {
				t.Errorf("link %v has class %d, want %d", l, got, want)
			}
		}
	}
	damaged := d.LinkLabels[0]
	damaged.Data = append(mem.Bytes([]int32{7}), damaged.Data[4:]...)
	err = CheckLinkLabels(d.Meta.Task, 3, 0, d.Links.Train, damaged)
	if err == nil || !strings.Contains(err.Error(), "train links, label of link 0 is 7") {
		t.Errorf("a class beyond all: %v", err)
	}
	must(d.Close())
	d, err = take(rows, numbers)
	must(err)
	for k, list := range d.Links.Lists() {
		for i, l := range *list {
			a, b := float32(l.Source+1), float32(l.Target+1)
			if got := npy.View[float32](d.LinkLabels[k].Row(i)); got[0] != a+b || got[1] != a*b ||
				d.Meta.Classes != 2 {
				t.Errorf("link %v has %v", l, got)
			}
		}
	}
	must(d.Close())

	from := filepath.Join(dir, "split")
	must(os.MkdirAll(from, 0o777))
	put := func(name string, err error) func(*ImportOptions) {
		must(err)
		return func(o *ImportOptions) { o.SplitLinks, o.LinkLabels = from, []string{name} }
	}
	for name, ids := range map[string][]int64{
		"train": {1, 2, 2, 3},
		"valid": {3, 4},
		"test":  {5, 1},
	} {
		_, err := npy.WriteFile(filepath.Join(from, name+".npy"), ids, len(ids)/2, 2)
		must(err)
		y := []int64{4, 1}[:len(ids)/2]
		_, err = npy.WriteFile(filepath.Join(from, name+"_rating.npy"), y, len(y))
		must(err)
	}
	d, err = take(rows, put("rating", nil))
	must(err)
	if d.Meta.Classes != 5 || npy.View[int32](d.LinkLabels[0].Data)[1] != 1 {
		t.Errorf("%+v of files", d.LinkLabels)
	}
	must(d.Close())
	_, err = npy.WriteFile(filepath.Join(from, "train_half.npy"), []float32{0.5, 1}, 2)
	short := put("half", err)
	notANumber := float32(math.NaN())
	_, err = npy.WriteFile(filepath.Join(from, "train_nan.npy"), []float32{1, notANumber}, 2)
	nan := put("nan", err)

	one := "1,2,0,1,2\n2,3,0,1,6\n3,4,0,1,12\n4,5,0,1,20\n5,1,0,1,5\n"
	for want, c := range map[string]struct {
		rows   string
		change func(*ImportOptions)
	}{
		"which is no finite number":       {rows + "1,4,,1,1\n", plain},
		`is "nan", which is no finite`:    {rows + "1,4,nan,1,1\n", plain},
		`kind of an edge is "red"`:        {rows + "1,4,red,1,1\n", plain},
		"a link has -1":                   {rows + "1,4,-1,1,1\n", plain},
		"a link has 0.5":                  {rows + "1,4,0.5,1,1\n", plain},
		"a link has 70000":                {rows + "1,4,70000,1,1\n", plain},
		"between 3 and 1 have two labels": {strings.Replace(rows, "3,1,1", "3,1,2", 1), plain},
		"is 0 for every link":             {one, plain},
		"column 0 is 1 for every link":    {one, numbers},
		"there is no column \"class\"": {rows,
			func(o *ImportOptions) { o.LinkLabels = []string{"class"} }},
		"name one column": {rows,
			func(o *ImportOptions) { o.LinkLabels = []string{"a", "b"} }},
		"holds edge ends": {rows,
			func(o *ImportOptions) { o.LinkLabels = []string{"source"} }},
		"edges with features cannot be links": {rows,
			func(o *ImportOptions) { o.Table.EdgeFeatures = []string{"a"} }},
		"(--keep-duplicates) where links have": {rows,
			func(o *ImportOptions) { o.KeepDuplicates = true }},
		"a link has 0.5: ": {rows, short},
		"link 1 has NaN":   {rows, nan},
	} {
		if _, err := take(c.rows, c.change); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
}

// Shares without training links, and links of graphs with types, are refused before anything is
// drawn.
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
