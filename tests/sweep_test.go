//go:build e2e

package tests

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A sweep trains the runs that have not finished, names those that fail, and reports the others.
func TestSweep(t *testing.T) {
	t.Parallel()
	parts, out := smallParts.dir(t), filepath.Join(t.TempDir(), "sweep")
	sweep := func(more ...string) []string {
		return append([]string{"sweep", "--config", "../inputs/demo.yaml", "--out", out,
			"--ranks-in-process", "2", "--set", "data.parts=" + parts, "--set", "train.epochs=1"},
			more...)
	}
	r := halognn(t).must(t, sweep("--grid", "train.lr=0.01,0.003", "--seeds", "2")...)
	if !strings.Contains(r.out, "4 of 4 runs") || !strings.Contains(r.out, "±") ||
		!strings.Contains(r.out, "communication: ranks of one process share") ||
		!strings.Contains(r.out, "No transfer, serialisation: a run is not replayed") {
		t.Errorf("the sweep says:\n%s", r)
	}
	r = halognn(t).must(t, sweep("--grid", "train.lr=0.01,0.003,0.1", "--seeds", "2", "--task",
		"3")...)
	if !strings.Contains(r.err, "has finished before") || !strings.Contains(r.out, "4 of 6 runs") {
		t.Errorf("begun again it says:\n%s", r)
	}
	for _, c := range [][]string{{"--grid", "train.lr=0.01,0.003", "--set", "model.hidden=8"},
		{"--grid", "train.lr=0.01"}, {}} {
		again := halognn(t).run(t, sweep(append(c, "--seeds", "2")...)...)
		if again.code != 2 || !strings.Contains(again.err, "another sweep") {
			t.Errorf("with %q in the same place:\n%s", c, again)
		}
	}
	if _, err := os.Stat(filepath.Join(out, "lock")); err == nil {
		t.Error("a sweep that ended has left its lock")
	}
	one := halognn(t).run(t, sweep("--grid", "sample.batch=16,1000000", "--launcher", "false",
		"--out", filepath.Join(t.TempDir(), "fails"))...)
	if one.code != 1 || !strings.Contains(one.err, "2 runs of 2 failed") {
		t.Errorf("runs that fail:\n%s", one)
	}
	// an error that all runs would have is reported once, before the first run
	run := filepath.Join(out, "train.lr=0.01,train.seed=1")
	file := filepath.Join(run, "config.yaml")
	other := t.TempDir()
	if err := os.WriteFile(filepath.Join(other, "notes"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		code int
		says string
		more []string
	}{
		{2, "--grid train.loss_scale=1,2: unknown key", []string{"--grid", "train.loss_scale=1,2"}},
		{2, "train.epochs is 1, but", []string{"--grid", "train.lr=0.01,0.003", "--seeds", "2"}},
		{3, "holds no parts", []string{"--set", "data.parts=nowhere", "--seeds", "2", "--out",
			filepath.Join(other, "a")}},
		{3, "holds a run", []string{"--out", run}},
		{3, "not empty", []string{"--out", other}},
		{3, "not a directory", []string{"--out", filepath.Join(file, "a")}},
	} {
		if strings.Contains(c.says, "epochs") {
			halognn(t).must(t, sweep("--grid", "train.lr=0.01,0.003", "--seeds", "2", "--set",
				"train.epochs=2", "--task", "1")...)
		}
		r := halognn(t).run(t, sweep(c.more...)...)
		if m := r.message(t); r.code != c.code || !strings.Contains(m, c.says) ||
			strings.Contains(r.err, " of ") {
			t.Errorf("want %d, %q, and nothing begun:\n%s", c.code, c.says, r)
		}
	}
	if left, err := os.ReadDir(other); err != nil || len(left) != 1 {
		t.Errorf("a refused sweep has written %v (%v)", left, err)
	}
}

// A stopped sweep ends with the code that makes a job script go on, whatever else happened. The
// message names the signal of a run that died of one.
func TestSweepStops(t *testing.T) {
	t.Parallel()
	parts, dir := smallParts.dir(t), t.TempDir()
	sweep := func(name, launcher string, more ...string) []string {
		file := filepath.Join(dir, name+".sh")
		if err := os.WriteFile(file, []byte("trap '' TERM\n"+launcher), 0o666); err != nil {
			t.Fatal(err)
		}
		return append([]string{"sweep", "--config", "../inputs/demo.yaml", "--out",
			filepath.Join(dir, name), "--ranks-in-process", "2", "--set", "data.parts=" +
				parts, "--set",
			"train.epochs=1", "--launcher", "sh " + file}, more...)
	}
	const stop = "kill -TERM $PPID; sleep 1; exit "
	tries := filepath.Join(dir, "tries")
	for _, c := range []struct {
		name, launcher string
		runs           string
		code           int
		says           string
	}{
		{"ended", "\"$@\" && " + stop + "0", "0.01,0.003", 75,
			"stopped by a signal with 1 of 2 runs to go"},
		{"last", "\"$@\" && " + stop + "0", "0.01", 0, ""},
		{"failed",
			"echo >> " + tries + "; [ $(wc -l < " + tries + ") = 3 ] || exit 3\n" + stop + "75",
			"1,2,3,4", 75,
			"2 of 4 runs to go; repeat the same command to go on. 2 runs of 3 failed: train.lr=1 " +
				"(exit status 3); train.lr=2 (exit status 3)"},
		{"launchers-code", stop + "1", "1,2", 75, "2 of 2 runs to go"},
		{"killed", "kill -KILL $$", "1", 1, "train.lr=1 failed: signal: killed"},
	} {
		r := halognn(t).run(t, sweep(c.name, c.launcher, "--grid", "train.lr="+c.runs)...)
		if r.code != c.code || !strings.Contains(r.err, c.says) {
			t.Errorf("%s: want %d, %q:\n%s", c.name, c.code, c.says, r)
		}
	}
	r := halognn(t).run(t, sweep("alone", "exit 1")...)
	if !strings.Contains(r.message(t), "halognn: run failed: exit status 1") {
		t.Errorf("a run without settings of its own:\n%s", r)
	}
}

// A second signal ends the sweep at once, with the runs that it started.
func TestSweepLeavesNoRanks(t *testing.T) {
	t.Parallel()
	parts, dir := smallParts.dir(t), t.TempDir()
	file := filepath.Join(dir, "launcher.sh")
	if err := os.WriteFile(file, []byte("n=0\ntrap 'n=$((n+1)); touch "+dir+
		"/asked; [ $n = 1 ] || exit 75' TERM\ntouch "+dir+"/up\nwhile :; do sleep 0.1; done\n"),
		0o666); err != nil {
		t.Fatal(err)
	}
	made := func(name string) func() bool {
		return func() bool { _, err := os.Stat(filepath.Join(dir, name)); return err == nil }
	}
	j := start(t, nil, halognn(t).path, "sweep", "--config", "../inputs/demo.yaml", "--out",
		filepath.Join(dir, "out"), "--set", "data.parts="+parts, "--launcher", "sh "+file)
	for _, name := range []string{"up", "asked"} {
		eventually(t, name, made(name))
		// two signals within a short time count as one: src/base/interrupt
		time.Sleep(600 * time.Millisecond)
		if err := j.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
	}
	if r := j.wait(t); r.code != 130 {
		t.Errorf("after a second signal:\n%s", r)
	}
	eventually(t, "the launcher has ended", func() bool {
		return len(left(t, file)) == 0
	})
}
