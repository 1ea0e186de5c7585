//go:build e2e

package tests

import (
	"bytes"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"halognn/src/base/trace"
)

// onGPU returns the environment and the arguments of a run on one emulated GPU. Its steps are
// queued; if waits is true, not after the first epoch, as kernels are timed then.
func onGPU(t *testing.T, dir string, waits bool, sets ...string) (env, args []string) {
	t.Helper()
	args = append(trainArgs(t, smallParts.dir(t), dir,
		append([]string{"compute.device=cuda"}, sets...)...), "--ranks-in-process", "1")
	if waits {
		args = append(args, "--kernels")
	}
	return emulatedGPU(t), args
}

// stepsOf returns the epoch, step and loss of each line about a step, in order.
func stepsOf(t *testing.T, dir string) (all [][3]string) {
	t.Helper()
	for line := range bytes.Lines(read(t, filepath.Join(dir, "metrics.jsonl"))) {
		var s struct {
			Kind string
			stepLine
		}
		if decode(t, line, &s); s.Kind == "step" {
			all = append(all, [3]string{strconv.Itoa(s.Epoch), strconv.Itoa(s.Step), s.LossBits})
		}
	}
	return all
}

// The watchdog reports a kernel that never ends, with the step that hangs, whether the host has
// queued another step since or waits for the kernel. Both runs end with the same code, and with the
// records of the epoch before.
func TestQueuedKernelHangs(t *testing.T) {
	unlessShort(t)
	var codes []int
	var lines [][][3]string
	const steps = 19 // in an epoch
	for _, waits := range []bool{false, true} {
		dir := newRunDir(t)
		env, args := onGPU(t, dir, waits, "run.stall_seconds=10")
		r := start(t, append(env, "HALOGNN_EMULATED_HANG=loss/softmax_rows:"+strconv.Itoa(steps+5)),
			halognn(t).path, args...).wait(t)
		where := "at epoch 2, step 4, in stage backward"
		if waits {
			where = "at epoch 2, step 4, in stage forward"
		}
		if m := r.message(t); !strings.Contains(m, "rank 0 has made no progress") ||
			!strings.Contains(m, where) || !strings.Contains(m, "the run has stalled") {
			t.Errorf("want a rank %s: %v", where, r)
		}
		codes, lines = append(codes, r.code), append(lines, stepsOf(t, dir))
	}
	if codes[0] == 0 || codes[0] != codes[1] {
		t.Errorf("the exit codes are %v", codes)
	}
	if len(lines[0]) != steps || !slices.Equal(lines[0], lines[1]) {
		t.Errorf("the steps are %v, where the host waits %v", lines[0], lines[1])
	}
}

// Ctrl-C during queued steps ends the run as during steps that wait, with its state saved. The run
// continues from there to the records of an uninterrupted run.
func TestQueuedStepsAreInterrupted(t *testing.T) {
	unlessShort(t)
	when := regexp.MustCompile(`(epoch|after) \d+`)
	var said []string
	for _, waits := range []bool{false, true} {
		dir, whole := newRunDir(t), newRunDir(t)
		env, args := onGPU(t, dir, waits, endless, "train.eval_every=0")
		j := start(t, env, halognn(t).path, args...)
		underWay(t, dir)
		if err := j.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		r := j.wait(t)
		m := when.ReplaceAllString(strings.ReplaceAll(r.message(t), dir, "DIR"), "$1 N")
		if r.code != requeue || !strings.Contains(m, "--resume DIR") {
			t.Fatalf("want code %d and how to go on: %v", requeue, r)
		}
		said = append(said, m)
		_, epoch := newest(t, dir)
		last := "train.epochs=" + strconv.Itoa(epoch+1)
		if r := start(t, env, halognn(t).path, "train", "--resume", dir, "--set", last,
			"--ranks-in-process", "1").wait(t); r.code != 0 {
			t.Fatal(r)
		}
		_, args = onGPU(t, whole, false, last, "train.eval_every=0")
		if r := start(t, env, halognn(t).path, args...).wait(t); r.code != 0 {
			t.Fatal(r)
		}
		if got, want := stepsOf(t, dir), stepsOf(t, whole); !slices.Equal(got, want) {
			t.Errorf("the steps are %v, without interruption %v", got, want)
		}
	}
	if said[0] != said[1] {
		t.Errorf("it says %q; where the host waits, %q", said[0], said[1])
	}
}

// A plan counts the memory that a run on a GPU pins before its first step: for the largest
// minibatch that the fanouts allow, with rows on the device or on the host, on one rank or two.
func TestQueuedRunsArePlanned(t *testing.T) {
	unlessShort(t)
	for _, ranks := range []string{"1", "2"} {
		for _, rows := range []string{"1", "0"} {
			dir, plan := newRunDir(t), filepath.Join(t.TempDir(), "plan")
			sets := []string{"compute.device=cuda", "compute.gpu_rows=" + rows,
				"train.eval_every=0"}
			env, args := emulatedGPU(t), trainArgs(t, smallParts.dir(t), dir, sets...)
			args = append(args, "--ranks-in-process", ranks)
			sum := outcomeOf(t, dir, start(t, env, halognn(t).path, args...).wait(t))
			args = []string{"plan", "--parts", smallParts.dir(t), "--config", baseFile.dir(t),
				"--set", "cache.policy=none", "--ranks", ranks, "--ranks-per-node", ranks,
				"--gpu-memory",
				"0.06", "--rows", "1e6", "--flops", "1e12", "--bus", "20", "--out", plan}
			for _, s := range sets {
				args = append(args, "--set", s)
			}
			if r := start(t, env, halognn(t).path, args...).wait(t); r.code != 0 {
				t.Fatal(r)
			}
			var p struct{ Memory trace.Memory }
			decode(t, read(t, filepath.Join(plan, "plan.json")), &p)
			got := float64(sum.Memory[trace.MemMinibatches])
			want := float64(p.Memory.Of(trace.MemMinibatches))
			if got < 0.9*want || got > 1.1*want || sum.PinnedGrowths != 0 {
				t.Errorf("%s ranks, gpu_rows %s: minibatches take %.0f bytes, %.0f are planned; "+
					"memory was pinned %d times "+
					"among steps", ranks, rows, got, want, sum.PinnedGrowths)
			}
		}
	}
}
