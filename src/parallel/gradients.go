package parallel

import (
	"errors"
	"fmt"

	"halognn/src/comm"
	"halognn/src/compute"
	"halognn/src/mem"
	"halognn/src/nn"
)

// Gradients sums the gradients of a step: over the minibatches that this rank trains for it, then over the ranks, layer by
// layer while backward of the layers below goes on.
//
//	backward   layer 2 ──┬─ layer 1 ──┬─ layer 0 ──┬─ Wait
//	                     └ bucket 2 ──┼────────────┤
//	                                  └ bucket 1 ──┤
//	                                               └ bucket 0 ──
//
// The loss and the counts of the step ride in the first bucket (nn.Params). Gradients in device memory pass through a mirror on the host,
// so their sums have the same bits.
type Gradients struct {
	params  *nn.Params
	summer  *comm.Summer
	add     func(sum, x []float32)
	held    []float32 // sum over this step's earlier minibatches of this rank; nil if none was ever held
	holding bool
	flight  []*comm.Sum // one a layer, in the order they were started
	mirror  *mirror     // nil for gradients in host memory
	err     error       // of the mirror, until Wait
}

// NewGradients makes the sum over the ranks of c for parameters p. Collective.
func NewGradients(c comm.Comm, p *nn.Params, layers int, o comm.SumOptions) (*Gradients, error) {
	if o.Add == nil {
		o.Add = comm.AddInto
	}
	s, err := comm.NewSummer(c, o)
	if err != nil {
		return nil, err
	}
	return &Gradients{params: p, summer: s, add: o.Add, flight: make([]*comm.Sum, 0, layers)}, nil
}

// Mirror says that the gradients lie in the memory of a device. One rank alone has nothing to add, and they stay there.
func (g *Gradients) Mirror(device compute.Offboard, ranks int) error {
	var err error
	g.mirror, err = newMirror(device, g.params, cap(g.flight), ranks == 1)
	return err
}

// Reproducible reports whether sums are added in rank order.
func (g *Gradients) Reproducible() bool { return g.summer.Reproducible() }

// Hold keeps the gradients of a minibatch whose step has more minibatches on this rank.
func (g *Gradients) Hold() {
	if g.mirror != nil {
		g.err = errors.Join(g.err, g.mirror.hold(!g.holding))
		g.holding = true
		return
	}
	if g.held == nil {
		g.held = mem.Make[float32](g.params.Len())
	}
	if g.holding {
		g.add(g.held, g.params.Grads)
		return
	}
	copy(g.held, g.params.Grads)
	g.holding = true
}

// Start begins the sum of layer l's bucket; backward of the layer has ended. Every rank starts the layers in the same order.
func (g *Gradients) Start(l int) {
	if g.mirror != nil { // one layer behind: the device is at the next one while this rank waits for the bucket
		g.mirror.start(l, g.holding)
		if len(g.mirror.coming) > 1 {
			g.startArrived()
		}
		return
	}
	lo, hi := g.params.Bucket(l)
	bucket := g.params.Grads[lo:hi]
	if g.holding {
		g.add(bucket, g.held[lo:hi])
	}
	g.flight = append(g.flight, g.summer.Start(bucket))
}

// startArrived begins the sum of the oldest bucket that is on its way from the device.
func (g *Gradients) startArrived() {
	bucket, err := g.mirror.arrived()
	g.err = errors.Join(g.err, err)
	g.flight = append(g.flight, g.summer.Start(bucket))
}

// Wait returns when every bucket that was started is the sum over all minibatches of the step.
func (g *Gradients) Wait() error {
	for g.mirror != nil && len(g.mirror.coming) > 0 {
		g.startArrived()
	}
	err := g.err
	g.err = nil
	for _, sum := range g.flight {
		err = errors.Join(err, sum.Wait())
	}
	g.flight = g.flight[:0]
	g.holding = false
	if err != nil {
		return fmt.Errorf("summing gradients: %w", err)
	}
	if g.mirror != nil {
		g.mirror.back()
	}
	return nil
}

// Close frees buffers and communicators. Collective.
func (g *Gradients) Close() error {
	mem.Free(g.held)
	g.held = nil
	if g.mirror != nil {
		return errors.Join(g.mirror.free(), g.summer.Close())
	}
	return g.summer.Close()
}
