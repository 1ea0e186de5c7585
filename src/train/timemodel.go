package train

import (
	"time"

	"halognn/src/record"
	"halognn/src/trace"
)

// secondStep records the duration of the first step when the second one begins. Checkpoints do not
// count.
func (r ledger) secondStep() {
	saving := r.of.clock.Seconds()[trace.Save]
	r.of.firstStep = time.Since(r.of.begun).Seconds() - saving
}

// onlyStep is secondStep for an epoch of one step, after its end.
func (r ledger) onlyStep(rec *record.Epoch) {
	if r.of.steps() == 1 {
		rec.FirstStep = rec.Seconds - rec.PhaseSeconds[trace.Save.String()]
	}
}

// timeModel adds the model, from the mean phases already in the summary.
func (r ledger) timeModel(s *record.Summary) {
	n, steps := float64(r.of.sums.Epochs), float64(r.of.steps())
	m := &s.TimeModel
	m.StepModel, m.Depth = trace.TermsOf(s.PhaseSeconds, r.of.steps()).Model(), r.s.Job.Depth
	epoch := 0.0
	for _, seconds := range r.of.seconds {
		epoch += seconds / n
	}
	m.FirstStep = r.of.sums.FirstStep / n
	m.Step = m.FirstStep
	if steps > 1 {
		m.Step = (epoch - s.PhaseSeconds[trace.Save.String()] - m.FirstStep) / (steps - 1)
	}
	s.StallSeconds = m.Stall() * steps
	s.StallFraction = s.StallSeconds / epoch
}
