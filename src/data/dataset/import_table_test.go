package dataset_test

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"halognn/src/base/npy"
	"halognn/src/data/dataset"
	"halognn/src/model/task"
	"halognn/src/topology/graph"
)

// Users' own data: names of columns and arrays, words as ids and classes.
func TestImportOwnData(t *testing.T) {
	type check = func(t *testing.T, d *dataset.Dataset, r dataset.ImportReport)
	noted := func(t *testing.T, r dataset.ImportReport, want string) {
		t.Helper()
		if !slices.ContainsFunc(r.Notes, func(n string) bool { return strings.Contains(n, want) }) {
			t.Errorf("no note with %q: %q", want, r.Notes)
		}
	}
	for _, c := range []struct {
		name  string
		make  func(t testing.TB, dir string, o *dataset.ImportOptions)
		check check
	}{
		{"tables of words, joined in the order of the nodes",
			func(t testing.TB, dir string, o *dataset.ImportOptions) {
				inFiles("edges.csv", "weight;to;from\n1;bob;zoe\n2;\"a;b\";bob\n",
					"nodes.csv.gz", string(zipped("node,Class,age,split\nzoe,red,1,train\n"+
						"\"a;b\",,2,val\nbob,blue,3,test\n")))(t, dir, o)
			}, func(t *testing.T, d *dataset.Dataset, r dataset.ImportReport) {
				if !slices.Equal(d.Graph.Indptr, []int64{0, 0, 1, 2}) ||
					!slices.Equal(d.Graph.Indices, []graph.VertexID{2, 0}) {
					t.Errorf("graph %v %v", d.Graph.Indptr, d.Graph.Indices)
				}
				if !slices.Equal(npy.View[int32](d.Labels.Data), []int32{1, -1, 0}) ||
					!slices.Equal(d.Meta.Provenance.Classes, []string{"blue", "red"}) {
					t.Errorf("labels %v of %v", d.Labels, d.Meta.Provenance.Classes)
				}
				names := string(load[uint8](t, d.Dir, "original_name.npy"))
				if got := names; got != "zoe\na;b\nbob\n" {
					t.Errorf("names %q", got)
				}
				if got := load[float32](t, d.Dir, "features.npy"); !slices.Equal(got,
					[]float32{1, 2, 3}) {
					t.Errorf("features %v", got)
				}
				if len(d.Split.Train) != 1 || len(d.Split.Valid) != 0 || len(d.Split.Test) != 1 ||
					r.Unlabelled != 1 {
					t.Errorf("split %v", d.Split)
				}
				if !strings.Contains(r.String(), "0.0 % of the edges have their reverse") {
					t.Errorf("report %s", r)
				}
				if !slices.Equal(d.Weights, []float32{2, 1}) || !d.Meta.Weighted || !r.Weighted {
					t.Errorf("weights %v", d.Weights)
				}
			}},
		{"an edge table alone, with numbers for ids", inFiles("edges.tsv",
			"30\t4\n4\t100\n4\t30\n"),
			func(t *testing.T, d *dataset.Dataset, r dataset.ImportReport) {
				if ids := load[int64](t, d.Dir, "original_id.npy"); !slices.Equal(ids,
					[]int64{4, 30, 100}) {
					t.Errorf("ids %v", ids)
				}
				if !slices.Equal(d.Graph.Indices, []graph.VertexID{1, 0, 0}) || r.Reciprocal != 2 {
					t.Errorf("edges %v, %d with their reverse", d.Graph.Indices, r.Reciprocal)
				}
			}},
		{"words for ids alone, and a split of them",
			func(t testing.TB, dir string, o *dataset.ImportOptions) {
				inFiles("edges.csv", "a,b\nb,7\n")(t, dir, o)
				o.Table.NoHeader, o.Table.Source, o.Table.Target = true, "0", "1"
				o.Split = filepath.Join(dir, "split.csv")
				write(t, o.Split, []byte("b,train\n7,test\n"))
			}, func(t *testing.T, d *dataset.Dataset, r dataset.ImportReport) {
				if got := string(load[uint8](t, d.Dir, "original_name.npy")); got != "7\na\nb\n" {
					t.Errorf("names %q", got)
				}
				if !slices.Equal(d.Split.Train, []graph.VertexID{2}) ||
					!slices.Equal(d.Split.Test, []graph.VertexID{0}) {
					t.Errorf("split %v", d.Split)
				}
			}},
		{"arrays beside a table", func(t testing.TB, dir string, o *dataset.ImportOptions) {
			inFiles("edges.csv", "source,target\n0,1\n1,2\n")(t, dir, o)
			o.Table.Features = []string{filepath.Join(dir, "x.npy")}
			o.Table.Labels = []string{filepath.Join(dir, "y.npy")}
			write(t, o.Table.Features[0], array(t, []float32{1, 2, 3, 4, 5, 6}, 3, 2))
			write(t, o.Table.Labels[0], texts("<U2", wideText("b", "aé", "b"), "3,"))
		}, func(t *testing.T, d *dataset.Dataset, r dataset.ImportReport) {
			if d.Meta.Features != 2 ||
				!slices.Equal(npy.View[int32](d.Labels.Data), []int32{1, 0, 1}) ||
				d.Meta.Provenance.Classes[0] != "aé" {
				t.Errorf("labels %v of %q", d.Labels, d.Meta.Provenance.Classes)
			}
		}},
		{"several labels a vertex", func(t testing.TB, dir string, o *dataset.ImportOptions) {
			nodes("id,p,q,f\na,1,true,7\nb,0,0,8\nc,False,1,9\n")(t, dir, o)
			o.Table.Labels, o.Ignore = []string{"p", "q"}, []string{"f"}
		}, func(t *testing.T, d *dataset.Dataset, r dataset.ImportReport) {
			if !slices.Equal(d.Labels.Data, []uint8{1, 1, 0, 0, 0, 1}) || d.Meta.Features != 0 {
				t.Errorf("labels %v, %d features", d.Labels.Data, d.Meta.Features)
			}
		}},
		{"classes that are years, and one that is missing", nodes("id,y\na,2004\nb,-1\nc,1999\n"),
			func(t *testing.T, d *dataset.Dataset, r dataset.ImportReport) {
				if !slices.Equal(npy.View[int32](d.Labels.Data), []int32{1, -1, 0}) ||
					!slices.Equal(d.Meta.Provenance.Classes, []string{"1999", "2004"}) {
					t.Errorf("labels %v of %v", d.Labels, d.Meta.Provenance.Classes)
				}
			}},
		{"classes with a point behind them", nodes("id,y\na,0.0\nb,nan\nc,1.0\n"),
			func(t *testing.T, d *dataset.Dataset, r dataset.ImportReport) {
				if !slices.Equal(npy.View[int32](d.Labels.Data), []int32{0, -1, 1}) ||
					d.Meta.Provenance.Classes != nil {
					t.Errorf("labels %v of %v", d.Labels, d.Meta.Provenance.Classes)
				}
			}},
		{"the names of heterophilous graphs, and the second of their splits",
			func(t testing.TB, dir string, o *dataset.ImportOptions) {
				o.Format, o.In, o.SplitIndex = "npz", filepath.Join(dir, "g.npz"), index(1)
				archive(t, o.In, map[string][]byte{
					"edges":         array(t, []int64{0, 1, 1, 2, 2, 0}, 3, 2),
					"node_features": array(t, make([]float32, 6), 3, 2),
					"node_labels":   array(t, []int64{0, 1, 0}, 3),
					"train_masks":   array(t, []uint8{1, 0, 0, 0, 1, 0}, 2, 3),
					"val_masks":     array(t, []uint8{0, 1, 0, 0, 0, 1}, 2, 3),
					"test_masks":    array(t, []uint8{0, 0, 1, 1, 0, 0}, 2, 3),
					"edge_weight":   array(t, []float32{1, 2, 3}, 3),
					"pos":           array(t, make([]float32, 9), 3, 3),
				})
			}, func(t *testing.T, d *dataset.Dataset, r dataset.ImportReport) {
				if !slices.Equal(d.Split.Train, []graph.VertexID{1}) ||
					!slices.Equal(d.Split.Valid, []graph.VertexID{2}) {
					t.Errorf("split %v", d.Split)
				}
				if !slices.Equal(d.Weights, []float32{3, 1, 2}) { // of 2 -> 0, 0 -> 1, 1 -> 2
					t.Errorf("weights %v", d.Weights)
				}
				noted(t, r, "array pos is not read")
				if len(r.Notes) != 1 {
					t.Errorf("notes %q", r.Notes)
				}
			}},
		{"all splits, of which one list is of all",
			func(t testing.TB, dir string, o *dataset.ImportOptions) {
				inArrays(func(t testing.TB) map[string][]byte {
					return map[string][]byte{
						"train_mask": array(t, []uint8{0, 1, 1, 0, 0, 0}, 3, 2),
						"test_mask":  array(t, []uint8{0, 0, 1}, 3),
					}
				})(t, dir, o)
				o.AllSplits = true
			},
			func(t *testing.T, d *dataset.Dataset, r dataset.ImportReport) {
				want := []graph.Split{{Train: []graph.VertexID{1}, Test: []graph.VertexID{2}},
					{Train: []graph.VertexID{0}, Test: []graph.VertexID{2}}}
				for k, s := range append([]graph.Split{d.Split}, d.More...) {
					if k >= len(want) || !slices.Equal(s.Train, want[k].Train) ||
						!slices.Equal(s.Test, want[k].Test) || len(s.Valid) > 0 {
						t.Errorf("split %d: %v", k, s)
					}
				}
				if len(d.More) != 1 ||
					!strings.Contains(r.Split, "the first of 2; data.split chooses") {
					t.Errorf("%d more splits; %s", len(d.More), r.Split)
				}
				if err := d.Verify(); err != nil {
					t.Error(err)
				}
			}},
		{"masks as PyG has them", func(t testing.TB, dir string, o *dataset.ImportOptions) {
			inArrays(plus("train_mask", func(t testing.TB) []byte {
				return array(t, []uint8{0, 1, 0, 0, 1, 0}, 3, 2)
			}))(t, dir, o)
			o.SplitIndex = index(1)
		}, func(t *testing.T, d *dataset.Dataset, r dataset.ImportReport) {
			if !slices.Equal(d.Split.Train, []graph.VertexID{0}) {
				t.Errorf("split %v", d.Split)
			}
		}},
		{"keys of one's own, and types left out",
			func(t testing.TB, dir string, o *dataset.ImportOptions) {
				inArrays(func(t testing.TB) map[string][]byte {
					return map[string][]byte{
						"embedding": array(t, []float32{1, 2, 3}, 3, 1),
						"edge_type": array(t, []int64{0, 1}, 2),
					}
				})(t, dir, o)
				o.Keys, o.Ignore = map[string]string{"x": "embedding"}, []string{"edge_type"}
			}, func(t *testing.T, d *dataset.Dataset, r dataset.ImportReport) {
				if d.Meta.Features != 1 {
					t.Errorf("%d features", d.Meta.Features)
				}
				noted(t, r, "array edge_type is not read")
				noted(t, r, "array x is not read")
			}},
		{"ids beside rows", inArrays(func(t testing.TB) map[string][]byte {
			return map[string][]byte{
				"ids":       texts("|S2", []byte("b\x00a\x00cc"), "3,"),
				"num_nodes": array(t, []int64{3}, 1),
				"train_idx": array(t, []int64{2}, 1),
			}
		}), func(t *testing.T, d *dataset.Dataset, r dataset.ImportReport) {
			if got := string(load[uint8](t, d.Dir, "original_name.npy")); got != "b\na\ncc\n" {
				t.Errorf("names %q", got)
			}
			if !slices.Equal(d.Split.Train, []graph.VertexID{2}) {
				t.Errorf("split %v", d.Split)
			}
		}},
		{"a scipy matrix beside arrays", func(t testing.TB, dir string, o *dataset.ImportOptions) {
			scipy("csc", plus("data", func(t testing.TB) []byte {
				return array(t, []float64{1, 2}, 2)
			}))(t, dir, o)
			o.In = dir
			write(t, filepath.Join(dir, "x.npy"), array(t, make([]float32, 6), 3, 2))
			write(t, filepath.Join(dir, "y.npy"), array(t, []int64{1, 0, 1}, 3))
		}, func(t *testing.T, d *dataset.Dataset, r dataset.ImportReport) {
			// CSC: column 0 holds row 1, column 1 holds row 2: the edges 1 -> 0 and 2 -> 1.
			if !slices.Equal(d.Graph.Indptr, []int64{0, 1, 2, 2}) ||
				!slices.Equal(d.Graph.Indices, []graph.VertexID{1, 2}) {
				t.Errorf("graph %v %v", d.Graph.Indptr, d.Graph.Indices)
			}
			if d.Meta.Features != 2 ||
				!slices.Equal(npy.View[int32](d.Labels.Data), []int32{1, 0, 1}) {
				t.Errorf("%d features, labels %v", d.Meta.Features, d.Labels)
			}
			noted(t, r, "the values of data are ignored: features of edges")
			if d.Weights != nil {
				t.Errorf("weights %v", d.Weights)
			}
		}},
		{"a scipy matrix whose values are weights",
			func(t testing.TB, dir string, o *dataset.ImportOptions) {
				scipy("csc", func(t testing.TB) map[string][]byte {
					return map[string][]byte{"data": array(t, []float64{1, 2}, 2)}
				})(t, dir, o)
				o.Keys = map[string]string{"edge_weight": "data"}
			}, func(t *testing.T, d *dataset.Dataset, r dataset.ImportReport) {
				if !slices.Equal(d.Weights, []float32{1, 2}) {
					t.Errorf("weights %v", d.Weights)
				}
			}},
		{"weights of edges that come twice, of loops, and of reverse edges",
			func(t testing.TB, dir string, o *dataset.ImportOptions) {
				inFiles("edges.csv", "u,v,cost\na,b,0.5\nb,c,2\na,b,1\nc,b,0\nc,c,9\n")(t, dir, o)
				o.Undirected, o.Table.Weight = dataset.Yes, "cost"
			}, func(t *testing.T, d *dataset.Dataset, r dataset.ImportReport) {
				if !slices.Equal(d.Graph.Indices, []graph.VertexID{1, 0, 2, 1}) ||
					!slices.Equal(d.Weights, []float32{1.5, 1.5, 0, 2}) {
					t.Errorf("edges %v of weights %v", d.Graph.Indices, d.Weights)
				}
				if err := d.Verify(); err != nil {
					t.Error(err)
				}
			}},
		{"weights left out", func(t testing.TB, dir string, o *dataset.ImportOptions) {
			inFiles("edges.csv", "u,v,weight\na,b,-1\n")(t, dir, o)
			o.Ignore = []string{"weight"}
		}, func(t *testing.T, d *dataset.Dataset, r dataset.ImportReport) {
			if d.Weights != nil || d.Meta.Weighted {
				t.Errorf("weights %v", d.Weights)
			}
			noted(t, r, "weight is ignored")
		}},
		{"columns of the usual names left out",
			func(t testing.TB, dir string, o *dataset.ImportOptions) {
				nodes("id,node,y,class,part\n7,a,1,x,9\n7,b,2,y,9\n7,c,3,y,9\n")(t, dir, o)
				o.Ignore = []string{"id", "y", "part"}
			},
			func(t *testing.T, d *dataset.Dataset, r dataset.ImportReport) {
				if d.Meta.Features != 0 ||
					!slices.Equal(d.Meta.Provenance.Classes, []string{"x", "y"}) ||
					len(d.Split.Train) != 1 {
					t.Errorf("%d features, classes %q, split %v", d.Meta.Features,
						d.Meta.Provenance.Classes, d.Split)
				}
			}},
		{"the first column left out", func(t testing.TB, dir string, o *dataset.ImportOptions) {
			nodes("age,name,f,y\n7,a,1,x\n7,b,2,y\n7,c,3,y\n")(t, dir, o)
			o.Ignore = []string{"age"}
		}, func(t *testing.T, d *dataset.Dataset, r dataset.ImportReport) {
			if d.Meta.Features != 1 || d.Meta.Vertices != 3 {
				t.Errorf("%d features of %d vertices", d.Meta.Features, d.Meta.Vertices)
			}
		}},
		{"a scipy matrix by entries", scipy("coo", func(t testing.TB) map[string][]byte {
			return map[string][]byte{"row": array(t, []int32{0, 2}, 2),
				"col": array(t, []int32{1, 0}, 2)}
		}), func(t *testing.T, d *dataset.Dataset, r dataset.ImportReport) {
			if !slices.Equal(d.Graph.Indptr, []int64{0, 1, 2, 2}) ||
				!slices.Equal(d.Graph.Indices, []graph.VertexID{2, 0}) {
				t.Errorf("graph %v %v", d.Graph.Indptr, d.Graph.Indices)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var o dataset.ImportOptions
			c.make(t, t.TempDir(), &o)
			d, r := imported(t, o)
			c.check(t, d, r)
		})
	}
}

// wideText returns words of two characters as NumPy stores them.
func wideText(words ...string) (data []byte) {
	for _, w := range words {
		letters := append([]rune(w), 0)[:2]
		for _, r := range letters {
			data = append(data, byte(r), byte(r>>8), 0, 0)
		}
	}
	return data
}

// Another graph is shifted and scaled as the one that a model was trained on.
func TestImportStandardizesAsAnother(t *testing.T) {
	var o, new dataset.ImportOptions
	nodes("id,f,g,split\na,10,5,train\nb,30,5,train\nc,4,6,test\n")(t, t.TempDir(), &o)
	o.Standardize = true
	first, _ := imported(t, o)
	nodes("id,f,g\na,50,6\nb,20,5\nc,0,4\n")(t, t.TempDir(), &new)
	new.StandardizeAs = first.Dir
	d, r := imported(t, new)
	for v, want := range [][]float64{{3, 1}, {0, 0}, {-2, -1}} {
		row := make([]float32, 2)
		d.FeatureRow(row, graph.VertexID(v))
		for c := range want {
			if math.Abs(float64(row[c])-want[c]) > 1e-6 {
				t.Errorf("vertex %d is %v, want %v", v, row, want)
			}
		}
	}
	if !strings.Contains(strings.Join(r.Notes, "; "), "as those of") {
		t.Errorf("notes %q", r.Notes)
	}
	for _, c := range []struct{ as, table, want string }{
		{d.Dir + "-none", "id,f,g\na,1,1\nb,1,1\nc,1,1\n", "no such file"},
		{first.Dir, "id,f\na,1\nb,1\nc,1\n", "1 feature columns here, but 2 in"},
		{first.Dir, "id,label\na,x\nb,y\nc,x\n", "0 feature columns here"},
	} {
		var bad dataset.ImportOptions
		nodes(c.table)(t, t.TempDir(), &bad)
		bad.StandardizeAs, bad.Out = c.as, filepath.Join(t.TempDir(), "out")
		if _, err := dataset.Import(bad); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %q", err, c.want)
		}
	}
	var plain dataset.ImportOptions
	nodes("id,f,g\na,1,1\nb,1,1\nc,1,1\n")(t, t.TempDir(), &plain)
	unscaled, _ := imported(t, plain)
	plain.StandardizeAs, plain.Out = unscaled.Dir, filepath.Join(t.TempDir(), "out")
	if _, err := dataset.Import(plain); err == nil ||
		!strings.Contains(err.Error(), "was not standardized") {
		t.Errorf("got %v", err)
	}
}

