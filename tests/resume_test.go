//go:build e2e

package tests

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// requeue is the exit code of a run that was stopped by a signal after saving its state.
const requeue = 75

// endless gives a run more epochs than any test waits for.
const endless = "train.epochs=100000"

// checkpoints lists the checkpoints of a run, oldest first.
func checkpoints(t *testing.T, dir string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "checkpoints", "step-*"))
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(paths)
	return paths
}

// newest returns the newest checkpoint of a run that was stopped, and the epoch that it is in.
func newest(t *testing.T, dir string) (path string, epoch int) {
	t.Helper()
	paths := checkpoints(t, dir)
	if len(paths) == 0 {
		t.Fatalf("%s holds no checkpoint", dir)
	}
	path = paths[len(paths)-1]
	var file struct{ State struct{ Epoch int } }
	decode(t, read(t, filepath.Join(path, "state.json")), &file)
	return path, file.State.Epoch
}

// goesOn resumes a stopped run with other plumbing, to the end of the next epoch, and compares it
// with an uninterrupted run.
func goesOn(t *testing.T, dir string, ranks int, resume func(args ...string) result,
	sets ...string) {
	t.Helper()
	_, epoch := newest(t, dir)
	last := "train.epochs=" + strconv.Itoa(epoch+1)
	args := []string{"train", "--resume", dir}
	for _, s := range append(sets, last) {
		args = append(args, "--set", s)
	}
	r := resume(args...)
	if r.code != 0 {
		t.Fatal(r)
	}
	got := outcomeOf(t, dir, r)
	sameNumbers(t, got, trained(t, smallParts.dir(t), ranks, last))
	for i, s := range got.steps { // in order, and none twice
		if want := [2]int{1 + i/got.StepsPerEpoch, i % got.StepsPerEpoch}; [2]int{s.Epoch,
			s.Step} != want {
			t.Fatalf("line %d of the steps is %d of epoch %d, want %v", i, s.Step, s.Epoch, want)
		}
	}
	if n := len(got.evals); n != epoch+1 {
		t.Errorf("%d evaluations in %d epochs", n, epoch+1)
	}
}

// hangUps makes SIGHUP end the commands that tests start, even if this suite runs under nohup.
func hangUps(t *testing.T) {
	t.Helper()
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGHUP)
	t.Cleanup(func() { signal.Stop(c) })
}

// Each signal that asks a run to stop ends it with its state saved, and the run continues from
// there with the same bits.
func TestSignalsStopARunThatGoesOn(t *testing.T) {
	unlessShort(t)
	hangUps(t)
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGUSR1,
		syscall.SIGHUP} {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			dir, p := newRunDir(t), halognn(t)
			ranks := []string{"--ranks-in-process", "2"}
			j := start(t, nil, p.path,
				append(trainArgs(t, smallParts.dir(t), dir, endless), ranks...)...)
			underWay(t, dir)
			if err := j.Process.Signal(s); err != nil {
				t.Fatal(err)
			}
			r := j.wait(t)
			if m := r.message(t); r.code != requeue || !strings.Contains(m, "--resume "+dir) {
				t.Fatalf("want code %d and how to go on: %v", requeue, r)
			}
			goesOn(t, dir, 2, func(args ...string) result {
				return p.run(t,
					append(args, ranks...)...)
			}, "pipeline.depth=5")
		})
	}
}

// A run whose log nobody reads any more is saved too, and says so where somebody still reads. A run
// whose results nobody reads is complete.
func TestClosedPipeStopsARunThatGoesOn(t *testing.T) {
	unlessShort(t)
	dir, p := newRunDir(t), halognn(t)
	script := `"$@" 2>"$0" & pid=$!; head -1 <"$0" >/dev/null; wait $pid`
	fifo := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	args := append([]string{"-c", script, fifo, p.path},
		trainArgs(t, smallParts.dir(t), dir, endless, "train.eval_every=1")...)
	r := start(t, nil, "sh", append(args, "--ranks-in-process", "2")...).wait(t)
	if r.code != requeue || !strings.Contains(r.out, "halognn: ") ||
		!strings.Contains(r.out, "--resume "+dir) {
		t.Fatalf("want code %d and how to go on: %v", requeue, r)
	}
	_, epoch := newest(t, dir)
	script = `"$@" | true; exit ${PIPESTATUS[0]}`
	r = start(t, nil, "bash", "-c", script, "bash", p.path, "train", "--resume", dir, "--set",
		fmt.Sprint("train.epochs=", epoch+1), "--ranks-in-process", "2").wait(t)
	if r.code != 0 {
		t.Errorf("the results were written to a closed pipe: %v", r)
	}
	p.must(t, "check", dir)
}

