package train

import (
	"errors"
	"fmt"
	"sync/atomic"

	"halognn/src/parallel"
	"halognn/src/trace"
	"halognn/src/watch"
)

// queuedStep is a step that a device has been given, with what is recorded when its result comes.
type queuedStep struct {
	stepUnderWay
	result  *parallel.Queued
	updates int // before it
}

// queuedSteps are the steps of a run that a device has been given.
type queuedSteps struct {
	// unsettled is the last one, if its result has not been read and no older one is being settled.
	// Whoever takes it from here reads the result: the training goroutine or, where the run fails,
	// the goroutine that has the error. That one leaves failed here, so that nothing follows the
	// step which it has taken: no step, and no save without it.
	unsettled atomic.Pointer[queuedStep]
	turns     [2]queuedStep // the memory of the unsettled step and of the next one
	turn      int
}

// failed takes the place of an unsettled step in a run that fails.
var failed = new(queuedStep)

// errFailed ends the training goroutine of a run that fails already, for an earlier error.
var errFailed = errors.New("the run has failed")

// queues reports whether the step that begins is queued, its result read when the next one is. The
// first step of a run is not: its loss sets the bound that the device compares the others with.
func (r *run) queues() bool { return r.bound.first != nil && r.s.Strategy.Queues() }

// queue gives the device a minibatch and, after the last one of the step, the update; then it
// settles the step before. The device makes no update from a loss that accept does not, so the
// weights are those of the step before it, though one more step has been queued.
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
	// A vote of another rank is known now, when all have queued one more step: they act after it.
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

// drains reports whether the result of a queued step is needed before the next one is queued, the
// same on all ranks: at the end of an epoch, where the state is saved after so many steps, and
// where one rank alone knows of a vote.
func (r *run) drains(step int) bool {
	every := r.saves.EverySteps
	return step == r.steps()-1 || every > 0 && r.optimizer.Steps()%every == 0 ||
		r.s.Comm.Size() == 1 && r.step.voted
}

// settle waits for the result of a queued step, nil for none, and records it. It returns the votes
// in it. The wait counts as a part of that step's backward pass.
func (r *run) settle(of *queuedStep) (ballot, error) {
	switch of {
	case nil:
		return ballot{}, nil
	case failed:
		return ballot{}, errFailed
	}
	began := begins(trace.Backward)
	r.s.Watch.At(r.epoch, of.number, watch.Place(trace.Backward))
	trained, err := of.result.Settle()
	if err != nil {
		return ballot{}, fmt.Errorf("step %d: %w", of.number, err)
	}
	r.mark(trace.Backward, of.item, began)
	r.keepFault(trained)
	if err := r.accept(&of.stepUnderWay, trained.Stats); err != nil {
		r.optimizer.SetSteps(of.updates) // neither its update nor the next was made
		return ballot{}, err
	}
	r.record(&of.stepUnderWay, trained.Stats)
	r.auto.StepEnds()
	return r.votes(), nil
}

// takeFinished ends the training of a run that fails, at the next result that it would read. If the
// device has finished the step before the failure, it returns what writes its line: where the host
// waits for each step, it is written by then. It waits for nothing and takes no lock.
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
