package tests

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// long makes a run of many short steps that would take minutes.
var long = []string{"train.epochs=100000", "sample.batch=2"}

// underWay waits until a run has finished its first epoch.
func underWay(t *testing.T, dir string) {
	t.Helper()
	eventually(t, limit/2, "the first epoch", func() bool {
		info, err := os.Stat(filepath.Join(dir, "metrics.jsonl"))
		return err == nil && info.Size() > 0
	})
}

// A mapped file that loses its tail while it is trained on ends the run with a word about the file. With cgo, kernels in C read the
// features on the cpu device; Go reads them on ref, and the topology on both.
func TestFileShrinksWhileTraining(t *testing.T) {
	for _, device := range []string{"ref", "cpu"} {
		for _, file := range []string{"part-0002/features.npy", "indices.npy"} {
			t.Run(device+" "+file, func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				parts := copyOf(t, smallParts.dir(t), dir, "parts")
				args := training(t, parts, dir, append(long, "compute.device="+device)...)
				j := start(t, nil, halognn(t).path, args...)
				underWay(t, filepath.Join(dir, "out"))
				truncate(t, filepath.Join(parts, file), 4096)
				r := j.wait(t)
				remove(t, filepath.Join(dir, "out")) // a run that was under way leaves its log
				badInput{code: failed, want: []string{file, "shrank", "restore the file"}}.check(t, dir, r)
			})
		}
	}
}

// waitEnd waits for a job that is about to end by itself, and fails the test if it takes longer than patience.
func (j *job) waitEnd(t *testing.T, patience time.Duration) result {
	t.Helper()
	begin := time.Now()
	r := j.wait(t)
	if took := time.Since(begin); took > patience {
		t.Errorf("the job took %v to end, want at most %v: %v", took, patience, r)
	}
	return r
}
