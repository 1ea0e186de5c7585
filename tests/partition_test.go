//go:build e2e

package tests

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// A partition that is stopped while another process partitions the graph leaves no files and no
// process.
func TestAnEndedPartitionEndsItsProcess(t *testing.T) {
	dir := t.TempDir()
	python, mark := filepath.Join(dir, "python"), filepath.Join(dir, "mark")
	script := fmt.Sprintf("#!/bin/sh\n[ $# -gt 2 ] || { echo 0; exit; }\necho $$ >%q.new\n"+
		"mv %q.new %q\nexec sleep 600\n", mark, mark, mark)
	if err := os.WriteFile(python, []byte(script), 0o777); err != nil {
		t.Fatal(err)
	}
	data, place := smallData.dir(t), filepath.Join(dir, "place")
	j := start(t, []string{"HALOGNN_KAMINPAR_PYTHON=" + python}, halognn(t).path, "partition",
		"--data",
		data, "--parts", "4", "--method", "kaminpar", "--out", filepath.Join(place, "parts"))
	eventually(t, "the process works", func() bool {
		_, err := os.Stat(mark)
		return err == nil
	})
	if err := j.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if r := j.wait(t); r.code != 128+int(syscall.SIGTERM) {
		t.Error(r)
	}
	if left, err := os.ReadDir(place); err != nil || len(left) > 0 {
		t.Errorf("left: %v (%v)", left, err)
	}
	text, err := os.ReadFile(mark)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "it has ended", func() bool {
		// a zombie has ended too; it stays where nobody waits for orphans
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return errors.Is(err, os.ErrNotExist) || strings.Contains(string(stat), ") Z ")
	})
}

// Parts that the program made, given back as a file with --keep, are the same parts.
func TestPartsOfAFileAreKept(t *testing.T) {
	dir := t.TempDir()
	var text strings.Builder
	for v := range 3000 {
		fmt.Fprintln(&text, v*3/3000)
	}
	file := filepath.Join(dir, "graph.part.3")
	if err := os.WriteFile(file, []byte(text.String()), 0o666); err != nil {
		t.Fatal(err)
	}
	cut := func(out string, flags ...string) string {
		halognn(t).must(t, append([]string{"partition", "--data", smallData.dir(t), "--parts", "3",
			"--out", filepath.Join(dir, out), "--allow-imbalance"}, flags...)...)
		return string(read(t, filepath.Join(dir, out, "original_id.npy")))
	}
	kept := cut("kept", "--method", "file", "--assignment", file, "--keep")
	if kept != cut("contiguous", "--method", "contiguous") {
		t.Error("the parts of the file are not those of the same cut")
	}
}

// Without METIS or KaMinPar, auto takes a method that there is and says what would give better
// parts.
func TestAutoTakesWhatThereIs(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("HALOGNN_KAMINPAR_PYTHON", filepath.Join(dir, "python"))
	p := halognn(t)
	r := p.run(t, partitioning(smallData.dir(t), dir, "--method", "auto")...)
	want := []string{"method metis: it takes"}
	if !p.linked("metis") {
		want = []string{"method ldg", "built without METIS", "pip install kaminpar"}
	}
	for _, words := range want {
		if r.code != 0 || !strings.Contains(r.out, words) {
			t.Errorf("%s is not said: %v", words, r)
		}
	}
}

// shares partitions a graph and writes the parts with ranks of MPI.
func shares(t *testing.T, ranks int, out string, flags ...string) result {
	t.Helper()
	return startMPI(t, ranks, halognn(t).path,
		append([]string{"partition", "--data", smallData.dir(t),
			"--parts", "4", "--method", "ldg", "--seed", "1", "--out", out}, flags...)...).wait(t)
}

// Several ranks write the same bytes as one process.
func TestRanksShareAPartitionUnderAnyMPI(t *testing.T) {
	launcher(t)
	dir := t.TempDir()
	alone := filepath.Join(dir, "alone")
	halognn(t).must(t, "partition", "--data", smallData.dir(t), "--parts", "4", "--method", "ldg",
		"--seed", "1", "--out", alone)
	want := treeOf(t, alone)
	for _, ranks := range []int{1, 2, 4} {
		out := filepath.Join(dir, strconv.Itoa(ranks))
		if r := shares(t, ranks, out); r.code != 0 {
			t.Fatal(r)
		}
		if treeOf(t, out) != want {
			t.Errorf("%d ranks write other files than one process", ranks)
		}
	}
	// --force replaces the parts; without it one rank says why not
	r := shares(t, 2, alone)
	if r.code != badData || strings.Count(r.err, "--force replaces it") != 1 {
		t.Error(r)
	}
	if r = shares(t, 2, alone, "--force"); r.code != 0 {
		t.Error(r)
	}
	if treeOf(t, alone) != want {
		t.Error("--force leaves other files")
	}
}

// If the disk of one rank fills up, all ranks fail with one message, and nothing is left.
func TestADiskThatFillsUnderMPI(t *testing.T) {
	mpirun := launcher(t)
	for _, ranks := range []string{"1", "3"} {
		onSmallDisk(t, "no space left on device", nil, func(out string) []string {
			return append([]string{mpirun, "-np", ranks, halognn(t).path},
				partitioning(smallData.dir(t), out)...)
		})
	}
}

// KaMinPar writes its files beside the parts; a disk without room for them gives one clear error.
func TestADiskThatFillsBeforeTheCut(t *testing.T) {
	python := filepath.Join(t.TempDir(), "python")
	if err := os.WriteFile(python, []byte("#!/bin/sh\necho 0\n"), 0o777); err != nil {
		t.Fatal(err)
	}
	onSmallDisk(t, "on the disk of --out", []string{"HALOGNN_KAMINPAR_PYTHON=" + python},
		func(out string) []string {
			return append([]string{halognn(t).path},
				partitioning(smallData.dir(t), out, "--method", "kaminpar")...)
		})
}

// onSmallDisk runs a command that writes to a disk of 30 KiB. The command must print want once, and
// leave nothing.
func onSmallDisk(t *testing.T, want string, env []string, command func(out string) []string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "place")
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	r := start(t, env, "unshare", append([]string{"-rm", "sh", "-c", smallDisk, "sh", dir, "30"},
		command(dir)...)...).wait(t)
	if r.code == 99 || strings.Contains(r.err, "unshare") {
		t.Skipf("a small disk needs the right to mount a tmpfs in a namespace: %v", r)
	}
	if r.code != failed || strings.Count(r.err, "no space left on device") != 1 ||
		!strings.Contains(r.err, want) {
		t.Error(r)
	}
	if left, err := os.ReadDir(dir + ".kept"); err != nil || len(left) > 0 {
		t.Errorf("left: %v (%v)", left, err)
	}
}
