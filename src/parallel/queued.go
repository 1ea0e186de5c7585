package parallel

import (
	"errors"
	"math"

	"halognn/src/compute"
	"halognn/src/fault"
	"halognn/src/nn"
	"halognn/src/trace"
)

// stepQueue is for steps of which the host reads the result when it has queued the next one, so that
// the device never waits for the host (docs/design/33-one-wait.md). Two results take turns.
//
//	host     queue i │ queue i+1 │ settle i │ queue i+2 │ settle i+1
//	device           step i ──────── step i+1 ─────────── step i+2
type stepQueue struct {
	device  compute.Accelerator
	headers []float32 // pinned, of both
	results [2]Queued
	next    int
}

// Queued is a step that the device has been given and may not have run.
type Queued struct {
	strategy *Strategy
	header   []float32 // pinned: of the gradients' sums, when arrived has passed
	arrived  compute.Event
}

// newStepQueue returns nil where the host has something to do within every step: it computes the loss,
// carries rows between layers, adds gradients, trains rows of vertices, or injects faults.
func newStepQueue(s *Strategy) (*stepQueue, error) {
	device := compute.CapabilitiesOf(s.o.Device).Accelerator
	if device == nil || fault.Enabled || s.o.Gradients == nil || !s.o.Gradients.Queues() ||
		s.between.forward != nil || s.between.weigh != nil || s.between.backward != nil {
		return nil, nil
	}
	if leaves, err := s.o.Model.Leaves(); err != nil || !leaves {
		return nil, err
	}
	q := &stepQueue{device: device}
	var err error
	if q.headers, err = device.AllocHost(2 * nn.HeaderLen); err != nil {
		return nil, err
	}
	for i := range q.results {
		r := &q.results[i]
		r.strategy, r.header = s, q.headers[i*nn.HeaderLen:(i+1)*nn.HeaderLen]
		if r.arrived, err = device.NewEvent(); err != nil {
			r.arrived = nil
			return nil, errors.Join(err, q.close())
		}
	}
	return q, nil
}

func (q *stepQueue) close() error {
	if q == nil {
		return nil
	}
	errs := []error{q.device.Sync()} // a result may be on its way
	for i := range q.results {
		if e := q.results[i].arrived; e != nil {
			errs = append(errs, e.Free())
		}
	}
	q.device.FreeHost(q.headers)
	return errors.Join(errs...)
}

// Queues reports whether Queue can take the place of Step: the same on all ranks.
func (s *Strategy) Queues() bool { return s.queue != nil && !s.queue.device.Watched() }

// Queue is Step for a host that does not wait. The phases are those of giving the device its work. If
// last, it returns the step, which is to be settled before another one after the next is queued.
func (s *Strategy) Queue(m *Minibatch, last bool, phases Phases) (*Queued, error) {
	if err := s.landing.receive(m); err != nil {
		return nil, err
	}
	phases.Begin(trace.Forward)
	logits, err := s.forward(m, phases)
	if err != nil {
		return nil, err
	}
	grad := s.o.Model.LeaveLoss(&m.Batch, logits)
	phases.End(trace.Forward)
	phases.Begin(trace.Backward)
	if err := s.backward(m, grad, last, phases); err != nil {
		return nil, err
	}
	phases.End(trace.Backward)
	if !last {
		return nil, nil
	}
	phases.Begin(trace.Sync)
	if err := s.o.Gradients.Await(); err != nil {
		return nil, err
	}
	q := &s.queue.results[s.queue.next]
	s.queue.next = 1 - s.queue.next
	s.queue.device.Leave(q.header, s.o.Model.Params.Grads[:nn.HeaderLen], q.arrived)
	phases.End(trace.Sync)
	return q, nil
}

// Settle waits until the device has run the step up to its sums, and returns the result of the step.
func (q *Queued) Settle() (t Trained, err error) {
	o := &q.strategy.o
	if err := o.Gradients.Passed(q.arrived); err != nil {
		return t, err
	}
	t.Stats = o.Model.Params.StatsOf(q.header)
	if math.IsNaN(t.Stats.Loss) || math.IsInf(t.Stats.Loss, 0) {
		if f, ok := o.Model.LeftFault(); ok {
			t.Fault = &f
		}
	}
	return t, nil
}
