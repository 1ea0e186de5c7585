//go:build e2e

package tests

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"halognn/src/base/mem"
)

// unlessMemoryBeyond skips a test of data that must be too large for this machine, if the machine
// has more than the given bytes of memory available.
func unlessMemoryBeyond(t *testing.T, bytes int64) {
	t.Helper()
	if available, err := mem.Available(); err != nil || available > bytes {
		t.Skipf("%d bytes of memory are available (%v), too many for this test", available, err)
	}
}

// arrays writes a graph of 10 vertices as plain NumPy arrays to dir/in, for import: correct data
// that tests then damage.
func arrays(t *testing.T, dir string) string {
	t.Helper()
	in := filepath.Join(dir, "in")
	var edges []int64
	for v := range int64(10) {
		edges = append(edges, v)
	}
	for v := range int64(10) {
		edges = append(edges, (v+1)%10)
	}
	save(t, filepath.Join(in, "edge_index.npy"), edges, 2, 10)
	save(t, filepath.Join(in, "x.npy"), make([]float32, 30), 10, 3)
	save(t, filepath.Join(in, "y.npy"), []int64{0, 1, 0, 1, 0, 1, 0, 1, 0, 1}, 10)
	return in
}

func importing(in, dir string, flags ...string) []string {
	return append([]string{"import", "--format", "npz", "--in", in, "--out",
		filepath.Join(dir, "out")}, flags...)
}

func partitioning(data, dir string, flags ...string) []string {
	return append([]string{"partition", "--data", data, "--parts", "4", "--method", "ldg", "--out",
		filepath.Join(dir, "out")}, flags...)
}

