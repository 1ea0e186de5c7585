package dataset_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"halognn/src/data/dataset"
)

// Features of edges come with their edge, from every format: in the order of the in-edges, with
// that of the reverse where an edge is there because of it alone, and the mean where it comes
// several times.
func TestImportEdgeFeatures(t *testing.T) {
	const edges = "u,v,a,b\n2,0,20,-1\n1,0,10,-2\n0,2,2,-3\n1,2,12,-4\n1,2,14,-6\n"
	table := func(dir string) dataset.ImportOptions {
		path := filepath.Join(dir, "edges.csv")
		write(t, path, []byte(edges))
		return dataset.ImportOptions{Format: "csv", In: path,
			Table: dataset.TableOptions{EdgeFeatures: []string{"a", "b"}}}
	}
	ogb := func(dir string) dataset.ImportOptions {
		raw := filepath.Join(dir, "raw")
		if err := os.MkdirAll(raw, 0o777); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{
			"edge":          "2,0\n1,0\n0,2\n1,2\n1,2\n",
			"edge-feat":     "20,-1\n10,-2\n2,-3\n12,-4\n14,-6\n",
			"num-node-list": "3\n",
			"num-edge-list": "5\n",
		} {
			write(t, filepath.Join(raw, name+".csv"), []byte(text))
		}
		return dataset.ImportOptions{Format: "ogb", In: dir}
	}
	for name, from := range map[string]func(string) dataset.ImportOptions{
		"csv": table,
		"ogb": ogb,
	} {
		for undirected, want := range map[dataset.Choice][]float32{
			dataset.No:  {10, -2, 20, -1, 2, -3, 13, -5},
			dataset.Yes: {10, -2, 20, -1, 10, -2, 13, -5, 2, -3, 13, -5},
		} {
			o := from(t.TempDir())
			o.Undirected = undirected
			d, r := imported(t, o)
			if !slices.Equal(d.EdgeRows, want) || r.EdgeFeatures != 2 || d.Meta.EdgeFeatures != 2 {
				t.Errorf("%s, undirected %v: %v, want %v; in-neighbours %v", name, undirected,
					d.EdgeRows, want, d.Graph.Indices)
			}
			if !strings.Contains(r.String(), "1 edges come several times") {
				t.Errorf("%s: %s", name, r)
			}
		}
	}
	for want, text := range map[string]string{
		"line 3: bad value: a of an edge is \"x\"":   "u,v,a\n1,0,1\n2,0,x\n",
		"line 2: bad value: a of an edge is \"nan\"": "u,v,a\n1,0,nan\n",
		"no column \"a\"": "u,v,b\n1,0,1\n",
	} {
		path := filepath.Join(t.TempDir(), "edges.csv")
		write(t, path, []byte(text))
		_, err := dataset.Import(dataset.ImportOptions{Format: "csv", In: path,
			Out:   filepath.Join(t.TempDir(), "out"),
			Table: dataset.TableOptions{EdgeFeatures: []string{"a"}}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	for want, given := range map[string]dataset.ImportOptions{
		"--edge-features names column a twice": {
			Table: dataset.TableOptions{EdgeFeatures: []string{"a", "a"}},
		},
		"--edge-features and --ignore both name column a": {
			Ignore: []string{"a"}, Table: dataset.TableOptions{EdgeFeatures: []string{"a"}},
		},
	} {
		given.Format, given.In = "csv", filepath.Join(t.TempDir(), "edges.csv")
		given.Out = filepath.Join(t.TempDir(), "out")
		write(t, given.In, []byte("u,v,a\n1,0,1\n"))
		if _, err := dataset.Import(given); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	o := ogb(t.TempDir())
	write(t, filepath.Join(o.In, "raw", "edge-feat.csv"), []byte("1\n2\n"))
	o.Out = filepath.Join(t.TempDir(), "out")
	if _, err := dataset.Import(o); err == nil ||
		!strings.Contains(err.Error(), "2 rows, but 5 edges") {
		t.Errorf("got %v", err)
	}
}

// Weights of OGB's text are a row for each edge, in their order.
func TestImportOGBWeights(t *testing.T) {
	files := map[string]string{
		"raw/edge.csv":          "0,1\n1,2\n",
		"raw/num-node-list.csv": "3\n",
		"raw/edge_weight.csv":   "3\n1\n",
	}
	dir := written(t, files)
	d, r := imported(t, dataset.ImportOptions{Format: "ogb", In: dir})
	// of 0 by 1; of 1 by 0 and 2; of 2 by 1
	if !slices.Equal(d.Weights, []float32{3, 3, 1, 1}) ||
		!strings.Contains(r.String(), "edge_weight.csv: weight") {
		t.Errorf("weights %v\n%s", d.Weights, r)
	}
	d, _ = imported(t, dataset.ImportOptions{
		Format: "ogb", In: dir, Ignore: []string{"edge_weight"},
	})
	if d.Weights != nil {
		t.Errorf("weights %v that are ignored", d.Weights)
	}
	for text, want := range map[string]string{
		"3\n":       "1 rows, but 2 edges",
		"3\n1\n2\n": "more rows than the 2 edges",
		"3\n-1\n":   "line 2: an edge has weight -1",
	} {
		write(t, filepath.Join(dir, "raw", "edge_weight.csv"), []byte(text))
		_, err := dataset.Import(dataset.ImportOptions{Format: "ogb", In: dir, DryRun: true})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
