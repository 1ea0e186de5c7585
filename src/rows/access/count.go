package access

import (
	"errors"
	"fmt"
	"sync/atomic"

	"halognn/src/base/mem"
	"halognn/src/topology/sample"
)

// Policy sim counts SimulatedEpochs epochs, from number SimulatedFirst on. Training numbers its
// epochs from 1 and never reaches this number, so the simulated epochs have other seed orders and
// draws than the run.
const (
	SimulatedFirst  = 1 << 30
	SimulatedEpochs = 2
)

// Count samples the minibatches of a sweep as training does, with the same keys, and counts how
// many of them read each vertex: score [N]. Policy sim counts epochs that the run does not have (2
// in SALIENT++, section 3.2); policy oracle counts the epochs of the run itself, so it is the best
// static cache.
//
// It takes the time of sampling these minibatches on Workers goroutines. Its memory is 8 N bytes,
// of which the result takes 4 N, and a Sampler and a minibatch for each worker. Counts above 2^24
// are rounded. Errors are those of sample.Sampler.
func Count(t *sample.Topology, w *sample.Sweep) ([]float32, error) {
	if err := checkSweep(w); err != nil {
		return nil, fmt.Errorf("count accesses: %w", err)
	}
	counts := mem.Make[uint32](len(t.Original))
	defer mem.Free(counts)
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

// checkSweep returns all errors in the settings of a sweep, joined into one.
func checkSweep(w *sample.Sweep) error {
	var errs []error
	if n := w.Streams.Streams(); w.First < 0 || w.Count < 1 || w.Count > n-w.First {
		errs = append(errs, fmt.Errorf(
			"%d streams from stream %d on; there are %d, numbered from 0", w.Count, w.First, n))
	}
	if w.Epochs < 1 {
		errs = append(errs,
			fmt.Errorf("the number of epochs is %d; it must be at least 1", w.Epochs))
	}
	if w.Workers < 0 {
		errs = append(errs,
			fmt.Errorf("workers is %d; it must not be negative (0 means 1)", w.Workers))
	}
	return errors.Join(errs...)
}
