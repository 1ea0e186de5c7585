//go:build e2e

package tests

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"halognn/src/base/npy"
	"halognn/src/runs/record"
)

// A graph with vertex types can be generated, partitioned, trained and predicted; predictions are
// of the type that has labels. plan lists rows by type, and blocks writes relations.
func TestTypedGraphs(t *testing.T) {
	unlessShort(t)
	t.Parallel()
	const papers = 600
	dir := t.TempDir()
	data, parts := filepath.Join(dir, "mag"), filepath.Join(dir, "parts")
	halognn(t).must(t, "generate", "--kind", "mag", "--vertices", "600", "--classes", "4",
		"--features", "8", "--seed", "1", "--out", data)
	cut := halognn(t).must(t, "partition", "--data", data, "--parts", "4", "--method", "ldg",
		"--features", "ones", "--allow-imbalance", "--out", parts)
	if !strings.Contains(cut.out, "paper,rev_writes,author") {
		t.Errorf("partition: %v", cut)
	}
	run := trained(t, parts, 4, "model.kind=rgcn", "cache.policy=none", "train.epochs=2",
		"run.ranks_per_node=1", "topology.kind=partitioned")
	if run.RemoteBytes == 0 {
		t.Error("no row was fetched")
	}
	table, array := filepath.Join(dir, "p.csv"), filepath.Join(dir, "p.npy")
	for _, out := range []string{table, array} {
		halognn(t).must(t, "infer", "--run", run.dir, "--out", out, "--ranks-in-process", "2")
	}
	lines := strings.Split(strings.TrimSpace(string(read(t, table))), "\n")
	if len(lines) != papers+1 || !strings.HasPrefix(lines[1], "0,") {
		t.Errorf("%d lines, of which the second is %q", len(lines), lines[1])
	}
	f, err := npy.Map[int32](array, papers)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for v, class := range f.Data {
		if class < 0 || class > 3 {
			t.Fatalf("paper %d has class %d", v, class)
		}
	}
	author := filepath.Join(dir, "author")
	write(t, author, []byte("0\n600\n"))
	r := halognn(t).run(t, "infer", "--run", run.dir, "--out", filepath.Join(dir, "q.npy"),
		"--vertices", author)
	if r.code != badData || !strings.Contains(r.err, `"600" is no vertex of type paper`) {
		t.Errorf("infer of a vertex without a class: %v", r)
	}
	halognn(t).must(t, "infer", "--run", run.dir, "--embeddings", filepath.Join(dir, "e.npy"),
		"--vertices", author)
	kind := []string{"--config", baseFile.dir(t), "--set", "model.kind=rgcn", "--set",
		"cache.policy=none"}
	r = halognn(t).must(t, append([]string{"plan", "--parts", parts, "--ranks", "8", "--flops",
		"1e9"}, kind...)...)
	if !strings.Contains(r.out, "of author, 4 bytes a row") {
		t.Errorf("plan: %v", r)
	}
	r = halognn(t).must(t, append([]string{"simulate", "modes", "--parts", parts, "--ranks", "4",
		"--out", filepath.Join(dir, "modes")}, kind...)...)
	if !strings.Contains(r.out, " data ") || !strings.Contains(r.out, " split ") ||
		strings.Contains(r.out, "push-pull") {
		t.Errorf("modes: %v", r)
	}
	kind = append(kind, "--set", "data.parts="+parts)
	blocks := filepath.Join(dir, "blocks")
	halognn(t).must(t, append([]string{"blocks", "--steps", "1", "--out", blocks}, kind...)...)
	index := string(read(t, filepath.Join(blocks, "blocks.json")))
	if !strings.Contains(index, `"author,writes,paper"`) || !strings.Contains(index,
		`"first": 600`) {
		t.Errorf("blocks: %s", index)
	}
	r = halognn(t).run(t, append([]string{"analyze"}, kind...)...)
	if r.code != badData ||
		!strings.Contains(r.err, "A run on such a graph does so itself") {
		t.Errorf("analyze: %v", r)
	}
}

// papersAlone generates a small graph of papers in which only papers have features.
func papersAlone(t *testing.T, dir string) (data string) {
	t.Helper()
	data = filepath.Join(dir, "mag")
	halognn(t).must(t, "generate", "--kind", "mag", "--vertices", "600", "--classes", "4",
		"--features", "8", "--seed", "1", "--out", data)
	return data
}

