//go:build e2e

package tests

import (
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// sparseParts and sparseTwin are the same graph with sparse and with dense rows: few entries in
// many columns, which tell the class of a vertex. wordParts has words: all values are 1.
var (
	sparseParts = &fixture{name: "sparse-4", make: sparsePartsOf("sparse", false)}
	sparseTwin  = &fixture{name: "sparse-twin-4", make: sparsePartsOf("float32", false)}
	wordParts   = &fixture{name: "words-4", make: sparsePartsOf("sparse", true)}
)

const sparseVertices, sparseColumns = 1500, 400

func sparsePartsOf(featureType string, words bool) func(t *testing.T, dir string) {
	return func(t *testing.T, dir string) {
		in, random := t.TempDir(), rand.New(rand.NewPCG(7, 8))
		var src, dst, labels []int64
		indptr, columns, values := []int64{0}, []int32{}, []float32{}
		for v := range sparseVertices {
			class := random.IntN(4)
			labels = append(labels, int64(class))
			seen := map[int32]bool{}
			for range random.IntN(12) { // some rows have no entries
				c := int32(random.IntN(sparseColumns/4)*4 + class)
				if random.IntN(3) == 0 {
					c = int32(random.IntN(sparseColumns))
				}
				if seen[c] {
					continue
				}
				seen[c] = true
				columns = append(columns, c)
				x := float32(1)
				if !words {
					x = float32(random.NormFloat64()) + 2
				}
				values = append(values, x)
			}
			indptr = append(indptr, int64(len(columns)))
			for range 4 {
				if u := random.IntN(sparseVertices); u != v {
					src, dst = append(src, int64(u)), append(dst, int64(v))
				}
			}
		}
		save(t, filepath.Join(in, "edge_index.npy"), append(src, dst...), 2, len(dst))
		save(t, filepath.Join(in, "attr_indptr.npy"), indptr, len(indptr))
		save(t, filepath.Join(in, "attr_indices.npy"), columns, len(columns))
		save(t, filepath.Join(in, "attr_data.npy"), values, len(values))
		save(t, filepath.Join(in, "attr_shape.npy"), []int64{sparseVertices, sparseColumns}, 2)
		save(t, filepath.Join(in, "num_nodes.npy"), []int64{sparseVertices}, 1)
		save(t, filepath.Join(in, "y.npy"), labels, len(labels))
		data := filepath.Join(t.TempDir(), "data")
		halognn(t).must(t, "import", "--format", "npz", "--in", in, "--undirected",
			"--feature-type", featureType, "--out", data)
		halognn(t).must(t, "check", data)
		halognn(t).must(t, "partition", "--data", data, "--parts", "4", "--method", "ldg", "--out",
			dir)
		halognn(t).must(t, "check", dir)
	}
}

// Sparse rows give the same losses as the same rows stored dense, with every kind of model, also
// those that make them dense; the same numbers on one rank and on four, at every depth and with
// every topology. Only their entries are sent, and inference with all neighbours gives what
// minibatches give.
func TestSparseRows(t *testing.T) {
	unlessShort(t)
	t.Parallel()
	for _, kind := range []string{"sage", "gcn", "gin", "mlp", "gat", "sage max"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			name, maxima, _ := strings.Cut(kind, " ")
			sets := []string{"model.kind=" + name, "model.hidden=16", "model.layers=2",
				"sample.fanouts=6,4",
				"sample.batch=64", "sample.streams=part", "train.epochs=3", "train.lr=0.01",
				"model.dropout=0.2",
				"cache.policy=none", "run.ranks_per_node=1"}
			if maxima != "" {
				sets = append(sets, "model.aggregation=max")
			}
			parts := sparseParts.dir(t)
			one := trained(t, parts, 1, sets...)
			for _, more := range [][]string{{"pipeline.depth=0"}, {"pipeline.depth=4",
				"run.ranks_per_node=2"},
				{"topology.kind=partitioned"}, {"cache.policy=vip", "cache.alpha=0.5"}} {
				if name == "mlp" && more[0] == "topology.kind=partitioned" {
					continue // mlp reads no topology
				}
				sameNumbers(t, trained(t, parts, 4, append(sets, more...)...), one)
			}
			several, twin := trained(t, parts, 4, sets...), trained(t, sparseTwin.dir(t), 4,
				sets...)
			if d := math.Abs(several.TrainLoss - twin.TrainLoss); !(d <= 1e-5) {
				t.Errorf("train loss %g, of dense rows %g", several.TrainLoss, twin.TrainLoss)
			}
			if several.Remote != twin.Remote {
				t.Errorf("%d rows came, of dense rows %d", several.Remote, twin.Remote)
			}
			// rows have fewer than 12 entries of 8 bytes
			if b := several.RemoteBytes; name != "mlp" && (b == 0 || b > 12*8*several.Remote) {
				t.Errorf("%d rows came in %d bytes", several.Remote, b)
			}
			sameLogits(t, several)
		})
	}
}

