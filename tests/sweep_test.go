//go:build e2e

package tests

import (
	"path/filepath"
	"strings"
	"testing"
)

// A sweep trains what has not finished, names what fails and reports the rest.
func TestSweep(t *testing.T) {
	t.Parallel()
	parts, out := smallParts.dir(t), filepath.Join(t.TempDir(), "sweep")
	sweep := func(more ...string) []string {
		return append([]string{"sweep", "--config", "../inputs/demo.yaml", "--out", out, "--ranks-in-process", "2",
			"--set", "data.parts=" + parts, "--set", "train.epochs=1"}, more...)
	}
	r := halognn(t).must(t, sweep("--grid", "train.lr=0.01,0.003", "--seeds", "2")...)
	if !strings.Contains(r.out, "4 of 4 runs") || !strings.Contains(r.out, "±") {
		t.Errorf("the sweep says:\n%s", r)
	}
	r = halognn(t).must(t, sweep("--grid", "train.lr=0.01,0.003,0.1", "--seeds", "2", "--task", "3")...)
	if !strings.Contains(r.err, "has finished before") || !strings.Contains(r.out, "4 of 6 runs") {
		t.Errorf("begun again it says:\n%s", r)
	}
	again := halognn(t).run(t, sweep("--grid", "train.lr=0.01", "--seeds", "2", "--set",
		"model.hidden=8")...)
	if again.code != 2 || !strings.Contains(again.err, "another sweep") {
		t.Errorf("with other settings in the same place:\n%s", again)
	}
	bad := halognn(t).run(t, sweep("--grid", "train.loss_scale=1")...)
	if bad.code != 2 {
		t.Errorf("an unknown key:\n%s", bad)
	}
	one := halognn(t).run(t, sweep("--grid", "sample.batch=16,1000000", "--launcher", "false")...)
	if one.code != 1 || !strings.Contains(one.err, "2 runs of 2 failed") {
		t.Errorf("runs that fail:\n%s", one)
	}
}
