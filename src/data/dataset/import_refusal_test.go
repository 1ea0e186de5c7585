package dataset_test

// This test imports tables and archives of which nothing can be made: each error says what to do.

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf16"

	"halognn/src/data/dataset"
)

// inFiles writes text files and returns options that import them as tables.
func inFiles(files ...string) func(t testing.TB, dir string, o *dataset.ImportOptions) {
	return func(t testing.TB, dir string, o *dataset.ImportOptions) {
		for i := 0; i < len(files); i += 2 {
			write(t, filepath.Join(dir, files[i]), []byte(files[i+1]))
		}
		o.Format, o.In = "csv", dir
	}
}

// inArrays writes an archive of the edges 0 -> 1 -> 2 and the given arrays.
func inArrays(
	more func(t testing.TB) map[string][]byte,
) func(testing.TB, string, *dataset.ImportOptions) {
	return func(t testing.TB, dir string, o *dataset.ImportOptions) {
		members := map[string][]byte{
			"edge_index": array(
				t,
				[]int64{0, 1, 1, 2},
				2,
				2,
			), "x": array(t, make([]float32, 6), 3, 2),
			"y": array(t, []int64{0, 1, 0}, 3),
		}
		for name, content := range more(t) {
			if members[name] = content; content == nil {
				delete(members, name)
			}
		}
		o.Format, o.In = "npz", filepath.Join(dir, "g.npz")
		archive(t, o.In, members)
	}
}

// one adds an array of three zeros.
func one(name string) func(testing.TB, string, *dataset.ImportOptions) {
	return inArrays(func(t testing.TB) map[string][]byte {
		return map[string][]byte{name: array(t, make([]int64, 3), 3)}
	})
}

const goodEdges, goodNodes = "source,target\na,b\nb,c\n", "id,f,label\na,1,x\nb,2,y\nc,3,x\n"

func edges(text string) func(testing.TB, string, *dataset.ImportOptions) {
	return inFiles("edges.csv", text)
}

func nodes(text string) func(testing.TB, string, *dataset.ImportOptions) {
	return inFiles("edges.csv", goodEdges, "nodes.csv", text)
}

func asked(change func(o *dataset.ImportOptions)) func(testing.TB, string, *dataset.ImportOptions) {
	return func(t testing.TB, dir string, o *dataset.ImportOptions) {
		nodes(goodNodes)(t, dir, o)
		change(o)
	}
}

// regression asks for numbers to predict.
func regression(
	spoil func(testing.TB, string, *dataset.ImportOptions),
) func(testing.TB, string, *dataset.ImportOptions) {
	return func(t testing.TB, dir string, o *dataset.ImportOptions) {
		spoil(t, dir, o)
		o.Task = "regression"
	}
}

func named(name, format string) func(testing.TB, string, *dataset.ImportOptions) {
	return func(t testing.TB, dir string, o *dataset.ImportOptions) {
		o.Format, o.In = format, filepath.Join(dir, name)
		write(t, o.In, []byte("anything"))
	}
}

// scipy writes a sparse matrix of 3 x 3 with some of its arrays replaced.
func scipy(
	format string,
	more func(t testing.TB) map[string][]byte,
) func(testing.TB, string, *dataset.ImportOptions) {
	return func(t testing.TB, dir string, o *dataset.ImportOptions) {
		members := map[string][]byte{
			"indptr": array(t, []int32{0, 1, 2, 2}, 4), "indices": array(t, []int32{1, 2}, 2),
			"data": array(t, []float64{1, 1}, 2), "shape": array(t, []int64{3, 3}, 2),
			"format": texts("|S3", []byte(format)),
		}
		for name, content := range more(t) {
			members[name] = content
		}
		o.Format, o.In = "npz", filepath.Join(dir, "adj.npz")
		archive(t, o.In, members)
	}
}

// texts is an .npy file of strings, as NumPy writes it.
func texts(dtype string, data []byte, shape ...string) []byte {
	head := fmt.Sprintf(
		"{'descr': '%s', 'fortran_order': False, 'shape': (%s), }",
		dtype,
		strings.Join(shape, ","),
	)
	head += strings.Repeat(" ", 117-len(head)) + "\n"
	return append([]byte("\x93NUMPY\x01\x00\x76\x00"+head), data...)
}

func plus(name string, make func(t testing.TB) []byte) func(t testing.TB) map[string][]byte {
	return func(t testing.TB) map[string][]byte { return map[string][]byte{name: make(t)} }
}