// Standardized columns have mean 0 and variance 1 over the training vertices, whatever the storage
// type, and every value is the one that the definition gives.
func TestImportStandardizes(t *testing.T) {
	for _, stored := range []string{dataset.Float32, dataset.Float16} {
		var o dataset.ImportOptions
		nodes(
			"id,f,g,h,split\na,1e5,5,7,train\nb,3e5,5,9,train\nc,4e5,6,8,test\n",
		)(
			t,
			t.TempDir(),
			&o,
		)
		o.Standardize, o.FeatureType = true, stored
		d, r := imported(t, o)
		want := []float64{-1, 0, -1, 1, 0, 1, 2, 1, 0}
		for i := range want {
			row := make([]float32, 3)
			d.FeatureRow(row, graph.VertexID(i/3))
			if got := float64(row[i%3]); math.Abs(got-want[i]) > 1e-6 {
				t.Errorf("%s: vertex %d column %d is %g, want %g", stored, i/3, i%3, got, want[i])
			}
		}
		if n := len(r.Notes); n == 0 ||
			!strings.Contains(r.Notes[n-1], "over the 2 training vertices; 1 columns do not vary") {
			t.Errorf("notes %q", r.Notes)
		}
		if d.Meta.Provenance.Settings["standardize"] != "true" {
			t.Errorf("settings %v", d.Meta.Provenance.Settings)
		}
	}
}

