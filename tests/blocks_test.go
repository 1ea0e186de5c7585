//go:build e2e

package tests

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"halognn/src/base/npy"
	"halognn/src/devices/compute/meter"
	"halognn/src/model/task"
	"halognn/src/runs/blocks"
)

// The minibatches that `blocks` writes are those on which `train` trains, for the same parts and
// config.
func TestBlocksOfTheProgram(t *testing.T) {
	parts, dir := smallParts.dir(t), filepath.Join(t.TempDir(), "blocks")
	run := trained(t, parts, 2)
	args := []string{"blocks", "--config", baseFile.dir(t), "--set", "data.parts=" + parts,
		"--ranks", "2", "--out", dir}
	r := halognn(t).must(t, args...)
	var b blocks.Index
	decode(t, read(t, filepath.Join(dir, blocks.IndexFile)), &b)
	if b.BlocksDigest != run.BlocksDigest || !strings.Contains(r.out, b.BlocksDigest) {
		t.Errorf("blocks wrote %s, train trained %s: %v", b.BlocksDigest, run.BlocksDigest, r)
	}
	if again := halognn(t).run(t, args...); again.code != 3 ||
		!strings.Contains(again.message(t), "not empty") {
		t.Errorf("a second time: %v", again)
	}
}

func TestBlocksRefuses(t *testing.T) {
	args := []string{"blocks", "--config", baseFile.dir(t), "--set", "data.parts=" +
		smallParts.dir(t), "--out", filepath.Join(t.TempDir(), "blocks")}
	for _, c := range []struct {
		name, says string
		code       int
		more       []string
	}{
		{"no neighbours", "no blocks", 2, []string{"--set", "model.kind=mlp"}},
		{"ranks that do not divide the parts", "3", 3, []string{"--ranks", "3"}},
		{"no ranks", "--ranks", 2, []string{"--ranks", "0"}},
		{"steps", "--steps", 2, []string{"--steps", "-1"}},
		{"config", "sample.batch", 2, []string{"--set", "sample.batch=0"}},
	} {
		if r := halognn(t).run(t, append(args, c.more...)...); r.code != c.code ||
			!strings.Contains(r.message(t), c.says) {
			t.Errorf("%s: %v", c.name, r)
		}
	}
}

// The counts in kernels.json add up, and --kernels changes no number.
func TestKernelsOfARun(t *testing.T) {
	parts, dir := smallParts.dir(t), newRunDir(t)
	plain := trained(t, parts, 2)
	r := halognn(t).must(t,
		append(trainArgs(t, parts, dir), "--ranks-in-process", "2", "--kernels")...)
	metered := outcomeOf(t, dir, r)
	if metered.WeightsDigest != plain.WeightsDigest || metered.LossDigest != plain.LossDigest {
		t.Error("a metered run came to other numbers")
	}
	var k meter.Report
	decode(t, read(t, filepath.Join(dir, "kernels.json")), &k)
	if want := int64((metered.Epochs - 1) * metered.StepsPerEpoch); k.Steps != want {
		t.Errorf("%d steps were watched, want %d: those of all epochs but the first", k.Steps, want)
	}
	busy, floor := 0.0, 0.0
	for _, one := range k.Kernels {
		busy += one.Seconds
		floor += one.Floor
	}
	near := func(a, b float64) bool { return a > 0.999*b && a < 1.001*b }
	if !(near(busy, k.Busy) && near(floor, k.Floor) && k.Busy < k.Seconds &&
		near(k.Idle, 1-k.Busy/k.Seconds) && k.Copy > 0 && k.Product > 0) {
		t.Errorf("%+v does not add up", k)
	}
	if !strings.Contains(r.out, "no kernel ran in") {
		t.Errorf("printed %s", r.out)
	}
}

// With several labels a vertex, the targets of the seeds equal those in the dataset.
func TestBlocksOfManyLabels(t *testing.T) {
	data := handmade{task: task.Multilabel, classes: 3}.write(t,
		filepath.Join(t.TempDir(), "data"))
	dir := filepath.Join(t.TempDir(), "blocks")
	halognn(t).must(t, "blocks", "--config", baseFile.dir(t), "--set",
		"data.parts="+partitioned(t, data, 2, "random"), "--steps", "1", "--out", dir)
	var b blocks.Index
	decode(t, read(t, filepath.Join(dir, blocks.IndexFile)), &b)
	whole := numbers[uint8](t, filepath.Join(data, "labels.npy"))
	for _, m := range b.Minibatches {
		frontier, targets := numbers[int32](t, filepath.Join(dir, m.Dir, "frontier.npy")),
			numbers[uint8](t, filepath.Join(dir, m.Dir, "targets.npy"))
		if len(targets) != 3*m.Seeds || m.Seeds == 0 {
			t.Fatalf("%d targets for %d seeds", len(targets), m.Seeds)
		}
		for i, v := range frontier[:m.Seeds] {
			if got, want := targets[3*i:3*i+3], whole[3*v:3*v+3]; !slices.Equal(got, want) {
				t.Errorf("vertex %d has targets %v, want %v", v, got, want)
			}
		}
	}
}

func numbers[T npy.Element](t *testing.T, path string) []T {
	t.Helper()
	f, err := npy.Map[T](path)
	if err != nil {
		t.Fatal(err)
	}
	data := slices.Clone(f.Data)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return data
}
