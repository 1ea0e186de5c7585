package train

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"halognn/src/data/rundir"
	"halognn/src/rows/policy"
	"halognn/src/runs/checkpoint"
	"halognn/src/runs/record"
)

// The time model of a summary is MassiveGNN's formula (section 3.3) on the phases of that summary,
// and the measured steps add up to the epochs of metrics.jsonl, less the time of checkpoints.
func TestTimeModelIsTheFormulaOnThePhases(t *testing.T) {
	shards := generatedIn(t, 12)
	for _, c := range []struct {
		name    string
		policy  string
		depth   int
		batch   int
		perPart bool
	}{
		{"nothing ahead", policy.None, 0, 8, false},
		{"a cache that changes", policy.Prefetch, 1, 8, false},
		{"six minibatches a step", policy.VIP, 2, 8, true},
		{"one step an epoch", policy.None, 2, 1000, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := resumable()
			o.Depth, o.Batch, o.StreamPerPart, o.Checkpoint.EverySteps = c.depth, c.batch,
				c.perPart, 3
			o.Cache = policy.Settings{
				Policy: c.policy, Alpha: 0.3, Gamma: 0.9, Delta: 4, Evict: true,
				Initial: policy.Degree,
			}
			j := journey{shards: shards, ranks: 2, dir: t.TempDir()}
			j.finished(t, o)
			var s struct {
				Steps  float64            `json:"steps_per_epoch"`
				Phases map[string]float64 `json:"phase_seconds"`
				Stall  float64            `json:"communication_stall_seconds"`
				Share  float64            `json:"communication_stall_fraction"`
				Model  map[string]float64 `json:"time_model"`
			}
			text, err := os.ReadFile(filepath.Join(j.dir, rundir.SummaryFile))
			if err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(text, &s); err != nil {
				t.Fatal(err)
			}
			step := func(phases ...string) (sum float64) {
				for _, p := range phases {
					sum += s.Phases[p] / s.Steps
				}
				return sum
			}
			sample, lookup, score := step("sample"), step("plan"), step("score")
			remote, local := step("exchange", "slice"), step("gather")
			train, sync := step("forward", "backward", "update"), step("sync")
			prepare := sample + lookup + max(score, remote, local)
			for key, want := range map[string]float64{
				"t_sample": sample, "t_lookup": lookup, "t_score": score, "t_remote": remote,
				"t_copy":  local,
				"t_train": train, "t_sync": sync, "depth": float64(c.depth),
				"t_base":         sample + max(remote, local) + train + sync,
				"t_prepare":      prepare,
				"t_first":        prepare + max(prepare, train+sync),
				"t_prefetch":     max(prepare, train+sync),
				"potential_gain": (sample + max(remote, local) + train + sync) / (train + sync),
			} {
				if got, there := s.Model[key]; !there || math.Abs(got-want) > 1e-9*max(1, want) {
					t.Errorf("%s is %g, want %g", key, got, want)
				}
			}
			stall := max(0, s.Phases["exchange"]+s.Phases["slice"]-s.Phases["gather"])
			if math.Abs(s.Stall-stall) > 1e-9 {
				t.Errorf("ranks stall for %g s of an epoch, equation 9 on the phases gives %g",
					s.Stall, stall)
			}
			epochs, first := j.epochSeconds(t)
			first, epochs = first/float64(o.Epochs), epochs/float64(o.Epochs)
			if math.Abs(s.Share-stall/epochs) > 1e-9 {
				t.Errorf("they stall for %g of an epoch of %g s", s.Share, epochs)
			}
			if math.Abs(s.Model["first_step"]-first) > 1e-9 || first <= 0 || first > epochs {
				t.Errorf("first_step is %g, in the epochs' records %g", s.Model["first_step"],
					first)
			}
			if got := s.Model["first_step"] + (s.Steps-1)*s.Model["step"] +
				s.Phases["save"]; s.Steps > 1 && math.Abs(got-epochs) > 1e-9 ||
				s.Model["step"] <= 0 {
				t.Errorf("the steps of %g s add up to %g s, an epoch takes %g", s.Model["step"],
					got, epochs)
			}
		})
	}
}

// epochSeconds adds up the times of the epochs, and of their first steps.
func (j *journey) epochSeconds(t *testing.T) (epochs, first float64) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(j.dir, rundir.MetricsFile))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var r record.Epoch
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		if r.Kind == "epoch" {
			epochs, first = epochs+r.Seconds, first+r.FirstStep
		}
	}
	return epochs, first
}

// A run resumed in the middle of an epoch keeps the time of the epoch's first step.
func TestFirstStepOverARestart(t *testing.T) {
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
	if got := s.TimeModel.FirstStep; got != state.First || got <= 0 || state.Step < 2 {
		t.Errorf("stopped after %d steps with a first one of %g s, ended with %g s", state.Step,
			state.First, got)
	}
}
