//go:build e2e

package tests

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"halognn/src/runs/record"
)

// baseConfig is the config from which every run of these tests starts: so small that a run takes a
// fraction of a second.
const baseConfig = `
model: {layers: 2, hidden: 16}
sample: {fanouts: [5, 3], batch: 96}
train: {epochs: 2, lr: 0.01}
pipeline: {workers: 1}
compute: {threads: 1}
run: {progress: lines}
`

// fixture is a directory that is made once, by the first test that needs it.
type fixture struct {
	name string
	make func(t *testing.T, dir string)
	once sync.Once
}

// dir returns the directory. It fails the test if making it failed, in this test or another.
func (f *fixture) dir(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(scratch, f.name)
	f.once.Do(func() { f.make(t, dir) })
	if _, err := os.Stat(dir); err != nil {
		t.Fatalf("%s could not be made: %v", f.name, err)
	}
	return dir
}

var (
	// smallData is a graph with communities: 3000 vertices, 5 classes, 1800 training seeds.
	smallData = &fixture{name: "small", make: func(t *testing.T, dir string) {
		halognn(t).must(t, "generate", "--kind", "sbm", "--vertices", "3000", "--degree", "10",
			"--features", "16",
			"--classes", "5", "--seed", "1", "--out", dir)
	}}
	// smallParts is smallData in 8 parts.
	smallParts = &fixture{name: "small-8", make: func(t *testing.T, dir string) {
		method := "ldg"
		if halognn(t).linked("metis") {
			method = "metis"
		}
		halognn(t).must(t, "partition", "--data", smallData.dir(t), "--parts", "8", "--method",
			method, "--seed", "1", "--out", dir)
	}}
	// weightedParts is a graph like smallData with edge weights, in 8 parts.
	weightedParts = &fixture{name: "weighted-8", make: func(t *testing.T, dir string) {
		data := filepath.Join(t.TempDir(), "data")
		halognn(t).must(t, "generate", "--vertices", "3000", "--degree", "10", "--features", "16",
			"--classes", "5",
			"--seed", "1", "--edge-weights", "--out", data)
		halognn(t).must(t, "partition", "--data", data, "--parts", "8", "--method", "ldg", "--seed",
			"1", "--out", dir)
	}}
	baseFile = &fixture{name: "base.yaml",
		make: func(t *testing.T, path string) { write(t, path, []byte(baseConfig)) }}
)

func write(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o666); err != nil {
		t.Fatal(err)
	}
}

// trainArgs returns the command line of a run of the base config on the parts, without a cache,
// with the settings sets.
func trainArgs(t *testing.T, parts, dir string, sets ...string) []string {
	t.Helper()
	args := []string{"train", "--config", baseFile.dir(t), "--set", "data.parts=" + parts, "--set",
		"run.dir=" + dir, "--set", "cache.policy=none"}
	for _, s := range sets {
		args = append(args, "--set", s)
	}
	return args
}

// rows counts feature rows by where they came from.
type rows struct{ Local, Peer, Remote, RemoteBytes, Shared int64 }

func moved(r record.Rows) rows { return rows{r.Local, r.Peer, r.Remote, r.RemoteBytes, r.Shared} }

// The lines of metrics.jsonl, as in docs/metrics.md.
type (
	stepLine struct {
		Epoch    int     `json:"epoch"`
		Step     int     `json:"step"`
		Loss     float64 `json:"loss"`
		LossBits string  `json:"loss_bits"`
		LR       float64 `json:"lr"`
		Seeds    int     `json:"seeds"`
		record.Rows
	}
	epochLine struct {
		Epoch int     `json:"epoch"`
		Loss  float64 `json:"loss"`
		record.Rows
	}
	evalLine struct {
		Epoch        int            `json:"epoch"`
		Mode         string         `json:"mode"`
		ValidMetric  record.Metric  `json:"valid_metric"`
		TestAccuracy *record.Metric `json:"test_accuracy"`
	}
)

// outcome is what a run left in its directory.
type outcome struct {
	record.Summary
	dir    string
	notes  string // standard error
	steps  []stepLine
	epochs []epochLine
	evals  []evalLine
}

// trained runs the base config with the settings sets, on ranks that are goroutines of one process.
func trained(t *testing.T, parts string, ranks int, sets ...string) *outcome {
	t.Helper()
	p, dir := halognn(t), newRunDir(t)
	r := p.must(t, append(trainArgs(t, parts, dir, sets...), "--ranks-in-process",
		strconv.Itoa(ranks))...)
	return outcomeOf(t, dir, r)
}

// newRunDir returns a path that does not exist.
func newRunDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "run")
}

// outcomeOf reads the directory of a run that has succeeded.
func outcomeOf(t *testing.T, dir string, r result) *outcome {
	t.Helper()
	if r.code != 0 {
		t.Fatal(r)
	}
	o := &outcome{dir: dir, notes: r.err}
	if err := json.Unmarshal(read(t, filepath.Join(dir, "summary.json")), &o.Summary); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(bytes.NewReader(read(t, filepath.Join(dir, "metrics.jsonl"))))
	for lines.Scan() {
		var kind struct{ Kind string }
		decode(t, lines.Bytes(), &kind)
		switch kind.Kind {
		case "step":
			o.steps = append(o.steps, stepLine{})
			decode(t, lines.Bytes(), &o.steps[len(o.steps)-1])
		case "epoch":
			o.epochs = append(o.epochs, epochLine{})
			decode(t, lines.Bytes(), &o.epochs[len(o.epochs)-1])
		case "eval":
			o.evals = append(o.evals, evalLine{})
			decode(t, lines.Bytes(), &o.evals[len(o.evals)-1])
		default:
			t.Errorf("metrics.jsonl: a line of kind %q: %s", kind.Kind, lines.Bytes())
		}
	}
	return o
}

func decode(t *testing.T, line []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(line, into); err != nil {
		t.Fatalf("metrics.jsonl: %v: %s", err, line)
	}
}
