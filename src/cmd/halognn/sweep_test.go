package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSweepIsEveryCombination(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(file, []byte("data:\n  parts: p\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	o := sweepFlags{config: file, out: "o", seeds: 2, grid: []string{"sample.fanouts=[10,5],[5,5]",
		"data.parts=a/b"}, sets: []string{"model.layers=2"}}
	runs, err := o.runs()
	if err != nil {
		t.Fatal(err)
	}
	var dirs []string
	for _, r := range runs {
		dirs = append(dirs, r.dir)
	}
	if d := cmp.Diff([]string{
		"o/sample.fanouts=10-5,data.parts=a_b,train.seed=1",
		"o/sample.fanouts=10-5,data.parts=a_b,train.seed=2",
		"o/sample.fanouts=5-5,data.parts=a_b,train.seed=1",
		"o/sample.fanouts=5-5,data.parts=a_b,train.seed=2",
	}, dirs); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"sample.fanouts=[5,5]", "data.parts=a/b", "train.seed=2"},
		runs[3].sets); d != "" {
		t.Error(d)
	}
	for grid, says := range map[string]string{
		"train.lr": "want a key", "train.lr=": "want a key", "train.lr=0.1,0.1": "equal values",
		"train.lr=x": "must be a number", "train.seed=1,2": "two lists",
	} {
		o.grid, o.seeds = []string{grid}, 2
		if _, err := o.runs(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("--grid %s: %v, expected %q", grid, err, says)
		}
	}
	if o.seeds = 0; true {
		if _, err := o.runs(); err == nil {
			t.Error("no seeds were accepted")
		}
	}
}
