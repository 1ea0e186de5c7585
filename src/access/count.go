package access

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"halognn/src/graph"
	"halognn/src/mem"
	"halognn/src/sample"
)

// The epochs that policy sim counts. Training numbers its epochs from 1 and never reaches them, so
// they share no seed order and no draw with a run.
const (
	SimulatedFirst  = 1 << 30
	SimulatedEpochs = 2
)

// CountOptions selects the minibatches to count: those of a stream in some epochs.
type CountOptions struct {
	Sample  sample.Spec     // how minibatches are drawn
	Streams *sample.Streams // the seed order of the run
	Stream  int
	Seed    uint64 // of the run
	First   int    // epoch: 1 for those of the run, SimulatedFirst for others
	Epochs  int
	Most    int // minibatches, from the first; 0: all
	Workers int // goroutines, each with a Sampler; 0 means 1
}

// check returns every error at once.
func (o *CountOptions) check() error {
	var errs []error
	if o.Stream < 0 || o.Stream >= o.Streams.Streams() {
		errs = append(errs, fmt.Errorf("stream %d of %d", o.Stream, o.Streams.Streams()))
	}
	if o.Epochs < 1 {
		errs = append(errs, fmt.Errorf("%d epochs; count at least 1", o.Epochs))
	}
	if o.Workers < 0 {
		errs = append(errs,
			fmt.Errorf("workers is %d; it must be at least 1, or 0 for 1", o.Workers))
	}
	o.Workers = max(o.Workers, 1)
	return errors.Join(errs...)
}

// Count samples the minibatches of a stream as training does, key for key, and counts how many of
// them read each vertex: score [N]. Policy sim counts epochs that the run does not have (2 in
// SALIENT++, section 3.2); policy oracle counts those of the run itself, so it is the best static
// cache.
//
// Time is that of sampling these minibatches on Workers goroutines. Memory 8 N bytes, 4 N
// of it the result, and a Sampler and a minibatch a worker. Counts from 2^24 on are rounded. Errors
// are those of sample.Sampler.
func Count(t *sample.Topology, o CountOptions) ([]float32, error) {
	if err := o.check(); err != nil {
		return nil, fmt.Errorf("count accesses: %w", err)
	}
	counts := mem.Make[uint32](len(t.Original))
	defer mem.Free(counts)
	var next atomic.Int64
	errs := make([]error, o.Workers)
	var wait sync.WaitGroup
	for w := range o.Workers {
		wait.Go(func() {
			errs[w] = mem.Contain(func() error {
				return o.count(t, counts,
					&next)
			})
		})
	}
	wait.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("count accesses: %w", err)
	}
	score := mem.Make[float32](len(counts))
	for v, c := range counts {
		score[v] = float32(c)
	}
	return score, nil
}

// count takes one minibatch after the other until none is left.
func (o *CountOptions) count(t *sample.Topology, counts []uint32, next *atomic.Int64) error {
	s, err := sample.New(t,
		sample.Options{Spec: o.Sample, MaxSeeds: o.Streams.MaxPiece(), ForwardOnly: true})
	if err != nil {
		return err
	}
	defer s.Free()
	var mb sample.Minibatch
	defer mb.Free()
	var seeds []graph.VertexID
	steps := o.Streams.Steps()
	minibatches := o.Epochs * steps
	if o.Most > 0 {
		minibatches = min(minibatches, o.Most)
	}
	for {
		i := int(next.Add(1)) - 1
		if i >= minibatches {
			return nil
		}
		key := sample.Key{Seed: o.Seed, Epoch: o.First + i/steps, Step: i % steps, Stream: o.Stream}
		seeds = o.Streams.Piece(key.Epoch, key.Step, key.Stream, seeds)
		if err := s.Sample(&mb, seeds, key); err != nil {
			return fmt.Errorf("epoch %d, step %d: %w", key.Epoch, key.Step, err)
		}
		for _, v := range mb.Frontier {
			atomic.AddUint32(&counts[v], 1)
		}
	}
}
