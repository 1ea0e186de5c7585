//go:build e2e

package tests

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A trace has, on each rank, a span of every stage for every minibatch of every epoch, and changes
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
			busy[e.Tid] = e.Ts + e.Dur - 0.002 // times are written in whole nanoseconds
		}
		for _, s := range stages {
			if want := traced.Epochs * traced.StepsPerEpoch; seen[s] != want {
				t.Errorf("rank %d: %d spans of %s, want %d", rank, seen[s], s, want)
			}
		}
	}
}

// A profiler that follows NVTX gets the spans of the trace: their beginning, by the same names, and
// their end.
func TestRangesAreTheSpansOfTheTrace(t *testing.T) {
	unlessShort(t)
	t.Run("cpu", func(t *testing.T) { rangesAreSpans(t, nil, "cpu") })
	t.Run("cuda", func(t *testing.T) { rangesAreSpans(t, emulatedGPU(t), "cuda") })
}

func rangesAreSpans(t *testing.T, env []string, device string) {
	t.Helper()
	scratch, dir := t.TempDir(), newRunDir(t)
	profiler, log := filepath.Join(scratch, "libprofiler.so"), filepath.Join(scratch, "ranges")
	c := exec.Command("cc", "-shared", "-fPIC", "-DNAMED=1", "-DSTARTS=1", "-DRANGES=1",
		fmt.Sprintf("-DLOG=%q", log), "-o", profiler, "../src/devices/nvtx/testdata/profiler.c")
	if text, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	r := start(t, append(env, "NVTX_INJECTION64_PATH="+profiler), halognn(t).path,
		append(trainArgs(t, smallParts.dir(t), dir, "run.ranks_per_node=1",
			"compute.device="+device,
			"checkpoint.every_steps=3", "cache.policy=lookahead"), "--ranks-in-process", "2",
			"--trace")...).wait(t)
	outcomeOf(t, dir, r)
	spans, ranges, open := map[string]int{}, map[string]int{}, map[string]string{}
	for rank := range 2 {
		var events []struct{ Name, Ph string }
		decode(t, read(t, filepath.Join(dir, "trace", fmt.Sprintf("rank-%04d.json", rank))),
			&events)
		for _, e := range events {
			if e.Ph == "X" {
				spans[e.Name]++
			}
		}
	}
	for _, line := range strings.Split(strings.TrimSpace(string(read(t, log))), "\n") {
		words := strings.Fields(line)
		if words[0] == "start" {
			open[words[1]] = words[2]
			ranges[words[2]]++
			continue
		}
		if open[words[1]] == "" {
			t.Fatalf("%q of no range", line)
		}
		delete(open, words[1])
	}
	if len(open) > 0 {
		t.Errorf("ranges that have not ended: %v", open)
	}
	if diff := cmp.Diff(spans, ranges); diff != "" {
		t.Errorf("-spans of the trace, +ranges of the profiler:\n%s", diff)
	}
	for _, name := range []string{"sample", "rows", "wait", "forward", "sync", "update", "save"} {
		if spans[name] == 0 {
			t.Errorf("no span of %s", name)
		}
	}
	r = start(t, append(env, "NVTX_INJECTION64_PATH="+scratch+"/none.so"), halognn(t).path,
		trainArgs(t, smallParts.dir(t), newRunDir(t), "train.epochs=1")...).wait(t)
	if r.code != 0 || !strings.Contains(r.err, "NVTX_INJECTION64_PATH: ") {
		t.Errorf("with a profiler that is not there: %v", r)
	}
}
