//go:build faults

package faults

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

var shrinks = flag.Int("shrinks", 20,
	"how many files to truncate, half of them under ranks in one process")

// shrink is a file of the parts that loses its tail under a running job.
type shrink struct {
	mpi            bool
	ranks, depth   int
	batch, workers int
	perNode        int // 0: as launched
	device, policy string
	topology       string
	file           string
	page           int64         // the first that is lost
	after          time.Duration // the beginning of the log
}

// drawShrink draws one. Files that all ranks read fail several at once.
func (l *lab) drawShrink(random *rand.Rand, mpi bool) shrink {
	pick := func(words ...string) string { return words[random.IntN(len(words))] }
	s := shrink{
		mpi: mpi, ranks: 2, depth: random.IntN(6), perNode: random.IntN(2),
		batch: 1 + random.IntN(8), workers: 1 + random.IntN(3),
		device: pick("cpu", "ref"), policy: pick("none", "none", "vip", "lookahead"),
		file:  pick("indices.npy", "indices.npy", "indptr.npy", "features"),
		after: time.Duration(random.IntN(400)) * time.Millisecond,
	}
	if s.topology = "replicated"; s.policy == "none" {
		s.topology = pick("replicated", "partitioned")
	}
	if random.IntN(4) == 0 {
		s.ranks = 4
	}
	if s.file == "features" {
		s.file = filepath.Join(fmt.Sprintf("part-%04d", random.IntN(4)), "features.npy")
	}
	info, err := os.Stat(filepath.Join(l.parts(), s.file))
	if err != nil {
		l.Fatal(err)
	}
	s.page = random.Int64N((info.Size() + pageBytes - 1) / pageBytes)
	return s
}

const pageBytes = 4096

// command is the job: a run without end.
func (l *lab) command(s shrink, parts, run string) *exec.Cmd {
	args := append([]string{"train"}, l.args(parts, run)...)
	for _, set := range []string{
		"train.epochs=100000", "train.eval_every=3", "checkpoint.every_steps=50",
		"run.stall_seconds=0",
		"compute.device=" + s.device, "cache.policy=" + s.policy, "cache.alpha=0.05",
		fmt.Sprint("sample.batch=", s.batch), fmt.Sprint("run.ranks_per_node=", s.perNode),
		fmt.Sprint("pipeline.depth=", s.depth), fmt.Sprint("pipeline.workers=", s.workers),
		"topology.kind=" + s.topology,
	} {
		args = append(args, "--set", set)
	}
	if !s.mpi {
		return exec.Command(l.program, append(args, "--ranks-in-process", strconv.Itoa(s.ranks))...)
	}
	return exec.Command(l.launcher,
		append([]string{"-np", strconv.Itoa(s.ranks), l.program}, args...)...)
}

// truncated runs a job, truncates the file and returns what is wrong with the job's end.
func (l *lab) truncated(s shrink, run string) (took time.Duration, faults []string) {
	parts := run + "-parts"
	if err := os.CopyFS(parts, os.DirFS(l.parts())); err != nil {
		l.Fatal(err)
	}
	c := l.command(s, parts, run)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	if err := c.Start(); err != nil {
		l.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	l.waitFor(filepath.Join(run, "metrics.jsonl"))
	time.Sleep(s.after)
	begin := time.Now()
	if err := os.Truncate(filepath.Join(parts, s.file), s.page*pageBytes); err != nil {
		l.Fatal(err)
	}
	bad := func(format string, args ...any) {
		faults = append(faults, fmt.Sprintf(format, args...))
	}
	var err error
	select {
	case err = <-ended:
	case <-time.After(death):
		bad("it hangs: where its goroutines are is told below")
		l.signal(run, syscall.SIGQUIT)
		time.Sleep(3 * time.Second)
		l.signal(run, syscall.SIGKILL)
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
		err = <-ended
	}
	took = time.Since(begin)
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		l.Fatal(err)
	}
	if code := c.ProcessState.ExitCode(); code != 1 {
		bad("exit code %d, want 1", code)
	}
	said := messages(out.String())
	if len(said) == 0 || len(said) > 1 && !s.mpi {
		bad("%d messages", len(said))
	}
	for _, text := range said {
		if !strings.HasPrefix(text, "halognn: rank ") || !strings.Contains(text, s.file) ||
			!strings.Contains(text, "shrank") {
			bad("the message does not say which file shrank on which rank: %s", text)
		}
	}
	if left := l.processes(run); len(left) > 0 {
		bad("processes %v are left", left)
		l.signal(run, syscall.SIGKILL)
	}
	if faults != nil {
		bad("%s", out.String())
	}
	if err := errors.Join(os.RemoveAll(run), os.RemoveAll(parts)); err != nil &&
		!errors.Is(err, fs.ErrNotExist) {
		l.Fatal(err)
	}
	return took, faults
}

// signal sends a signal to the ranks of a run.
func (l *lab) signal(run string, s syscall.Signal) {
	for _, id := range l.processes(run) {
		if pid, err := strconv.Atoi(id); err == nil {
			_ = syscall.Kill(pid, s)
		}
	}
}

// Files shrink under running jobs, in one process and under mpirun: each job ends, and says which
// file it was. One that hangs is reported with all its stacks.
func TestShrinks(t *testing.T) {
	l := newLab(t)
	random := rand.New(rand.NewPCG(*seed, 17))
	good, slowest := map[string]int{}, time.Duration(0)
	for n := range *shrinks {
		s := l.drawShrink(random, n%2 == 1)
		took, faults := l.truncated(s, filepath.Join(l.dir, fmt.Sprintf("shrink-%04d", n)))
		slowest = max(slowest, took)
		where := "in process"
		if s.mpi {
			where = "under mpirun"
		}
		if faults == nil {
			good[where]++
		} else {
			t.Errorf("seed %d, number %d: %+v\n  %s", *seed, n, s, strings.Join(faults, "\n  "))
		}
	}
	fmt.Printf("seed %d: %d files truncated; as required ended %d jobs in process and %d under "+
		"%s, the slowest after %.1f s\n",
		*seed, *shrinks, good["in process"], good["under mpirun"], l.launcher, slowest.Seconds())
}

// Two ranks fail at once, under mpirun: rank 0 cannot sample a minibatch that rank 1 has sampled,
// and waits for rank 1's gradients of an older one, in whose forward pass that fails a little
// later. Both have collectives under way that the other does not start.
func TestTwoRanksFailAtOnce(t *testing.T) {
	l := newLab(t)
	const step = 5
	for depth := range 6 {
		run := filepath.Join(l.dir, fmt.Sprint("twice-", depth))
		faults := fmt.Sprintf("sample=fail@0:1:%d,forward=slow:300@1:1:%d,forward=fail@1:1:%d",
			step+depth, step, step)
		args := append(l.args(l.parts(), run), "--set", "sample.batch=8", "--set",
			"run.stall_seconds=0",
			"--set", fmt.Sprint("pipeline.depth=", depth))
		j := l.start(2, faults, nil, args...)
		said := messages(j.text)
		if took := j.ended.Sub(j.begun); j.code != 1 || took > healthy || len(said) == 0 {
			t.Errorf("depth %d: code %d after %v:\n%s", depth, j.code, took, j.text)
		}
		for _, text := range said {
			if !strings.Contains(text, ": epoch 1: item ") ||
				!strings.Contains(text, "injected at") {
				t.Errorf("depth %d: %s", depth, text)
			}
		}
		if left := l.processes(run); len(left) > 0 {
			t.Errorf("depth %d: processes %v are left", depth, left)
		}
	}
}