// A run started by nohup outlives its terminal.
func TestNohupKeepsARun(t *testing.T) {
	unlessShort(t)
	dir := newRunDir(t)
	j := start(t, nil, "sh", append([]string{"-c", `trap "" HUP; exec "$@"`, "sh", halognn(t).path},
		append(trainArgs(t, smallParts.dir(t), dir, endless), "--ranks-in-process", "2")...)...)
	underWay(t, dir)
	for _, s := range []syscall.Signal{syscall.SIGHUP, syscall.SIGTERM} {
		if err := j.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // a second signal would end the run before it is saved
	}
	if r := j.wait(t); r.code != requeue {
		t.Errorf("want code %d: %v", requeue, r)
	}
}

// Under a launcher the signal reaches the ranks. All stop at the same step, and the job ends with
// their code.
func TestSignalsStopARunThatGoesOnUnderAnyMPI(t *testing.T) {
	unlessShort(t)
	version, err := exec.Command(launcher(t), "--version").CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	hydra := strings.Contains(string(version), "HYDRA")
	for _, c := range []struct {
		ranks  int
		signal syscall.Signal
		sets   []string // of the resumed run
	}{
		{2, syscall.SIGUSR1, []string{"pipeline.depth=0", "run.ranks_per_node=1",
			"cache.policy=vip"}},
		{4, syscall.SIGUSR1, []string{"pipeline.depth=4", "run.ranks_per_node=2"}},
		{4, syscall.SIGTERM, nil},
	} {
		t.Run(fmt.Sprint(c.ranks, " ranks, ", c.signal), func(t *testing.T) {
			dir, p := newRunDir(t), halognn(t)
			j := startMPI(t, c.ranks, p.path, trainArgs(t, smallParts.dir(t), dir, endless)...)
			underWay(t, dir)
			if err := j.Process.Signal(c.signal); err != nil {
				t.Fatal(err)
			}
			r := j.wait(t)
			// MPICH's mpirun forwards every signal, and ends with 0 itself one time in ten. Open
			// MPI's handles SIGTERM itself: it gives the ranks a second to save, and ends with 1.
			if r.code != requeue && !(hydra && r.code == 0) &&
				!(!hydra && c.signal == syscall.SIGTERM && r.code == failed) {
				t.Fatalf("want code %d: %v", requeue, r)
			}
			eventually(t, "the end of all ranks",
				func() bool { return len(left(t, dir)) == 0 })
			goesOn(t, dir, c.ranks,
				func(args ...string) result {
					return startMPI(t, c.ranks, p.path,
						args...).wait(t)
				}, c.sets...)
		})
	}

}

// A second signal does not wait for the end of the step, which takes seconds here. A signal
// delivered twice, by the terminal and by a launcher, counts once.
func TestSecondSignalEndsAtOnce(t *testing.T) {
	unlessShort(t)
	for _, signals := range [][]syscall.Signal{
		{syscall.SIGINT, syscall.SIGINT, syscall.SIGINT},
		{syscall.SIGUSR1, syscall.SIGUSR1, syscall.SIGTERM},
	} {
		last := signals[len(signals)-1]
		t.Run(last.String(), func(t *testing.T) {
			t.Parallel()
			dir := newRunDir(t)
			sets := []string{endless, "sample.batch=2000", "model.hidden=16384"}
			sets = append(sets, "compute.device=ref")
			args := append(trainArgs(t, smallParts.dir(t), dir, sets...), "--ranks-in-process", "1")
			j := start(t, nil, halognn(t).path, args...)
			eventually(t, "the first step", func() bool {
				_, err := os.Stat(filepath.Join(dir, "metrics.jsonl"))
				return err == nil
			})
			for k, pause := range []time.Duration{300, 50, 900} {
				time.Sleep(pause * time.Millisecond)
				if err := j.Process.Signal(signals[k]); err != nil {
					t.Fatal(err)
				}
			}
			if r := j.wait(t); r.code != 128+int(last) {
				t.Errorf("want code %d: %v", 128+int(last), r)
			}
		})
	}
}

