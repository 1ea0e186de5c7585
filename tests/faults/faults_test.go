//go:build faults

// Package faults kills, stops, starves and deceives ranks of a training job under mpirun, and holds every job to the same outcome: it ends soon,
// with one message, leaves no process and no half file behind, and the next start comes to the bits of a run in which nothing happened.
//
//	go test -tags faults ./tests/faults -faults 50 -seed 1
//
// Every named point and every kind of fault comes once; the rest are drawn at random from the seed, which is printed.
package faults

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"halognn/src/fault"
)

var (
	wanted = flag.Int("faults", 50, "how many faults to inject")
	seed   = flag.Uint64("seed", 1, "of the random ones")
)

const (
	epochs     = 3
	everySteps = 3
	stall      = 3 * time.Second // run.stall_seconds
	death      = 10 * time.Second
)

const config = `
model: {layers: 2, hidden: 8}
sample: {fanouts: [4, 2], batch: 64}
train: {epochs: 3, lr: 0.01}
pipeline: {workers: 1}
compute: {threads: 1}
run: {progress: lines, ranks_per_node: 1, stall_seconds: 3}
checkpoint: {every_steps: 3}
`

// unhurried makes steps long enough for a checkpoint every few of them to be written in time, as in any run worth saving.
const unhurried = "forward=slow:25@-1:-1:-1"

// kind is one way for a job to go wrong.
type kind struct {
	name   string
	points []string // at which it can be injected; none for what is done from outside
	action string
	codes  []int  // with which the job may end
	says   string // pattern of the one message; "" if the launcher alone knows
	within time.Duration
	starts bool // the run has begun: the next start resumes it. Otherwise it starts anew
}

var working = []string{fault.Sample, fault.Exchange, fault.Forward, fault.Allreduce}

var kinds = []kind{
	{"kill -9", slices.Concat(working, []string{fault.CheckpointWrite, fault.CheckpointRename, fault.Evaluate, fault.Finish}), "kill", []int{137, 9, 1}, "", death, true},
	{"SIGSTOP", append([]string{fault.Evaluate}, working...), "stop", []int{5}, `no sign of life from rank \d`, stall + death, true},
	{"I/O error", working, "fail", []int{1}, "injected at", death, true},
	{"full disk", []string{fault.CheckpointWrite, fault.CheckpointRename}, "full", []int{1}, "no space left", death, true},
	{"no memory", []string{fault.Alloc}, "memory", []int{1, 3}, "cannot allocate memory", death, false},
	{"NaN", []string{fault.Loss}, "nan", []int{4}, "the first that was not finite is", death, true},
	{"slow rank", []string{fault.Forward, fault.Allreduce}, "slow:60", []int{0}, "", time.Minute, true},
	{"truncated shard", nil, "truncate", []int{3}, `features.*npy`, death, false},
	{"altered shard", nil, "alter", []int{3}, `features.*npy`, death, false},
	{"file shrinks", nil, "shrink", []int{1, 3}, `features.*npy`, death, true},
}

// lab is where the jobs run.
type lab struct {
	*testing.T
	dir, program, launcher string
	digest                 map[int]string // by ranks: of a run without faults
	steps                  map[int]int    // of its epochs
}

// job is one start of the program under mpirun.
type job struct {
	code int
	text string
	took time.Duration
}

func (l *lab) must(name string, args ...string) {
	l.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		l.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

// start runs the program on ranks; during is called with the run directory while it works.
func (l *lab) start(ranks int, faults string, during func(), args ...string) job {
	l.Helper()
	c := exec.Command(l.launcher, append([]string{"-np", strconv.Itoa(ranks), l.program, "train"}, args...)...)
	c.Env = append(os.Environ(), "HALOGNN_FAULTS="+strings.Trim(faults+","+unhurried, ","))
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	begin := time.Now()
	if err := c.Start(); err != nil {
		l.Fatal(err)
	}
	if during != nil {
		during()
	}
	hung := time.AfterFunc(2*time.Minute, func() { _ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL) })
	err := c.Wait()
	if !hung.Stop() {
		l.Errorf("%s: the job did not end in two minutes", faults)
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		l.Fatal(err)
	}
	code := c.ProcessState.ExitCode()
	if code < 0 { // the launcher itself died by the signal that it passed on
		code = 128 + int(c.ProcessState.Sys().(syscall.WaitStatus).Signal())
	}
	return job{code, out.String(), time.Since(begin)}
}

