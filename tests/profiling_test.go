//go:build e2e

package tests

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// merge.sh merges the profiles of all ranks into one that pprof reads, and fails with a message
// that names a run without profiles.
func TestMergedProfilesUnderMPI(t *testing.T) {
	unlessShort(t)
	launcher(t)
	parts, dir := smallParts.dir(t), newRunDir(t)
	r := startMPI(t, 2, halognn(t).path,
		append(trainArgs(t, parts, dir), "--profile", "heap")...).wait(t)
	if r.code != 0 {
		t.Fatal(r)
	}
	r = start(t, nil, "../profiling/merge.sh", dir, "heap").wait(t)
	if r.code != 0 || !strings.Contains(r.out, "2 ranks") {
		t.Fatal(r)
	}
	merged := filepath.Join(dir, "profile", "heap.pprof")
	if text, err := exec.Command("go", "tool", "pprof", "-top",
		merged).CombinedOutput(); err != nil || !strings.Contains(string(text), "flat%") {
		t.Errorf("%v: %s", err, text)
	}
	if r := start(t, nil, "../profiling/merge.sh", dir, "cpu").wait(t); r.code != 3 ||
		!strings.Contains(r.err, "train with --profile cpu") {
		t.Error(r)
	}
}

// perf.sh runs the command and returns its exit code, with or without perf.
func TestPerfRunsTheCommand(t *testing.T) {
	dir := t.TempDir()
	r := start(t, []string{"OMPI_COMM_WORLD_RANK=3"}, "../profiling/perf.sh", dir, "sh", "-c",
		"echo done; exit 7").wait(t)
	if r.code != 7 || !strings.Contains(r.out, "done") {
		t.Error(r)
	}
	_, err := os.Stat(filepath.Join(dir, "rank-0003.data"))
	if recorded := err == nil; recorded == strings.Contains(r.err, "without perf") {
		t.Errorf("recorded: %t: %v", recorded, r)
	}
}

// policies.sh confirms that the default of the config page is the best policy, and rejects the
// default before it.
func TestPoliciesAreCompared(t *testing.T) {
	unlessShort(t)
	for _, c := range []struct {
		name, set, want string
		code            int
	}{
		{"the default", "", "check: at every size lookahead transfers the fewest rows", 0},
		{"prefetch", "DEFAULT=prefetch", "vip transfers fewer rows than prefetch", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			env := []string{
				"HALOGNN=" + halognn(t).path, "OUT=" + t.TempDir(), "SIZES=none",
				"ALPHAS=0.1,0.3", "EPOCHS=3", c.set,
			}
			r := start(t, env, "../profiling/lab/policies.sh", smallParts.dir(t)+":96:5,3").wait(t)
			tables := strings.Count(r.out, "\n| vip |")
			if r.code != c.code || !strings.Contains(r.out, c.want) || tables != 2 {
				t.Errorf("want exit code %d and %q: %v", c.code, c.want, r)
			}
		})
	}
}

// papers repeats a figure: the losses of its runs are equal, and its page has a verdict and a plot.
func TestFigureOfAPaper(t *testing.T) {
	unlessShort(t)
	dir := t.TempDir()
	r := start(t, nil, "go", "run", "../profiling/lab/papers", "-program", halognn(t).path,
		"-launch", launcher(t)+" -np %n", "-data", "small="+smallData.dir(t)+":32", "-out", dir,
		"-repeat", "1", "-epochs", "2", "massivegnn-8").wait(t)
	page, err := os.ReadFile(filepath.Join(dir, "massivegnn-8.md"))
	if r.code != 0 || err != nil || !strings.Contains(string(page), "below 1 %") {
		t.Fatal(r, err, string(page))
	}
}

