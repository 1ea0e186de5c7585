package train

import (
	"fmt"
	"time"

	"halognn/src/parallel"
	"halognn/src/trace"
	"halognn/src/watch"
)

// queuedStep is a step that a device has been given, with what is recorded when its result comes.
type queuedStep struct {
	stepUnderWay
	result  *parallel.Queued // nil: none is queued
	updates int              // before it
}

// queues reports whether the step that begins is queued, its result read when the next one is. The
// first step of a run is not: its loss sets the bound that the device compares the others with.
func (r *run) queues() bool { return r.bound.first != nil && r.s.Strategy.Queues() }

// queue gives the device a minibatch and, after the last one of the step, the update; then it settles
// the step before. The device makes no update from a loss that accept does not, so the weights
// are those of the step before it, though one more step has been queued.
func (r *run) queue(m *parallel.Minibatch, last bool) error {
	step := r.step.number
	result, err := r.s.Strategy.Queue(m, last, stepPhases{r})
	if err == nil {
		err = r.count(m)
	}
	if err != nil {
		return fmt.Errorf("step %d: %w", step, err)
	}
	if !last {
		return nil
	}
	begin := time.Now()
	r.step.lr, _ = r.s.Job.Rates((r.epoch-1)*r.steps() + step)
	this := queuedStep{r.step, result, r.optimizer.Steps()}
	r.optimizer.UpdateWithin(r.step.lr, r.bound.most())
	r.mark(trace.Update, begin)
	before := r.queued
	r.queued = this
	votes, err := r.settle(&before)
	if err != nil {
		return err
	}
	// A vote of another rank is known now, when all have queued one more step: they act after it.
	if votes == (ballot{}) && !r.drains(step) {
		r.s.Watch.At(r.epoch, step, watch.Place(trace.Wait))
		return nil
	}
	r.queued = queuedStep{}
	more, err := r.settle(&this)
	if err != nil {
		return err
	}
	r.s.Watch.At(r.epoch, step, watch.Place(trace.Wait))
	return r.obey(step, votes.or(more))
}

// drains reports whether the result of a queued step is needed before the next one is queued, the same
// on all ranks: at the end of an epoch, where the state is saved after so many steps, and where one
// rank alone knows of a vote.
func (r *run) drains(step int) bool {
	every := r.saves.EverySteps
	return step == r.steps()-1 || every > 0 && r.optimizer.Steps()%every == 0 ||
		r.s.Comm.Size() == 1 && r.step.voted
}

// settle waits for the result of a queued step, and records it. It returns the votes in it.
func (r *run) settle(of *queuedStep) (ballot, error) {
	if of.result == nil {
		return ballot{}, nil
	}
	phases := stepPhases{r}
	phases.Begin(trace.Backward)
	trained, err := of.result.Settle()
	if err != nil {
		return ballot{}, fmt.Errorf("step %d: %w", of.number, err)
	}
	phases.End(trace.Backward)
	r.keepFault(trained)
	if err := r.accept(&of.stepUnderWay, trained.Stats); err != nil {
		r.queued = queuedStep{}
		r.optimizer.SetSteps(of.updates) // neither its update nor the next was made
		return ballot{}, err
	}
	r.record(&of.stepUnderWay, trained.Stats)
	return r.votes(), nil
}