func newLab(t *testing.T) *lab {
	launcher := os.Getenv("HALOGNN_MPIRUN")
	if launcher == "" {
		t.Skip("HALOGNN_MPIRUN is not set: no MPI was found when env.sh was sourced, or it was not")
	}
	l := &lab{T: t, dir: t.TempDir(), launcher: launcher, digest: map[int]string{}, steps: map[int]int{}}
	l.program = filepath.Join(l.dir, "halognn-faults")
	l.must("go", "build", "-tags", "faults", "-o", l.program, "halognn/src/cmd/halognn")
	data := filepath.Join(l.dir, "data")
	l.must(l.program, "generate", "--kind", "sbm", "--vertices", "1200", "--degree", "8", "--features", "8", "--classes", "4", "--seed", "1", "--out", data)
	l.must(l.program, "partition", "--data", data, "--parts", "4", "--method", "ldg", "--seed", "1", "--out", l.parts())
	if err := os.WriteFile(filepath.Join(l.dir, "config.yaml"), []byte(config), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, ranks := range []int{2, 4} {
		run := filepath.Join(l.dir, fmt.Sprint("clean-", ranks))
		if j := l.start(ranks, "", nil, l.args(l.parts(), run)...); j.code != 0 {
			t.Fatalf("a run without faults: code %d\n%s", j.code, j.text)
		}
		l.digest[ranks], l.steps[ranks] = l.summary(run)
	}
	return l
}

func (l *lab) parts() string { return filepath.Join(l.dir, "parts") }

func (l *lab) args(parts, run string) []string {
	return []string{"--config", filepath.Join(l.dir, "config.yaml"), "--set", "data.parts=" + parts, "--set", "run.dir=" + run}
}

func (l *lab) summary(run string) (digest string, steps int) {
	text, err := os.ReadFile(filepath.Join(run, "summary.json"))
	if err != nil {
		l.Error(err)
		return "", 0
	}
	var s struct {
		LossDigest    string `json:"loss_digest"`
		StepsPerEpoch int    `json:"steps_per_epoch"`
	}
	if err := json.Unmarshal(text, &s); err != nil {
		l.Error(err)
	}
	return s.LossDigest, s.StepsPerEpoch
}

// injection is one fault at one place.
type injection struct {
	kind
	point             string
	ranks             int
	rank, epoch, step int
}

func (i injection) String() string {
	if i.point == "" {
		return fmt.Sprintf("%s, %d ranks", i.name, i.ranks)
	}
	return fmt.Sprintf("%s at %s, rank %d of %d, epoch %d, step %d", i.name, i.point, i.rank, i.ranks, i.epoch, i.step)
}

// spec is the injection as HALOGNN_FAULTS has it. Checkpoints are written on rank 0 alone; some points know no epoch or step.
func (i injection) spec() string {
	switch i.point {
	case "":
		return ""
	case fault.CheckpointWrite, fault.CheckpointRename:
		return fmt.Sprintf("%s=%s@0:-1:-1", i.point, i.action)
	case fault.Evaluate, fault.Finish, fault.Alloc:
		return fmt.Sprintf("%s=%s@%d:-1:-1", i.point, i.action, i.rank)
	}
	return fmt.Sprintf("%s=%s@%d:%d:%d", i.point, i.action, i.rank, i.epoch, i.step)
}

// place draws where a fault of a kind happens.
func (l *lab) place(random *rand.Rand, k kind, point string) injection {
	i := injection{kind: k, point: point, ranks: 2}
	if random.IntN(4) == 0 {
		i.ranks = 4
	}
	i.rank, i.epoch = random.IntN(i.ranks), 1+random.IntN(epochs)
	i.step = random.IntN(l.steps[i.ranks])
	return i
}

// inject makes one fault happen and returns what is wrong with how the job took it.
func (l *lab) inject(i injection, run string) (j job, lost int, faults []string) {
	bad := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	parts, during, spec := l.parts(), func() {}, i.spec()
	if i.point == "" {
		parts = filepath.Join(l.dir, filepath.Base(run)+"-parts")
		if err := os.CopyFS(parts, os.DirFS(l.parts())); err != nil {
			l.Fatal(err)
		}
		file := l.featuresOf(parts)
		switch i.action {
		case "truncate":
			l.truncate(file, 2)
		case "alter":
			l.alter(file)
		case "shrink":
			spec = "forward=slow:150@-1:-1:-1" // so that there is time to
			during = func() {
				l.waitFor(filepath.Join(run, "checkpoints"))
				l.truncate(file, 3)
			}
		}
	}
	j = l.start(i.ranks, spec, during, l.args(parts, run)...)
	if !slices.Contains(i.codes, j.code) {
		bad("exit code %d, want one of %v", j.code, i.codes)
	}
	if limit := i.within + l.healthy(i); j.took > limit {
		bad("it took %.1f s, more than %.0f", j.took.Seconds(), limit.Seconds())
	}
	said := messages(j.text)
	switch {
	case i.says == "" && len(said) > 0:
		bad("it says %q, and there is nothing to say", said)
	case i.says != "" && len(said) != 1:
		bad("%d messages instead of one: %q", len(said), said)
	case i.says != "" && !regexp.MustCompile(i.says).MatchString(said[0]):
		bad("the message does not say %q: %s", i.says, said[0])
	}
	if left := l.processes(run); len(left) > 0 {
		bad("processes %v are left", left)
	}
	if !i.starts {
		return j, 0, append(faults, l.again(i, run, "")...)
	}
	if j.code != 0 {
		lost = l.lost(i, run)
		if i.point != "" && i.action != "slow" && lost > 2*everySteps { // one checkpoint may have been under way
			bad("%d steps are lost", lost)
		}
		return j, lost, append(faults, l.again(i, run, run)...)
	}
	if digest, _ := l.summary(run); digest != l.digest[i.ranks] {
		bad("loss digest %s, want %s", digest, l.digest[i.ranks])
	}
	return j, 0, faults
}

// healthy is how long the job may take to get to the fault, on a busy machine.
func (l *lab) healthy(injection) time.Duration { return 20 * time.Second }

// again starts once more, with what was broken mended: it resumes the run if there is one.
func (l *lab) again(i injection, run, resume string) (faults []string) {
	bad := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	args := l.args(l.parts(), run)
	if resume != "" && len(l.checkpoints(run)) > 0 {
		if out, _ := exec.Command(l.program, "check", run).CombinedOutput(); bytes.Count(out, []byte("\n")) != 1 || !bytes.Contains(out, []byte("the run has not finished")) {
			bad("halognn check finds more than that the run has not finished: %s", out)
		}
		args = []string{"--resume", run, "--set", "data.parts=" + l.parts()}
	} else if resume != "" { // it went wrong before the first checkpoint
		if err := os.RemoveAll(run); err != nil {
			l.Fatal(err)
		}
	} else if _, err := os.Stat(run); err == nil {
		bad("a run that did not begin left %s behind", run)
	}
	j := l.start(i.ranks, "", nil, args...)
	if j.code != 0 {
		bad("the next start: exit code %d\n%s", j.code, j.text)
		return faults
	}
	if digest, _ := l.summary(run); digest != l.digest[i.ranks] {
		bad("after the next start the loss digest is %s, want %s", digest, l.digest[i.ranks])
	}
	for _, name := range l.halfFiles(run) {
		bad("%s is left", name)
	}
	return faults
}

// lost returns the steps that were trained and have to be trained again.
func (l *lab) lost(i injection, run string) int {
	newest := 0
	for _, name := range l.checkpoints(run) {
		var n int
		if _, err := fmt.Sscanf(name, "step-%d", &n); err == nil {
			newest = max(newest, n)
		}
	}
	switch i.point {
	case fault.Evaluate, fault.Finish, fault.CheckpointWrite, fault.CheckpointRename, "":
		return 0 // the step is not known
	}
	return (i.epoch-1)*l.steps[i.ranks] + i.step - newest
}

func (l *lab) checkpoints(run string) (names []string) {
	entries, err := os.ReadDir(filepath.Join(run, "checkpoints"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		l.Error(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "step-") {
			names = append(names, e.Name())
		}
	}
	return names
}

// halfFiles lists what should have been renamed or removed.
func (l *lab) halfFiles(run string) (names []string) {
	_ = filepath.WalkDir(run, func(path string, d fs.DirEntry, err error) error {
		if base := filepath.Base(path); err == nil && path != run && (strings.HasPrefix(base, ".") || strings.Contains(base, "tmp") || strings.HasPrefix(base, "heartbeat")) {
			names = append(names, path)
		}
		return nil
	})
	return names
}

// messages returns the program's own error lines; the launcher has others.
func messages(text string) (said []string) {
	for _, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(line, "halognn: ") {
			said = append(said, line)
		}
	}
	return said
}

// processes returns those whose command line names the run.
func (l *lab) processes(run string) (ids []string) {
	for deadline := time.Now().Add(3 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		ids = nil
		lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, path := range lines {
			if text, err := os.ReadFile(path); err == nil && bytes.Contains(text, []byte("run.dir="+run+"\x00")) {
				ids = append(ids, filepath.Base(filepath.Dir(path)))
			}
		}
		if len(ids) == 0 || time.Now().After(deadline) {
			return ids
		}
	}
}

// featuresOf returns the features of the last part.
func (l *lab) featuresOf(parts string) string {
	files, err := filepath.Glob(filepath.Join(parts, "*", "features.npy"))
	if more, _ := filepath.Glob(filepath.Join(parts, "features*.npy")); len(files) == 0 {
		files = more
	}
	if err != nil || len(files) == 0 {
		l.Fatalf("no features in %s: %v", parts, err)
	}
	return files[len(files)-1]
}

func (l *lab) truncate(file string, by int64) {
	info, err := os.Stat(file)
	if err == nil {
		err = os.Truncate(file, info.Size()/by)
	}
	if err != nil {
		l.Fatal(err)
	}
}

func (l *lab) alter(file string) {
	text, err := os.ReadFile(file)
	if err == nil {
		text[len(text)/2] ^= 0x40
		err = os.WriteFile(file, text, 0o666)
	}
	if err != nil {
		l.Fatal(err)
	}
}

func (l *lab) waitFor(path string) {
	for range 300 {
		if entries, err := os.ReadDir(path); err == nil && len(entries) > 0 {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	l.Errorf("%s did not appear in 15 s", path)
}

// injections returns every kind at every point of it, and then random ones.
func (l *lab) injections() (all []injection) {
	random := rand.New(rand.NewPCG(*seed, 99))
	for _, k := range kinds {
		for _, p := range k.points {
			all = append(all, l.place(random, k, p))
		}
		if k.points == nil {
			all = append(all, l.place(random, k, ""))
		}
	}
	for len(all) < *wanted {
		k := kinds[random.IntN(len(kinds))]
		point := ""
		if k.points != nil {
			point = k.points[random.IntN(len(k.points))]
		}
		all = append(all, l.place(random, k, point))
	}
	return all
}

func TestFaults(t *testing.T) {
	l := newLab(t)
	fmt.Printf("seed %d; %d and %d steps an epoch on 2 and 4 ranks\n", *seed, l.steps[2], l.steps[4])
	good, mostLost := 0, 0
	all := l.injections()
	for n, i := range all {
		run := filepath.Join(l.dir, fmt.Sprintf("run-%04d", n))
		j, lost, faults := l.inject(i, run)
		mostLost = max(mostLost, lost)
		outcome := "as required"
		if len(faults) == 0 {
			good++
		} else {
			outcome = "NOT as required"
			t.Errorf("%v:\n  %s\n%s", i, strings.Join(faults, "\n  "), j.text)
		}
		fmt.Printf("%3d  code %3d  %5.1f s  %-15s  %v\n", n+1, j.code, j.took.Seconds(), outcome, i)
		if err := errors.Join(os.RemoveAll(run), os.RemoveAll(run+"-parts")); err != nil {
			t.Fatal(err)
		}
	}
	fmt.Printf("%d faults injected, %d with the required outcome; at most %d steps lost\n", len(all), good, mostLost)
}
