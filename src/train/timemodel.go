package train

import (
	"time"

	"halognn/src/trace"
)

// TimeModel is MassiveGNN's model of a step, made of the terms that the run has measured, beside
// the steps that it has measured: seconds, means over epochs.
type TimeModel struct {
	trace.StepModel
	// `pipeline.depth`: which equation to compare with
	Depth int `json:"depth"`
	// measured: a step that is not the first of its epoch, (epoch - `save` - `first_step`) /
	// (`steps_per_epoch` - 1); with one step an epoch, `first_step`
	Step float64 `json:"step"`
	// measured: from the beginning of an epoch until its second step begins, or its end, less what
	// checkpoints took
	FirstStep float64 `json:"first_step"`
}

// secondStep records the duration of the first step when the second one begins. Checkpoints do not
// count.
func (r *run) secondStep() {
	saving := r.clock.Seconds()[trace.Save]
	r.firstStep = time.Since(r.begun).Seconds() - saving
}

// onlyStep is secondStep for an epoch of one step, after its end.
func (r *run) onlyStep(rec *epochRecord) {
	if r.steps() == 1 {
		rec.FirstStep = rec.Seconds - rec.PhaseSeconds[trace.Save.String()]
	}
}

// timeModel adds the model, from the mean phases already in the summary.
func (r *run) timeModel(s *Summary) {
	n, steps := float64(r.sums.Epochs), float64(r.steps())
	m := &s.TimeModel
	m.StepModel, m.Depth = trace.TermsOf(s.PhaseSeconds, r.steps()).Model(), r.o.Depth
	epoch := 0.0
	for _, seconds := range r.seconds {
		epoch += seconds / n
	}
	m.FirstStep = r.sums.FirstStep / n
	m.Step = m.FirstStep
	if steps > 1 {
		m.Step = (epoch - s.PhaseSeconds[trace.Save.String()] - m.FirstStep) / (steps - 1)
	}
	s.StallSeconds = m.Stall() * steps
	s.StallFraction = s.StallSeconds / epoch
}
