package trace

// Terms are the components of a step's time on a rank, in seconds: the symbols of MassiveGNN's
// performance model (section 3.3). A run measures them from its phases, a plan predicts them from
// rates (docs/guide/size-a-job.md). `make docs` prints the comments in docs/metrics.md.
type Terms struct {
	// t_Sampling: `sample`
	Sample float64 `json:"t_sample"`
	// `ask`
	Ask float64 `json:"t_ask"`
	// t_Lookup: `plan`
	Lookup float64 `json:"t_lookup"`
	// t_Scoring: `score`
	Score float64 `json:"t_score"`
	// t_RPC: `exchange` + `slice`. A rank copies rows for its peers while they copy rows for it
	Remote float64 `json:"t_remote"`
	// t_Copy: `gather`
	Copy float64 `json:"t_copy"`
	// t_DDP without `sync`: `forward` + `backward` + `update`. With a GPU also copies to it, and
	// its making of input rows
	Train float64 `json:"t_train"`
	// `sync`; t_DDP = `t_train` + `t_sync`
	Sync float64 `json:"t_sync"`

	// part of t_DDP: `shuffle`
	Shuffle float64 `json:"t_shuffle,omitempty"`

	// minibatches on the bus to a GPU
	Up float64 `json:"t_up,omitempty"`
	// part of t_DDP: input rows made on a GPU
	Gather float64 `json:"t_gather,omitempty"`
	// part of t_DDP: gradients on the bus, down and up
	Staged float64 `json:"t_staged,omitempty"`
}

// TermsOf returns the mean terms of a step, given the seconds of each phase in an epoch and its
// number of steps. Remote is the time of the exchange's collectives and of the slicing between
// them, because ranks slice rows for each other at the same time.
func TermsOf(phaseSeconds map[string]float64, steps int) Terms {
	of := func(phases ...Phase) (seconds float64) {
		for _, p := range phases {
			seconds += phaseSeconds[p.String()]
		}
		return seconds / float64(steps)
	}
	return Terms{
		Sample: of(Sample), Ask: of(Ask), Lookup: of(Plan), Score: of(Score),
		Remote: of(Exchange, Slice), Copy: of(Gather),
		Train: of(Forward, Backward, Update), Sync: of(Sync), Shuffle: of(Shuffle),
	}
}

// DDP returns t_DDP: all work of the training goroutine in a step.
func (t *Terms) DDP() float64 { return t.Gather + t.Train + t.Shuffle + t.Sync + t.Staged }

// Stall returns the communication stall of a rank (equation 9): by how much the time to fetch
// remote rows exceeds the time of the copying that runs at the same time.
func (t *Terms) Stall() float64 { return max(0, t.Remote-t.Copy) }

// StepModel is the time of a step from its terms, by the equations of MassiveGNN, section 3.3.
// Copies to a GPU follow the preparation of a minibatch; the paper counts them as copying.
type StepModel struct {
	Terms
	// equation 2, nothing prepared ahead: t_sample + t_ask + max(t_remote, t_copy) + t_train +
	// t_sync
	Base float64 `json:"t_base"`
	// equation 3, a minibatch: t_sample + t_ask + t_lookup + max(t_score, t_remote, t_copy)
	Prepare float64 `json:"t_prepare"`
	// equation 4, the first step, with two minibatches: t_prepare + max(t_prepare, t_train +
	// t_sync)
	First float64 `json:"t_first"`
	// equation 5, the other steps: max(t_prepare, t_train + t_sync)
	Prefetch float64 `json:"t_prefetch"`
	// equation 6, the speedup if preparing ahead is hidden completely: t_base / (t_train + t_sync);
	// 0 if nothing trains
	Gain float64 `json:"potential_gain"`
}

// Model computes the time of a step from the terms.
func (t Terms) Model() StepModel {
	m := StepModel{Terms: t}
	ddp := t.DDP()
	m.Base = t.Sample + t.Ask + max(t.Remote, t.Copy) + t.Up + ddp
	m.Prepare = t.Sample + t.Ask + t.Lookup + max(t.Score, t.Remote, t.Copy) + t.Up
	m.First = m.Prepare + max(m.Prepare, ddp)
	m.Prefetch = max(m.Prepare, ddp)
	if ddp > 0 {
		m.Gain = m.Base / ddp
	}
	return m
}