func TestBadImports(t *testing.T) {
	unlessShort(t)
	for _, c := range []badInput{
		{"nothing is there", func(t *testing.T, dir string) []string {
			return importing(filepath.Join(dir, "in"), dir)
		}, badData, []string{"in", "no such file"}},
		{"an edge to a vertex that is not there", func(t *testing.T, dir string) []string {
			in := arrays(t, dir)
			save(t, filepath.Join(in, "edge_index.npy"), []int64{0, 1, 2, 3, 4, 10}, 2, 3)
			return importing(in, dir)
		}, badData, []string{"edge_index", "10"}},
		{"an edge from a negative vertex", func(t *testing.T, dir string) []string {
			in := arrays(t, dir)
			save(t, filepath.Join(in, "edge_index.npy"), []int64{0, -1, 2, 3, 4, 5}, 2, 3)
			return importing(in, dir)
		}, badData, []string{"edge_index", "-1"}},
		{"NaN features", func(t *testing.T, dir string) []string {
			in, x := arrays(t, dir), make([]float32, 30)
			x[3*7+2] = float32(math.NaN())
			save(t, filepath.Join(in, "x.npy"), x, 10, 3)
			return importing(in, dir)
		}, badData, []string{"/in: x:", "NaN", "vertex 7", "column 2"}},
		{"infinite features", func(t *testing.T, dir string) []string {
			in, x := arrays(t, dir), make([]float32, 30)
			x[4] = float32(math.Inf(1))
			save(t, filepath.Join(in, "x.npy"), x, 10, 3)
			return importing(in, dir)
		}, badData, []string{"/in: x:", "Inf"}},
		{"features too large for float16", func(t *testing.T, dir string) []string {
			in, x := arrays(t, dir), make([]float32, 30)
			x[4] = 1e6
			save(t, filepath.Join(in, "x.npy"), x, 10, 3)
			return importing(in, dir, "--feature-type", "float16")
		}, badData, []string{"/in: x:", "1e+06", "float16"}},
		{"features too small for int8", func(t *testing.T, dir string) []string {
			in, x := arrays(t, dir), make([]float32, 30)
			x[4] = 1e-40
			save(t, filepath.Join(in, "x.npy"), x, 10, 3)
			return importing(in, dir, "--feature-type", "int8")
		}, badData, []string{"/in: x:", "column 1", "1e-40", "float32"}},
		{"a label out of range", func(t *testing.T, dir string) []string {
			in := arrays(t, dir)
			save(t, filepath.Join(in, "y.npy"), []int64{0, 1, 0, 1, -7, 1, 0, 1, 0, 1}, 10)
			return importing(in, dir)
		}, badData, []string{"y", "-7", "4"}},
		{"an edge to a vertex that no memory has room for",
			func(t *testing.T, dir string) []string {
				in := filepath.Join(dir, "in")
				save(t, filepath.Join(in, "edge_index.npy"), []int64{0, 1, 1, 1<<31 - 2}, 2, 2)
				unlessMemoryBeyond(t, 40<<30)
				return importing(in, dir)
			}, badData, []string{"/in: too large", "2147483647 vertices", "GiB"}},
		{"label columns that no memory has room for", func(t *testing.T, dir string) []string {
			raw := filepath.Join(dir, "in", "raw")
			for name, text := range map[string]string{
				"edge.csv": "0,1\n1,2\n", "num-node-list.csv": "100000000\n",
				"node-label.csv": strings.Repeat("1,", 9999) + strings.Repeat("1\n", 200_000),
			} {
				if err := os.MkdirAll(raw, 0o777); err != nil {
					t.Fatal(err)
				}
				write(t, filepath.Join(raw, name), []byte(text))
			}
			return []string{"import", "--format", "ogb", "--in", filepath.Join(dir, "in"), "--out",
				filepath.Join(dir, "out")}
		}, badData, []string{"/raw/node-label.csv", "too large",
			"10000 label columns"}},
		{"labels of other vertices", func(t *testing.T, dir string) []string {
			in := arrays(t, dir)
			save(t, filepath.Join(in, "y.npy"), []int64{0, 1, 0}, 3)
			return importing(in, dir)
		}, badData, []string{"y", "3", "10"}},
		{"a truncated array", func(t *testing.T, dir string) []string {
			in := arrays(t, dir)
			truncate(t, filepath.Join(in, "x.npy"), 150)
			return importing(in, dir)
		}, badData, []string{"x.npy"}},
		{"a split of vertices that are not there", func(t *testing.T, dir string) []string {
			in := arrays(t, dir)
			save(t, filepath.Join(in, "train_idx.npy"), []int64{0, 99}, 2)
			save(t, filepath.Join(in, "valid_idx.npy"), []int64{1}, 1)
			save(t, filepath.Join(in, "test_idx.npy"), []int64{2}, 1)
			return importing(in, dir)
		}, badData, []string{"train", "99"}},
		{"a split with a vertex twice", func(t *testing.T, dir string) []string {
			in := arrays(t, dir)
			save(t, filepath.Join(in, "train_idx.npy"), []int64{0, 1}, 2)
			save(t, filepath.Join(in, "valid_idx.npy"), []int64{1}, 1)
			save(t, filepath.Join(in, "test_idx.npy"), []int64{2}, 1)
			return importing(in, dir)
		}, badData, []string{"valid", "1"}},
		{"a target that holds something", func(t *testing.T, dir string) []string {
			taken := arrays(t, dir)
			return []string{"import", "--format", "npz", "--in", arrays(t, dir), "--out", taken}
		}, badData, []string{"in", "the input", "choose another"}},
		{"a target below a file", func(t *testing.T, dir string) []string {
			in := arrays(t, dir)
			return []string{"import", "--format", "npz", "--in", in, "--out",
				filepath.Join(in, "x.npy", "out")}
		}, badData, []string{"x.npy"}},
		{"a malformed edge list", func(t *testing.T, dir string) []string {
			in := filepath.Join(dir, "edges.txt")
			write(t, in, []byte("# two vertices a line\n1 2\n2 x\n"))
			return []string{"import", "--format", "edgelist", "--in", in, "--out",
				filepath.Join(dir, "out")}
		}, badData, []string{"edges.txt", "3", "x"}},
		{"an unknown format", func(t *testing.T, dir string) []string {
			return []string{"import", "--format", "dgl", "--in", arrays(t, dir), "--out",
				filepath.Join(dir, "out")}
		}, usage, []string{"dgl", "npz"}},
		{"an option of another format", func(t *testing.T, dir string) []string {
			return append(importing(arrays(t, dir), dir), "--nodes", "n.csv")
		}, usage, []string{"format csv"}},
		{"reverses without relations", func(t *testing.T, dir string) []string {
			in := arrays(t, dir)
			return []string{"import", "--format", "csv", "--reverse", "--in", in, "--out",
				filepath.Join(dir, "out")}
		}, usage, []string{"--reverse", "nodes.TYPE.csv"}},
		{"splits of vertices for links", func(t *testing.T, dir string) []string {
			return append(importing(arrays(t, dir), dir), "--task", "links", "--split-index", "all")
		}, usage, []string{"--split-index", "--split-links"}},
		{"all splits of one", func(t *testing.T, dir string) []string {
			return append(importing(arrays(t, dir), dir), "--split-index", "all")
		}, usage, []string{"--split-index all", "one split"}},
		{"an unknown kind", func(t *testing.T, dir string) []string {
			return []string{"generate", "--kind", "ring", "--out", filepath.Join(dir, "out")}
		}, usage, []string{"ring", "sbm", "rmat"}},
		{"an unknown preset", func(t *testing.T, dir string) []string {
			return []string{"generate", "--preset", "cora", "--out", filepath.Join(dir, "out")}
		}, usage, []string{"cora", "arxiv"}},
		{"a missing flag", func(t *testing.T,
			dir string) []string {
			return []string{"import", "--format", "npz"}
		},
			usage, []string{"--in is missing", "--out is missing"}},
	} {
		t.Run(c.name, c.run)
	}
}

