//go:build e2e

package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// long are the settings of a run of many short steps that would take minutes.
var long = []string{"train.epochs=100000", "sample.batch=2"}

// underWay waits until a run has finished its first epoch.
func underWay(t *testing.T, dir string) {
	t.Helper()
	eventually(t, "the first epoch", func() bool {
		info, err := os.Stat(filepath.Join(dir, "metrics.jsonl"))
		return err == nil && info.Size() > 0
	})
}

// A mapped file that shrinks during training ends the run with an error that names the file. On
// cpu, kernels in C read the features (with cgo); on ref, Go code reads them; on both, Go code
// reads the topology. Both ranks read the topology and may fail at about the same time.
// src/runs/train has a test in which they certainly do, and TestShrinks truncates many files.
func TestFileShrinksWhileTraining(t *testing.T) {
	for _, device := range []string{"ref", "cpu"} {
		for _, c := range []struct {
			file  string
			depth int
		}{
			{"part-0002/features.npy", 2},
			{"indices.npy", 0}, {"indices.npy", 1}, {"indices.npy", 5}, {"indptr.npy", 3},
		} {
			t.Run(fmt.Sprint(device, " ", c.file, " depth=", c.depth), func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				parts := copyOf(t, smallParts.dir(t), dir, "parts")
				sets := append(long, "compute.device="+device)
				sets = append(sets, fmt.Sprint("pipeline.depth=", c.depth))
				j := start(t, nil, halognn(t).path, training(t, parts, dir, sets...)...)
				underWay(t, filepath.Join(dir, "out"))
				truncate(t, filepath.Join(parts, c.file), 4096)
				r := j.wait(t)
				remove(t, filepath.Join(dir, "out")) // a run that had begun leaves its log
				want := []string{c.file, "shrank", "restore the file"}
				badInput{code: failed, want: want}.check(t, dir, r)
			})
		}
	}
}
