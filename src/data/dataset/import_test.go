package dataset_test

import (
	"archive/zip"
	"bytes"
	"compress/gzip"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"halognn/src/base/npy"
	"halognn/src/data/dataset"
	"halognn/src/model/task"
	"halognn/src/topology/graph"
)

// The same small graph is written in every format: a square 0-1-2-3, an edge 4-5, a self-loop and
// repeats. Vertex 4 has no label and no features, as in citeseer.
//
//	0 --- 1
//	|     |     4 --- 5
//	3 --- 2
var (
	tinyEdges    = [][2]int64{{0, 1}, {1, 2}, {3, 2}, {0, 3}, {5, 4}, {1, 0}, {2, 2}, {0, 1}}
	tinyLabels   = []int64{0, 1, 2, 0, -1, 1}
	tinyFeatures = [][]float32{{0, 0, 1}, {2, 0.5, 0}, {0, 1, 0}, {1, 0, -3}, {0, 0, 0}, {0, 0, 4}}
	tinyIndptr   = []int64{0, 2, 4, 6, 8, 9, 10}
	tinyIndices  = []graph.VertexID{1, 3, 0, 2, 1, 3, 0, 2, 5, 4}
	tinySplit    = graph.Split{Train: []graph.VertexID{0, 1}, Valid: []graph.VertexID{2, 3},
		Test: []graph.VertexID{5}}
)

func write(t testing.TB, path string, content []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o666); err != nil {
		t.Fatal(err)
	}
}

func zipped(text string) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write([]byte(text))
	_ = w.Close()
	return b.Bytes()
}

// array returns the content of a .npy file.
func array[T npy.Element](t testing.TB, data []T, shape ...int) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a.npy")
	if _, err := npy.WriteFile(path, data, shape...); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// archive writes an .npz file.
