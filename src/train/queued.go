package train

import (
	"fmt"
	"sync/atomic"
	"time"

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
	// unsettled is the last one, if its result has not been read. Whoever takes it from here reads the
	// result: the training goroutine or, where the run fails, the goroutine that has the error.
	unsettled atomic.Pointer[queuedStep]
	turns     [2]queuedStep // the memory of the unsettled step and of the next one
	turn      int
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
	r.turn = 1 - r.turn
	this := &r.turns[r.turn]
	*this = queuedStep{r.step, result, r.optimizer.Steps()}
	r.optimizer.UpdateWithin(r.step.lr, r.bound.most())
	r.mark(trace.Update, r.step.item, begin)
	votes, err := r.settle(r.unsettled.Swap(this))
	if err != nil {
		return err
	}
	// A vote of another rank is known now, when all have queued one more step: they act after it.
	if votes == (ballot{}) && !r.drains(step) {
		r.s.Watch.At(r.epoch, step, watch.Place(trace.Wait))
		return nil
	}
	more, err := r.settle(r.unsettled.Swap(nil))
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

// settle waits for the result of a queued step, nil for none, and records it. It returns the votes in
// it. The wait counts as a part of that step's backward pass.
func (r *run) settle(of *queuedStep) (ballot, error) {
	if of == nil {
		return ballot{}, nil
	}
	begin := time.Now()
	r.s.Watch.At(r.epoch, of.number, watch.Place(trace.Backward))
	trained, err := of.result.Settle()
	if err != nil {
		return ballot{}, fmt.Errorf("step %d: %w", of.number, err)
	}
	r.mark(trace.Backward, of.item, begin)
	r.keepFault(trained)
	if err := r.accept(&of.stepUnderWay, trained.Stats); err != nil {
		r.unsettled.Store(nil)           // the next step is void
		r.optimizer.SetSteps(of.updates) // neither its update nor the next was made
		return ballot{}, err
	}
	r.record(&of.stepUnderWay, trained.Stats)
	r.auto.StepEnds()
	return r.votes(), nil
}

// recordFinished writes the line of a step that the device has finished, before a failure in the next
// one ends the run: where the host waits for each step it is written by then. It waits for nothing.
func (r *run) recordFinished() {
	of := r.unsettled.Swap(nil)
	if of == nil || r.s.Log == nil {
		return
	}
	if stats, ok := of.result.Finished(); ok && r.bound.check("the loss", stats.Loss) == nil {
		r.s.Log.Write(r.line(&of.stepUnderWay, stats))
	}
}