// Rows of authors, institutions and fields are learned, with the same bits in one process and on
// ranks of MPI. infer predicts with the rows of the best validation.
func TestLearnedRows(t *testing.T) {
	unlessShort(t)
	t.Parallel()
	dir := t.TempDir()
	data := papersAlone(t, dir)
	parts := partitioned(t, data, 4, "ldg", "--allow-imbalance")
	sets := []string{"model.kind=rgcn", "model.learned=8", "cache.policy=none",
		"sample.streams=part", "train.epochs=3", "run.ranks_per_node=1"}
	want := trained(t, parts, 1, sets...)
	runs := map[string]*outcome{"goroutines": trained(t, parts, 4,
		append(sets, "pipeline.depth=5")...)}
	if halognn(t).linked("mpi") {
		runs["MPI"] = trainedMPI(t, parts, 4, append(sets, "pipeline.workers=3",
			"topology.kind=partitioned")...)
	}
	for name, run := range runs {
		sameNumbers(t, run, want)
		if run.LearnedDigest != want.LearnedDigest || run.LearnedDigest == "" ||
			run.Shuffles.Bytes == 0 {
			t.Errorf("%s: digest of rows %q, want %q; %d bytes of them sent", name,
				run.LearnedDigest, want.LearnedDigest, run.Shuffles.Bytes)
		}
		r := halognn(t).must(t, "infer", "--run", run.dir, "--out", filepath.Join(dir, name+".npy"),
			"--ranks-in-process", "2")
		if text := record.MetricText(run.MetricName, run.TestMetric); !strings.Contains(r.out,
			text) {
			t.Errorf("%s: infer says %s, and the run %s", name, r.out, text)
		}
	}
	r := halognn(t).run(t, "infer", "--run", want.dir, "--out", filepath.Join(dir, "other.npy"),
		"--set", "data.parts="+partitioned(t, data, 2, "ldg", "--allow-imbalance"))
	if r.code == 0 || !strings.Contains(r.err, "belong to the parts that it was trained on") {
		t.Errorf("other parts: %v", r)
	}
	r = halognn(t).run(t, "infer", "--run", want.dir, "--out", filepath.Join(dir, "other.npy"),
		"--set", "model.learned=4")
	if r.code == 0 || !strings.Contains(r.err, "was trained with 8; leave it as it was") {
		t.Errorf("other rows: %v", r)
	}
}

// Rows that training has not read are zeros wherever a model is evaluated or predicts: in
// evaluation, in the files of the run, and in those of a checkpoint's last step. Training continues
// with their initial values.
func TestUnreadRows(t *testing.T) {
	unlessShort(t)
	t.Parallel()
	dir := t.TempDir()
	data := papersAlone(t, dir)
	parts := partitioned(t, data, 2, "ldg", "--allow-imbalance")
	logits := func(run string, flags ...string) []float32 {
		at := filepath.Join(t.TempDir(), "logits.npy")
		halognn(t).must(t, append([]string{"infer", "--run", run, "--logits", "--out", at},
			flags...)...)
		f, err := npy.Map[float32](at, -1, -1)
		if err != nil {
			t.Fatal(err)
		}
		return f.Data
	}
	of := map[string][]float32{}
	for _, unread := range []string{"zero", "keep"} {
		o := trained(t, parts, 2, "model.kind=rgcn", "model.layers=2", "model.learned=8",
			"sample.fanouts=1,1",
			"train.epochs=2", "train.eval_every=2", "model.learned_scale=1",
			"model.learned_unread="+unread)
		of[unread] = logits(o.dir)
		stopped := copyOf(t, o.dir, t.TempDir(), "run")
		remove(t, filepath.Join(stopped, "summary.json"))
		remove(t, filepath.Join(stopped, "model.safetensors"))
		// in a run of one epoch both are the same model
		for _, which := range []string{"last", "best"} {
			if got := logits(stopped, "--checkpoint", which); !slices.Equal(got, of[unread]) {
				t.Errorf("%s: the %s model of the checkpoint has other logits than that of the run",
					unread, which)
			}
		}
	}
	if slices.Equal(of["zero"], of["keep"]) {
		t.Error("no row was unread, or all were kept")
	}
}
