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
	"time"
)

// A partition that is ended while another process cuts leaves no files and no process behind.
func TestAnEndedPartitionEndsItsProcess(t *testing.T) {
	dir := t.TempDir()
	python, mark := filepath.Join(dir, "python"), filepath.Join(dir, "mark")
	script := fmt.Sprintf("#!/bin/sh\n[ $# -gt 2 ] || { echo 0; exit; }\necho $$ >%q.new\n"+
		"mv %q.new %q\nexec sleep 600\n", mark, mark, mark)
	if err := os.WriteFile(python, []byte(script), 0o777); err != nil {
		t.Fatal(err)
	}
	data, place := smallData.dir(t), filepath.Join(dir, "place")
	j := start(t, []string{"HALOGNN_KAMINPAR_PYTHON=" + python}, halognn(t).path, "partition", "--data",
		data, "--parts", "4", "--method", "kaminpar", "--out", filepath.Join(place, "parts"))
	eventually(t, 30*time.Second, "the process works", func() bool {
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
	eventually(t, 10*time.Second, "it has ended", func() bool {
		// a zombie, where nobody waits for orphans, has ended too
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return errors.Is(err, os.ErrNotExist) || strings.Contains(string(stat), ") Z ")
	})
}

// Parts that the program cut itself, given back as a file with --keep, are the same parts.
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
		halognn(t).must(t, append([]string{"partition", "--data", smallData.dir(t), "--parts", "3", "--out",
			filepath.Join(dir, out), "--allow-imbalance"}, flags...)...)
		return string(read(t, filepath.Join(dir, out, "original_id.npy")))
	}
	kept := cut("kept", "--method", "file", "--assignment", file, "--keep")
	if kept != cut("contiguous", "--method", "contiguous") {
		t.Error("the parts of the file are not those of the same cut")
	}
}