// What standardizing makes too large for the storage type is refused.
func TestStandardizedFeaturesAreFinite(t *testing.T) {
	for stored, c := range map[string]struct{ value, want string }{
		dataset.Float16: {"-100", "vertex 2, column 0 is -100002: bad value: float16 ends"},
		dataset.Float32: {"1e38", "vertex 2, column 0 is +Inf"},
	} {
		var o dataset.ImportOptions
		nodes("id,f,split\na,1e-3,train\nb,3e-3,train\nc,"+c.value+",test\n")(t, t.TempDir(), &o)
		o.Standardize, o.FeatureType, o.Out = true, stored, filepath.Join(t.TempDir(), "out")
		if _, err := dataset.Import(o); !errors.Is(err, dataset.ErrValue) ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", stored, err)
		}
	}
}

// Replace replaces one directory by another, and Beside rejects a directory that is not a dataset.
func TestReplace(t *testing.T) {
	dir := t.TempDir()
	to := filepath.Join(dir, "d")
	var o dataset.ImportOptions
	nodes(goodNodes)(t, t.TempDir(), &o)
	o.Out = to
	if _, err := dataset.Import(o); err != nil {
		t.Fatal(err)
	}
	var err error
	if o.Out, err = dataset.Beside(to, false); err != nil {
		t.Fatal(err)
	}
	o.Undirected = dataset.Yes
	if _, err = dataset.Import(o); err != nil {
		t.Fatal(err)
	}
	if err := dataset.Replace(o.Out, to); err != nil {
		t.Fatal(err)
	}
	if edges := load[int32](t, to, "indices.npy"); len(edges) != 4 {
		t.Errorf("%d edges", len(edges))
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) != 1 {
		t.Errorf("left %v", left)
	}
	write(t, filepath.Join(dir, "other", "notes.txt"), []byte("mine"))
	if _, err := dataset.Beside(filepath.Join(dir, "other"), false); err == nil {
		t.Error("a directory of notes would be replaced")
	}
}

