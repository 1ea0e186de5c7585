package trace

// Terms are what a step of a rank is made of, in seconds: the symbols of MassiveGNN's performance model
// (section 3.3). A run measures them from its phases (docs/metrics.md), a plan predicts them from rates
// (docs/plan.md).
type Terms struct {
	Sample float64 `json:"t_sample"` // t_Sampling: drawing blocks
	Ask    float64 `json:"t_ask"`    // the rounds of sampling a partitioned topology
	Lookup float64 `json:"t_lookup"` // t_Lookup: finding out where each row lies
	Score  float64 `json:"t_score"`  // t_Scoring: what the policy decides, and its scores
	Remote float64 `json:"t_remote"` // t_RPC: from asking for remote rows to having them
	Copy   float64 `json:"t_copy"`   // t_Copy: collecting and aggregating input rows
	Train  float64 `json:"t_train"`  // of t_DDP: forward, backward, update
	Sync   float64 `json:"t_sync"`   // of t_DDP: the sum of the gradients

	// Where a GPU trains; a plan alone knows them.
	Up     float64 `json:"t_up,omitempty"`     // minibatches on the bus
	Gather float64 `json:"t_gather,omitempty"` // of t_DDP: input rows made on the device
	Staged float64 `json:"t_staged,omitempty"` // of t_DDP: gradients on the bus, down and up
}

// TermsOf returns the mean terms of a step from the phases, by name, of an epoch of so many steps.
// Rows are asked for and had by the collectives of the exchange and by the slicing between them,
// which a rank does for its peers while they do it for this one.
func TermsOf(phaseSeconds map[string]float64, steps int) Terms {
	of := func(phases ...Phase) (seconds float64) {
		for _, p := range phases {
			seconds += phaseSeconds[p.String()]
		}
		return seconds / float64(steps)
	}
	return Terms{
		Sample: of(Sample), Ask: of(Ask), Lookup: of(Plan), Score: of(Score), Remote: of(Exchange, Slice), Copy: of(Gather),
		Train: of(Forward, Backward, Update), Sync: of(Sync),
	}
}

// DDP returns t_DDP, which is all that the training goroutine does in a step.
func (t *Terms) DDP() float64 { return t.Gather + t.Train + t.Sync + t.Staged }

// Stall returns the time that a rank stalls for communication (equation 9): what remote rows take
// beyond the copying that may go on beside them.
func (t *Terms) Stall() float64 { return max(0, t.Remote-t.Copy) }

// StepModel is what the terms make of a step, by the equations of MassiveGNN, section 3.3. Minibatches
// go up to a GPU after they are made, which the paper does not tell apart from copying.
type StepModel struct {
	Terms
	Base     float64 `json:"t_base"`         // (2) nothing is prepared ahead
	Prepare  float64 `json:"t_prepare"`      // (3) one minibatch is made
	First    float64 `json:"t_first"`        // (4) the first step, which prepares two
	Prefetch float64 `json:"t_prefetch"`     // (5) the next minibatch is made while one trains
	Gain     float64 `json:"potential_gain"` // (6) T_base over t_DDP: what perfect overlap gains; 0 without training
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
