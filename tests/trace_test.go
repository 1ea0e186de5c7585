//go:build e2e

package tests

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// A trace has a span of every stage for every minibatch of every epoch, on each rank, and changes
// no number.
func TestTraceHoldsEveryMinibatch(t *testing.T) {
	unlessShort(t)
	p, parts, dir := halognn(t), smallParts.dir(t), newRunDir(t)
	plain := trained(t, parts, 2, "run.ranks_per_node=1")
	args := append(trainArgs(t, parts, dir, "run.ranks_per_node=1"), "--ranks-in-process", "2",
		"--trace")
	traced := outcomeOf(t, dir, p.must(t, args...))
	if traced.LossDigest != plain.LossDigest {
		t.Errorf("loss digest %s with a trace, %s without", traced.LossDigest, plain.LossDigest)
	}
	stages := []string{"sample", "plan", "ids", "slice", "rows", "assemble", "wait",
		"forward", "backward", "sync", "update"}
	for rank := range 2 {
		text, err := os.ReadFile(filepath.Join(dir, "trace", fmt.Sprintf("rank-%04d.json", rank)))
		if err != nil {
			t.Fatal(err)
		}
		var events []struct {
			Name, Cat, Ph string
			Ts, Dur       float64
			Pid, Tid      int
			Args          struct{ Item, Epoch, Step int }
		}
		if err := json.Unmarshal(text, &events); err != nil {
			t.Fatalf("rank %d: %v", rank, err)
		}
		seen, busy := map[string]int{}, map[int]float64{}
		for _, e := range events {
			if e.Ph != "X" || e.Cat != "train" {
				continue
			}
			seen[e.Name]++
			if e.Pid != rank || e.Args.Item != e.Args.Step || e.Dur < 0 {
				t.Fatalf("rank %d: %+v", rank, e)
			}
			if e.Ts < busy[e.Tid] {
				t.Fatalf("rank %d: %+v begins before the span ahead of it on its track has "+
					"ended, at %g", rank, e, busy[e.Tid])
			}
			busy[e.Tid] = e.Ts + e.Dur - 0.002 // times are written to a nanosecond
		}
		for _, s := range stages {
			if want := traced.Epochs * traced.StepsPerEpoch; seen[s] != want {
				t.Errorf("rank %d: %d spans of %s, want %d", rank, seen[s], s, want)
			}
		}
	}
}
