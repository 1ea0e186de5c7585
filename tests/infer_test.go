//go:build e2e

package tests

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"halognn/src/base/npy"
	"halognn/src/model/task"
)

// predicted runs infer on the run and returns predictions.npy: classes, in original ids.
func predicted(t *testing.T, run string, ranks int, flags ...string) []int32 {
	t.Helper()
	path := filepath.Join(t.TempDir(), fmt.Sprintf("predictions-%d.npy", ranks))
	args := []string{"infer", "--run", run, "--out", path, "--ranks-in-process",
		strconv.Itoa(ranks)}
	halognn(t).must(t, append(args, flags...)...)
	return ids(t, path)
}

// ids reads an int32 array.
func ids(t *testing.T, path string) []int32 {
	t.Helper()
	f, err := npy.Map[int32](path, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return append([]int32(nil), f.Data...)
}

// accuracy returns the share of a dataset's test vertices that are predicted correctly.
func accuracy(t *testing.T, data string, predictions []int32) float64 {
	t.Helper()
	labels, test := ids(t, filepath.Join(data, "labels.npy")),
		ids(t, filepath.Join(data, "test.npy"))
	if len(predictions) != len(labels) {
		t.Fatalf("%d predictions for %d vertices", len(predictions), len(labels))
	}
	right := 0
	for _, v := range test {
		if predictions[v] == labels[v] {
			right++
		}
	}
	return float64(right) / float64(len(test))
}

// Predictions are in the order of the dataset's ids and have the accuracy of the run's summary, on
// any number of ranks and any parts of the same dataset.
func TestInferFull(t *testing.T) {
	t.Parallel()
	data := smallData.dir(t)
	o := trained(t, smallParts.dir(t), 4, "train.epochs=4", "train.lr=0.02")
	want := predicted(t, o.dir, 4)
	if got := accuracy(t, data, want); got != o.TestAccuracy.Value {
		t.Errorf("the predictions get %g of the test vertices right, summary.json says %g", got,
			o.TestAccuracy.Value)
	}
	others := partitioned(t, data, 3, "random")
	for _, c := range []struct {
		name  string
		ranks int
		flags []string
	}{
		{"1 rank", 1, nil},
		{"2 ranks", 2, nil},
		{"8 ranks", 8, nil},
		{"every rank a node, deep pipeline", 4,
			[]string{"--set", "run.ranks_per_node=1", "--set", "pipeline.depth=5"}},
		{"other parts", 3, []string{"--set", "data.parts=" + others}},
	} {
		got, differ := predicted(t, o.dir, c.ranks, c.flags...), 0
		for v := range want {
			if got[v] != want[v] {
				differ++
			}
		}
		// A row of a product may round differently by its place in a tile, which can change the
		// class of a vertex whose two best classes tie.
		if differ > 1 {
			t.Errorf("%s: %d of %d predictions differ from those on 4 ranks", c.name, differ,
				len(want))
		}
	}
}

// Sampled predictions depend on the parts, not on the number of ranks, and are nearly as accurate
// as full ones.
func TestInferSampled(t *testing.T) {
	t.Parallel()
	o := trained(t, smallParts.dir(t), 4, "train.epochs=4", "train.lr=0.02", "sample.streams=part")
	want := predicted(t, o.dir, 4, "--mode", "sampled")
	if got := accuracy(t, smallData.dir(t), want); got < o.TestAccuracy.Value-0.1 {
		t.Errorf("sampled predictions get %g of the test vertices right, full ones %g", got,
			o.TestAccuracy.Value)
	}
	for _, ranks := range []int{1, 8} {
		got, differ := predicted(t, o.dir, ranks, "--mode", "sampled"), 0
		for v := range want {
			if got[v] != want[v] {
				differ++
			}
		}
		if differ > 1 {
			t.Errorf("%d ranks: %d of %d sampled predictions differ from those on 4 ranks", ranks,
				differ, len(want))
		}
	}
	// With eval_fanouts of all neighbours they equal the full ones.
	full, differ, narrow := predicted(t, o.dir, 4), 0, 0
	wide := predicted(t, o.dir, 4, "--mode", "sampled", "--set", "sample.eval_fanouts=-1,-1")
	for v := range full {
		if wide[v] != full[v] {
			differ++
		}
		if want[v] != full[v] {
			narrow++
		}
	}
	if differ > 1 || narrow < 10 {
		t.Errorf("of full predictions %d differ from those sampled with all neighbours, %d from "+
			"those with a few", differ, narrow)
	}
}

// A signal ends infer with one message and exit code 128 + n, and leaves no file.
func TestSignalEndsInfer(t *testing.T) {
	unlessShort(t)
	o := trained(t, smallParts.dir(t), 2, "model.hidden=8192", "sample.batch=500")
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		dir := t.TempDir()
		j := start(t, nil, halognn(t).path, "infer", "--run", o.dir, "--out",
			filepath.Join(dir, "predictions.npy"), "--ranks-in-process", "2",
			"--set", "compute.device=ref")
		eventually(t, "predicting",
			func() bool { return processorTime(t, j.Process.Pid) > 50 })
		if err := j.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
		r := j.wait(t)
		if m := r.message(t); r.code != 128+int(s) ||
			!strings.Contains(m, "ended by a signal ("+s.String()+")") {
			t.Errorf("%v: %v", s, r)
		}
		if names, err := os.ReadDir(dir); err != nil || len(names) > 0 {
			t.Errorf("%v: left are %v (%v)", s, names, err)
		}
	}
}