// Labels have the same classes, with the same names, from a table and from an array; -1 and -100,
// which PyTorch ignores, are none.
func TestLabelsAreTheSameFromTablesAndArrays(t *testing.T) {
	for _, c := range []struct {
		labels, want []int32
		classes      []string
	}{
		{[]int32{0, 2, 1, 2}, []int32{0, 2, 1, 2}, nil},
		{[]int32{2000, 0, 1000, 2000}, []int32{2, 0, 1, 2}, []string{"0", "1000", "2000"}},
		{[]int32{7, -100, 5, -1}, []int32{1, -1, 0, -1}, []string{"5", "7"}},
		{[]int32{-100, 1, 0, 0}, []int32{-1, 1, 0, 0}, nil},
	} {
		table, column, dir := "id,label\n", "", t.TempDir()
		for v, y := range c.labels {
			table += fmt.Sprintf("%d,%d\n", v, y)
			column += fmt.Sprintf("%d\n", y)
		}
		for name, text := range map[string]string{"num-node-list": "4\n", "edge": "0,1\n2,3\n",
			"node-label": column} {
			write(t, filepath.Join(dir, "ogb", "raw", name+".csv"), []byte(text))
		}
		write(t, filepath.Join(dir, "nodes.csv"), []byte(table))
		write(t, filepath.Join(dir, "edges.csv"), []byte("source,target\n0,1\n2,3\n"))
		write(t, filepath.Join(dir, "arrays", "edge_index.npy"),
			array(t, []int64{0, 2, 1, 3}, 2, 2))
		write(t, filepath.Join(dir, "arrays", "y.npy"), array(t, c.labels, len(c.labels)))
		csv := dataset.ImportOptions{Format: "csv", In: filepath.Join(dir, "edges.csv")}
		csv.Table.Nodes = filepath.Join(dir, "nodes.csv")
		for _, o := range []dataset.ImportOptions{
			csv,
			{Format: "npz", In: filepath.Join(dir, "arrays")},
			{Format: "ogb", In: filepath.Join(dir, "ogb")},
		} {
			o.Out = filepath.Join(dir, "from-"+o.Format)
			if _, err := dataset.Import(o); err != nil {
				t.Fatalf("%v as %s: %v", c.labels, o.Format, err)
			}
			d, err := dataset.Open(o.Out)
			if err != nil {
				t.Fatal(err)
			}
			got := d.Meta.Provenance.Classes
			if !slices.Equal(npy.View[int32](d.Labels.Data), c.want) ||
				!slices.Equal(got, c.classes) {
				t.Errorf("%v as %s: %v of %q", c.labels, o.Format, d.Labels, got)
			}
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Labels may lie in a text file of any kind: a row for each vertex in the order of the node table,
// or rows of an id and its labels in any order, where a vertex without a row has none.
func TestImportLabelFiles(t *testing.T) {
	const edges, nodes = "source,target\nann,bob\nbob,cy\n", "id,f\nbob,1\nann,2\ncy,3\n"
	for _, c := range []struct {
		name, text string
		task       string
		want       []int32 // of bob, ann and cy
		fault      string
	}{
		{"y.txt", "b\na\nb\n", "", []int32{1, 0, 1}, ""},
		{"y.csv", "label\nb\na\nb\n", "", []int32{1, 0, 1}, ""},
		{"y.csv", "3\n7\n3\n", "", []int32{0, 1, 0}, ""},
		{"y.tsv", "cy\tb\nann\ta\n", "", []int32{-1, 0, 1}, ""},
		{"y.csv", "id,label\ncy,b\nann,a\nbob,\n", "", []int32{-1, 0, 1}, ""},
		{"y.csv", "person,colour\ncy,b\nann,a\n", "", []int32{-1, 0, 1}, ""},
		{"y.csv", "id,p,q\ncy,0,1\nann,1,1\nbob,1,0\n", task.Multilabel, nil, ""},
		{"y.csv", "id,y\ncy,1.5\nann,-2\n", task.Regression, nil, ""},
		{"y.csv", "label,id\nb,cy\na,ann\n", "", []int32{-1, 0, 1}, ""},
		{"y.csv", "topic\nb\na\nb\n", "", []int32{1, 0, 1}, ""},
		{"y.csv", "y\nn\ny\n", "", []int32{1, 0, 1}, ""},
		{"labels.dat", "cy b\nann a\n", "", []int32{-1, 0, 1}, ""},
		{"y.csv", "x,label,id\n7,b,cy\n8,a,ann\n", "", []int32{-1, 0, 1}, ""},
		{"y.csv", "# label,id\nb,cy\na,ann\n", "", []int32{-1, 0, 1}, ""},
		{"y.csv", "# label,id\ny,cy\nn,ann\n", "", []int32{-1, 0, 1}, ""},
		{"y.csv", "cy,1\ncy,2\nann,1\n", "", nil,
			"comes twice in column 0, which was taken as the id; if vertices have several " +
				"labels, make the id the first column, or name it id; if a vertex has a row for " +
				"each"},
		{"y.txt", "topic\nb\n", "", nil, "2 rows for 3 vertices; want a label for each"},
		{"y.txt", "label\nb\na\n", "", nil,
			"line 1: files do not fit together: \"label\" may be a name or the label"},
		{"y.txt", "topic\n1\n0\n", "", nil,
			"--header reads it as a name, and --no-header as a label"},
		{"y.csv", "x9,cat\nbob,dog\nann,cat\n", "", nil,
			"line 1: bad value: is this row the names of the columns, or"},
		{"y.csv", "0,1\n1,0\n1,1\n", "", nil,
			"column 0 was taken as the id: give only one column, or make the id the first"},
		{"y.txt", "b\na\n", "", nil, "2 rows for 3 vertices; want a label for each"},
		{"y.txt", "b\na\nb\nc\n", "", nil,
			"line 4: files do not fit together: more rows than the 3 vertices"},
		{"y.txt", "cy a\ndan b\n", "", nil, "line 2: vertex \"dan\""},
		{"y.txt", "cy a\ncy b\n", "", nil, "line 2: bad value: vertex \"cy\" comes twice"},
	} {
		for _, gz := range []string{"", ".gz"} {
			dir := written(t, map[string]string{"edges.csv": edges, "nodes.csv": nodes})
			content := []byte(c.text)
			if gz != "" {
				content = zipped(c.text)
			}
			o := dataset.ImportOptions{Format: "csv", In: dir, Out: filepath.Join(t.TempDir(), "d"),
				Table: dataset.TableOptions{Labels: []string{filepath.Join(dir, c.name+gz)}}}
			if c.task == task.Regression {
				o.Task = c.task
			}
			write(t, o.Table.Labels[0], content)
			if c.fault != "" {
				if _, err := dataset.Import(o); err == nil ||
					!strings.Contains(err.Error(), c.fault) {
					t.Errorf("%q: %v, want %q", c.text, err, c.fault)
				}
				continue
			}
			d, r := imported(t, o)
			got := npy.View[int32](d.Labels.Data)
			switch c.task {
			case task.Multilabel:
				if !slices.Equal(d.Labels.Data, []byte{1, 0, 1, 1, 0, 1}) {
					t.Errorf("%q: labels %v", c.text, d.Labels.Data)
				}
			case task.Regression:
				if y := npy.View[float32](d.Labels.Data); y[0] == y[0] || y[1] != -2 ||
					y[2] != 1.5 {
					t.Errorf("%q: numbers %v", c.text, y)
				}
			default:
				if !slices.Equal(got, c.want) {
					t.Errorf("%q: labels %v, want %v", c.text, got, c.want)
				}
			}
			if !strings.Contains(r.String(), c.name+gz) || d.Meta.Features != 1 {
				t.Errorf("%q: %d features\n%s", c.text, d.Meta.Features, r)
			}
		}
	}
}

// An array of labels that does not fit is named, with the flag; a column that is called as labels
// are is none, nor a feature, beside a file of labels.
func TestImportLabelFilesBesideLabels(t *testing.T) {
	dir := written(t, map[string]string{
		"edges.csv": "source,target\nann,bob\n",
		"nodes.csv": "id,label,f\nbob,5,1\nann,6,2\n",
		"y.csv":     "0\n1\n",
	})
	write(t, filepath.Join(dir, "y.npy"), array(t, []int64{0, 1, 1}, 3))
	o := dataset.ImportOptions{
		Format: "csv", In: dir,
		Table: dataset.TableOptions{Labels: []string{filepath.Join(dir, "y.csv")}},
	}
	d, r := imported(t, o)
	if !slices.Equal(d.Meta.FeatureNames, []string{"f"}) ||
		!strings.Contains(r.String(),
			"column label of nodes.csv is not read: --label names a file") {
		t.Errorf("features %q\n%s", d.Meta.FeatureNames, r)
	}
	o.Table.Labels, o.DryRun = []string{filepath.Join(dir, "y.npy")}, true
	want := "--label " + o.Table.Labels[0] + " has 3 rows, but 2 vertices"
	if _, err := dataset.Import(o); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
}

// Without a node table labels have ids.
func TestImportLabelFilesOfEdgesAlone(t *testing.T) {
	dir := written(t, map[string]string{"edges.csv": "source,target\nann,bob\nbob,cy\n",
		"ids.txt": "cy 1\nbob 0\nann 1\n", "rows.txt": "1\n0\n1\n"})
	o := dataset.ImportOptions{Format: "csv", In: dir, Table: dataset.TableOptions{
		Labels: []string{filepath.Join(dir, "ids.txt")}}}
	d, _ := imported(t, o)
	if got := npy.View[int32](d.Labels.Data); !slices.Equal(got, []int32{1, 0, 1}) {
		t.Errorf("labels %v", got)
	}
	o.Table.Labels, o.DryRun = []string{filepath.Join(dir, "rows.txt")}, true
	if _, err := dataset.Import(o); err == nil ||
		!strings.Contains(err.Error(), "needs two, the id of a vertex") {
		t.Error(err)
	}
}

// A column that is called like a file is the label; what is neither is an error that says so.
func TestImportLabelColumnsCalledLikeFiles(t *testing.T) {
	dir := written(t, map[string]string{
		"edges.csv": "source,target\nann,bob\n",
		"nodes.csv": "id,topic.txt\nbob,b\nann,a\n",
	})
	o := dataset.ImportOptions{
		Format: "csv", In: dir, Table: dataset.TableOptions{Labels: []string{"topic.txt"}},
	}
	d, _ := imported(t, o)
	if got := npy.View[int32](d.Labels.Data); !slices.Equal(got, []int32{1, 0}) ||
		d.Meta.Features != 0 {
		t.Errorf("labels %v, %d features", got, d.Meta.Features)
	}
	o.DryRun = true
	for name, want := range map[string]string{
		"topics.txt": "--label topics.txt: neither a column of the node table nor a file",
		"y.npy.gz":   `there is no column "y.npy.gz", which --label names`,
	} {
		o.Table.Labels = []string{name}
		if _, err := dataset.Import(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
