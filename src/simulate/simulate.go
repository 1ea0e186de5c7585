// Package simulate counts the feature rows that training would fetch from other ranks, for every cache policy and size at once,
// without training and without MPI: it samples the minibatches of a run, key for key, and plans them with package exchange.
//
//	rank r:  Streams ─> Sampler ─> exchange.Plan ─> remote vertices of step t, t+1, ...       each minibatch once
//	                                                  │
//	                                                  ├─ accesses [N] += 1 ─── Top(score) of every static policy, size ──> rows
//	                                                  └─ Policy.Step of every dynamic policy, size ──────────────────────> rows
//
// A static cache is fixed, so what it leaves to fetch follows from how often each vertex was wanted: all accesses less those of the
// vertices it holds. Dynamic policies decide step by step. Either way the rows are those of a training run with the same
// parts, ranks, fanouts, batch and seed in which every rank is a node of its own.
//
// Memory beyond the mapped topology, for N vertices, W ranks simulated at a time, D dynamic policies, A sizes of at most C rows: W times
// 20 N bytes (accesses, prediction and a ranking) and D A (4 N + 32 C). Features are never opened.
package simulate

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"

	"halognn/src/access"
	"halognn/src/graph"
	"halognn/src/sample"
	"halognn/src/shard"
)

// The dynamic policies, beside the static ones of package access.
const (
	PolicySieve    = "sieve"    // cache.Sieve
	PolicyPrefetch = "prefetch" // cache.Prefetch, filled by degree
	PolicyOptimum  = "optimum"  // cache.Optimum, which holds what it likes before the first step: the floor of all
)

var dynamic = []string{PolicySieve, PolicyPrefetch, PolicyOptimum}

// Policies lists every policy that can be simulated.
func Policies() []string { return append(access.Policies(), dynamic...) }

// Options says what is simulated.
type Options struct {
	Fanouts   []int // seed hop first
	Batch     int   // seeds of one rank a step
	Seed      uint64
	Epochs    int  // from 1
	Ranks     int  // 0: one for each part
	LastShort bool // full batches and one short one, instead of the near-equal pieces of training
	Policies  []string
	Alphas    []float64 // sizes of a rank's cache, as fractions of an average rank's vertices
	Gamma     float64   // of PolicyPrefetch
	Delta     int       // of PolicyPrefetch
	Workers   int       // goroutines; 0: one for each CPU
}

// Check reports every fault of the options themselves.
func (o *Options) Check() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if len(o.Fanouts) == 0 {
		fault("there are no fanouts; give one for each layer, seed hop first")
	}
	for i, f := range o.Fanouts {
		if f < 1 && f != sample.All || f > graph.MaxVertices {
			fault("fanout %d is %d; it must be at least 1, or %d for all neighbours", i+1, f, sample.All)
		}
	}
	for _, n := range []struct {
		name         string
		value, least int
	}{{"batch", o.Batch, 1}, {"epochs", o.Epochs, 1}, {"ranks", o.Ranks, 0}, {"delta", o.Delta, 0}, {"workers", o.Workers, 0}} {
		if n.value < n.least {
			fault("%s is %d; it must be at least %d", n.name, n.value, n.least)
		}
	}
	if !(o.Gamma > 0 && o.Gamma <= 1) {
		fault("gamma is %g; it must be above 0 and at most 1", o.Gamma)
	}
	if len(o.Policies) == 0 {
		fault("there are no policies; name some of %v", Policies())
	}
	for i, p := range o.Policies {
		if !slices.Contains(Policies(), p) {
			fault("policy %q is unknown; there are %v", p, Policies())
		} else if slices.Contains(o.Policies[:i], p) {
			fault("policy %s is named twice", p)
		}
	}
	if len(o.Alphas) == 0 {
		fault("there are no alphas; give the sizes of a rank's cache as fractions of an average rank's vertices")
	}
	for i, a := range o.Alphas {
		switch {
		case !(a >= 0) || math.IsInf(a, 1):
			fault("alpha %g must be 0 or more, and finite", a)
		case i > 0 && a <= o.Alphas[i-1]:
			fault("alpha %g comes after %g; give them in ascending order", a, o.Alphas[i-1])
		}
	}
	return errors.Join(faults...)
}

// Simulation is ready to run.
type Simulation struct {
	o       Options
	shards  *shard.Shards
	streams *sample.Streams
}

// New prepares the simulation of a run on the parts, which must outlive it. Errors are about the options, or parts that do not fit
// them: a number of ranks that does not divide the parts, no training seeds.
func New(s *shard.Shards, o Options) (*Simulation, error) {
	if o.Ranks == 0 {
		o.Ranks = s.Parts
	}
	if o.Workers == 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	if err := o.Check(); err != nil {
		return nil, err
	}
	var seeds [][]graph.VertexID
	for r := range o.Ranks {
		first, last, err := s.RankRange(r, o.Ranks)
		if err != nil {
			return nil, err
		}
		var own []graph.VertexID
		for p := first; p < last; p++ {
			own = append(own, s.Train(p)...)
		}
		seeds = append(seeds, own)
	}
	streams, err := sample.NewStreams(seeds, sample.StreamOptions{Batch: o.Batch, Seed: o.Seed, Original: s.Topology().Original})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.Dir, err)
	}
	return &Simulation{o: o, shards: s, streams: streams}, nil
}

// Close gives the memory back.
func (s *Simulation) Close() { s.streams.Free() }

// Result is what was counted, summed over ranks.
type Result struct {
	Options  Options // with defaults filled in
	Vertices int64
	Steps    int   // of an epoch
	Remote   int64 // rows of all epochs without a cache

	Rows      [][]int64   // [policies][alphas] rows fetched in all epochs
	Predicted [][]float64 // [policies][alphas] expected rows of an epoch; NaN for a dynamic policy
}

// PerEpoch returns the mean rows of an epoch, and their ratio to no cache: 1 if there is nothing to fetch.
func (r *Result) PerEpoch(policy, alpha int) (rows, ratio float64) {
	n := r.Rows[policy][alpha]
	ratio = 1
	if r.Remote > 0 {
		ratio = float64(n) / float64(r.Remote)
	}
	return float64(n) / float64(r.Options.Epochs), ratio
}
