package train

import (
	"encoding/json"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"halognn/src/comm"
	"halognn/src/compute"
	"halognn/src/compute/ref"
	"halognn/src/config"
	"halognn/src/rundir"
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
		env := Env{Comm: c, Shards: shards, Device: ref.New(), Host: ref.Host{}, Workers: 1, Dir: dir}
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

// Saves fall due at multiples of the step, at the first step after a write that took longer, and by
// the clock.
func TestDue(t *testing.T) {
	noted := 0
	note := func(string, ...any) { noted++ }
	due := func(s *saver, updates int) bool {
		d, err := s.due(updates, note)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	s := &saver{o: config.Saves{EverySteps: 10}, saved: 7}
	for updates, want := range map[int]bool{8: false, 9: false, 10: true, 11: true, 27: true} {
		if got := due(s, updates); got != want {
			t.Errorf("every 10 steps, saved after 7: due after %d: %t", updates, got)
		}
	}
	s.writing = make(chan error, 1)
	if due(s, 20) || due(s, 21) || noted != 1 {
		t.Errorf("due during a write, or %d notes", noted)
	}
	s.writing <- nil
	s.pending = "x"
	if !due(s, 22) || s.last != "x" {
		t.Errorf("not due after the write; the last is %q", s.last)
	}
	c := &saver{o: config.Saves{EveryMinutes: 0.5}, at: time.Now()}
	if due(c, 1000) {
		t.Error("due before its time")
	}
	if c.at = c.at.Add(-31 * time.Second); !due(c, 1) {
		t.Error("not due after its time")
	}
	if noted, c.took = 0, time.Second; due(c, 1) || due(c, 2) || noted != 1 {
		t.Errorf("due 31 s after a save that took 1 s, or %d notes", noted)
	}
	if c.at = c.at.Add(-170 * time.Second); !due(c, 1) || noted != 1 {
		t.Errorf("not due 201 s after a save that took 1 s, or %d notes", noted)
	}
	if due(&saver{at: time.Now().Add(-time.Hour)}, 1000) {
		t.Error("due without being asked for")
	}
}

// poisoned is a device that, at some call, makes one element of the output of a layer NaN.
type poisoned struct {
	compute.Device
	calls int
}

func (p *poisoned) Dense(y compute.Matrix, d compute.Dense) {
	p.Device.Dense(y, d)
	if p.calls--; p.calls == 0 && y.Rows > 0 {
		y.Data[0] = float32(math.NaN())
	}
}

// The error of a loss that is not finite names the first layer whose output was not finite, on
// whichever rank, and the last good checkpoint.
func TestDivergenceNamesLayerAndCheckpoint(t *testing.T) {
	shards := generatedIn(t, 12)
	o := resumable()
	o.Checkpoint = config.Saves{EverySteps: 4, Keep: 9}
	dir := t.TempDir()
	err := comm.RunWorld(2, func(c comm.Comm) error {
		env := Env{Comm: c, Shards: shards, Device: ref.New(), Host: ref.Host{}, Workers: 1, Dir: dir}
		if c.Rank() == 1 {
			env.Device = &poisoned{Device: env.Device, calls: 3*9 + 2} // step 9, the second of three layers
		}
		_, err := Run(t.Context(), env, o)
		if !errors.Is(err, ErrDiverged) || c.Rank() > 0 {
			return err
		}
		for _, want := range []string{"epoch 1: step 9", "output of layer 1, at vertex", "(rank 1)",
			"the last good checkpoint is " +
				filepath.Join(dir, rundir.CheckpointsDir, "step-0000000")} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("the error does not say %q: %v", want, err)
			}
		}
		return err
	})
	if !errors.Is(err, ErrDiverged) {
		t.Errorf("ended with %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, rundir.SummaryFile)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a run that diverged has a summary (%v)", err)
	}
}

