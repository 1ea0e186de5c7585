package access

import (
	"errors"
	"fmt"
	"sync/atomic"

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
	Sample  sample.Spec // how minibatches are drawn
	Near    sample.Near // vertices that are drawn Favour times likelier
	Favour  float64
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
	return errors.Join(errs...)
}

// Count samples the minibatches of a stream as training does, key for key, and counts how many of
// them read each vertex: score [N]. Policy sim counts epochs that the run does not have (2 in
// SALIENT++, section 3.2); policy oracle counts those of the run itself, so it is the best static
// cache.
//
// Time is that of sampling these minibatches on Workers goroutines. Memory 8 N bytes, 4 N of it the
// result, and a Sampler and a minibatch a worker. Counts from 2^24 on are rounded. Errors are those
// of sample.Sampler.
func Count(t *sample.Topology, o CountOptions) ([]float32, error) {
	if err := o.check(); err != nil {
		return nil, fmt.Errorf("count accesses: %w", err)
	}
	counts := mem.Make[uint32](len(t.Original))
	defer mem.Free(counts)
	w := sample.Sweep{Spec: o.Sample, Near: o.Near, Epoch: o.First, Epochs: o.Epochs, Most: o.Most,
		Workers: o.Workers, Reader: sample.Reader{Streams: o.Streams, First: o.Stream, Count: 1,
			Seed: o.Seed, Favour: o.Favour}}
	err := w.Run(t, func() (func(sample.Key, *sample.Minibatch) error, func()) {
		return func(_ sample.Key, mb *sample.Minibatch) error {
			for _, v := range mb.Frontier {
				atomic.AddUint32(&counts[v], 1)
			}
			return nil
		}, func() {}
	})
	if err != nil {
		return nil, fmt.Errorf("count accesses: %w", err)
	}
	score := mem.Make[float32](len(counts))
	for v, c := range counts {
		score[v] = float32(c)
	}
	return score, nil
}
