package train

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"

	"halognn/src/exchange"
	"halognn/src/trace"
)

// The state in a checkpoint has types of its own but for the counters, so that a change of
// summary.json or of the phases does not change its format by accident. A key never changes its meaning:
// state.json of any version with this rundir.CheckpointFormat can be read, and absent keys are 0.

// checkpointSums are sums over the complete epochs and over ranks; times are means over ranks.
type checkpointSums struct {
	Epochs       int                `json:"epochs"`
	TrainLoss    float64            `json:"train_loss"` // of the last one
	WaitFraction float64            `json:"wait_fraction"`
	PhaseSeconds map[string]float64 `json:"phase_seconds"`
	FirstStep    float64            `json:"first_step_seconds"`
	Startup      float64            `json:"startup_seconds"`
	StartupShare float64            `json:"startup_fraction"`
	Rounds       float64            `json:"rounds_per_step"`     // of the last one
	OwnerSkew    float64            `json:"owner_skew,omitzero"` // likewise

	trace.Counters

	OldScore float64 `json:"score_seconds,omitzero"` // of older versions: Scoring
}

// sumsOf converts sums to their form in a checkpoint.
func sumsOf(s *sums) checkpointSums {
	return checkpointSums{
		Epochs: s.Epochs, TrainLoss: s.TrainLoss, WaitFraction: s.WaitFraction,
		PhaseSeconds: maps.Clone(s.PhaseSeconds), FirstStep: s.FirstStep,
		Startup: s.Startup, StartupShare: s.StartupShare, Rounds: s.Rounds,
		OwnerSkew: s.OwnerSkew, Counters: s.Rows,
	}
}

// sums is the inverse of sumsOf.
func (c *checkpointSums) sums() sums {
	rows := c.Counters
	if rows.IDBytes == 0 { // of an older version, which fetched rows alone
		rows.IDBytes = rows.Remote * exchange.IDBytes
	}
	if c.OldScore > 0 {
		rows.Scoring = duration(c.OldScore)
	}
	return sums{
		Epochs: c.Epochs, TrainLoss: c.TrainLoss, WaitFraction: c.WaitFraction,
		PhaseSeconds: maps.Clone(c.PhaseSeconds), FirstStep: c.FirstStep,
		Startup: c.Startup, StartupShare: c.StartupShare, Rounds: c.Rounds,
		OwnerSkew: c.OwnerSkew, Rows: rows,
	}
}

// oldCounters are the counters of older versions, which had the names of their fields for keys.
type oldCounters map[string]json.RawMessage

func (o oldCounters) read(v reflect.Value) error {
	for name, text := range o {
		f := v.FieldByName(name)
		var err error
		switch {
		case !f.IsValid(): // no longer counted
		case f.Kind() == reflect.Struct:
			var nested oldCounters
			if err = json.Unmarshal(text, &nested); err == nil {
				err = nested.read(f)
			}
		default:
			err = json.Unmarshal(text, f.Addr().Interface())
		}
		if err != nil {
			return fmt.Errorf("rows: %s: %w", name, err)
		}
	}
	return nil
}

// oldPhases names the elements of "phase_seconds", the list of older versions that did not name
// phases.
var oldPhases = [...]string{
	"sample", "plan", "exchange", "gather", "forward", "backward", "sync", "update", "wait", "save",
}

// phases returns the seconds of the phases of the epoch under way, by name.
func (s *checkpointState) phases() map[string]float64 {
	if s.Phases != nil {
		return s.Phases
	}
	named := map[string]float64{}
	for i, t := range s.OldPhases[:min(len(s.OldPhases), len(oldPhases))] {
		named[oldPhases[i]] = t
	}
	return named
}

// readState reads a state of any version.
func readState(text []byte) (*checkpointState, error) {
	s := new(checkpointState)
	if err := json.Unmarshal(text, s); err != nil {
		return nil, err
	}
	return s, s.OldRows.read(reflect.ValueOf(&s.Counters).Elem())
}

// SoundState returns an error if a state, as JSON, is damaged: it has counts that no run can have.
func SoundState(text []byte) error {
	s, err := readState(text)
	if err != nil {
		return err
	}
	return s.check()
}

// check rejects counts that no run can have.
func (s *checkpointState) check() error {
	for _, c := range []struct {
		name               string
		value, least, most int
	}{
		{"epoch", s.Epoch, 1, math.MaxInt32},
		{"steps_per_epoch", s.StepsPerEpoch, 1, math.MaxInt},
		{"step", s.Step, 0, s.StepsPerEpoch},
		{"optimizer_steps", s.OptimizerSteps, 0, math.MaxInt},
		{"best_epoch", s.BestEpoch, 0, s.Epoch},
		{"validations_since", s.Since, 0, s.Epoch},
		{"seeds", s.Seeds, 0, math.MaxInt},
		{"number of epoch_seconds", len(s.EpochSeconds), s.Epoch - 1, s.Epoch - 1},
	} {
		if c.value < c.least || c.value > c.most {
			return fmt.Errorf("%s is %d, and must be %d to %d: it was altered",
				c.name, c.value, c.least, c.most)
		}
	}
	return s.Near.check(s.Epoch - 1)
}
