package parallel

import (
	"halognn/src/base/trace"
	"halognn/src/model/nn"
	"halognn/src/model/task"
	"halognn/src/ranks/pipeline"
)

// Stage is a stage of a pipeline, with the phase to which its time is added. Make it with local,
// ordered or collective, so that every stage has a phase.
type Stage struct {
	stage pipeline.Stage[Minibatch]
	phase trace.Phase
}

// request is a collective under way.
type request = pipeline.Request

// local returns a stage that runs on the pool (pipeline.Stage.Local).
func local(p trace.Phase, name string, f func(*Minibatch) error) Stage {
	return Stage{pipeline.Stage[Minibatch]{Name: name, Local: f}, p}
}

// ordered returns a stage that runs the minibatches in order. If arrive is not nil, this must be
// the first stage that is not local, and arrive is called with each minibatch in advance.
func ordered(p trace.Phase, name string, arrive, f func(*Minibatch) error) Stage {
	return Stage{pipeline.Stage[Minibatch]{Name: name, Arrive: arrive, Ordered: f}, p}
}

// collective returns a stage in which all ranks take part. The function finish may be nil.
func collective(
	p trace.Phase, name string,
	start func(*Minibatch) (request, error), finish func(*Minibatch) error,
) Stage {
	return Stage{pipeline.Stage[Minibatch]{Name: name, Start: start, Finish: finish}, p}
}

// Phases receives the phases of the training goroutine. The phases of Step are Forward, Backward
// and, in the last minibatch of a step, Sync; while a mode exchanges rows between two layers, the
// phase is Shuffle instead of Forward or Backward.
type Phases interface {
	Begin(trace.Phase)
	End(trace.Phase)
}

// unheard ignores the phases.
type unheard struct{}

func (unheard) Begin(trace.Phase) {}
func (unheard) End(trace.Phase)   {}

// Trained is the result of Step.
type Trained struct {
	// Fault is where the first number of this rank that is not finite appeared; nil if its share of
	// the loss is finite.
	Fault *nn.Fault
	// Stats are the statistics of the step over all ranks. They are only set for its last
	// minibatch.
	Stats task.Stats
}
