package tests

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The profiles of all ranks become one that pprof reads; a run without profiles is named.
func TestMergedProfilesUnderMPI(t *testing.T) {
	launcher(t)
	parts, dir := smallParts.dir(t), newRunDir(t)
	r := startMPI(t, 2, halognn(t).path, append(trainArgs(t, parts, dir), "--profile", "heap")...).wait(t)
	if r.code != 0 {
		t.Fatal(r)
	}
	r = start(t, nil, "../profiling/merge.sh", dir, "heap").wait(t)
	if r.code != 0 || !strings.Contains(r.out, "2 ranks") {
		t.Fatal(r)
	}
	merged := filepath.Join(dir, "profile", "heap.pprof")
	if text, err := exec.Command("go", "tool", "pprof", "-top", merged).CombinedOutput(); err != nil || !strings.Contains(string(text), "flat%") {
		t.Errorf("%v: %s", err, text)
	}
	if r := start(t, nil, "../profiling/merge.sh", dir, "cpu").wait(t); r.code != 3 || !strings.Contains(r.err, "train with --profile cpu") {
		t.Error(r)
	}
}

// perf.sh runs the command, and hands on its exit code, whether there is a perf or not.
func TestPerfRunsTheCommand(t *testing.T) {
	dir := t.TempDir()
	r := start(t, []string{"OMPI_COMM_WORLD_RANK=3"}, "../profiling/perf.sh", dir, "sh", "-c", "echo done; exit 7").wait(t)
	if r.code != 7 || !strings.Contains(r.out, "done") {
		t.Error(r)
	}
	_, err := os.Stat(filepath.Join(dir, "rank-0003.data"))
	if recorded := err == nil; recorded == strings.Contains(r.err, "without perf") {
		t.Errorf("recorded: %t: %v", recorded, r)
	}
}
