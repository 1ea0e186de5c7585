package train

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"halognn/src/data/rundir"
	"halognn/src/runs/checkpoint"
)

// startups returns the start-up and waiting times of the epochs in metrics.jsonl, and rank 0's wait
// before the first minibatch of each, from the record of that step.
func (j *journey) startups(t *testing.T) (startup, wait, first []float64) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(j.dir, rundir.MetricsFile))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var r struct {
			Kind    string
			Step    int
			Wait    float64            `json:"wait_seconds"`
			Startup float64            `json:"startup_seconds"`
			Phases  map[string]float64 `json:"phase_seconds"`
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		switch {
		case r.Kind == "epoch":
			startup, wait = append(startup, r.Startup), append(wait, r.Phases["wait"])
		case r.Kind == "step" && r.Step == 0:
			first = append(first, r.Wait)
		}
	}
	return startup, wait, first
}

// Start-up is the wait before the first minibatch of an epoch: on one rank, the wait of the first
// step; with one step an epoch, the whole wait.
func TestStartupIsTheFirstWait(t *testing.T) {
	shards := generatedIn(t, 12)
	for _, c := range []struct {
		name         string
		ranks, batch int
		depth        int
	}{
		{"one rank", 1, 8, 2}, {"one rank, nothing ahead", 1, 8, 0}, {"one step", 2, 1000, 2},
		{"two ranks", 2, 8, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := resumable()
			o.Batch, o.Depth = c.batch, c.depth
			j := journey{shards: shards, ranks: c.ranks, dir: t.TempDir()}
			s := j.finished(t, o)
			startup, wait, first := j.startups(t)
			if len(startup) != o.Epochs || len(first) != o.Epochs {
				t.Fatalf("%d epochs with %d first steps, want %d", len(startup), len(first),
					o.Epochs)
			}
			mean := 0.0
			for i, got := range startup {
				mean += got / float64(o.Epochs)
				switch {
				case got <= 0 || got > wait[i]+1e-9:
					t.Errorf("epoch %d: %g s of start-up in %g s of waiting", i+1, got, wait[i])
				case c.ranks == 1 && math.Abs(got-first[i]) > 1e-9:
					t.Errorf("epoch %d: %g s of start-up, the first step waited for %g s", i+1, got,
						first[i])
				case s.StepsPerEpoch == 1 && math.Abs(got-wait[i]) > 1e-9:
					t.Errorf("epoch %d: %g s of start-up, one step waited for %g s", i+1, got,
						wait[i])
				}
			}
			if math.Abs(s.StartupSeconds-mean) > 1e-9 || s.StartupFraction <= 0 ||
				s.StartupFraction > s.WaitFraction+1e-9 {
				t.Errorf("summary: %g s of start-up, want %g; %g of an epoch of which %g is "+
					"waiting", s.StartupSeconds, mean, s.StartupFraction, s.WaitFraction)
			}
			if s.StepsPerEpoch == 1 && math.Abs(s.StartupFraction-s.WaitFraction) > 1e-9 {
				t.Errorf("start-up is %g of an epoch, waiting %g; there is one step",
					s.StartupFraction, s.WaitFraction)
			}
		})
	}
}

// An epoch that is cut in two by a restart has filled its pipeline twice.
func TestStartupOverARestart(t *testing.T) {
	o := resumable()
	o.Epochs = 1
	j := journey{shards: generatedIn(t, 12), ranks: 2, dir: t.TempDir()}
	j.stopped(t, o, 4)
	saved, err := rundir.NewestCheckpoint(j.dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	var state checkpoint.State
	if err := json.Unmarshal(saved.State, &state); err != nil {
		t.Fatal(err)
	}
	s := j.finished(t, o)
	if state.Startup <= 0 || len(state.Each) != 2 || s.StartupSeconds <= state.Startup {
		t.Errorf("%g s of start-up in all, %g before the restart (%+v)", s.StartupSeconds,
			state.Startup, state.Each)
	}
}
