package checkpoint

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"time"

	"halognn/src/base/trace"
	"halognn/src/data/rundir"
	"halognn/src/rows/exchange"
	"halognn/src/runs/record"
	"halognn/src/step/residence"
)

// Except for the counters, the state in a checkpoint has types of its own, so that a change of
// summary.json or of the phases does not change the state's format by accident. A key never changes
// its meaning. So state.json of any version with this rundir.CheckpointFormat can be read, and
// absent keys are 0.

// State is state.json: the state of a run between two steps. It has sums over ranks, so that a run
// can continue with another number of ranks.
type State struct {
	Format int `json:"format"`
	Origin
	Place
	Best

	Cache *residence.Choice `json:"cache,omitempty"` // made by cache.policy auto

	Near *Nearness `json:"locality,omitempty"`

	EpochSeconds []float64 `json:"epoch_seconds"`
	Sums         Sums      `json:"sums"`

	// FirstLoss is the loss of the run's first step, against which later losses are judged; older
	// versions lack it.
	FirstLoss *float64 `json:"first_loss,omitempty"`

	UnderWay

	Files rundir.FileSums `json:"files"`
}

// Origin is the run that made a checkpoint.
type Origin struct {
	Version string            `json:"version"` // version of the program
	Parts   string            `json:"parts"`   // identity of the shards
	Config  map[string]string `json:"config"`
	Device  string            `json:"device"`
	Ranks   int               `json:"ranks"`
	Streams int               `json:"streams"`
	Common  int               `json:"common_streams,omitempty"` // sample.Spec.Common
}

// Place is the next step to train, and the digests of the steps before it.
type Place struct {
	Epoch          int    `json:"epoch"` // epoch of the next step, from 1
	Step           int    `json:"step"`  // next step, from 0; StepsPerEpoch if evaluation is next
	StepsPerEpoch  int    `json:"steps_per_epoch"`
	OptimizerSteps int    `json:"optimizer_steps"`
	LossDigest     []byte `json:"loss_digest_state"`
	BlocksDigest   string `json:"blocks_digest,omitempty"` // sum over ranks, as is EdgesDigest
	EdgesDigest    string `json:"edges_digest,omitempty"`
}

// Best is the best validation so far.
type Best struct {
	BestEpoch    int           `json:"best_epoch"`
	BestMetric   record.Metric `json:"best_metric"`
	BestAccuracy record.Metric `json:"best_accuracy"`
	Since        int           `json:"validations_since"`
}

// UnderWay is the epoch under way.
type UnderWay struct {
	Loss    float64            `json:"loss"` // sum over steps, weighted by seeds
	Seeds   int                `json:"seeds"`
	Seconds float64            `json:"seconds"`
	First   float64            `json:"first_step_seconds"` // 0 if the second step has not begun
	Waiting float64            `json:"wait_seconds"`       // mean over ranks, as is Startup
	Startup float64            `json:"startup_seconds"`
	Phases  map[string]float64 `json:"phases"` // by name, means over ranks
	Each    []Share            `json:"each_rank"`

	Counters trace.Counters `json:"counters"` // sum over ranks

	OldRows   oldCounters `json:"rows,omitempty"`          // Counters of older versions
	OldPhases []float64   `json:"phase_seconds,omitempty"` // Phases of older versions (oldPhases)
}

// Share is one rank's share of the epoch under way.
type Share struct {
	Remote  int64   `json:"remote_rows"`
	Waiting float64 `json:"wait_seconds"`
	Startup float64 `json:"startup_seconds"`
}

// Earlier returns what a rank had counted in the epoch under way when the checkpoint was made. If
// the number of ranks has changed, the rows of all ranks are divided evenly.
func (s *State) Earlier(rank, ranks int) Share {
	if len(s.Each) == ranks {
		return s.Each[rank]
	}
	before := func(r int) int64 { return s.Counters.Remote * int64(r) / int64(ranks) }
	return Share{before(rank+1) - before(rank), s.Waiting, s.Startup}
}

// Sums are sums over the complete epochs and over ranks; but times are means over ranks. The
// summary of a run is computed from them.
type Sums struct {
	Epochs       int                `json:"epochs"`
	TrainLoss    float64            `json:"train_loss"` // loss of the last epoch
	WaitFraction float64            `json:"wait_fraction"`
	PhaseSeconds map[string]float64 `json:"phase_seconds"`
	FirstStep    float64            `json:"first_step_seconds"`
	Startup      float64            `json:"startup_seconds"`
	StartupShare float64            `json:"startup_fraction"`
	Collectives  float64            `json:"rounds_per_step"`     // of each rank, last epoch
	OwnerSkew    float64            `json:"owner_skew,omitzero"` // skew of the last epoch

	trace.Counters

	OldScore float64 `json:"score_seconds,omitzero"` // Scoring of older versions
}

