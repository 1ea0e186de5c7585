package parallel

import (
	"errors"
	"math"

	"halognn/src/base/fault"
	"halognn/src/base/trace"
	"halognn/src/devices/compute"
	"halognn/src/model/nn"
	"halognn/src/model/task"
	"halognn/src/ranks/comm"
)

// stepQueue lets the host read the result of a step only after it has queued the next step, so that
// the device never waits for the host (docs/design/33-one-wait.md). There is memory for two
// results, used in turn.
//
//	host     queue i │ queue i+1 │ settle i │ queue i+2 │ settle i+1
//	device           step i ──────── step i+1 ─────────── step i+2
type stepQueue struct {
	device  compute.Accelerator
	headers []float32 // pinned; headers of both results
	results [2]Queued
	next    int
}

// Queued is a step that has been queued on the device. The device may not have run it yet.
type Queued struct {
	strategy *Strategy
	header   []float32 // pinned; header of the gradients' sums, valid once arrived has passed
	arrived  compute.Event
}

// openStepQueue makes the queue of a strategy's steps. It returns nil if the host has work to do
// within every step: if it computes the loss, carries rows between layers, adds gradients, or
// trains rows of vertices. Collective.
func openStepQueue(s *Strategy) (*stepQueue, error) {
	device := compute.CapabilitiesOf(s.o.Device).Accelerator
	if device == nil || s.o.Gradients == nil || !s.o.Gradients.Queues() ||
		s.between.forward != nil || s.between.weigh != nil || s.between.backward != nil {
		return nil, nil // on all ranks or on none, because all call Agree below
	}
	queues, err := s.o.Model.QueuesLoss()
	var q *stepQueue
	if queues {
		q = &stepQueue{device: device}
		err = q.makeResults(s)
	}
	// A rank without the memory would keep the others waiting.
	if err = comm.Agree(s.o.Comm, err); err != nil {
		return nil, errors.Join(err, q.close())
	}
	return q, nil
}

// makeResults makes the results. If it fails, the caller closes the results that were made.
func (q *stepQueue) makeResults(s *Strategy) (err error) {
	if q.headers, err = q.device.AllocHost(2 * nn.HeaderLen); err != nil {
		return err
	}
	for i := range q.results {
		arrived, err := q.device.NewEvent()
		if err != nil {
			return err
		}
		q.results[i] = Queued{s, q.headers[i*nn.HeaderLen : (i+1)*nn.HeaderLen], arrived}
	}
	return nil
}

func (q *stepQueue) close() error {
	if q == nil {
		return nil
	}
	errs := []error{q.device.Sync()} // a result may still be on its way to the host
	for i := range q.results {
		if e := q.results[i].arrived; e != nil {
			errs = append(errs, e.Free())
		}
	}
	q.device.FreeHost(q.headers)
	return errors.Join(errs...)
}

// Queues reports whether Queue can replace Step. The result is the same on all ranks. It is false
// with a Probe, because then the host has to wait for the kernels that the Probe measures.
func (s *Strategy) Queues() bool { return s.queue != nil && !s.queue.device.HasProbe() }

// Queue does what Step does, without waiting for the device. The phases measure how long the host
// takes to give the device its work. If endsStep is set, m is the last minibatch of a step, and
// Queue returns the step. The caller must settle it before it queues the step after the next.
func (s *Strategy) Queue(m *Minibatch, endsStep bool, phases Phases) (*Queued, error) {
	if err := s.landing.receive(m); err != nil {
		return nil, err
	}
	s.spoil(m)
	phases.Begin(trace.Forward)
	logits, err := s.forward(m, phases)
	if err != nil {
		return nil, err
	}
	grad := s.o.Model.QueueLoss(&m.Batch, logits)
	phases.End(trace.Forward)
	phases.Begin(trace.Backward)
	if err := s.backward(m, grad, endsStep, phases); err != nil {
		return nil, err
	}
	phases.End(trace.Backward)
	if !endsStep {
		return nil, nil
	}
	phases.Begin(trace.Sync)
	err = fault.At(fault.Allreduce, s.o.Comm.Rank(), m.Key.Epoch, m.Key.Step)
	if err == nil {
		err = s.o.Gradients.QueueWait()
	}
	if err != nil {
		return nil, err
	}
	q := &s.queue.results[s.queue.next]
	s.queue.next = 1 - s.queue.next
	s.queue.device.QueueDownload(q.header, s.o.Model.Params.Grads[:nn.HeaderLen], q.arrived)
	phases.End(trace.Sync)
	return q, nil
}

// Settle waits until the device has computed the step up to and including the sums of gradients,
// and returns the step's result.
func (q *Queued) Settle() (t Trained, err error) {
	o := &q.strategy.o
	if err := o.Gradients.WaitFor(q.arrived); err != nil {
		return t, err
	}
	t.Stats = o.Model.Params.StatsOf(q.header)
	if math.IsNaN(t.Stats.Loss) || math.IsInf(t.Stats.Loss, 0) {
		if f, ok := o.Model.QueuedFault(); ok {
			t.Fault = &f
		}
	}
	return t, nil
}

// Finished is Settle for a run that has failed: it waits for nothing, not even a lock, and any
// goroutine may call it. The result ok is false if the device has not run the step, or if the
// step's loss is not finite.
func (q *Queued) Finished() (stats task.Stats, ok bool) {
	if !q.strategy.o.Gradients.Passed(q.arrived) {
		return stats, false
	}
	return nn.StatsIn(q.header), nn.Finite(q.header[:1])
}
