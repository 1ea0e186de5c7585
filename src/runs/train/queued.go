package train

import (
	"errors"
	"fmt"
	"sync/atomic"

	"halognn/src/base/trace"
	"halognn/src/runs/watch"
	"halognn/src/step/parallel"
)

// queuedStep is a step that is queued on the device, with what is recorded once the step's result
// is read.
type queuedStep struct {
	stepUnderWay
	result  *parallel.Queued
	updates int // number of updates before this step
}

// queuedSteps holds the steps of a run whose results have not been read.
type queuedSteps struct {
	// unsettled is the last queued step. It is nil if the result of this step has been read, or if
	// an older step is being settled. The goroutine that swaps the step out reads its result. This
	// is the training goroutine or, in a run that fails, the goroutine with the error. The latter
	// puts the value failed here. Then no later step and no save follow the step that it has
	// swapped out.
	unsettled atomic.Pointer[queuedStep]
	turns     [2]queuedStep // memory of the unsettled step and of the next one
	turn      int
}

// failed replaces an unsettled step in a run that fails.
var failed = new(queuedStep)

// errFailed ends the training goroutine of a run that has already failed with another error.
var errFailed = errors.New("the run has failed")

// queues reports whether the step that begins is queued: its result is read after the next step is
// queued. The first step of a run is not queued, because the device compares later losses with a
// bound that follows from its loss.
func (r *run) queues() bool { return r.bound.first != nil && r.s.Strategy.Queues() }

// queue gives the device a minibatch and, after the last minibatch of the step, the update. Then it
// settles the step before: it reads that step's result. The device makes no update from a loss that
// accept would reject. So the weights stay those before the bad step, although one more step has
// been queued.
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
	began := begins(trace.Update)
	r.step.lr, _ = r.s.Job.Rates((r.epoch-1)*r.steps() + step)
	r.turn = 1 - r.turn
	this := &r.turns[r.turn]
	*this = queuedStep{r.step, result, r.optimizer.Steps()}
	r.optimizer.UpdateWithin(r.step.lr, r.bound.most())
	r.mark(trace.Update, r.step.item, began)
	before := r.unsettled.Swap(nil)
	votes, err := r.settle(before)
	if err != nil {
		return err
	}
	if before != nil && step == 1 {
		r.firstStepEnds()
	}
	// When a rank reads a vote, every rank has already queued one more step. So all ranks act on
	// the vote after that step.
	if votes == (ballot{}) && !r.drains(step) {
		if !r.unsettled.CompareAndSwap(nil, this) {
			return errFailed
		}
		r.s.Watch.At(r.epoch, step, watch.Place(trace.Wait))
		return nil
	}
	more, err := r.settle(this)
	if err != nil {
		return err
	}
	r.s.Watch.At(r.epoch, step, watch.Place(trace.Wait))
	return r.obey(step, votes.or(more))
}

// drains reports whether the result of a queued step is needed before the next step is queued. It
// is the same on all ranks. The result is needed at the end of an epoch, at a step after which the
// state is saved, and after a vote in a run with a single rank.
func (r *run) drains(step int) bool {
	every := r.saves.EverySteps
	return step == r.steps()-1 || every > 0 && r.optimizer.Steps()%every == 0 ||
		r.s.Comm.Size() == 1 && r.step.voted
}

// settle waits for the result of a queued step and records it. If the step is nil, it does nothing.
// It returns the votes in the result. The wait counts as part of that step's backward pass.
func (r *run) settle(step *queuedStep) (ballot, error) {
	switch step {
	case nil:
		return ballot{}, nil
	case failed:
		return ballot{}, errFailed
	}
	began := begins(trace.Backward)
	r.s.Watch.At(r.epoch, step.number, watch.Place(trace.Backward))
	trained, err := step.result.Settle()
	if err != nil {
		return ballot{}, fmt.Errorf("step %d: %w", step.number, err)
	}
	r.mark(trace.Backward, step.item, began)
	r.keepFault(trained)
	if err := r.accept(&step.stepUnderWay, trained.Stats); err != nil {
		// The device has made neither this step's update nor that of the next step.
		r.optimizer.SetSteps(step.updates)
		return ballot{}, err
	}
	r.record(&step.stepUnderWay, trained.Stats)
	r.auto.StepEnds()
	return r.votes(), nil
}

// takeFinished ends training in a run that fails, at the next result to be read. If the device had
// finished a step before the failure, it returns a function that writes the step's line, as a run
// that waits for each step would have written it. It waits for nothing and takes no lock.
func (r *run) takeFinished() (write func()) {
	of := r.unsettled.Swap(failed)
	if of == nil || of == failed || r.s.Log == nil {
		return nil
	}
	stats, ok := of.result.Finished()
	if !ok || r.bound.check("the loss", stats.Loss) != nil {
		return nil
	}
	return func() { r.s.Log.Write(r.line(&of.stepUnderWay, stats)) }
}