// processorTime returns the processor time of a process, in ticks of 10 ms.
func processorTime(t *testing.T, pid int) int {
	t.Helper()
	text := string(read(t, fmt.Sprintf("/proc/%d/stat", pid)))
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	n, err := strconv.Atoi(fields[11])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestInferMLP(t *testing.T) {
	t.Parallel()
	o := trained(t, smallParts.dir(t), 2, "model.kind=mlp", "train.eval_mode=full")
	// the same for a model that reads no neighbours
	for _, mode := range []string{"full", "sampled"} {
		if got := accuracy(t, smallData.dir(t),
			predicted(t, o.dir, 2, "--mode", mode)); got != o.TestAccuracy.Value {
			t.Errorf("%s: %g of the test vertices right, summary.json says %g", mode, got,
				o.TestAccuracy.Value)
		}
	}
}

func TestInferMultilabel(t *testing.T) {
	t.Parallel()
	data := handmade{task: task.Multilabel}.write(t, filepath.Join(t.TempDir(), "data"))
	o := trained(t, partitioned(t, data, 4, "contiguous", "--allow-imbalance"), 4,
		"train.epochs=10", "sample.batch=20")
	path := filepath.Join(t.TempDir(), "predictions.npy")
	halognn(t).must(t, "infer", "--run", o.dir, "--out", path, "--ranks-in-process", "2")
	predictions, err := npy.Map[uint8](path, 400, 4)
	if err != nil {
		t.Fatal(err)
	}
	defer predictions.Close()
	labels, err := npy.Map[uint8](filepath.Join(data, "labels.npy"), 400, 4)
	if err != nil {
		t.Fatal(err)
	}
	defer labels.Close()
	both, marks := 0, 0
	for _, v := range ids(t, filepath.Join(data, "test.npy")) {
		for c := range 4 {
			p, y := int(predictions.Data[4*v+int32(c)]), int(labels.Data[4*v+int32(c)])
			both += p & y
			marks += p + y
		}
	}
	if f1 := 2 * float64(both) / float64(marks); f1 != o.TestMetric.Value {
		t.Errorf("the predictions have micro-F1 %g, summary.json says %g", f1, o.TestMetric.Value)
	}
}

// A run that has not finished predicts with its newest checkpoint: with the weights of the last
// step or, after a validation, with the best weights.
func TestInferUnfinished(t *testing.T) {
	t.Parallel()
	o := trained(t, smallParts.dir(t), 2, "train.epochs=3", "train.lr=0.1")
	run := copyOf(t, o.dir, t.TempDir(), "run")
	ends, err := filepath.Glob(filepath.Join(run, "checkpoints", "*-end"))
	if err != nil || len(ends) != 1 {
		t.Fatalf("checkpoints of the end: %v (%v)", ends, err)
	}
	remove(t, filepath.Join(run, "summary.json"))
	remove(t, filepath.Join(run, "model.safetensors"))
	if best := predicted(t, run, 2, "--checkpoint", "best"); !slices.Equal(best,
		predicted(t, o.dir, 1)) {
		t.Error("the best model predicts other classes than that of the finished run")
	}
	at := filepath.Join(t.TempDir(), "last.npy")
	r := halognn(t).must(t, "infer", "--run", run, "--out", at, "--checkpoint", "last")
	if from := filepath.Join(ends[0], "model.safetensors"); !strings.Contains(r.out, from) {
		t.Errorf("want predictions with %s: %v", from, r)
	}

	run = stopped(t)
	predicted(t, run, 2, "--checkpoint", "last")
	for want, flags := range map[string][]string{
		"--checkpoint best": nil, "use best or last": {"--checkpoint", "newest"},
	} {
		r := halognn(t).run(t, append([]string{"infer", "--run", run, "--out", at + ".npy"},
			flags...)...)
		if r.code == 0 || !strings.Contains(r.message(t), want) {
			t.Errorf("want %q: %v", want, r)
		}
	}
	remove(t, filepath.Join(run, "checkpoints"))
	if r := halognn(t).run(t, "infer", "--run", run, "--out", at+".npy", "--checkpoint",
		"last"); r.code != badData || !strings.Contains(r.message(t), "no checkpoint yet") {
		t.Errorf("without checkpoints: %v", r)
	}
}

// A run whose config has relative paths can be used from any directory, and infer makes the
// directory of its predictions.
func TestInferFromAnotherDirectory(t *testing.T) {
	t.Parallel()
	dir, away := t.TempDir(), t.TempDir()
	copyOf(t, smallParts.dir(t), dir, filepath.Join("data", "parts"))
	in := func(at string, args ...string) result {
		t.Helper()
		j := exec.Command(halognn(t).path, args...)
		j.Dir = at
		text, err := j.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%s", args, err, text)
		}
		return result{out: string(text)}
	}
	in(dir, trainArgs(t, "data/parts", "runs/one")...)
	run := filepath.Join(dir, "runs", "one")
	out := filepath.Join(away, "new", "deep", "classes.npy")
	in(away, "infer", "--run", run, "--out", out)
	if got := ids(t, out); len(got) != len(predicted(t, run, 1)) {
		t.Errorf("%d predictions", len(got))
	}
	in(away, "train", "--resume", run, "--set", "train.epochs=20")
}

// sameLogits compares the logits of a run of two layers by full inference with those of minibatches
// with all neighbours on two ranks.
func sameLogits(t *testing.T, run *outcome) {
	t.Helper()
	var logits [2][]float32
	for i, mode := range []string{"full", "sampled"} {
		at := filepath.Join(t.TempDir(), mode+".npy")
		halognn(t).must(t, "infer", "--run", run.dir, "--mode", mode, "--logits", "--out", at,
			"--set", "sample.eval_fanouts=-1,-1", "--ranks-in-process", strconv.Itoa(1+i))
		f, err := npy.Map[float32](at, -1, -1)
		if err != nil {
			t.Fatal(err)
		}
		logits[i] = f.Data
	}
	if len(logits[0]) != len(logits[1]) {
		t.Fatalf("%d logits with all neighbours, %d of minibatches", len(logits[0]), len(logits[1]))
	}
	for i, x := range logits[0] {
		if y := logits[1][i]; math.Abs(float64(x-y)) > 1e-5*(1+math.Abs(float64(x))) {
			t.Fatalf("logit %d is %g with all neighbours, %g of minibatches", i, x, y)
		}
	}
}