// ranksOf returns the processes of a job under MPI by rank.
func ranksOf(t *testing.T, dir string, ranks int) []int {
	t.Helper()
	pids := make([]int, ranks)
	found := 0
	for _, pid := range left(t, dir) {
		environment := read(t, fmt.Sprintf("/proc/%d/environ", pid))
		for _, entry := range strings.Split(string(environment), "\x00") {
			name, value, _ := strings.Cut(entry, "=")
			r, err := strconv.Atoi(value)
			if err == nil && (name == "OMPI_COMM_WORLD_RANK" || name == "PMI_RANK") {
				pids[r] = pid
				found++
			}
		}
	}
	if found != ranks {
		t.Fatalf("%d ranks were found, want %d", found, ranks)
	}
	return pids
}

// A rank is suspended and will never vote to save: the second signal still ends the job, whether it
// is sent to another rank or to the launcher, and no process is left.
func TestSecondSignalEndsAStuckJobUnderAnyMPI(t *testing.T) {
	unlessShort(t)
	launcher(t)
	if runtime.GOOS != "linux" {
		t.Skip("finding the ranks needs Linux's /proc")
	}
	for _, c := range []struct {
		name          string
		toLauncher    bool
		first, second syscall.Signal
	}{
		{"one rank is told", false, syscall.SIGUSR1, syscall.SIGTERM},
		{"one rank is interrupted", false, syscall.SIGINT, syscall.SIGINT},
		{"Ctrl-C", true, syscall.SIGINT, syscall.SIGINT},
		{"the launcher is told", true, syscall.SIGUSR1, syscall.SIGUSR1},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := newRunDir(t)
			args := trainArgs(t, smallParts.dir(t), dir, endless, "run.stall_seconds=0")
			j := startMPI(t, 2, halognn(t).path, args...)
			underWay(t, dir)
			ranks := ranksOf(t, dir, 2)
			if err := syscall.Kill(ranks[1], syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			to := ranks[0]
			if c.toLauncher {
				to = j.Process.Pid
			}
			for k, s := range []syscall.Signal{c.first, c.second} {
				// the first signal may end a launcher
				if err := syscall.Kill(to, s); err != nil && k == 0 {
					t.Fatal(err)
				}
				time.Sleep(900 * time.Millisecond)
			}
			r := j.wait(t)
			// A launcher that gets the signal itself returns a code of its own: MPICH's returns 0
			// at times. When a rank has ended, the launcher kills the suspended rank, and MPICH's
			// returns the status of either: its code or SIGKILL.
			killed := r.code == int(syscall.SIGKILL)
			if r.code == requeue || !c.toLauncher && r.code != 128+int(c.second) && !killed {
				t.Errorf("want code %d: %v", 128+int(c.second), r)
			}
			eventually(t, "the end of all ranks",
				func() bool { return len(left(t, dir)) == 0 })
		})
	}
}

// Two jobs cannot work on one run: the second is refused while the first lives, and can begin at
// once when the first has died.
func TestOneJobWorksOnARun(t *testing.T) {
	unlessShort(t)
	dir, p := newRunDir(t), halognn(t)
	args := append(trainArgs(t, smallParts.dir(t), dir, endless), "--ranks-in-process", "2")
	j := start(t, nil, p.path, args...)
	underWay(t, dir)
	resume := []string{"train", "--resume", dir, "--ranks-in-process", "2"}
	if r := p.run(t, resume...); r.code != usage ||
		!strings.Contains(r.message(t), fmt.Sprintf("in use by process %d", j.Process.Pid)) {
		t.Errorf("a second job: %v", r)
	}
	if err := j.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	j.wait(t)
	again := append(args[:len(args):len(args)], "--resume", dir, "--set", "train.epochs=2")
	p.must(t, again...) // there was no checkpoint, so the run begins again
	if history := read(t, filepath.Join(dir, "metrics.history.jsonl")); !strings.HasPrefix(
		string(history), `{"kind":"step","epoch":1,"step":0,`) {
		t.Errorf("what was measured before is lost; its history is %q", history)
	}
	if _, err := os.Stat(filepath.Join(dir, "lock")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the lock is left: %v", err)
	}
}