func index(k int) *int { return &k }

// Tables and archives that cannot be imported: each gives one clear error that says what to do, and
// writes nothing.
func TestImportRefusals(t *testing.T) {
	const heterogeneous = "give each type arrays or a table of its own"
	nothing := func(testing.TB) map[string][]byte { return nil }
	wide := utf16.Encode([]rune("\ufeffsource,target\n"))
	var wideBytes bytes.Buffer
	for _, c := range wide {
		wideBytes.Write([]byte{byte(c), byte(c >> 8)})
	}
	var ids strings.Builder
	ids.WriteString("id,label\n")
	for v := range 202 {
		fmt.Fprintf(&ids, "%d,c%d\n", v, v)
	}
	cases := []struct {
		name  string
		spoil func(t testing.TB, dir string, o *dataset.ImportOptions)
		wants []string
	}{
		{
			"edge types",
			one("edge_type"),
			[]string{"g.npz: edge_type", heterogeneous, "--ignore edge_type"},
		},
		{
			"edge types by another name",
			one("etype"),
			[]string{"etype", heterogeneous, "--ignore etype"},
		},
		{"relations", one("relation"), []string{"relation", heterogeneous}},
		{
			"vertex types",
			one("node_type"),
			[]string{"node_type", "vertices of several types", heterogeneous},
		},
		{"vertex types of DGL", one("ntype"), []string{"ntype", heterogeneous}},
		{
			"link labels",
			one("edge_label"),
			[]string{
				"links to predict: give them by --split-links",
				"--link-classes or --link-numbers",
			},
		},
		{"links to predict", one("edge_label_index"),
			[]string{"links to predict: give them by --split-links"}},
		{
			"links that are not there",
			one("neg_edge_index"),
			[]string{"links to predict: give them by --split-links"},
		},
		{
			"links to train on",
			one("train_pos_edge_index"),
			[]string{"links to predict: give them by --split-links"},
		},
		{"sparse features", one("x_indptr"),
			[]string{
				"x_indptr",
				"sparse features are not supported",
				"x.toarray()",
				"attr_indptr",
			}},
		{"sparse features of a table", one("features_indptr"),
			[]string{"features_indptr", "sparse features are not supported"}},
		{"a batch of graphs", one("batch"), []string{"graph-level tasks are not supported"}},
		{"labels of graphs", one("graph_label"), []string{"graph-level tasks are not supported"}},
		{"hyperedges", one("hyperedge_index"), []string{"hyperedges are not supported"}},
		{"moments", one("snapshots"), []string{"changes with time", "one moment"}},
		{"edges by type", inArrays(func(t testing.TB) map[string][]byte {
			return map[string][]byte{
				"edge_index":        nil,
				"edge_index_writes": array(t, []int64{0, 1}, 2, 1),
			}
		}), []string{heterogeneous, "edge_index_writes"}},
		{"triples of types", inArrays(func(t testing.TB) map[string][]byte {
			return map[string][]byte{
				"edge_index":            nil,
				"author__writes__paper": array(t, []int64{0, 1}, 2, 1),
			}
		}), []string{heterogeneous}},
		{"a dense matrix", inArrays(func(t testing.TB) map[string][]byte {
			return map[string][]byte{"edge_index": nil, "adj": array(t, make([]float32, 9), 3, 3)}
		}), []string{"dense adjacency matrix", "numpy.argwhere"}},
		{"two arrays of ends", inArrays(func(t testing.TB) map[string][]byte {
			return map[string][]byte{
				"edge_index": nil,
				"src":        array(t, []int64{0}, 1),
				"dst":        array(t, []int64{1}, 1),
			}
		}), []string{"numpy.stack([src, dst])"}},
		{
			"no edges under any name",
			inArrays(plus("edge_index", func(testing.TB) []byte { return nil })),
			[]string{"neither edge_index nor adj_indptr", "--keys edge_index=NAME"},
		},
		{
			"regression",
			inArrays(
				plus("y", func(t testing.TB) []byte { return array(t, []float32{0.5, 1.5, 2}, 3) }),
			),
			[]string{
				"g.npz: y: vertex 0 has label 0.5",
				"--task regression",
				"numpy.digitize",
			},
		},
		{"regression of several values", inArrays(plus("y", func(t testing.TB) []byte {
			return array(t, []float32{0.5, 1.5, 2, 3, 4, 5}, 3, 2)
		})), []string{"column 0", "must be 0 or 1", "--task regression"}},
		{"no numbers to predict", regression(inArrays(func(testing.TB) map[string][]byte {
			return map[string][]byte{"y": nil}
		})), []string{"there are no labels"}},
		{"numbers that are all the same", regression(inArrays(plus("y", func(t testing.TB) []byte {
			return array(t, []float32{7, float32(math.NaN()), 7}, 3)
		}))), []string{"number 0 is 7 for every vertex", "nothing to learn"}},
		{"some of the numbers",
			regression(inArrays(plus("y", func(t testing.TB) []byte {
				return array(t, []float64{1, 2, math.NaN(), 3, 4, 5}, 3, 2)
			}))),
			[]string{
				"y: vertex 1, column 0, has no number to predict here, but has 1 in other columns",
			}},
		{"a number beyond float32", regression(inArrays(plus("y", func(t testing.TB) []byte {
			return array(t, []float64{1, 2, 1e300}, 3)
		}))), []string{"vertex 2 has 1e+300", "finite float32"}},
		{"words for numbers", regression(inArrays(plus("y", func(testing.TB) []byte {
			return texts("|S1", []byte("abc"), "3,")
		}))), []string{"it holds words"}},
		{
			"Python objects",
			inArrays(plus("y", func(testing.TB) []byte { return texts("|O", []byte("x"), "3") })),
			[]string{"Python objects", "a.astype(str)"},
		},
		{
			"labels of another graph",
			inArrays(plus("y", func(t testing.TB) []byte { return array(t, []int64{0, 1}, 2) })),
			[]string{"g.npz: y", "2 rows, but 3 vertices"},
		},
		{"words for another graph", inArrays(plus("y", func(testing.TB) []byte {
			return texts("|S1", []byte("ab"), "2,")
		})), []string{"g.npz: y", "2 rows, but 3 vertices"}},
		{"words that are measurements", inArrays(plus("y", func(testing.TB) []byte {
			return texts("|S3", []byte("0.51.57.1"), "3,")
		})), []string{"g.npz: y", "label 0.5", "regression"}},
		{
			"a feature vector a vertex in three dimensions",
			inArrays(plus("x", func(t testing.TB) []byte {
				return array(t, make([]float32, 12), 3, 2, 2)
			})),
			[]string{"g.npz: x", "dimensions"},
		},
		{
			"an id twice",
			inArrays(plus("ids", func(testing.TB) []byte {
				return texts("|S1", []byte("aba"), "3,")
			})),
			[]string{`g.npz: ids: the id of vertex 2 is "a"`, "no other vertex has"},
		},
		{
			"ids of another graph",
			inArrays(plus("ids", func(t testing.TB) []byte { return array(t, []int64{7, 9}, 2) })),
			[]string{"g.npz: ids has 2 ids, but 3 vertices"},
		},
		{
			"an edge without an end",
			inArrays(func(t testing.TB) map[string][]byte {
				return map[string][]byte{
					"edge_index": array(t, []float64{0, math.NaN(), 1, 2}, 2, 2),
				}
			}),
			[]string{"NaN cannot be read", "leave out edges without a source or a target"},
		},
		{
			"more vertices than rows",
			inArrays(plus("num_nodes", func(t testing.TB) []byte {
				return array(t, []int64{4}, 1)
			})),
			[]string{"g.npz: x has 3 rows, but 4 vertices"},
		},
		{
			"several masks",
			inArrays(
				plus(
					"train_mask",
					func(t testing.TB) []byte { return array(t, make([]uint8, 30), 3, 10) },
				),
			),
			[]string{"train_mask has shape [3 10], which is 10 splits", "--split-index 0 to 9"},
		},
		{"a split beyond the last", func(t testing.TB, dir string, o *dataset.ImportOptions) {
			inArrays(
				plus(
					"train_masks",
					func(t testing.TB) []byte { return array(t, make([]uint8, 30), 10, 3) },
				),
			)(
				t,
				dir,
				o,
			)
			o.SplitIndex = index(10)
		}, []string{"no split 10; the number of splits is 10", "--split-index"}},
		{"a second split of one", func(t testing.TB, dir string, o *dataset.ImportOptions) {
			inArrays(
				plus(
					"train_mask",
					func(t testing.TB) []byte { return array(t, make([]uint8, 3), 3) },
				),
			)(
				t,
				dir,
				o,
			)
			o.SplitIndex = index(1)
		}, []string{"no split 1"}},
		{"all splits of one", func(t testing.TB, dir string, o *dataset.ImportOptions) {
			inArrays(nothing)(t, dir, o)
			o.AllSplits = true
		}, []string{"--split-index all", "one split, shuffled", "leave the flag out"}},
		{"all splits, standardized by one",
			func(t testing.TB, dir string, o *dataset.ImportOptions) {
				inArrays(plus("train_mask", func(t testing.TB) []byte {
					return array(t, []uint8{0, 1, 0, 0, 1, 0}, 3, 2)
				}))(t, dir, o)
				o.AllSplits, o.Standardize = true, true
			}, []string{"--standardize uses the training vertices of one split"}},
		{"a key that is not there", func(t testing.TB, dir string, o *dataset.ImportOptions) {
			inArrays(nothing)(t, dir, o)
			o.Keys = map[string]string{"x": "embedding"}
		}, []string{`no array "embedding", which --keys names for x`, "edge_index, x, y"}},
		{"a key that means nothing",
			func(t testing.TB, dir string, o *dataset.ImportOptions) {
				inArrays(nothing)(t, dir, o)
				o.Keys = map[string]string{"weights": "w"}
			},
			[]string{
				`--keys: "weights" is not an array that is read`,
				"edge_index, edge_weight, ids",
			}},
		{
			"keys of a table",
			asked(func(o *dataset.ImportOptions) { o.Keys = map[string]string{"x": "f"} }),
			[]string{"--keys names arrays of format npz; leave it out with format csv"},
		},

		{"a scipy matrix that is not square", scipy("csr", plus("shape", func(t testing.TB) []byte {
			return array(t, []int64{3, 4}, 2)
		})), []string{"adj.npz: shape: the shape is [3 4]", "square"}},
		{"scipy blocks", scipy("bsr", nothing), []string{`adj.npz: format is "bsr"`, "a.tocsr()"}},
		{"scipy diagonals", scipy("dia", nothing), []string{`"dia"`, "a.tocsr()"}},
		{"a scipy matrix without its end", scipy("csr", plus("indptr", func(t testing.TB) []byte {
			return array(t, []int32{0, 1, 2, 3}, 4)
		})), []string{"adj.npz: indptr", "indices has 2 entries"}},
		{"a format that is a number", scipy("csr", plus("format", func(t testing.TB) []byte {
			return array(t, []int64{1}, 1)
		})), []string{"adj.npz: format", "expected strings"}},

		{"a PyTorch file", named("data.pt", "npz"),
			[]string{"data.pt", "halognn.write_dataset(DIR, data)"}},
		{"a DGL file", named("graph.bin", "npz"), []string{"graph.bin",
			"halognn.write_dataset(DIR, g)"}},
		{
			"a pickle",
			named("data.pkl", "npz"),
			[]string{"data.pkl", "could run code", "numpy.savez"},
		},
		{
			"a NetworkX file",
			named("g.graphml", "edgelist"),
			[]string{"g.graphml", "halognn.write_dataset(DIR, networkx.read_graphml(FILE))"},
		},
		{"a Parquet file", named("g.parquet", "csv"), []string{"pandas.read_parquet", "to_csv"}},
		{"a spreadsheet", named("g.xlsx", "csv"), []string{"save it as CSV"}},
		{"an HDF5 file", named("g.h5", "npz"), []string{"numpy.savez"}},
		{"triples", named("g.nt.gz", "edgelist"), []string{heterogeneous}},
		{"an archive of files", named("g.zip", "csv"), []string{"unpack it"}},
		{"an .npz that is taken for tables", named("g.npz", "csv"), []string{"use --format npz"}},
		{"a .mat that is taken for arrays", named("g.mat", "npz"),
			[]string{"python3 -m halognn mat IN OUT"}},
		{
			"a table that is taken for arrays",
			named("edges.csv", "npz"),
			[]string{"use --format csv"},
		},
		{"one array", named("x.npy", "npz"), []string{"one array", "edge_index.npy"}},

		{
			"no tables",
			func(_ testing.TB, dir string, o *dataset.ImportOptions) {
				o.Format, o.In = "csv", dir
			},
			[]string{"neither edges.csv nor edges.tsv", "--nodes"},
		},
		{"an empty table", edges(""), []string{"edges.csv", "it has no row"}},
		{"a table of column names", edges("source,target\n"), []string{"there are no vertices"}},
		{
			"one column",
			edges("source\na\n"),
			[]string{"edges.csv: line 1", "one column", "the ends of an edge"},
		},
		{"words that may be names", edges("alice,bob\ncarol,dan\n"),
			[]string{
				"which columns are the ends of an edge? The columns are alice, bob",
				"--source",
				"--no-header",
			}},
		{"a third column in one row", edges("source,target\na,b\nc,d,e\n"),
			[]string{"edges.csv: line 3", "the 2 columns of the first line", "quote"}},
		{
			"a row cut short",
			edges("source,target\na,b\nc\n"),
			[]string{"edges.csv: line 3", "the 2 columns"},
		},
		{
			"a quote that does not end",
			edges("source,target\n\"a,b\n"),
			[]string{"edges.csv: line", "quote"},
		},
		{
			"a quote inside a word",
			edges("source,target\na\"x,b\n"),
			[]string{"edges.csv: line 2", "twice"},
		},
		{
			"an edge without a target",
			edges("source,target\na,\n"),
			[]string{"edges.csv: line 2", "an edge has no target"},
		},
		{
			"an edge without a source",
			edges("source,target\n,a\n"),
			[]string{"edges.csv: line 2", "an edge has no source"},
		},
		{
			"an id of two lines",
			edges("source,target\n\"a\nb\",c\n"),
			[]string{"edges.csv: line 2", "on one line"},
		},
		{
			"the same name twice",
			edges("source,source\na,b\n"),
			[]string{`two columns are called "source"`},
		},
		{
			"a column of types",
			edges("source,target,type\na,b,likes\n"),
			[]string{"column type", heterogeneous, "--ignore type"},
		},
		{
			"a column of relations",
			edges("source,target,rel\na,b,likes\n"),
			[]string{"column rel", heterogeneous},
		},
		{"UTF-16", edges(wideBytes.String()), []string{"UTF-16", "iconv"}},
		{
			"Latin 1",
			edges("source,target\nJos\xe9,b\n"),
			[]string{"edges.csv: line 2", "column source is not UTF-8", "iconv"},
		},
		{"a binary file", edges("\x7fELF\x00\x01"), []string{"not a text table"}},
		{"half a gzip file", func(t testing.TB, dir string, o *dataset.ImportOptions) {
			whole := zipped(goodEdges)
			edges("")(t, dir, o)
			if err := os.Remove(filepath.Join(dir, "edges.csv")); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(dir, "edges.csv.gz"), whole[:len(whole)/2])
		}, []string{"edges.csv.gz", "fetch the file again"}},
		{"no such column", asked(func(o *dataset.ImportOptions) { o.Table.Source = "from" }),
			[]string{`no column "from", which --source names; the columns are source, target`}},
		{
			"one column for both ends",
			asked(
				func(o *dataset.ImportOptions) {
					o.Table.Source, o.Table.Target = "source", "source"
				},
			),
			[]string{"--source and --target name the same column"},
		},
		{
			"a node table for another format",
			func(t testing.TB, dir string, o *dataset.ImportOptions) {
				inArrays(nothing)(t, dir, o)
				o.Table.Nodes = "nodes.csv"
			},
			[]string{"need --format csv, but the format is npz"},
		},
		{"labels without a node table", func(t testing.TB, dir string, o *dataset.ImportOptions) {
			edges(goodEdges)(t, dir, o)
			o.Table.Labels = []string{"class"}
		}, []string{"--label", "name it with --nodes"}},

		{"a vertex that the nodes lack", nodes("id,f\na,1\nb,2\n"),
			[]string{"edges.csv: line 3", `vertex "c"`, "nodes.csv has no row for it"}},
		{
			"a vertex twice",
			nodes("id,f\na,1\nb,2\na,3\n"),
			[]string{"nodes.csv: line 4", `vertex "a" comes twice`},
		},
		{
			"a vertex without id",
			nodes("id,f\na,1\n,2\n"),
			[]string{"nodes.csv: line 3", "give an id on one line"},
		},
		{"a word among features", nodes("id,f,city\na,1,Bonn\nb,2,Jena\nc,3,Ulm\n"),
			[]string{
				"nodes.csv: line 2",
				`column city holds "Bonn"`,
				"--features",
				"--ignore city",
			}},
		{
			"a missing feature",
			nodes("id,f\na,1\nb,\nc,3\n"),
			[]string{"nodes.csv: line 3", "column f is empty", "--ignore f"},
		},
		{
			"an infinite feature",
			nodes("id,f\na,1\nb,inf\nc,3\n"),
			[]string{"nodes.csv: line 3", `column f holds "inf"`},
		},
		{"measurements for labels", nodes("id,label\na,0.5\nb,1.5\nc,2\n"),
			[]string{"column label", "label 0.5", "regression", "pandas.qcut"}},
		{"a word for a number", regression(nodes("id,label\na,0.5\nb,x\nc,2\n")),
			[]string{
				`line 3: column label: vertex "b" is "x"`,
				"want a number, or an empty field",
			}},
		{"no column of numbers", regression(nodes("id,f\na,0.5\nb,1\nc,2\n")), []string{"--label"}},
		{
			"ids for labels",
			nodes(ids.String()),
			[]string{"column label", "202 different labels", "not classes"},
		},
		{
			"no such label",
			asked(func(o *dataset.ImportOptions) { o.Table.Labels = []string{"price"} }),
			[]string{`no column "price", which --label names; the columns are id, f, label`},
		},
		{
			"no such feature",
			asked(func(o *dataset.ImportOptions) { o.Table.Features = []string{"g"} }),
			[]string{`no column "g", which --features names`},
		},
		{
			"the label as a feature",
			asked(func(o *dataset.ImportOptions) { o.Table.Features = []string{"f", "label"} }),
			[]string{`column "label" is the id, the label or the split`},
		},
		{
			"a mark of 2 in a table",
			asked(func(o *dataset.ImportOptions) { o.Table.Labels = []string{"f", "label"} }),
			[]string{`line 3: column f: vertex "b" has label 2:`, "must be 0 or 1"},
		},
		{"a mark that is a word", func(t testing.TB, dir string, o *dataset.ImportOptions) {
			nodes("id,p,q\na,1,no\nb,0,1\nc,0,0\n")(t, dir, o)
			o.Table.Labels = []string{"p", "q"}
		}, []string{`line 2: column q: vertex "a" is "no"`, "0 or 1"}},
		{"a part of the split that is none", nodes("id,split\na,train\nb,holdout\nc,test\n"),
			[]string{"nodes.csv: line 3", `column split holds "holdout"`, "train, valid, test"}},
		{
			"types of vertices",
			nodes("id,node_type\na,1\nb,2\nc,3\n"),
			[]string{"column node_type", heterogeneous},
		},
		{
			"a split of ids that are not there",
			func(t testing.TB, dir string, o *dataset.ImportOptions) {
				nodes(goodNodes)(t, dir, o)
				o.Split = filepath.Join(dir, "split.csv")
				write(t, o.Split, []byte("a,train\nzoe,test\n"))
			},
			[]string{"split.csv: line 2", `vertex "zoe"`},
		},
		{
			"features of more vertices than there are rows",
			func(t testing.TB, dir string, o *dataset.ImportOptions) {
				nodes(goodNodes)(t, dir, o)
				o.Table.Features = []string{filepath.Join(dir, "x.npy")}
				write(t, o.Table.Features[0], array(t, make([]float32, 8), 4, 2))
			},
			[]string{"4 rows, but 3 vertices"},
		},
		{
			"words for the rows of an array",
			func(t testing.TB, dir string, o *dataset.ImportOptions) {
				edges(goodEdges)(t, dir, o)
				o.Table.Features = []string{filepath.Join(dir, "x.npy")}
				write(t, o.Table.Features[0], array(t, make([]float32, 6), 3, 2))
			},
			[]string{"edges.csv: line 2", `vertex "a"`, "--nodes"},
		},
		{"a row that the array lacks", func(t testing.TB, dir string, o *dataset.ImportOptions) {
			edges("source,target\n0,3\n")(t, dir, o)
			o.Table.Features = []string{filepath.Join(dir, "x.npy")}
			write(t, o.Table.Features[0], array(t, make([]float32, 6), 3, 2))
		}, []string{"edges.csv: line 2", "vertex 3", "0 to 2"}},
	}
	if len(cases) < 60 {
		t.Errorf("%d refusals", len(cases))
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir, out := t.TempDir(), t.TempDir()
			o := dataset.ImportOptions{Out: filepath.Join(out, "new")}
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
			if left, _ := os.ReadDir(out); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}
