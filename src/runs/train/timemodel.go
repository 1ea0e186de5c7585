package train

import (
	"time"

	"halognn/src/base/trace"
	"halognn/src/runs/record"
)

// firstStepEnds records the duration of the first step. The first step ends when the second step
// begins or, if the first step was queued, when its result is read. The time of checkpoints does
// not count.
func (r *run) firstStepEnds() {
	saving := r.clock.Seconds()[trace.Save]
	r.firstStep = time.Since(r.begun).Seconds() - saving
}

// onlyStep does what firstStepEnds does, for an epoch with one step. It is called after the epoch's
// end.
func (r *run) onlyStep(rec *record.Epoch) {
	if r.steps() == 1 {
		rec.FirstStep = rec.Seconds - rec.PhaseSeconds[trace.Save.String()]
	}
}

// timeModel adds the time model to the summary, from the mean phases already in it.
func (r *run) timeModel(s *record.Summary) {
	n, steps := float64(r.sums.Epochs), float64(r.steps())
	m := &s.TimeModel
	m.StepModel, m.Depth = trace.TermsOf(s.PhaseSeconds, r.steps()).Model(), r.s.Job.Depth
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
