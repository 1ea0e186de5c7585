package train

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"halognn/src/data/rundir"
	"halognn/src/devices/compute/ref"
	"halognn/src/ranks/comm"
	"halognn/src/runs/config"
	"halognn/src/runs/session"
)

// vandal is a Progress that replaces the directory of checkpoints by a file after some steps.
type vandal struct {
	heard
	left int
	dir  string
	err  error
}

func (v *vandal) Step(float64) {
	if v.left--; v.left != 0 {
		return
	}
	for range 100 { // the run may be writing a checkpoint there
		if v.err = errors.Join(os.RemoveAll(v.dir), os.WriteFile(v.dir, nil, 0o666)); v.err == nil {
			return
		}
	}
}

// A checkpoint that cannot be written ends the run with an error about it.
func TestFailedWriteEndsTheRun(t *testing.T) {
	shards := generatedIn(t, 12)
	o := resumable()
	o.Epochs = 100
	o.Checkpoint = config.Saves{EverySteps: 3, Keep: 2}
	v := &vandal{left: 7}
	dir := t.TempDir()
	v.dir = filepath.Join(dir, rundir.CheckpointsDir)
	err := comm.RunWorld(2, func(c comm.Comm) error {
		env := Env{Env: session.Env{Comm: c, Shards: shards,
			Device: ref.New(), Host: ref.Host{}, Workers: 1},
			Dir: dir}
		if c.Rank() == 0 {
			env.Progress = v
		}
		_, err := Run(t.Context(), env, o)
		return err
	})
	if v.err != nil {
		t.Fatal(v.err)
	}
	if err == nil || !strings.Contains(err.Error(), "rank 0: ") ||
		!strings.Contains(err.Error(), v.dir) {
		t.Errorf("the run ended with %v", err)
	}
}

// BenchmarkSave measures how long a save delays training: the sum over ranks, and the copy. The
// write that follows is reported separately.
func BenchmarkSave(b *testing.B) {
	shards := generatedIn(b, 2)
	o := resumable()
	o.Model.Hidden = 512
	dir := b.TempDir()
	err := onOneRank(shards, o, func(r *run) error {
		r.env.Dir, r.epoch = dir, 1
		log, err := rundir.Begin(dir)
		if err != nil {
			return err
		}
		r.s.Log = log
		r.openSaver()
		var stalled, written time.Duration
		for b.Loop() {
			r.optimizer.SetSteps(r.optimizer.Steps() + 1)
			begin := time.Now()
			if err := r.save(1, 1, false); err != nil {
				return err
			}
			stalled += time.Since(begin)
			if err := r.saver.Wait(); err != nil {
				return err
			}
			written += time.Since(begin)
		}
		n := float64(b.N)
		b.ReportMetric(float64(4*r.s.Model.Params.Len())/1e6, "MB-weights")
		b.ReportMetric(stalled.Seconds()*1e6/n, "µs-stalled")
		b.ReportMetric(written.Seconds()*1e6/n, "µs-to-disk")
		return log.Close()
	})
	if err != nil {
		b.Fatal(err)
	}
}