func TestBadDatasets(t *testing.T) {
	unlessShort(t)
	small := func(t *testing.T, dir string) string {
		return copyOf(t, smallData.dir(t), dir, "data")
	}
	for _, c := range []badInput{
		{"none", func(t *testing.T,
			dir string) []string {
			return partitioning(filepath.Join(dir, "none"), dir)
		},
			badData, []string{"none", "halognn generate"}},
		{"a file is missing", func(t *testing.T, dir string) []string {
			data := small(t, dir)
			remove(t, filepath.Join(data, "labels.npy"))
			return partitioning(data, dir)
		}, badData, []string{"labels.npy", "no such file"}},
		{"a file is truncated", func(t *testing.T, dir string) []string {
			data := small(t, dir)
			truncate(t, filepath.Join(data, "indices.npy"), 1000)
			return partitioning(data, dir)
		}, badData, []string{"indices.npy", "1000"}},
		{"a file is altered", func(t *testing.T, dir string) []string {
			data := small(t, dir)
			patch(t, filepath.Join(data, "features.npy"), 1, 2, 3)
			return []string{"check", data}
		}, badData, []string{"features.npy", "altered", "XXH64"}},
		{"a file is altered, and nobody checked", func(t *testing.T, dir string) []string {
			data := small(t, dir)
			patch(t, filepath.Join(data, "indices.npy"), 0xff, 0xff, 0xff, 0x7f)
			return partitioning(data, dir)
		}, badData, []string{"indices.npy", "altered"}},
		{"a file is another's", func(t *testing.T, dir string) []string {
			data, other := small(t, dir), handmade{}.write(t, filepath.Join(dir, "other"))
			write(t, filepath.Join(data, "labels.npy"), read(t, filepath.Join(other, "labels.npy")))
			return partitioning(data, dir)
		}, badData, []string{"labels.npy", "400", "3000"}},
		{"meta.json is of a later version", func(t *testing.T, dir string) []string {
			data := small(t, dir)
			replace(t, filepath.Join(data, "meta.json"), `"format": 1`, `"format": 2`)
			return partitioning(data, dir)
		}, badData, []string{"meta.json", "version 2"}},
		{"meta.json is cut off", func(t *testing.T, dir string) []string {
			data := small(t, dir)
			truncate(t, filepath.Join(data, "meta.json"), 100)
			return []string{"check", data}
		}, badData, []string{"meta.json"}},
		{"labels out of range", func(t *testing.T, dir string) []string {
			data := small(t, dir)
			patch(t, filepath.Join(data, "labels.npy"), 99, 0, 0, 0)
			return []string{"check", data}
		}, badData, []string{"labels.npy", "99", "2999"}},
		{"an edge to a vertex that is not there", func(t *testing.T, dir string) []string {
			data := small(t, dir)
			patch(t, filepath.Join(data, "indices.npy"), 0xb8, 0x0b, 0, 0) // 3000
			return []string{"check", data}
		}, badData, []string{"indices.npy", "3000"}},
		{"NaN features", func(t *testing.T, dir string) []string {
			data := small(t, dir)
			patch(t, filepath.Join(data, "features.npy"), 0, 0, 0xc0, 0x7f)
			return []string{"check", data}
		}, badData, []string{"features.npy", "NaN", "2999"}},
		{"more parts than there may be", func(t *testing.T, dir string) []string {
			return append(partitioning(small(t, dir), dir), "--parts", "100000")
		}, usage, []string{"--parts is 100000", "at most 16384"}},
		{"more parts than vertices", func(t *testing.T, dir string) []string {
			return partitioning(handmade{vertices: 10}.write(t, filepath.Join(dir, "data")), dir,
				"--parts", "11")
		}, badData, []string{"11 parts", "10 vertices"}},
		{"no parts", func(t *testing.T,
			dir string) []string {
			return partitioning(smallData.dir(t), dir, "--parts", "0")
		},
			usage, []string{"0"}},
		{"parts that are no number",
			func(t *testing.T, dir string) []string {
				return partitioning(smallData.dir(t), dir,
					"--parts", "four")
			},
			usage, []string{"--parts", "four", "--help"}},
		{"an unknown method", func(t *testing.T, dir string) []string {
			return partitioning(smallData.dir(t), dir, "--method", "kahip")
		},
			usage, []string{"kahip", "metis, kaminpar, ldg"}},
		{"a file of parts that is not named", func(t *testing.T, dir string) []string {
			return partitioning(smallData.dir(t), dir, "--method", "file")
		}, usage, []string{"--method file needs --assignment"}},
		{"an assignment to another method", func(t *testing.T, dir string) []string {
			return partitioning(smallData.dir(t), dir, "--assignment", "x", "--keep", "--threads",
				"2")
		}, usage, []string{"--assignment is for --method file", "--keep is", "--threads is"}},
		{"an assignment of another graph", func(t *testing.T, dir string) []string {
			path := filepath.Join(dir, "graph.part.4")
			if err := os.WriteFile(path, []byte("0\n1\n2\n3\n"), 0o666); err != nil {
				t.Fatal(err)
			}
			return partitioning(smallData.dir(t), dir, "--method", "file", "--assignment", path)
		}, badData, []string{"graph.part.4", "4 entries", "3000 vertices need one"}},
		{"an order that needs settings",
			func(t *testing.T, dir string) []string {
				return partitioning(smallData.dir(t), dir,
					"--order", "vip")
			},
			usage, []string{"--order vip needs --fanouts and --batch"}},
		{"an unknown order", func(t *testing.T,
			dir string) []string {
			return partitioning(smallData.dir(t), dir, "--order", "hot")
		},
			usage, []string{"hot", "vip", "degree"}},
		{"seeds in one part", func(t *testing.T, dir string) []string {
			data := handmade{split: func(v int) [3]bool {
				return [3]bool{v < 100, v >= 100,
					false}
			}}.write(t, filepath.Join(dir, "data"))
			return partitioning(data, dir, "--method", "contiguous")
		}, badData, []string{"part 0", "100 training seeds", "--allow-imbalance"}},
		{"a target that holds something", func(t *testing.T, dir string) []string {
			data := small(t, dir)
			return []string{"partition", "--data", data, "--parts", "2", "--method", "random",
				"--out", data}
		}, badData, []string{"data", "the input", "choose another"}},
		{"check of nothing", func(t *testing.T,
			dir string) []string {
			return []string{"check", filepath.Join(dir, "none")}
		},
			badData, []string{"none", "no such file"}},
		{"check of an empty directory",
			func(t *testing.T, dir string) []string { return []string{"check", dir} },
			badData, []string{"neither a dataset or parts", "nor a run"}},
		{"check without a path",
			func(t *testing.T, dir string) []string { return []string{"check"} }, usage,
			[]string{"one path"}},
	} {
		t.Run(c.name, c.run)
	}
}

func TestPartitionWithoutKaMinPar(t *testing.T) { // not parallel, as it sets a variable
	dir := t.TempDir()
	t.Setenv("HALOGNN_KAMINPAR_PYTHON", filepath.Join(dir, "python"))
	r := halognn(t).run(t, partitioning(smallData.dir(t), dir, "--method", "kaminpar")...)
	badInput{code: badData, want: []string{"pip install kaminpar", "--method ldg"}}.check(t, dir, r)
}
