package sample

import (
	"fmt"
	"sync/atomic"

	"halognn/src/graph"
	"halognn/src/mem"
)

// Sweep says which minibatches of a run, or of one like it, are sampled without being trained on:
// those of Count streams from First on, in Epochs epochs from Epoch on.
type Sweep struct {
	Spec          Spec     // how minibatches are drawn
	Near          Near     // Options.Near
	Favour        float64  // Key.Favour
	Streams       *Streams // the seed order
	First, Count  int      // streams
	Seed          uint64   // of the run
	Epoch, Epochs int
	Most          int // minibatches, the first of these; 0: all
	Workers       int // goroutines, each with a Sampler and a minibatch; 0 means 1
}

// Minibatches returns how many there are.
func (w *Sweep) Minibatches() int {
	n := w.Epochs * w.Streams.Steps() * w.Count
	if w.Most > 0 {
		n = min(n, w.Most)
	}
	return n
}

// Run samples every minibatch once, key for key as training does, shared among the goroutines, in
// any order. Each goroutine calls open for what it does with its minibatches, take, and at its end
// close. Transposes are left out. It returns the errors of Sampler and take, the first of each
// goroutine.
func (w *Sweep) Run(t *Topology, open func() (take func(Key, *Minibatch) error, close func()),
) error {
	var next atomic.Int64
	return mem.Together(max(1, min(w.Workers, w.Minibatches())), func(int) error {
		take, close := open()
		defer close()
		return w.work(t, &next, take)
	})
}

// work takes one minibatch after the other until none is left.
func (w *Sweep) work(t *Topology, next *atomic.Int64, take func(Key, *Minibatch) error) error {
	s, err := New(t, Options{Spec: w.Spec, Near: w.Near, MaxSeeds: w.Streams.MaxPiece(),
		ForwardOnly: true})
	if err != nil {
		return err
	}
	defer s.Free()
	var mb Minibatch
	defer mb.Free()
	var seeds []graph.VertexID
	steps := w.Streams.Steps()
	for {
		i := int(next.Add(1)) - 1
		if i >= w.Minibatches() {
			return nil
		}
		step := i / w.Count
		key := Key{Seed: w.Seed, Epoch: w.Epoch + step/steps, Step: step % steps,
			Stream: w.First + i%w.Count, Favour: w.Favour}
		seeds = w.Streams.Piece(key.Epoch, key.Step, key.Stream, seeds)
		err := s.Sample(&mb, seeds, key)
		if err == nil {
			err = take(key, &mb)
		}
		if err != nil {
			return fmt.Errorf("epoch %d, step %d: %w", key.Epoch, key.Step, err)
		}
	}
}