// Rows of words store and send only columns. plan measures steps of sparse rows and counts what is
// sent.
func TestRowsOfWords(t *testing.T) {
	unlessShort(t)
	t.Parallel()
	sets := []string{"model.hidden=16", "model.layers=2", "sample.fanouts=6,4", "sample.batch=64",
		"train.epochs=2", "cache.policy=none", "run.ranks_per_node=1"}
	parts := wordParts.dir(t)
	got := trained(t, parts, 4, sets...)
	if b := got.RemoteBytes; b == 0 || b%4 != 0 || b > 12*4*got.Remote {
		t.Errorf("%d rows came in %d bytes", got.Remote, b)
	}
	args := []string{"plan", "--parts", parts, "--config", baseFile.dir(t), "--ranks", "4"}
	for _, s := range sets {
		args = append(args, "--set", s)
	}
	halognn(t).must(t, args...)
}

// Combinations that sparse rows cannot have are refused by name, and damage to their files is
// found.
func TestSparseRowsRefused(t *testing.T) {
	unlessShort(t)
	parts := sparseParts.dir(t)
	for _, c := range []struct{ sets, want string }{
		{"cache.policy=lookahead", "cache.policy lookahead"},
		{"cache.policy=auto", "cache.policy auto"},
		{"cache.placement=group", "cache.placement group"},
		{"exchange.sums=on", "exchange.sums on"},
		{"parallel.mode=split", "parallel.mode split"},
		{"parallel.mode=push-pull", "parallel.mode push-pull"},
	} {
		sets := []string{c.sets}
		if !strings.HasPrefix(c.sets, "cache.policy") {
			sets = append(sets, "cache.policy=none")
		}
		r := halognn(t).run(t, append(trainArgs(t, parts, newRunDir(t), sets...),
			"--ranks-in-process", "2")...)
		if r.code == 0 || !strings.Contains(r.err, c.want) || !strings.Contains(r.err, "sparse") {
			t.Errorf("%s: %v", c.sets, r)
		}
	}
	damaged := filepath.Join(t.TempDir(), "parts")
	if err := os.CopyFS(damaged, os.DirFS(parts)); err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(damaged, "part-0001", "features.npy")
	file, err := os.ReadFile(at)
	if err != nil {
		t.Fatal(err)
	}
	const header = 128
	for i := header; i < len(file); i += 8 { // the column of every entry
		file[i], file[i+1] = 0xff, 0x7f
	}
	if err := os.WriteFile(at, file, 0o666); err != nil {
		t.Fatal(err)
	}
	if r := halognn(t).run(t, "check", damaged); r.code == 0 || !strings.Contains(r.err,
		"column 32767 of 400") {
		t.Errorf("check of damaged rows: %v", r)
	}
	r := halognn(t).run(t, append(trainArgs(t, damaged, newRunDir(t), "cache.policy=none"),
		"--ranks-in-process", "2")...)
	if r.code == 0 || !strings.Contains(r.err, "part-0001/features.npy") {
		t.Errorf("training on damaged rows: %v", r)
	}
}
