//go:build e2e

package tests

import (
	"fmt"
	"math"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// SimGrid replays a plan in the time that its slowest rank computes if the network takes no time,
// and in the time that the fullest link needs for its bytes if the network is the limit.
func TestReplayOfAPlan(t *testing.T) {
	if _, err := exec.LookPath("smpirun"); err != nil {
		t.Skip("SimGrid is not installed (apt-get install libsimgrid-dev)")
	}
	const slow = 1e-4 // GB/s
	for _, network := range []float64{1e4, slow} {
		dir := filepath.Join(t.TempDir(), "replayed")
		halognn(t).must(t, "plan", "--parts", smallParts.dir(t), "--config", baseFile.dir(t),
			"--rows", "1e6",
			"--flops", "1e9", "--network", strconv.FormatFloat(network, 'g', -1,
				64), "--trace", dir,
			"--set", "cache.policy=none", "--set", "exchange.sums=off", "--set", "pipeline.depth=2")
		r := start(t, nil, "../profiling/replay.sh", dir).wait(t)
		if r.code != 0 {
			t.Fatal(r)
		}
		var step, ideal float64
		if _, err := fmt.Sscanf(r.out, "seconds of a step %g\non an ideal network %g", &step,
			&ideal); err != nil {
			t.Fatal(err, r)
		}
		computes, sends := actionsOf(t, filepath.Join(dir, "more"))
		if math.Abs(ideal/computes-1) > 0.01 {
			t.Errorf("on an ideal network a step takes %g s, its slowest rank computes for %g",
				ideal, computes)
		}
		want, within := computes, 0.02
		if network == slow {
			// SimGrid's links carry small messages at a third of their bandwidth, large ones at
			// 0.97
			want, within = sends/(slow*1e9), 1
		}
		if step < want*0.99 || step > want*(1+within) {
			t.Errorf("at %g GB/s a step takes %g s, expected %g", network, step, want)
		}
	}
}

// actionsOf returns the seconds that the busiest process computes in a step, and the bytes that the
// fullest node sends.
func actionsOf(t *testing.T, dir string) (seconds, bytes float64) {
	t.Helper()
	action := regexp.MustCompile(`(?m)^\d+ (compute|isend)(?: \d+ \d+)? (\d+)$`)
	of := map[string]float64{}
	for _, name := range strings.Fields(string(read(t, filepath.Join(dir, "trace.txt")))) {
		node, what, _ := strings.Cut(name, ".") // each rank is a node
		flops, steps := 0.0, 0.0
		sent := 0.0
		for _, m := range action.FindAllStringSubmatch(string(read(t, filepath.Join(dir, name))),
			-1) {
			n, err := strconv.ParseFloat(m[2], 64)
			if err != nil {
				t.Fatal(err)
			}
			if m[1] == "compute" {
				flops, steps = flops+n, steps+1
			} else {
				sent += n
			}
		}
		if steps > 0 {
			seconds = max(seconds, flops/steps/1e9)
		}
		if what == "lane" || what == "adder" {
			of[node] += sent / 16 // number of steps of the longer trace
			bytes = max(bytes, of[node])
		}
	}
	return seconds, bytes
}
