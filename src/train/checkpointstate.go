package train

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"time"

	"halognn/src/exchange"
	"halognn/src/trace"
)

// The state in a checkpoint has types of its own, so that a change of summary.json, of the counters
// or of the phases does not change its format by accident. A key never changes its meaning:
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

	Local        int64   `json:"local_rows"`
	CacheHits    int64   `json:"cache_hits"`
	Peer         int64   `json:"peer_rows"`
	PeerCached   int64   `json:"peer_cache_rows"`
	Stored       int64   `json:"stored_rows,omitzero"`
	Fetched      int64   `json:"fetched_rows"`
	Replacement  int64   `json:"replacement_rows"`
	Early        int64   `json:"early_rows"`
	Remote       int64   `json:"remote_rows"`
	Summed       int64   `json:"summed_rows,omitzero"`
	SumVectors   int64   `json:"sum_vectors,omitzero"`
	IDBytes      int64   `json:"id_bytes,omitzero"`
	Evictions    int64   `json:"evictions"`
	Replacements int64   `json:"replacements"`
	ScoreSeconds float64 `json:"score_seconds"`

	Asked         int64 `json:"asked_vertices"`
	Drawn         int64 `json:"drawn_neighbours"`
	SamplingBytes int64 `json:"sampling_bytes"`

	Edges        int64 `json:"computed_edges,omitempty"`
	Loaded       int64 `json:"loaded_rows,omitempty"`
	Shuffled     int64 `json:"shuffled_rows,omitempty"`
	ShuffleBytes int64 `json:"shuffle_bytes,omitempty"`
}

// sumsOf converts sums to their form in a checkpoint.
func sumsOf(s *sums) checkpointSums {
	c := s.Rows
	return checkpointSums{
		Epochs: s.Epochs, TrainLoss: s.TrainLoss, WaitFraction: s.WaitFraction,
		PhaseSeconds: maps.Clone(s.PhaseSeconds), FirstStep: s.FirstStep,
		Startup: s.Startup, StartupShare: s.StartupShare, Rounds: s.Rounds,
		OwnerSkew: s.OwnerSkew,
		Local:     c.Local, CacheHits: c.Cached, Peer: c.Peer, PeerCached: c.PeerCached,
		Stored:  c.Stored,
		Fetched: c.Fetched(), Replacement: c.Replaced, Early: c.Early, Remote: c.Remote,
		Summed: c.Summed, SumVectors: c.Sums, IDBytes: c.IDBytes,
		Evictions: c.Evictions, Replacements: c.Replacements, ScoreSeconds: c.Scoring.Seconds(),
		Asked: c.Sampling.Asked, Drawn: c.Sampling.Drawn, SamplingBytes: c.Sampling.Bytes,
		Edges: c.Edges, Loaded: c.Loaded, Shuffled: c.Shuffle.Rows, ShuffleBytes: c.Shuffle.Bytes,
	}
}

// sums is the inverse of sumsOf. Counters that no summary needs are 0.
func (c *checkpointSums) sums() sums {
	ids := c.IDBytes
	if ids == 0 { // of an older version, which fetched rows alone
		ids = c.Remote * exchange.IDBytes
	}
	return sums{
		Epochs: c.Epochs, TrainLoss: c.TrainLoss, WaitFraction: c.WaitFraction,
		PhaseSeconds: maps.Clone(c.PhaseSeconds), FirstStep: c.FirstStep,
		Startup: c.Startup, StartupShare: c.StartupShare, Rounds: c.Rounds,
		OwnerSkew: c.OwnerSkew,
		Rows: trace.Counters{
			Local: c.Local, Cached: c.CacheHits, Peer: c.Peer, PeerCached: c.PeerCached,
			Stored:   c.Stored,
			Replaced: c.Replacement, Early: c.Early, Remote: c.Remote,
			Summed: c.Summed, Sums: c.SumVectors, IDBytes: ids,
			Evictions: c.Evictions, Replacements: c.Replacements, Scoring: duration(c.ScoreSeconds),
			Sampling: trace.Sampling{Asked: c.Asked, Drawn: c.Drawn, Bytes: c.SamplingBytes},
			Edges:    c.Edges, Loaded: c.Loaded,
			Shuffle: trace.Shuffles{Rows: c.Shuffled, Bytes: c.ShuffleBytes},
		},
	}
}

// checkpointCounters are trace.Counters. A new field there needs a key here: the conversions do not
// compile without it.
type checkpointCounters struct {
	Frontier     int64         `json:"Frontier"`
	Local        int64         `json:"Local"`
	Cached       int64         `json:"Cached"`
	Peer         int64         `json:"Peer"`
	Remote       int64         `json:"Remote"`
	Early        int64         `json:"Early"` // the Replaced rows among them, in older versions
	Served       int64         `json:"Served"`
	Summed       int64         `json:"Summed,omitzero"`
	Sums         int64         `json:"Sums,omitzero"`
	ServedSums   int64         `json:"ServedSums,omitzero"`
	ServedReads  int64         `json:"ServedReads,omitzero"`
	PeerCached   int64         `json:"PeerCached"`
	Stored       int64         `json:"Stored,omitzero"`
	Rounds       int64         `json:"Rounds"`
	CountBytes   int64         `json:"CountBytes"`
	IDBytes      int64         `json:"IDBytes"`
	RowBytes     int64         `json:"RowBytes"`
	Evictions    int64         `json:"Evictions"`
	Replacements int64         `json:"Replacements"`
	Scoring      time.Duration `json:"Scoring"`
	Replaced     int64         `json:"Replaced"`
	// Its fields are keys too, under the names that they have in Go.
	Sampling trace.Sampling `json:"Sampling,omitzero"`
	Edges    int64          `json:"Edges,omitempty"`
	Loaded   int64          `json:"Loaded,omitempty"`
	Shuffle  trace.Shuffles `json:"Shuffle,omitzero"`
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

// SoundState returns an error if a state, as JSON, is damaged: it has counts that no run can have.
func SoundState(text []byte) error {
	s := new(checkpointState)
	if err := json.Unmarshal(text, s); err != nil {
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
