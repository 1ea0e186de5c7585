//go:build e2e

package tests

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"halognn/src/model/task"
)

// unjudged are graphs on which a metric has no value for validation or test vertices, and why.
var unjudged = []struct {
	name, metric string
	graph        handmade
	valid, test  string // why
}{
	{"no vertices", "accuracy", handmade{split: func(v int) [3]bool { return [3]bool{v%2 == 0} }},
		"no vertices", "no vertices"},
	{"one class", "roc_auc", handmade{classes: 2, split: func(v int) [3]bool {
		return [3]bool{v%2 == 0, v%2 == 1 && v < 200, v%2 == 1 && v >= 200}
	}}, "only class 0", "only class 1"},
	{"no labels", "micro_f1", handmade{task: task.Multilabel,
		unmarked: func(v int) bool { return v%5 >= 3 }}, "no labels", "no labels"},
}

// If a metric has no value for the validation or test vertices, a run trains to its end, keeps its
// last model and says so once. No file and no command shows a number that was not measured.
func TestNoValue(t *testing.T) {
	t.Parallel()
	for _, c := range unjudged {
		for _, mode := range []string{"sampled", "full"} {
			t.Run(c.name+", "+mode, func(t *testing.T) {
				t.Parallel()
				data := c.graph.write(t, filepath.Join(t.TempDir(), "data"))
				parts := partitioned(t, data, 4, "contiguous", "--allow-imbalance")
				dir := newRunDir(t)
				args := append(trainArgs(t, parts, dir, "train.eval_mode="+mode, "train.epochs=3",
					"checkpoint.every_steps=1"), "--ranks-in-process", "2")
				r := halognn(t).must(t, args...)
				o := outcomeOf(t, dir, r)
				if o.MetricName != c.metric || o.TestMetric.Known || o.ValidMetric.Known ||
					o.NoValue["test_metric"] != c.test || o.NoValue["valid_metric"] != c.valid ||
					o.BestEpoch != 3 || o.Epochs != 3 {
					t.Errorf("%s: best epoch %d of %d, test %v, valid %v, why %v", o.MetricName,
						o.BestEpoch, o.Epochs, o.TestMetric, o.ValidMetric, o.NoValue)
				}
				for _, e := range o.evals {
					if e.ValidMetric.Known {
						t.Errorf("epoch %d: valid %v", e.Epoch, e.ValidMetric)
					}
				}
				for path, n := range map[string]int{"summary.json": 2, "metrics.jsonl": 3} {
					text := string(read(t, filepath.Join(dir, path)))
					if got := strings.Count(text, `_metric": null`) +
						strings.Count(text, `"valid_metric":null`); got != n {
						t.Errorf("%s has %d metrics of null, want %d", path, got, n)
					}
				}
				for _, want := range []string{"valid " + c.metric + " – (" + c.valid + ")",
					"– (" + c.test + ")"} {
					if !strings.Contains(r.out+r.err, want) {
						t.Errorf("it does not say %q: %v", want, r)
					}
				}
				if n := strings.Count(r.err, "the model of the last epoch is kept"); n != 1 {
					t.Errorf("it says %d times which model is kept: %v", n, r)
				}
				sameAfterResume(t, o)
				tellsNoValue(t, o, c.test)
			})
		}
	}
}

// sameAfterResume fails the test unless the run, continued from its first checkpoint, gives the
// same results.
func sameAfterResume(t *testing.T, o *outcome) {
	t.Helper()
	want := *o
	checkpoints, err := filepath.Glob(filepath.Join(o.dir, "checkpoints", "step-*"))
	if err != nil || len(checkpoints) < 2 {
		t.Fatalf("checkpoints %v, %v", checkpoints, err)
	}
	state := string(read(t, filepath.Join(checkpoints[len(checkpoints)-1], "state.json")))
	if !strings.Contains(state, `"best_metric": null`) {
		t.Errorf("a checkpoint has %s", state)
	}
	for _, later := range checkpoints[1:] {
		if err := os.RemoveAll(later); err != nil {
			t.Fatal(err)
		}
	}
	remove(t, filepath.Join(o.dir, "summary.json"))
	r := halognn(t).must(t, "train", "--resume", o.dir, "--ranks-in-process", "2")
	got := outcomeOf(t, o.dir, r)
	sameNumbers(t, got, &want)
	if got.BestEpoch != want.BestEpoch ||
		got.NoValue["valid_metric"] != want.NoValue["valid_metric"] {
		t.Errorf("best epoch %d, why %v; want %d, %v", got.BestEpoch, got.NoValue, want.BestEpoch,
			want.NoValue)
	}
}

// tellsNoValue fails the test if a command that reads the run shows a number for its test metric.
func tellsNoValue(t *testing.T, o *outcome, why string) {
	t.Helper()
	out := t.TempDir()
	r := halognn(t).must(t, "infer", "--run", o.dir, "--out", filepath.Join(out, "p.npy"))
	dash := "– (" + why + ")"
	for line := range strings.Lines(r.out) {
		if strings.HasPrefix(strings.TrimSpace(line), "test ") && !strings.Contains(line, dash) {
			t.Errorf("infer says %q", line)
		}
	}
	if why != "no vertices" && !strings.Contains(r.out, dash) {
		t.Errorf("infer does not say %q: %v", why, r)
	}
	r = halognn(t).must(t, "report", o.dir, "--out", filepath.Join(out, "report"))
	page := string(read(t, filepath.Join(out, "report", "report.html")))
	if !strings.Contains(r.out, dash) || !strings.Contains(page, dash) ||
		!strings.Contains(page, "The test split gives no "+o.MetricName+": "+why) {
		t.Errorf("report does not say %q: %s", why, r.out)
	}
	if _, err := exec.LookPath("python3"); err != nil {
		t.Log("no python3 here: nothing was exported for TensorBoard")
		return
	}
	if said, err := exec.Command("python3", "-B", "../profiling/export_tensorboard.py", o.dir,
		"--out",
		out).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	files, err := filepath.Glob(filepath.Join(out, filepath.Base(o.dir), "events.out.tfevents.*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}
	if events := string(read(t, files[0])); strings.Contains(events, "eval/valid_metric") ||
		!strings.Contains(events, "step/loss") {
		t.Error("TensorBoard has a validation metric, or no losses")
	}
}

// A run that would wait for a better validation, but can have no validation value, is refused
// before anything is written.
func TestPatienceWithoutValidation(t *testing.T) {
	for _, c := range unjudged {
		for _, flags := range [][]string{nil, {"--dry-run"}} {
			t.Run(strings.Join(append(flags, c.name), " "), badInput{code: badData,
				args: func(t *testing.T, dir string) []string {
					data := c.graph.write(t, filepath.Join(t.TempDir(), "data"))
					parts := partitioned(t, data, 4, "contiguous", "--allow-imbalance")
					return append(training(t, parts, dir, "train.patience=2"), flags...)
				},
				want: []string{"train.patience=2", c.metric, c.valid, "train.patience=0"},
			}.run)
		}
	}
}
