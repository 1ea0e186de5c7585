package main

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
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
	for _, c := range []struct {
		grid, set string
		seeds     int
		says      string
	}{
		{"train.lr", "", 1, "want a key"}, {"train.lr=", "", 1, "want a key"},
		{"train.lr=0.1,0.1", "", 1, "equal values"}, {"train.lr=0.1,1e-1", "", 1, "equal values"},
		{"sample.fanouts=[5,5],[ 5, 5 ]", "", 1, "equal values"},
		{"train.lr=a,b", "", 1, `--grid train.lr=a,b: train.lr is "a"; it must be a number`},
		{"train.seed=1,2", "", 2, "train.seed is given by --grid and by --seeds"},
		{"train.lr=1,2", "train.lr=0.1", 1, "train.lr is given by --set and by --grid"},
		{"train.epochs=1", "train.seed=1", 2, "train.seed is given by --set and by --seeds"},
		{"run.dir=a,b", "", 1, "run.dir is given by --out and by --grid"},
		{"train.epochs=1", "run.dir=a", 1, "run.dir is given by --out and by --set"},
		{"train.epochs=1", "", 0, "at least 1"},
	} {
		o := sweepFlags{config: file, out: "o", grid: []string{c.grid}, seeds: c.seeds}
		if c.set != "" {
			o.sets = []string{c.set}
		}
		if _, err := o.runs(); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v: %v", c, err)
		}
	}
}

// What is wrong with all runs is said once, an unknown key by the flag that has it.
func TestSweepSaysAFaultOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(file, []byte("data:\n  parts: p\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	o := sweepFlags{config: file, out: "o", seeds: 2, grid: []string{"train.learning_rate=1,2"}}
	_, err := o.runs()
	want := "--grid train.learning_rate=1,2: unknown key train.learning_rate; "
	if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Count(err.Error(),
		"unknown") != 1 {
		t.Errorf("%v, want %s", err, want)
	}
	o.grid, o.sets = []string{"train.lr=1,2"}, []string{"model.hiden=1"}
	if _, err := o.runs(); err == nil || strings.Count(err.Error(), "unknown key") != 1 {
		t.Errorf("four runs with a fault that is not theirs: %v", err)
	}
}

// Elements of a job array take turns, and the last one leaves no lock.
func TestTurns(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	var all sync.WaitGroup
	var inside, turns atomic.Int32
	for range 50 {
		all.Go(func() {
			done, err := takeTurn(path)
			if err != nil {
				t.Error(err)
				return
			}
			if n := inside.Add(1); n != 1 {
				t.Errorf("%d had the turn", n)
			}
			turns.Add(inside.Load())
			inside.Add(-1)
			done()
		})
	}
	all.Wait()
	if _, err := os.Stat(path); turns.Load() != 50 || err == nil {
		t.Errorf("%d of 50 had their turn, and the lock is there: %v", turns.Load(), err == nil)
	}
}