// A loss is compared with the first one, or with 1, and the first one survives a restart.
func TestLossBound(t *testing.T) {
	var b lossBound
	if err := b.check("it", 1e30); err != nil {
		t.Errorf("without a first loss: %v", err)
	}
	b.begin(0.25)
	b.begin(1e9) // a later loss: the first one stays
	if err := b.check("it", 0.99e6); err != nil {
		t.Error(err)
	}
	if err := b.check("it", 1.01e6); !errors.Is(err, ErrDiverged) ||
		!strings.Contains(err.Error(), "it is 1.01e+06, more than 1e+06 times the 0.25") {
		t.Errorf("beyond: %v", err)
	}
	large := 1e7 // unscaled features
	if err := (&lossBound{&large}).check("it", 0.99e13); err != nil {
		t.Error(err)
	}
	text, err := json.Marshal(&checkpointState{FirstLoss: &large})
	if err != nil {
		t.Fatal(err)
	}
	var back checkpointState
	if err := json.Unmarshal(text, &back); err != nil || back.FirstLoss == nil ||
		*back.FirstLoss != large {
		t.Errorf("a checkpoint keeps %v (%v)", back.FirstLoss, err)
	}
}

// A checkpoint written after the last update holds diverged weights, so it is not the last good
// one.
func TestLastGoodCheckpoint(t *testing.T) {
	dir := t.TempDir()
	at := func(updates int, end bool) string {
		path := rundir.CheckpointPath(dir, updates, end)
		if err := os.MkdirAll(path, 0o777); err != nil {
			t.Fatal(err)
		}
		return path
	}
	first, second, end := at(3, false), at(7, false), at(7, true)
	for _, c := range []struct {
		name         string
		last, before string
		updates      int
		want         string
	}{
		{"none", "", "", 7, "; there is no checkpoint"},
		{"before the last update", second, first, 8, "; the last good checkpoint is " + second},
		{"after the last update", second, first, 7, "; " + second +
			" holds the weights that diverged, and the last good checkpoint is " + first},
		{"at the end of training", end, first, 7, "; " + end +
			" holds the weights that diverged, and the last good checkpoint is " + first},
		{"the only one", second, "", 7, "; " + second +
			" holds the weights that diverged, and there is no good checkpoint"},
		{"the only one that is left", second, filepath.Join(dir, "pruned"), 7, "; " + second +
			" holds the weights that diverged, and there is no good checkpoint"},
	} {
		if got := (&saver{run: dir, last: c.last, before: c.before}).good(c.updates); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// Weights that are not finite are not saved; the error names the last layer whose gradient was not
// finite.
func TestRuinedWeightsAreNotSaved(t *testing.T) {
	shards := generatedIn(t, 12)
	o := resumable()
	o.Optimizer.Kind, o.Schedule.Base, o.Schedule.Warmup, o.Schedule.Kind = "sgd", 1e38, 0, "constant"
	o.Checkpoint = config.Saves{EverySteps: 1, Keep: 9}
	dir := t.TempDir()
	err := comm.RunWorld(2, func(c comm.Comm) error {
		_, err := Run(t.Context(),
			Env{Comm: c, Shards: shards, Device: ref.New(), Host: ref.Host{}, Workers: 1, Dir: dir},
			o)
		return err
	})
	if !errors.Is(err, ErrDiverged) ||
		!strings.Contains(err.Error(), "the first that was not finite is") {
		t.Errorf("ended with %v", err)
	}
	if err := rundir.VerifyCheckpoints(dir, SoundState); err != nil {
		t.Error(err)
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
		r.s.Dir, r.epoch = dir, 1
		log, err := rundir.Begin(dir)
		if err != nil {
			return err
		}
		r.s.log = log
		r.keeper().openSaver()
		var stalled, written time.Duration
		for b.Loop() {
			r.optimizer.SetSteps(r.optimizer.Steps() + 1)
			begin := time.Now()
			if err := r.keeper().save(1, 1, false); err != nil {
				return err
			}
			stalled += time.Since(begin)
			if err := r.saver.wait(); err != nil {
				return err
			}
			written += time.Since(begin)
		}
		n := float64(b.N)
		b.ReportMetric(float64(4*r.s.model.Params.Len())/1e6, "MB-weights")
		b.ReportMetric(stalled.Seconds()*1e6/n, "µs-stalled")
		b.ReportMetric(written.Seconds()*1e6/n, "µs-to-disk")
		return log.Close()
	})
	if err != nil {
		b.Fatal(err)
	}
}
