package sample

import (
	"fmt"
	"sync/atomic"

	"halognn/src/base/mem"
)

// Sweep describes minibatches that are sampled without being trained, in any order. They are the
// minibatches of a reader in Epochs epochs from Epoch on, with the Spec of a run or a similar one.
type Sweep struct {
	Reader
	Spec          Spec // how minibatches are drawn
	Near          Near // vertices that are near, for Options.Near
	Epoch, Epochs int
	Most          int // largest number of minibatches, from the first on; 0 means all
	Workers       int // goroutines, each with a Replay; 0 means 1
}

// Len returns the number of minibatches.
func (w *Sweep) Len() int {
	n := w.Epochs * w.Items()
	if w.Most > 0 {
		n = min(n, w.Most)
	}
	return n
}

// Run samples every minibatch once, with the keys of training. Several goroutines share the
// minibatches, so they come in any order. Each goroutine calls open, then the function `take` for
// each of its minibatches, and the function `close` at the end. Transposes are not made. Run
// returns the first error of each goroutine, from the sampler or from take.
func (w *Sweep) Run(t *Topology, open func() (take func(Key, *Minibatch) error, close func()),
) error {
	var next atomic.Int64
	return mem.Together(max(1, min(w.Workers, w.Len())), func(int) error {
		take, close := open()
		defer close()
		return w.work(t, &next, take)
	})
}

// work samples one minibatch after the other, and calls the function `take` for each, until none is
// left.
func (w *Sweep) work(t *Topology, next *atomic.Int64, take func(Key, *Minibatch) error) error {
	p, err := w.drawn(t, Options{Spec: w.Spec, Near: w.Near, ForwardOnly: true})
	if err != nil {
		return err
	}
	defer p.Free()
	for {
		i := int(next.Add(1)) - 1
		if i >= w.Len() {
			return nil
		}
		key, err := p.SampleItem(w.Epoch, i)
		if err == nil {
			err = take(key, &p.Minibatch)
		}
		if err != nil {
			return fmt.Errorf("epoch %d, step %d: %w", key.Epoch, key.Step, err)
		}
	}
}