// Add adds an epoch. The argument `rows` has the counters of all ranks.
func (s *Sums) Add(e *record.Epoch, rows trace.Counters) {
	s.Epochs++
	s.TrainLoss, s.OwnerSkew = e.Loss, e.OwnerSkew
	s.WaitFraction += e.WaitFraction
	s.Startup += e.Startup
	s.StartupShare += e.StartupFraction
	if s.PhaseSeconds == nil {
		s.PhaseSeconds = map[string]float64{}
	}
	for p, t := range e.PhaseSeconds {
		s.PhaseSeconds[p] += t
	}
	s.FirstStep += e.FirstStep
	s.Counters.Add(rows)
}

// Copy returns a copy that later epochs do not change.
func (s Sums) Copy() Sums {
	s.PhaseSeconds = maps.Clone(s.PhaseSeconds)
	return s
}

// current converts sums of an older version to the current form.
func (s *Sums) current() {
	if s.IDBytes == 0 { // that version fetched rows, but no sums
		s.IDBytes = s.Remote * exchange.IDBytes
	}
	if s.OldScore > 0 {
		s.Scoring, s.OldScore = Duration(s.OldScore), 0
	}
}

// oldCounters are the counters in a state of an older version. Its keys are the names of the fields
// at that time.
type oldCounters map[string]json.RawMessage

// renamed maps old names of fields to current ones.
var renamed = map[string]string{"Rounds": "Collectives", "Shuffle": "Shuffles"}

func (o oldCounters) read(v reflect.Value) error {
	for name, text := range o {
		f := v.FieldByName(cmp.Or(renamed[name], name))
		var err error
		switch {
		case !f.IsValid(): // the counter no longer exists
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

// oldPhases names the elements of "phase_seconds", which older versions wrote as a list without
// names.
var oldPhases = [...]string{
	"sample", "plan", "exchange", "gather", "forward", "backward", "sync", "update", "wait", "save",
}

// current converts a state of an older version to the current form.
func (s *State) current() error {
	s.Sums.current()
	if s.Phases == nil {
		s.Phases = map[string]float64{}
		for i, t := range s.OldPhases[:min(len(s.OldPhases), len(oldPhases))] {
			s.Phases[oldPhases[i]] = t
		}
	}
	return s.OldRows.read(reflect.ValueOf(&s.Counters).Elem())
}

// ReadState reads a state of any version.
func ReadState(text []byte) (*State, error) {
	s := new(State)
	if err := json.Unmarshal(text, s); err != nil {
		return nil, err
	}
	return s, s.current()
}

// Sound returns an error if the JSON text of a state is damaged: its counts are impossible.
func Sound(text []byte) error {
	s, err := ReadState(text)
	if err != nil {
		return err
	}
	return s.check()
}

// check returns an error for impossible counts.
func (s *State) check() error {
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
			return fmt.Errorf("%s is %d, but must be %d to %d: the checkpoint was altered",
				c.name, c.value, c.least, c.most)
		}
	}
	return s.Near.check(s.Epoch - 1)
}

// Nearness is the state of sample.locality in a checkpoint.
type Nearness struct {
	Held   string  `json:"held_digest"`
	Factor float64 `json:"factor"`
	Before float64 `json:"factor_before"`
	Fixed  bool    `json:"factor_fixed"`
	record.Adapted
}

// Digest returns the digest of the vertices that the checkpointed run had at hand.
func (s *Nearness) Digest() string {
	if s == nil {
		return ""
	}
	return s.Held
}

// check returns an error for impossible factors after the given number of complete epochs.
func (s *Nearness) check(epochs int) error {
	if s == nil {
		return nil
	}
	for _, x := range append([]float64{s.Factor, s.Before}, s.Factors...) {
		if !(x >= 1 && x <= math.MaxFloat32) {
			return fmt.Errorf("a factor of locality is %g: the checkpoint was altered", x)
		}
	}
	if n := len(s.Factors); n != len(s.Shares) || n > epochs {
		return errors.New("the number of factors of locality is above that of epochs, or differs " +
			"from that of shares of loading: the checkpoint was altered")
	}
	return nil
}

// Duration converts seconds to a time.Duration.
func Duration(seconds float64) time.Duration {
	return time.Duration(seconds * float64(time.Second))
}
