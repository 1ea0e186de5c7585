package parallel

import (
	"errors"
	"fmt"

	"halognn/src/comm"
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
// The loss and the counts of the step ride in the first bucket (nn.Params). Gradients must be host memory.
type Gradients struct {
	params  *nn.Params
	summer  *comm.Summer
	add     func(sum, x []float32)
	held    []float32 // sum over this step's earlier minibatches of this rank; nil if none was ever held
	holding bool
	flight  []*comm.Sum // one a layer, in the order they were started
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

// Reproducible reports whether sums are added in rank order.
func (g *Gradients) Reproducible() bool { return g.summer.Reproducible() }

// Hold keeps the gradients of a minibatch whose step has more minibatches on this rank.
func (g *Gradients) Hold() {
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
	lo, hi := g.params.Bucket(l)
	bucket := g.params.Grads[lo:hi]
	if g.holding {
		g.add(bucket, g.held[lo:hi])
	}
	g.flight = append(g.flight, g.summer.Start(bucket))
}

// Wait returns when every bucket that was started is the sum over all minibatches of the step.
func (g *Gradients) Wait() error {
	var err error
	for _, sum := range g.flight {
		err = errors.Join(err, sum.Wait())
	}
	g.flight = g.flight[:0]
	g.holding = false
	if err != nil {
		return fmt.Errorf("summing gradients: %w", err)
	}
	return nil
}

// Close frees buffers and communicators. Collective.
func (g *Gradients) Close() error {
	mem.Free(g.held)
	g.held = nil
	return g.summer.Close()
}