// Of jobs that start at once with one run directory, one trains, with the numbers of a job alone.
// Each other job is told once that the directory is in use, whichever rank sees it first.
func TestJobsThatStartAtOnce(t *testing.T) {
	unlessShort(t)
	dir, p := newRunDir(t), halognn(t)
	args := append(trainArgs(t, smallParts.dir(t), dir), "--ranks-in-process", "2")
	var jobs []*job
	for range 6 {
		jobs = append(jobs, start(t, nil, p.path, args...))
	}
	trains := 0
	for _, j := range jobs {
		r := j.wait(t)
		if r.code == 0 {
			trains++
		} else if message := r.message(t); r.code != usage || !strings.Contains(message, dir) {
			t.Errorf("a job beside others in %s: %v", dir, r)
		}
	}
	if trains != 1 {
		t.Errorf("%d of %d jobs trained, want one", trains, len(jobs))
	}
	sameNumbers(t, outcomeOf(t, dir, result{}), trained(t, smallParts.dir(t), 2))
}

// stopped returns the directory of a run of two ranks that was stopped after its first epoch.
func stopped(t *testing.T) string {
	t.Helper()
	dir := newRunDir(t)
	j := start(t, nil, halognn(t).path,
		append(trainArgs(t, smallParts.dir(t), dir, endless), "--ranks-in-process", "2")...)
	underWay(t, dir)
	if err := j.Process.Signal(syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	if r := j.wait(t); r.code != requeue {
		t.Fatal(r)
	}
	return dir
}

// A resumed run refuses settings with which it cannot continue, and names every key.
func TestResumeRefuses(t *testing.T) {
	unlessShort(t)
	dir := stopped(t)
	other := partitioned(t, smallData.dir(t), 8, "random", "--seed", "7")
	_, epoch := newest(t, dir)
	for _, c := range []struct {
		name string
		args []string
		code int
		want []string
	}{
		{"other numbers", []string{"--resume", dir, "--set", "train.lr=0.5", "--set",
			"model.hidden=8"}, usage,
			[]string{"train.lr is 0.5, but the run began with 0.01",
				"model.hidden is 8, but the run began with 16"}},
		{"another mode, which another cache would allow", []string{"--resume", dir, "--set",
			"cache.policy=vip", "--set", "parallel.mode=split"}, usage,
			[]string{"parallel.mode is split, but the run began with data"}},
		{"an unknown key", []string{"--resume", dir, "--set", "train.speed=1"}, usage,
			[]string{"unknown key train.speed"}},
		{"other parts", []string{"--resume", dir, "--set", "data.parts=" + other}, badData,
			[]string{"other parts", "data.parts"}},
		{"other ranks", []string{"--resume", dir, "--ranks-in-process", "4"}, badData,
			[]string{"start 2 ranks"}},
		{"fewer epochs", []string{"--resume", dir, "--set", "train.epochs=" +
			strconv.Itoa(epoch-1)}, usage, []string{"begun already"}},
		{"no run", []string{"--resume", filepath.Dir(dir)}, badData, []string{"holds no run"}},
		{"a config of its own that differs",
			[]string{"--resume", dir, "--config", baseFile.dir(t), "--set", "data.parts=" +
				smallParts.dir(t),
				"--set", "model.norm=layer"}, usage,
			[]string{"model.norm is layer, but the run began with none"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			args := c.args
			if !slices.Contains(args, "--ranks-in-process") {
				args = append(slices.Clone(args), "--ranks-in-process", "2")
			}
			r := halognn(t).run(t, append([]string{"train"}, args...)...)
			m := r.message(t)
			for _, want := range c.want {
				if r.code != c.code || !strings.Contains(m, want) {
					t.Errorf("want code %d and %q: %v", c.code, want, r)
				}
			}
		})
	}
}

// A job script need not know which try it is: the same command begins a run, continues it, and
// finds it finished.
func TestOneCommandBeginsGoesOnAndEnds(t *testing.T) {
	unlessShort(t)
	dir := newRunDir(t)
	args := append(trainArgs(t, smallParts.dir(t), "elsewhere"), "--resume", dir,
		"--ranks-in-process", "2")
	first := outcomeOf(t, dir, halognn(t).must(t, args...))
	sameNumbers(t, first, trained(t, smallParts.dir(t), 2))
	if r := halognn(t).must(t, args...); !strings.Contains(r.out, "has finished") {
		t.Errorf("a second try: %v", r)
	}
	if r := halognn(t).must(t, "check", dir); !strings.Contains(r.out, "ok") {
		t.Error(r)
	}
	path, _ := newest(t, dir)
	patch(t, filepath.Join(path, "model.safetensors"), 1, 2, 3)
	if r := halognn(t).run(t, "check", dir); r.code != badData ||
		!strings.Contains(r.message(t), "model.safetensors") {
		t.Errorf("a damaged checkpoint: %v", r)
	}
}

// A full disk ends the run with a message about the checkpoint, leaves no half-written one, and the
// run continues when there is room again.
func TestFullDisk(t *testing.T) {
	unlessShort(t)
	dir, p := newRunDir(t), halognn(t)
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	script := `mount -t tmpfs -o size=1m none "$1" || exit 99
dir=$1/run; shift
"$@" --set run.dir="$dir" --set checkpoint.every_steps=5 --set checkpoint.keep=1000; code=$?
ls -A "$dir/checkpoints" >&2
"$0" check "$dir" >&2
exit $code`
	args := append([]string{"-rm", "sh", "-c", script, p.path, dir, p.path},
		trainArgs(t, smallParts.dir(t), "later", endless)...)
	if err := exec.Command("unshare", "-rm", "sh", "-c", `mount -t tmpfs none "$0"`,
		dir).Run(); err != nil {
		t.Skipf("a small disk needs unshare and the right to mount a tmpfs in a namespace: %v", err)
	}
	r := start(t, nil, "unshare", append(args, "--ranks-in-process", "2")...).wait(t)
	if r.code != failed || !strings.Contains(r.err, "halognn: rank 0: ") ||
		!strings.Contains(r.err, "no space left on device") {
		t.Fatal(r)
	}
	if !strings.Contains(r.err, "step-0") || strings.Contains(r.err, "\n.step-0") ||
		strings.Contains(r.err, "XXH64") {
		t.Errorf("want whole checkpoints and no half one: %v", r)
	}
}

// Other users may read the parts of a run's state that are JSON.
func TestStateIsReadable(t *testing.T) {
	unlessShort(t)
	path, _ := newest(t, stopped(t))
	var file struct {
		State struct {
			Format        int
			Parts         string
			Config, Files map[string]any
		}
	}
	if err := json.Unmarshal(read(t, filepath.Join(path, "state.json")), &file); err != nil {
		t.Fatal(err)
	}
	if s := file.State; s.Format != 1 || s.Parts == "" || s.Config["train.lr"] != "0.01" ||
		len(s.Files) < 3 {
		t.Errorf("state.json says %+v", s)
	}
}

// A signal ends a start that waits for ever, with the exit code for requeueing. Here another
// process holds the lock of a file to stage.
func TestSignalEndsAStartThatHangs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	args := trainArgs(t, smallParts.dir(t), filepath.Join(dir, "out"), "run.stage_dir="+dir)
	halognn(t).must(t, args...)
	locks, err := filepath.Glob(filepath.Join(dir, "*", "*.lock"))
	if err != nil || len(locks) == 0 {
		t.Fatalf("no locks of staged files in %s (%v)", dir, err)
	}
	for _, lock := range locks {
		f, err := os.Open(lock)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
			t.Fatal(err)
		}
	}
	j := start(t, nil, halognn(t).path, append(args, "--set", "run.dir="+filepath.Join(dir,
		"new"))...)
	eventually(t, "the start waits", func() bool {
		fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", j.Process.Pid))
		return slices.ContainsFunc(fds, func(fd string) bool {
			at, _ := os.Readlink(fd)
			return slices.Contains(locks, at)
		})
	})
	if err := j.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	r := j.wait(t)
	if r.code != requeue || !strings.Contains(r.message(t), "before the start was complete") {
		t.Errorf("want exit code %d: %v", requeue, r)
	}
}
