package dataset_test

// These tests damage the input of every format: import says what is wrong, and where, and writes
// nothing.

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/base/npy"
	"halognn/src/data/dataset"
	"halognn/src/model/task"
	"halognn/src/topology/graph"
)

// cut returns the first half of a file.
func cut(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b[:len(b)/2]
}

// rezip rewrites one member of an archive.
func rezip(t *testing.T, path, member string, content []byte) {
	t.Helper()
	z, err := npy.OpenZip(path)
	if err != nil {
		t.Fatal(err)
	}
	members := map[string][]byte{}
	for _, name := range z.Names() {
		r, err := z.Reader(name)
		if err != nil {
			t.Fatal(err)
		}
		h := r.Header
		x, err := npy.ReadAll[float64](r)
		if err != nil {
			t.Fatal(err)
		}
		members[name] = array(t, x, h.Shape...)
	}
	_ = z.Close()
	if members[member] = content; content == nil {
		delete(members, member)
	}
	archive(t, path, members)
}

// Bad input gives one error that names the file and the place and says what is wrong, and writes
// nothing.
func TestImportBadInput(t *testing.T) {
	nan := float32(math.NaN())
	for _, c := range []struct {
		name    string
		fixture string
		spoil   func(t *testing.T, dir string, o *dataset.ImportOptions)
		wants   []string
		is      error
	}{
		{"unknown format", "ogb",
			func(_ *testing.T, _ string, o *dataset.ImportOptions) { o.Format = "dgl" },
			[]string{`"dgl" is unknown`, strings.Join(dataset.Formats(), ", ")}, nil},
		{"all faults of the options at once", "ogb",
			func(_ *testing.T, _ string, o *dataset.ImportOptions) {
				o.Format, o.In, o.FeatureType = "x", "", "int4"
			},
			[]string{`format "x"`, "no input", `"int4"`}, nil},
		{"no such input", "ogb",
			func(_ *testing.T, dir string, o *dataset.ImportOptions) {
				o.In = filepath.Join(dir, "nowhere")
			},
			[]string{"--in ", "nowhere: no such file"}, nil},

		{"truncated gzip", "ogb", func(t *testing.T, dir string, _ *dataset.ImportOptions) {
			path := filepath.Join(dir, "raw", "edge.csv.gz")
			write(t, path, cut(t, path))
		}, []string{"edge.csv.gz: truncated after line"}, nil},
		{"three columns of edges", "ogb", ogbFile("raw/edge.csv.gz", "0,1\n1,2,3\n"),
			[]string{"edge.csv.gz: line 2: 3 columns, want 2"}, nil},
		{"an edge to nowhere", "ogb", ogbFile("raw/edge.csv.gz", "0,1\n1,6\n"),
			[]string{"edge.csv.gz: line 2", "vertex 6", "0 to 5"}, graph.ErrVertexRange},
		{"a negative vertex", "ogb", ogbFile("raw/edge.csv.gz", "-1,1\n"),
			[]string{"line 1", "vertex -1"}, graph.ErrVertexRange},
		{"edges missing", "ogb", ogbFile("raw/edge.csv.gz", "0,1\n"),
			[]string{"edge.csv.gz has 1 edges, but num-edge-list says 8"}, nil},
		{"two graphs", "ogb", ogbFile("raw/num-node-list.csv.gz", "3\n3\n"),
			[]string{"num-node-list.csv.gz: line 2: this row is a second graph"}, nil},
		{"a label that is no class", "ogb",
			ogbFile("raw/node-label.csv.gz", "0\n1\n2.5\n0\n0\n0\n"),
			[]string{"node-label.csv.gz: line 3", "label 2.5"}, dataset.ErrValue},
		{"a label out of range", "ogb", ogbFile("raw/node-label.csv.gz", "0\n1\n2\n0\n0\n-5\n"),
			[]string{"node-label.csv.gz: line 6", "label -5"}, dataset.ErrValue},
		{"too few labels", "ogb", ogbFile("raw/node-label.csv.gz", "0\n1\n"),
			[]string{"2 rows, but 6 vertices"}, nil},
		{"too many labels", "ogb", ogbFile("raw/node-label.csv.gz", strings.Repeat("0\n", 7)),
			[]string{"node-label.csv.gz: line 7: there are more rows"}, nil},
		{"NaN feature", "ogb", ogbFile("raw/node-feat.csv.gz", "1,2,3\n1,nan,3\n"),
			[]string{"node-feat.csv.gz: line 2", "vertex 1, column 1 is NaN"}, dataset.ErrValue},
		{"ragged features", "ogb", ogbFile("raw/node-feat.csv.gz", "1,2,3\n1,2\n"),
			[]string{"node-feat.csv.gz: line 2: 2 columns, want 3"}, nil},
		{"too few feature rows", "ogb", ogbFile("raw/node-feat.csv.gz", "1,2,3\n"),
			[]string{"1 rows, but 6 vertices"}, nil},
		{"beyond float16", "ogb", func(t *testing.T, dir string, o *dataset.ImportOptions) {
			write(t, filepath.Join(dir, "raw", "node-feat.csv.gz"), zipped("70000\n"))
			o.FeatureType = dataset.Float16
		}, []string{"float16 ends at 65504"}, dataset.ErrValue},
		{"a split vertex that is not there", "ogb", ogbFile("split/time/test.csv.gz", "99\n"),
			[]string{"test.csv.gz: line 1: vertex 99"}, graph.ErrVertexRange},
		{"overlapping splits", "ogb", ogbFile("split/time/test.csv.gz", "1\n"),
			[]string{"time", "vertex 1 is listed twice"}, nil},
		{"two splits", "ogb", ogbFile("split/random/train.csv.gz", "1\n"),
			[]string{"2 splits; choose one"}, nil},
		{"a split that is nothing", "ogb",
			func(_ *testing.T, _ string, o *dataset.ImportOptions) { o.Split = "60/30" },
			[]string{`split "60/30"`, "60/20/20"}, nil},
		{"shares beyond 100", "ogb",
			func(_ *testing.T, _ string, o *dataset.ImportOptions) { o.Split = "60/30/20" },
			[]string{`split "60/30/20"`}, nil},
		{"fractions beyond 1", "ogb",
			func(_ *testing.T, _ string, o *dataset.ImportOptions) { o.Split = "0.7/0.2/0.2" },
			[]string{"adds up to 1.1"}, nil},
		{"fractions of links beyond 1", "ogb",
			func(_ *testing.T, _ string, o *dataset.ImportOptions) {
				o.Split, o.Task, o.SplitLinks = "", task.Links, "0.85/0.05/0.2"
			}, []string{"adds up to 1.1"}, nil},

		{"edges missing in the archive", "ogb binary",
			func(t *testing.T, dir string, _ *dataset.ImportOptions) {
				rezip(t, filepath.Join(dir, "raw", "data.npz"), "num_edges_list",
					array(t, []int64{9}, 1))
			}, []string{"says that there are [9] edges", "edge_index has 8"}, nil},
		{"truncated archive", "ogb binary",
			func(t *testing.T, dir string, _ *dataset.ImportOptions) {
				path := filepath.Join(dir, "raw", "data.npz")
				write(t, path, cut(t, path))
			}, []string{"data.npz"}, nil},
		{"array missing", "ogb binary", func(t *testing.T, dir string, _ *dataset.ImportOptions) {
			rezip(t, filepath.Join(dir, "raw", "data.npz"), "edge_index", nil)
		}, []string{`data.npz: no array "edge_index"`}, nil},

		{"wrong magic", "npy directory", func(t *testing.T, dir string, _ *dataset.ImportOptions) {
			write(t, filepath.Join(dir, "x.npy"), []byte("PK this is no array at all"))
		}, []string{"x.npy", "does not begin with"}, npy.ErrFormat},
		{"NaN in an array", "npy directory",
			func(t *testing.T, dir string, _ *dataset.ImportOptions) {
				x := slices.Concat(tinyFeatures...)
				x[7] = nan
				write(t, filepath.Join(dir, "x.npy"), array(t, x, 6, 3))
			}, []string{": x: features: vertex 2, column 1 is NaN"}, dataset.ErrValue},
		{"a negative weight", "ogb", func(t *testing.T, dir string, o *dataset.ImportOptions) {
			*o = dataset.ImportOptions{
				Format: "csv", In: filepath.Join(dir, "edges.csv"), Out: o.Out,
			}
			write(t, o.In, []byte("source,target,weight\na,b,1\nb,c,-2\n"))
		}, []string{"edges.csv: line 3", "weight -2", "a number from 0 to 3.4e+38", "--ignore"},
			dataset.ErrValue},
		{"weights whose sum no float32 holds", "ogb",
			func(t *testing.T, dir string,
				o *dataset.ImportOptions) {
				*o = dataset.ImportOptions{
					Format: "csv", In: filepath.Join(dir, "edges.csv"), Out: o.Out,
				}
				write(t, o.In, []byte("source,target,weight\na,b,3e38\nc,b,3e38\nb,c,1\n"))
			}, []string{"edges.csv", "edges into vertex b add up to 6e+38", "--ignore"},
			dataset.ErrValue},
		{"no column left for ids", "ogb", func(t *testing.T, dir string, o *dataset.ImportOptions) {
			*o = dataset.ImportOptions{
				Format: "csv", In: filepath.Join(dir, "edges.csv"), Out: o.Out,
				Ignore: []string{"id", "f"},
			}
			o.Table.Nodes = filepath.Join(dir, "nodes.csv")
			write(t, o.In, []byte("source,target\na,b\n"))
			write(t, o.Table.Nodes, []byte("id,f\na,1\nb,2\n"))
		}, []string{"nodes.csv", "no column for the ids", "ignore fewer"}, nil},
		{"a weight that is no number", "ogb",
			func(t *testing.T, dir string, o *dataset.ImportOptions) {
				*o = dataset.ImportOptions{
					Format: "csv", In: filepath.Join(dir, "edges.csv"), Out: o.Out,
				}
				write(t, o.In, []byte("source,target,weight\na,b,heavy\n"))
			}, []string{"edges.csv: line 2", `weight "heavy"`}, dataset.ErrValue},
		{"a weight of NaN", "ogb", func(t *testing.T, dir string, o *dataset.ImportOptions) {
			*o = dataset.ImportOptions{Format: "npz", In: filepath.Join(dir, "g.npz"), Out: o.Out}
			archive(t, o.In, map[string][]byte{
				"edge_index":  array(t, []int64{0, 1, 1, 0}, 2, 2),
				"x":           array(t, make([]float32, 2), 2, 1),
				"edge_weight": array(t, []float32{1, nan}, 2),
			})
		}, []string{"g.npz: edge_weight: edge 1", "weight NaN"}, dataset.ErrValue},
		{"a weight too few", "ogb", func(t *testing.T, dir string, o *dataset.ImportOptions) {
			*o = dataset.ImportOptions{Format: "npz", In: filepath.Join(dir, "g.npz"), Out: o.Out}
			archive(t, o.In, map[string][]byte{
				"edge_index":  array(t, []int64{0, 1, 1, 0}, 2, 2),
				"x":           array(t, make([]float32, 2), 2, 1),
				"edge_weight": array(t, []float32{1}, 1),
			})
		}, []string{"g.npz: edge_weight", "but 2 edges", "--ignore edge_weight"}, dataset.ErrValue},
		{"weights of edges that are kept though repeated", "ogb",
			func(t *testing.T, dir string, o *dataset.ImportOptions) {
				*o = dataset.ImportOptions{
					Format: "csv", In: filepath.Join(dir, "edges.csv"), Out: o.Out,
					KeepDuplicates: true,
				}
				write(t, o.In, []byte("source,target,weight\na,b,1\n"))
			}, []string{"edges.csv", "--keep-duplicates"}, graph.ErrKeptDuplicates},
		{"falling offsets", "npz attributed",
			func(t *testing.T, dir string, _ *dataset.ImportOptions) {
				rezip(t, filepath.Join(dir, "graph.npz"), "adj_indptr",
					array(t, []int64{0, 5, 4, 8, 8, 8, 8}, 7))
			}, []string{"graph.npz: adj_indptr: row offsets fall from 5 to 4"}, nil},
		{"not square", "npz attributed", func(t *testing.T, dir string, _ *dataset.ImportOptions) {
			rezip(t, filepath.Join(dir, "graph.npz"), "adj_shape", array(t, []int64{6, 7}, 2))
		}, []string{"graph.npz: adj_shape: the shape is [6 7]", "square"}, nil},
		{"a class beyond those declared", "origin", originFile(`{"classes": 2}`),
			[]string{
				"y: there is a label of class 2, but origin.json says that there are 2 classes",
			},
			dataset.ErrValue},
		{"names for other classes", "origin", originFile(`{"classes": 3, "class_names": ["a"]}`),
			[]string{"origin.json: there are 3 classes, but 1 names"}, dataset.ErrValue},
		{"classes without labels", "origin",
			func(t *testing.T, dir string, _ *dataset.ImportOptions) {
				if err := os.Remove(filepath.Join(dir, "y.npy")); err != nil {
					t.Fatal(err)
				}
			}, []string{"origin.json says that there are 3 classes, but there are no labels"},
			dataset.ErrValue},
		{"a part outside", "origin",
			originFile(`{"parts": [{"name": "A", "first": 1, "count": 6}]}`),
			[]string{"origin.json: graph A has the vertices 1 to 6, but there are only 6 vertices"},
			dataset.ErrValue},
		{"an origin that is no JSON", "origin", originFile(`{"classes": `),
			[]string{"origin.json: unexpected end"}, nil},
		{"dense and sparse features", "origin",
			func(t *testing.T, dir string, _ *dataset.ImportOptions) {
				write(t, filepath.Join(dir, "x.npy"),
					array(t, slices.Concat(tinyFeatures...), 6, 3))
			}, []string{"both x and attr_indptr hold features"}, nil},
		{"a format that Python reads", "ogb",
			func(_ *testing.T, _ string, o *dataset.ImportOptions) { o.Format = "planetoid" },
			[]string{"python3 -m halognn planetoid"}, nil},

		{"sparse features too large", "npz attributed",
			func(t *testing.T, dir string, o *dataset.ImportOptions) {
				rezip(t, filepath.Join(dir, "graph.npz"), "attr_shape",
					array(t, []int64{6, 1 << 30}, 2))
				o.MaxFeatureBytes = 1 << 30
			}, []string{"attr_data", "24 GiB", "7 sparse entries", "limit of 1 GiB", "use float16"},
			nil},
		{"a feature column outside", "npz attributed",
			func(t *testing.T, dir string, _ *dataset.ImportOptions) {
				rezip(t, filepath.Join(dir, "graph.npz"), "attr_shape", array(t, []int64{6, 2}, 2))
			}, []string{"attr_indices: entry 0 is in column 2 of 2"}, dataset.ErrValue},
		{"a label of minus two", "npz attributed",
			func(t *testing.T, dir string, _ *dataset.ImportOptions) {
				rezip(t, filepath.Join(dir, "graph.npz"), "labels",
					array(t, []int64{0, 0, 0, -2, 0, 0}, 6))
			}, []string{"graph.npz: labels: vertex 3 has label -2"}, dataset.ErrValue},
		{"rows of one dimension", "npz plain",
			func(t *testing.T, dir string, _ *dataset.ImportOptions) {
				rezip(t, filepath.Join(dir, "plain.npz"), "x", array(t, []float32{1, 2, 3}, 3))
			}, []string{"plain.npz: x has shape [3], but needs 2 dimensions"}, nil},
		{"edges of words in an array", "npz plain",
			func(t *testing.T, dir string, _ *dataset.ImportOptions) {
				rezip(t, filepath.Join(dir, "plain.npz"), "edge_index",
					texts("<U2", wideText("z", "b", "a", "b"), "2, 2"))
			}, []string{"edge_index", "words", "--format csv"}, dataset.ErrValue},
		{"an edge to nowhere in an array", "npz plain",
			func(t *testing.T, dir string, _ *dataset.ImportOptions) {
				rezip(t, filepath.Join(dir, "plain.npz"), "edge_index",
					array(t, []int64{0, 1, 1, 6}, 2, 2))
			}, []string{"plain.npz: edge_index: edge 1", "vertex 6"}, graph.ErrVertexRange},
		{"a shape that is no edge list", "npz plain",
			func(t *testing.T, dir string, _ *dataset.ImportOptions) {
				rezip(t, filepath.Join(dir, "plain.npz"), "edge_index",
					array(t, []int64{0, 1, 1, 6, 7, 8, 9, 9, 9}, 3, 3))
			}, []string{"edge_index has shape [3 3], but needs [2, edges]"}, nil},
		{"a short mask", "npz plain", func(t *testing.T, dir string, _ *dataset.ImportOptions) {
			rezip(t, filepath.Join(dir, "plain.npz"), "test_mask", array(t, []uint8{1}, 1))
		}, []string{"test_mask has 1 marks, but 6 vertices"}, nil},
		{"no edges at all", "npz plain", func(t *testing.T, dir string, _ *dataset.ImportOptions) {
			rezip(t, filepath.Join(dir, "plain.npz"), "edge_index", nil)
		}, []string{"plain.npz: there is neither edge_index nor adj_indptr"}, nil},
		{"a split table with a stranger", "npy directory",
			func(t *testing.T, dir string, _ *dataset.ImportOptions) {
				write(t, filepath.Join(dir, "part.csv"), []byte("0,train\n1,eval\n"))
			}, []string{"part.csv: line 2", `"1,eval"`}, dataset.ErrValue},

		{"split codes of another graph", "origin",
			func(t *testing.T, dir string, _ *dataset.ImportOptions) {
				write(t, filepath.Join(dir, "split.npy"), array(t, []int8{0, 1}, 2))
			}, []string{"split.npy has 2 codes, but 6 vertices"}, nil},

		{"more feature columns than there can be", "ogb",
			func(t *testing.T, dir string, o *dataset.ImportOptions) {
				*o = dataset.ImportOptions{Format: "npz", In: filepath.Join(dir, "wide.npz"),
					Out: o.Out}
				archive(t, o.In, map[string][]byte{"edge_index": array(t, []int64{}, 2, 0),
					"x": array(t, []float32{}, 0, 1<<40)})
			}, []string{"wide.npz: x", "1099511627776 feature columns"}, nil},

		{"a directory of two edge lists", "ogb",
			func(t *testing.T, dir string, o *dataset.ImportOptions) {
				*o = dataset.ImportOptions{Format: "edgelist", In: filepath.Join(dir, "lists"),
					Out: o.Out}
				write(t, filepath.Join(o.In, "a.txt"), []byte("0 1\n"))
				write(t, filepath.Join(o.In, "b.txt"), []byte("0 1\n"))
			}, []string{"lists: the directory holds 2 files", "name the one to read"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			fixture := fixtures[c.fixture]
			dir, out := t.TempDir(), t.TempDir()
			o := fixture(t, dir)
			o.Out = filepath.Join(out, "new")
			c.spoil(t, dir, &o)
			_, err := dataset.Import(o)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range c.wants {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want an error with %q", err, want)
				}
			}
			if c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("%v does not wrap %v", err, c.is)
			}
			if left, _ := os.ReadDir(out); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// Counts in a file are compared with the machine's memory, and with the size of the file if it must
// contain as many items, before memory is allocated.
func TestImportRefusesCountsBeyondReason(t *testing.T) {
	const available = 10 << 20
	dataset.SetMemory(t, available)
	far := func(keys map[string][]byte) func(t *testing.T, dir string, o *dataset.ImportOptions) {
		return func(t *testing.T, dir string, o *dataset.ImportOptions) {
			*o = dataset.ImportOptions{Format: "npz", In: filepath.Join(dir, "far.npz"), Out: o.Out}
			archive(t, o.In, keys)
		}
	}
	const n = 1<<31 - 2
	for _, c := range []struct {
		name  string
		spoil func(t *testing.T, dir string, o *dataset.ImportOptions)
		wants []string
		is    error
	}{
		{"vertices of a list", ogbFile("raw/num-node-list.csv.gz", "2000000000\n"),
			[]string{"raw/node-feat.csv.gz",
				"too few for a row for each of the 2000000000 vertices"}, nil},
		{"vertices of a list alone", func(t *testing.T, dir string, o *dataset.ImportOptions) {
			ogbFile("raw/num-node-list.csv.gz", "2000000000\n")(t, dir, o)
			for _, name := range []string{"node-feat.csv.gz", "node-label.csv.gz"} {
				if err := os.Remove(filepath.Join(dir, "raw", name)); err != nil {
					t.Fatal(err)
				}
			}
		}, []string{"raw/num-node-list.csv.gz", "2000000000 vertices take about 44.7 GiB",
			"10 MiB is available"}, dataset.ErrTooLarge},
		{"label columns", func(t *testing.T, dir string, o *dataset.ImportOptions) {
			ogbFile("raw/num-node-list.csv.gz", "100000\n")(t, dir, o)
			ogbFile("raw/node-feat.csv.gz", strings.Repeat("0.1,0.2\n", 100000))(t, dir, o)
			write(t, filepath.Join(dir, "raw", "node-label.csv.gz"),
				[]byte(strings.Repeat("1,", 5000)+strings.Repeat("1\n", 100000)))
		}, []string{"raw/node-label.csv.gz", "5001 label columns for 100000 vertices"},
			dataset.ErrTooLarge},
		{"an edge to a vertex far away",
			far(map[string][]byte{"edge_index": array(t, []int64{0, 1, 1, n}, 2, 2)}),
			[]string{"far.npz", "2147483647 vertices"}, dataset.ErrTooLarge},
		{"vertices of a shape", far(map[string][]byte{
			"adj_shape": array(t, []int64{n, n}, 2), "adj_indptr": array(t, []int64{0, 1}, 2),
			"adj_indices": array(t, []int64{0}, 1),
		}), []string{"far.npz: adj_shape", "2147483646 vertices"}, dataset.ErrTooLarge},
		{"edges of an archive",
			far(map[string][]byte{"edge_index": array(t, make([]int64, 2*3_000_000), 2,
				3_000_000)}),
			[]string{"far.npz: edge_index", "3000000 edges"}, dataset.ErrTooLarge},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, out, before := t.TempDir(), t.TempDir(), mem.PeakAllocated()
			o := fixtures["ogb"](t, dir)
			o.Out = filepath.Join(out, "new")
			c.spoil(t, dir, &o)
			_, err := dataset.Import(o)
			for _, want := range c.wants {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want an error with %q", err, want)
				}
			}
			if c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("%v does not wrap %v", err, c.is)
			}
			if peak := mem.PeakAllocated(); peak > max(before, available) {
				t.Errorf("%d bytes were taken", peak)
			}
			if left, _ := os.ReadDir(out); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

func ogbFile(name, text string) func(*testing.T, string, *dataset.ImportOptions) {
	return func(t *testing.T, dir string, _ *dataset.ImportOptions) {
		write(t, filepath.Join(dir, name), zipped(text))
	}
}

func originFile(text string) func(*testing.T, string, *dataset.ImportOptions) {
	return func(t *testing.T, dir string, _ *dataset.ImportOptions) {
		write(t, filepath.Join(dir, "origin.json"), []byte(text))
	}
}

// An output that is there already is left alone.
func TestImportKeepsWhatIsThere(t *testing.T) {
	o := fixtures["ogb"](t, t.TempDir())
	o.Out = t.TempDir()
	write(t, filepath.Join(o.Out, "precious"), []byte("data"))
	if _, err := dataset.Import(o); !errors.Is(err, dataset.ErrExists) {
		t.Errorf("got %v", err)
	}
}