// hosts.sh refuses what it cannot set up before it sets up anything.
func TestHostsRefuses(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"-r", "fast"}, "-r fast: give a rate as 200mbit"},
		{[]string{"-r", "0mbit"}, "-r 0mbit: give a rate"},
		{[]string{"-r", "1gb"}, "-r 1gb: give a rate"},
		{[]string{"-n", "many"}, "-n many: give 1 to 64 hosts"},
		{[]string{"-p", "0"}, "-p 0: give at least 1 rank"},
	} {
		r := start(t, nil, "../profiling/lab/hosts.sh", append(c.args, "--", "true")...).wait(t)
		if r.code != 2 || !strings.Contains(r.err, c.want) || strings.Count(r.err, "\n") != 1 {
			t.Errorf("%v: want one line, %q: %v", c.args, c.want, r)
		}
	}
}

// The scripts that compare with other programs print their help even if these are not installed,
// and otherwise say what is missing.
func TestPeersWithoutTheirPackages(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("no python3 here")
	}
	scripts, err := filepath.Glob("../profiling/lab/peers/*_*.py")
	if err != nil || len(scripts) < 5 {
		t.Fatalf("%v: %v", scripts, err)
	}
	bare := []string{"PYTHONPATH="} // and with -S no packages of this machine
	for _, script := range append(scripts, "../profiling/lab/gpu_vs_pyg.py",
		"../profiling/lab/gpu_products.py") {
		r := start(t, bare, "python3", "-B", "-S", script, "--help").wait(t)
		if r.code != 0 || !strings.Contains(r.out, "usage: "+filepath.Base(script)) {
			t.Errorf("%s: %v", script, r)
		}
	}
	r := start(t, bare, "python3", "-B", "-S", "../profiling/lab/peers/pyg_accuracy.py",
		"DATA").wait(t)
	if r.code != 1 || !strings.Contains(r.err, "not installed: dgl, torch, torch_geometric") {
		t.Error(r)
	}
}

// gpu_day.sh runs nothing without its pack, and no part before the part that makes what it needs,
// even if only the later one fits into the remaining time.
func TestGPUDayKeepsTheOrder(t *testing.T) {
	if _, err := exec.LookPath("xz"); err != nil {
		t.Skip("no xz here")
	}
	dir := t.TempDir()
	pack, results := filepath.Join(dir, "pack"), filepath.Join(dir, "results")
	env := []string{"PACK=" + pack, "WORK=" + filepath.Join(dir, "work"), "PYTHON=false",
		"REHEARSE=1"}
	day := func(args ...string) result {
		return start(t, env, "../profiling/lab/gpu_day.sh", args...).wait(t)
	}
	if r := day("run", results); r.code != 69 || !strings.Contains(r.err, "no "+pack+".tar.xz") {
		t.Error(r)
	}
	if _, err := os.Stat(results); err == nil {
		t.Error("parts are said to have begun")
	}
	var names []string
	parts, seconds := day("parts").out, 0
	for line := range strings.Lines(parts + day("more").out) {
		words := strings.Fields(line)
		n, err := strconv.Atoi(words[1])
		if err != nil {
			t.Fatal(err)
		}
		if seconds += n; len(names) < strings.Count(parts, "\n") && seconds > 720 {
			t.Errorf("the parts up to %s take %d seconds, more than the 720 of a day", words[0],
				seconds)
		}
		if len(words) == 3 && !slices.Contains(names, words[2]) {
			t.Errorf("%s waits for %s, which is no earlier part", words[0], words[2])
		}
		names = append(names, words[0])
	}
	if err := os.Mkdir(pack, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(pack, "carried"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("tar", "-C", pack, "-cJf", pack+".tar.xz",
		".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.RemoveAll(pack); err != nil {
		t.Fatal(err)
	}
	r := day("run", results, "16")
	left := "left, for another call: " + strings.Join(names[1:], " ") + "\n"
	if _, err := os.Stat(filepath.Join(pack, "carried")); err != nil || r.code != 0 ||
		!strings.Contains(r.out, left) || !strings.Contains(r.err, "machine: passed") {
		t.Errorf("want %q: %v, %v", left, r, err)
	}
}
