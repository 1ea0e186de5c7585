package parallel

import (
	"errors"
	"fmt"

	"halognn/src/base/mem"
	"halognn/src/devices/compute"
	"halognn/src/model/nn"
	"halognn/src/ranks/comm"
)

// Gradients sums the gradients of a step: over this rank's minibatches of the step, then over the
// ranks, layer by layer while backward of the layers below runs.
//
//	backward   layer 2 ──┬─ layer 1 ──┬─ layer 0 ──┬─ Wait
//	                     └ bucket 2 ──┼────────────┤
//	                                  └ bucket 1 ──┤
//	                                               └ bucket 0 ──
//
// The loss and the counts of the step are in the first bucket (nn.Params). Gradients in device
// memory are added there, or through a copy on the host: see Transport. Sums in rank order have the
// same bits with every transport. With GradientOptions.Halves gradients travel as bfloat16, but not
// the loss and the counts.
type Gradients struct {
	reducer   reducer
	queue     *linkQueue // queue of the sums between devices; nil if sums go through hosts
	transport Transport
	note      string
	holding   bool
	err       error // error of Hold, which Wait returns
	steps     int64 // number of steps that Wait has ended
}

// reducer sums gradients where they lie, in host or device memory.
type reducer interface {
	hold(first bool) error     // adds a minibatch's gradients to the held ones, or holds the first
	start(l int, holding bool) // begins the sum of a layer's bucket, after adding the held ones
	wait() error               // returns after all sums, with the first error of a sum or of start
	reproducible() bool        // whether sums are added in rank order
	sent() int64               // bytes that all ranks have sent each other for the sums
	close() error
}

// SumMode says how sums over ranks are added.
type SumMode = comm.SumMode

// The ways to add.
const (
	SumAuto         = comm.SumAuto
	SumReproducible = comm.SumReproducible
	SumFast         = comm.SumFast
)

// GradientOptions say how gradients are added over the ranks.
type GradientOptions struct {
	comm.SumOptions
	Device    compute.Device // if it is an Accelerator, the gradients are in its memory
	Transport Transport      // for gradients in device memory; "" is TransportAuto
}

// NewGradients makes a Gradients that sums the gradients of the parameters p over the ranks of c.
// Collective. An error that wraps ErrTransport is a comm.Agreed.
func NewGradients(c comm.Comm, p *nn.Params, layers int, o GradientOptions) (*Gradients, error) {
	if o.Add == nil {
		o.Add = comm.AddInto
	}
	device := compute.CapabilitiesOf(o.Device).Accelerator
	if device == nil {
		s, err := comm.NewSummer(c, o.SumOptions)
		if err != nil {
			return nil, err
		}
		return &Gradients{reducer: &onHost{params: p, summer: s, add: o.Add,
			flight: make([]*comm.Sum, 0, layers)}, transport: "host"}, nil
	}
	if c.Size() == 1 {
		return &Gradients{reducer: &kept{device: device, params: p}, transport: transportDevice},
			nil
	}
	return newOnDevice(c, p, layers, device, o)
}

// Reproducible reports whether sums are added in rank order.
func (g *Gradients) Reproducible() bool { return g.reducer.reproducible() }

// Transport says where gradients are added: host, device (of one rank alone), nccl, mpi or staged.
func (g *Gradients) Transport() Transport { return g.transport }

// Note returns a line about the choice of the transport, or "" if there was no choice.
func (g *Gradients) Note() string { return g.note }

// Hold keeps the gradients of a minibatch that is not the last of its step on this rank.
func (g *Gradients) Hold() {
	g.err = errors.Join(g.err, g.reducer.hold(!g.holding))
	g.holding = true
}

// Start begins the sum of layer l's bucket, after backward of the layer. Every rank starts the
// layers in the same order.
func (g *Gradients) Start(l int) { g.reducer.start(l, g.holding) }

// Wait returns when every bucket that was started is the sum over all minibatches of the step. An
// error ends the job. Wait returns it at once, even if other sums are still under way, because a
// peer may be waiting for this rank.
func (g *Gradients) Wait() error {
	err := g.err
	if err == nil {
		err = g.reducer.wait()
	}
	return g.stepEnds(err)
}

// stepEnds returns the error err of a step's sums, if any, and prepares for the next step.
func (g *Gradients) stepEnds(err error) error {
	g.err, g.holding = nil, false
	if err != nil {
		return fmt.Errorf("summing gradients: %w", err)
	}
	g.steps++
	return nil
}

// StepBytes returns the bytes that all ranks send each other in a step for the sums; 0 before the
// first step.
func (g *Gradients) StepBytes() int64 { return g.reducer.sent() / max(1, g.steps) }

// Queues reports whether kernels, rather than the host, can wait for the sums. They can for the
// sums of a single rank on its device, and for sums by NCCL. They cannot for messages of MPI and
// for sums in host memory, which the host has to start.
func (g *Gradients) Queues() bool {
	return g.transport == transportDevice || g.transport == TransportNCCL
}

// QueueWait is Wait without blocking the host: kernels that are called from now on run after the
// sums. Errors that happen later are returned by WaitFor.
func (g *Gradients) QueueWait() error {
	err := g.err
	if err == nil {
		err = g.reducer.(queuedReducer).queueWait()
	}
	return g.stepEnds(err)
}

// WaitFor waits until the device has reached an event that was recorded after QueueWait, and
// returns an error if the device never will. Passed does not wait: it reports whether the device
// has reached the event. Any goroutine may call it.
func (g *Gradients) WaitFor(e compute.Event) error { return g.reducer.(queuedReducer).waitFor(e) }
func (g *Gradients) Passed(e compute.Event) bool   { return g.reducer.(queuedReducer).passed(e) }

// queuedReducer is a reducer whose sums kernels can wait for.
type queuedReducer interface {
	queueWait() error
	waitFor(e compute.Event) error
	passed(e compute.Event) bool
}

// Close frees buffers and communicators. Collective.
func (g *Gradients) Close() error { return g.reducer.close() }

// onHost adds gradients in host memory.
type onHost struct {
	params *nn.Params
	summer *comm.Summer
	add    func(sum, x []float32)
	// Sum of the gradients of this rank's earlier minibatches of the step; nil if none was ever
	// held.
	held   []float32
	flight []*comm.Sum // sums, one per layer, in the order they were started
}

func (h *onHost) hold(first bool) error {
	if h.held == nil {
		h.held = mem.Make[float32](h.params.Len())
	}
	if first {
		copy(h.held, h.params.Grads)
	} else {
		h.add(h.held, h.params.Grads)
	}
	return nil
}

func (h *onHost) start(l int, holding bool) {
	lo, hi := h.params.Bucket(l)
	bucket := h.params.Grads[lo:hi]
	if holding {
		h.add(bucket, h.held[lo:hi])
	}
	h.flight = append(h.flight, h.summer.StartExact(bucket, h.params.Exact(l)))
}

func (h *onHost) wait() error { return waitFor(&h.flight) }

// waitFor waits for the sums in order, up to the first that fails, and clears the list.
func waitFor(flight *[]*comm.Sum) error {
	sums := *flight
	*flight = sums[:0]
	for _, sum := range sums {
		if err := sum.Wait(); err != nil {
			return err
		}
	}
	return nil
}

func (h *onHost) reproducible() bool { return h.summer.Reproducible() }
func (h *onHost) sent() int64        { return h.summer.Sent() }

func (h *onHost) close() error {
	mem.Free(h.held)
	h.held = nil
	return h.summer.Close()
}
