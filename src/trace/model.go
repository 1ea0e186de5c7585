package trace

// Terms are the components of a step's time on a rank, in seconds: the symbols of MassiveGNN's
// performance model (section 3.3). A run measures them from its phases (docs/metrics.md), a plan
// predicts them from rates (docs/guide/size-a-job.md).
type Terms struct {
	Sample float64 `json:"t_sample"` // t_Sampling: drawing blocks
	Ask    float64 `json:"t_ask"`    // the rounds of sampling a partitioned topology
	Lookup float64 `json:"t_lookup"` // t_Lookup: locating each row
	Score  float64 `json:"t_score"`  // t_Scoring: the policy's decisions and scores
	Remote float64 `json:"t_remote"` // t_RPC: from requesting remote rows to having them
	Copy   float64 `json:"t_copy"`   // t_Copy: collecting and aggregating input rows
	Train  float64 `json:"t_train"`  // of t_DDP: forward, backward, update
	Sync   float64 `json:"t_sync"`   // of t_DDP: the sum of the gradients

	// With a GPU; only a plan has them.
	Up     float64 `json:"t_up,omitempty"`     // minibatches on the bus
	Gather float64 `json:"t_gather,omitempty"` // of t_DDP: input rows made on the device
	Staged float64 `json:"t_staged,omitempty"` // of t_DDP: gradients on the bus, down and up
}

// TermsOf returns the mean terms of a step from the phases, by name, of an epoch of so many steps.
// Remote is the collectives of the exchange and the slicing between them, which a rank does for its
// peers while they do it for this one.
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
		Train: of(Forward, Backward, Update), Sync: of(Sync),
	}
}

// DDP returns t_DDP: all work of the training goroutine in a step.
func (t *Terms) DDP() float64 { return t.Gather + t.Train + t.Sync + t.Staged }

// Stall returns the communication stall of a rank (equation 9): the time of remote rows beyond the
// copying that may run beside it.
func (t *Terms) Stall() float64 { return max(0, t.Remote-t.Copy) }

// StepModel is the time of a step from its terms, by the equations of MassiveGNN, section 3.3.
// Copies to a GPU follow the preparation of a minibatch; the paper counts them as copying.
type StepModel struct {
	Terms
	Base     float64 `json:"t_base"`     // (2) nothing is prepared ahead
	Prepare  float64 `json:"t_prepare"`  // (3) one minibatch is made
	First    float64 `json:"t_first"`    // (4) the first step, which prepares two
	Prefetch float64 `json:"t_prefetch"` // (5) the next minibatch is made while one trains
	// (6) T_base over t_DDP: what perfect overlap gains; 0 without training
	Gain float64 `json:"potential_gain"`
}

// Model applies the equations.
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