func archive(t testing.TB, path string, members map[string][]byte) {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, name := range slices.Sorted(maps.Keys(members)) {
		w, err := z.Create(name + ".npy")
		if err != nil {
			t.Fatal(err)
		}
		_, _ = w.Write(members[name])
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	write(t, path, b.Bytes())
}

func lines[T any](rows []T) string {
	var b strings.Builder
	for _, r := range rows {
		text := fmt.Sprint(r)
		b.WriteString(strings.ReplaceAll(strings.Trim(text, "[]"), " ", ",") + "\n")
	}
	return b.String()
}

// columns turns the tiny edges into [2, E].
func columns() []int64 {
	var sides [2][]int64
	for _, e := range tinyEdges {
		sides[0], sides[1] = append(sides[0], e[0]), append(sides[1], e[1])
	}
	return append(sides[0], sides[1]...)
}

// csr returns indptr and indices of the tiny edges, in both directions if both.
func csr(both bool) (indptr, indices []int64) {
	rows := make([][]int64, 6)
	for _, e := range tinyEdges {
		rows[e[0]] = append(rows[e[0]], e[1])
		if both {
			rows[e[1]] = append(rows[e[1]], e[0])
		}
	}
	indptr = []int64{0}
	for _, r := range rows {
		indices = append(indices, r...)
		indptr = append(indptr, int64(len(indices)))
	}
	return indptr, indices
}

func sparseFeatures() (indptr []int64, indices []int32, values []float32) {
	indptr = []int64{0}
	for _, row := range tinyFeatures {
		for c, x := range row {
			if x != 0 {
				indices, values = append(indices, int32(c)), append(values, x)
			}
		}
		indptr = append(indptr, int64(len(indices)))
	}
	return indptr, indices, values
}

// fixtures write the tiny graph in a directory and say how to import it.
var fixtures = map[string]func(t testing.TB, dir string) dataset.ImportOptions{
	"ogb": func(t testing.TB, dir string) dataset.ImportOptions {
		raw := filepath.Join(dir, "raw")
		write(t, filepath.Join(raw, "edge.csv.gz"), zipped(lines(tinyEdges)))
		write(t, filepath.Join(raw, "num-node-list.csv.gz"), zipped("6\n"))
		write(t, filepath.Join(raw, "num-edge-list.csv.gz"), zipped("8\n"))
		write(t, filepath.Join(raw, "node-feat.csv.gz"), zipped(lines(tinyFeatures)))
		write(t, filepath.Join(raw, "node-label.csv.gz"),
			zipped(strings.Replace(lines(tinyLabels), "-1", "nan", 1)))
		split := filepath.Join(dir, "split", "time")
		write(t, filepath.Join(split, "train.csv.gz"), zipped("1\n0\n"))
		write(t, filepath.Join(split, "valid.csv.gz"), zipped("2\n3\n"))
		write(t, filepath.Join(split, "test.csv.gz"), zipped("5\n4\n"))
		return dataset.ImportOptions{Format: "ogb", In: dir}
	},
	"ogb binary": func(t testing.TB, dir string) dataset.ImportOptions {
		archive(t, filepath.Join(dir, "raw", "data.npz"), map[string][]byte{
			"edge_index":     array(t, columns(), 2, 8),
			"node_feat":      array(t, half(tinyFeatures), 6, 3),
			"num_nodes_list": array(t, []int64{6}, 1), "num_edges_list": array(t, []int64{8}, 1),
		})
		labels := []float32{0, 1, 2, 0, float32(math.NaN()), 1}
		archive(t, filepath.Join(dir, "raw", "node-label.npz"),
			map[string][]byte{"node_label": array(t, labels, 6, 1)})
		split := filepath.Join(dir, "split", "time")
		write(t, filepath.Join(split, "train.csv"), []byte("0\n1\n"))
		write(t, filepath.Join(split, "valid.csv"), []byte("2\n3\n"))
		write(t, filepath.Join(split, "test.csv"), []byte("5\n"))
		return dataset.ImportOptions{Format: "ogb", In: dir, FeatureType: dataset.Float32}
	},
	"npz attributed": func(t testing.TB, dir string) dataset.ImportOptions {
		indptr, indices := csr(false)
		ends, cols, values := sparseFeatures()
		archive(t, filepath.Join(dir, "graph.npz"), map[string][]byte{
			"adj_indptr": array(t, indptr, 7), "adj_indices": array(t, indices, 8),
			"adj_shape":   array(t, []int64{6, 6}, 2),
			"attr_indptr": array(t, ends, 7), "attr_indices": array(t, cols, len(cols)),
			"attr_data":  array(t, values, len(values)),
			"attr_shape": array(t, []int64{6, 3}, 2), "labels": array(t, tinyLabels, 6),
		})
		archive(t, filepath.Join(dir, "split.npz"), map[string][]byte{
			"train": array(t, []int64{0, 1}, 2), "valid": array(t, []int64{3, 2}, 2),
			"test": array(t, []int32{5}, 1),
		})
		return dataset.ImportOptions{Format: "npz", In: dir}
	},
	"npz plain": func(t testing.TB, dir string) dataset.ImportOptions {
		path := filepath.Join(dir, "plain.npz")
		archive(t, path, map[string][]byte{
			"edge_index": array(t, columns(), 2, 8), "x": array(t, wide(tinyFeatures), 6, 3),
			"y":          array(t, tinyLabels, 6),
			"train_mask": array(t, []uint8{1, 1, 0, 0, 0, 0}, 6),
			"val_mask":   array(t, []uint8{0, 0, 1, 1, 0, 0}, 6),
			"test_mask":  array(t, []uint8{0, 0, 0, 0, 0, 1}, 6),
		})
		return dataset.ImportOptions{Format: "npz", In: path, Undirected: dataset.Yes}
	},
	"origin": func(t testing.TB, dir string) dataset.ImportOptions {
		ends, cols, values := sparseFeatures()
		for name, content := range map[string][]byte{
			"edge_index": array(t, columns(), 2, 8), "num_nodes": array(t, []int64{6}, 1),
			"y":           array(t, tinyLabels, 6),
			"attr_indptr": array(t, ends, 7), "attr_indices": array(t, cols, len(cols)),
			"attr_data": array(t, values, len(values)), "attr_shape": array(t, []int64{6, 3}, 2),
		} {
			write(t, filepath.Join(dir, name+".npy"), content)
		}
		write(t, filepath.Join(dir, "origin.json"),
			[]byte(`{"format": "x", "in": "y", "classes": 3}`))
		write(t, filepath.Join(dir, "split.npy"), array(t, []int8{0, 0, 1, 1, -1, 2}, 6))
		return dataset.ImportOptions{Format: "npz", In: dir, Undirected: dataset.Yes,
			Split: filepath.Join(dir, "split.npy")}
	},
	"npy directory": func(t testing.TB, dir string) dataset.ImportOptions {
		var pairs []int32
		for _, e := range tinyEdges {
			pairs = append(pairs, int32(e[0]), int32(e[1]))
		}
		write(t, filepath.Join(dir, "edge_index.npy"), array(t, pairs, 8, 2))
		write(t, filepath.Join(dir, "x.npy"), array(t, slices.Concat(tinyFeatures...), 6, 3))
		write(t, filepath.Join(dir, "y.npy"), array(t, tinyLabels, 6))
		write(t, filepath.Join(dir, "part.csv"),
			[]byte("vertex,part\n0,train\n1,0\n2,val\n3,valid\n5,test\n"))
		return dataset.ImportOptions{Format: "npz", In: dir, Undirected: dataset.Yes,
			Split: filepath.Join(dir, "part.csv")}
	},
}

func half(rows [][]float32) (out []npy.Float16) {
	for _, x := range slices.Concat(rows...) {
		out = append(out, npy.ToFloat16(x))
	}
	return out
}

func wide(rows [][]float32) (out []float64) {
	for _, x := range slices.Concat(rows...) {
		out = append(out, float64(x))
	}
	return out
}

func TestOneGraphInEveryFormat(t *testing.T) {
	for name, fixture := range fixtures {
		t.Run(name, func(t *testing.T) {
			d, r := imported(t, fixture(t, t.TempDir()))
			if !slices.Equal(d.Graph.Indptr, tinyIndptr) ||
				!slices.Equal(d.Graph.Indices, tinyIndices) {
				t.Errorf("graph %v %v", d.Graph.Indptr, d.Graph.Indices)
			}
			want := []int32{0, 1, 2, 0, -1, 1}
			if !slices.Equal(npy.View[int32](d.Labels.Data), want) || d.Meta.Classes != 3 ||
				r.Labelled != 5 {
				t.Errorf("labels %v of %d classes, want %v", d.Labels, d.Meta.Classes, want)
			}
			if got := load[float32](t, d.Dir, "features.npy"); !slices.Equal(got,
				slices.Concat(tinyFeatures...)) {
				t.Errorf("features %v", got)
			}
			for i, got := range [][]graph.VertexID{d.Split.Train, d.Split.Valid, d.Split.Test} {
				if want := [][]graph.VertexID{tinySplit.Train, tinySplit.Valid,
					tinySplit.Test}[i]; !slices.Equal(got, want) {
					t.Errorf("split %d is %v, want %v", i, got, want)
				}
			}
			if c := r.Cleaning; c.After != 10 || c.Loops == 0 ||
				c.After != c.Before-c.Loops-c.Duplicates+c.Reversed {
				t.Errorf("cleaning: %s", c)
			}
		})
	}
}

// Every format has a section in docs/formats.md.
func TestFormatsAreDescribed(t *testing.T) {
	page, err := os.ReadFile("../../../docs/formats.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, format := range dataset.Formats() {
		if !strings.Contains(string(page), "\n## "+format+"\n") {
			t.Errorf("docs/formats.md has no section %q", format)
		}
	}
}

// Variants of files and options that the tiny graph lacks.
func TestImportVariants(t *testing.T) {
	for _, c := range []struct {
		name  string
		make  func(t testing.TB, dir string) dataset.ImportOptions
		check func(t *testing.T, d *dataset.Dataset, r dataset.ImportReport)
	}{
		{"directed", func(t testing.TB, dir string) dataset.ImportOptions {
			o := fixtures["ogb"](t, dir)
			o.Undirected, o.KeepLoops, o.KeepDuplicates = dataset.No, true, true
			return o
		}, func(t *testing.T, d *dataset.Dataset, r dataset.ImportReport) {
			if want := []graph.VertexID{1, 0, 0, 1, 2, 3, 0, 5}; !slices.Equal(d.Graph.Indices,
				want) || r.Undirected {
				t.Errorf("in-neighbours %v, want %v", d.Graph.Indices, want)
			}
			if r.Unlabelled != 1 { // vertex 4 is listed in test.csv.gz
				t.Errorf("%d unlabelled split vertices", r.Unlabelled)
			}
		}},
		{"several label columns", func(t testing.TB, dir string) dataset.ImportOptions {
			o := fixtures["ogb"](t, dir)
			write(t, filepath.Join(dir, "raw", "node-label.csv.gz"),
				zipped("1,0\n0,1\n1,1\n0,0\n1,0\n0,1\n"))
			return o
		}, func(t *testing.T, d *dataset.Dataset, r dataset.ImportReport) {
			if r.Task != task.Multilabel ||
				!slices.Equal(d.Labels.Data, []uint8{1, 0, 0, 1, 1, 1, 0, 0, 1, 0, 0, 1}) {
				t.Errorf("%s %v", r.Task, d.Labels.Data)
			}
		}},
		{"labels left out", func(t testing.TB, dir string) dataset.ImportOptions {
			o := fixtures["npz attributed"](t, dir)
			o.Ignore, o.Split = []string{"labels"}, ""
			return o
		}, func(t *testing.T, d *dataset.Dataset, r dataset.ImportReport) {
			if r.Task != task.None {
				t.Errorf("task %s, labels %v", r.Task, d.Labels)
			}
		}},
		{"declared classes", func(t testing.TB, dir string) dataset.ImportOptions {
			o := fixtures["origin"](t, dir)
			write(t, filepath.Join(dir, "y.npy"), array(t, []int64{4, 1, -100, 4, 4, 1}, 6))
			write(t, filepath.Join(dir, "origin.json"), []byte(`{"format": "kept", "in": "there",
				"name": "named", "classes": 5, "class_names": ["a","b","c","d","e"],
				"notes": ["so"]}`))
			return o
		}, func(t *testing.T, d *dataset.Dataset, r dataset.ImportReport) {
			p := d.Meta.Provenance
			if !slices.Equal(npy.View[int32](d.Labels.Data), []int32{4, 1, -1, 4, 4, 1}) ||
				d.Meta.Classes != 5 || p.Classes[4] != "e" || p.Source != "import kept" ||
				p.Settings["in"] != "there" || d.Meta.Name != "named" || r.Notes[0] != "so" {
				t.Errorf("labels %v, %+v", d.Labels, d.Meta)
			}
		}},
		{"float16 stays", func(t testing.TB, dir string) dataset.ImportOptions {
			o := fixtures["ogb binary"](t, dir)
			o.FeatureType = ""
			return o
		}, func(t *testing.T, d *dataset.Dataset, r dataset.ImportReport) {
			if got := load[npy.Float16](t, d.Dir, "features.npy"); !slices.Equal(got,
				half(tinyFeatures)) {
				t.Errorf("%s %v", r.FeatureType, got)
			}
		}},
		{"edge list", func(t testing.TB, dir string) dataset.ImportOptions {
			path := filepath.Join(dir, "e.txt.gz")
			write(t, path, zipped("# FromNodeId\tToNodeId\r\n-7\t1000000000000\r\n"+
				"1000000000000\t5\r\n5 5\r\n"))
			split := filepath.Join(dir, "split.csv")
			write(t, split, []byte("5,train\n-7,test\n"))
			return dataset.ImportOptions{Format: "edgelist", In: path, Split: split}
		}, func(t *testing.T, d *dataset.Dataset, r dataset.ImportReport) {
			if !slices.Equal(d.Graph.Indptr, []int64{0, 0, 1, 2}) ||
				!slices.Equal(d.Graph.Indices, []graph.VertexID{2, 0}) {
				t.Errorf("graph %v %v", d.Graph.Indptr, d.Graph.Indices)
			}
			if ids := load[int64](t, d.Dir, "original_id.npy"); !slices.Equal(ids,
				[]int64{-7, 5, 1000000000000}) {
				t.Errorf("original ids %v", ids)
			}
			if !slices.Equal(d.Split.Train, []graph.VertexID{1}) ||
				!slices.Equal(d.Split.Test, []graph.VertexID{0}) {
				t.Errorf("split %v", d.Split)
			}
		}},
		{"edge list in a directory", func(t testing.TB, dir string) dataset.ImportOptions {
			write(t, filepath.Join(dir, "e.txt"), []byte("0 1\n1 2\n"))
			return dataset.ImportOptions{Format: "edgelist", In: dir}
		}, func(t *testing.T, d *dataset.Dataset, r dataset.ImportReport) {
			if !slices.Equal(d.Graph.Indptr, []int64{0, 0, 1, 2}) ||
				!slices.Equal(d.Graph.Indices, []graph.VertexID{0, 1}) {
				t.Errorf("graph %v %v", d.Graph.Indptr, d.Graph.Indices)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, r := imported(t, c.make(t, t.TempDir()))
			c.check(t, d, r)
		})
	}
}

// A dry run writes nothing, of typed graphs neither, and finds the faults of features.
func TestDryRun(t *testing.T) {
	in, out := typedTables(t), t.TempDir()
	o := dataset.ImportOptions{Format: "csv", In: in, DryRun: true, Out: filepath.Join(out, "d")}
	r, err := dataset.Import(o)
	if err != nil || r.Vertices != 5 || r.Edges != 4 || !strings.Contains(r.String(), "dry run") {
		t.Errorf("%v\n%s", err, r)
	}
	if want := "nodes.paper.csv: a to b, 2 columns: feature"; !strings.Contains(r.String(), want) {
		t.Errorf("the report lacks %q:\n%s", want, r)
	}
	if left, _ := os.ReadDir(out); len(left) > 0 {
		t.Errorf("left %v", left)
	}
	nodes("id,f\na,1\nb,x\nc,2\n")(t, t.TempDir(), &o)
	if _, err := dataset.Import(o); err == nil ||
		!strings.Contains(err.Error(), `column f holds "x"`) {
		t.Errorf("a word among features: %v", err)
	}
}
