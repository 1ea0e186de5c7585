// Package simulate counts the feature rows that training would fetch from other ranks, for every cache policy and size at once,
// without training and without MPI: it samples the minibatches of a run, key for key, and plans them with package exchange.
//
//	rank r:  Streams ─> Sampler ─> exchange.Locate ─> remote vertices of minibatch t, t+1, ...       each sampled once
//	                                                  │
//	                                                  ├─ accesses [N] += 1 ─── Top(score) of every static policy, size ──> rows
//	                                                  └─ Policy.Step of every dynamic policy, size ──────────────────────> rows, step by step
//
// A static cache is fixed, so what it leaves to fetch follows from how often each vertex was wanted: all accesses less those of the
// vertices it holds. Dynamic policies decide step by step, and are those that package access makes for training. Either way the rows
// are those of a training run with the same parts, ranks, nodes, minibatches, seed and cache.
//
// Memory beyond the mapped topology, for N vertices, W ranks simulated at a time, D dynamic policies, A sizes of at most C rows: W times
// 20 N bytes (accesses, prediction and a ranking) and D A (4 N + 24 C), and what a window sees; docs/simulate.md has it all. Features are
// never opened.
package simulate

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"

	"halognn/src/job"
	"halognn/src/policy"
	"halognn/src/shard"
)

// Policies lists every policy that can be simulated.
func Policies() []string { return policy.Names(nil) }

// Options says what is simulated: the run, and what is counted of it.
type Options struct {
	// Spec is the run. Its Cache holds the settings that policies read; policy and size are those
	// of the lists below.
	job.Spec

	LastShort bool // full batches and one short one, instead of the near-equal pieces of training
	Policies  []string

	// Sizes of a rank's cache, ascending; one of the two.
	Alphas        []float64 // as fractions of an average rank's vertices
	HaloFractions []float64 // as fractions of the rank's 1-hop halo

	Workers int // goroutines; 0: one for each CPU
}

// What is above these is a slip of the pen, and ends for want of memory where it is not refused.
const (
	mostEpochs  = 1e6
	mostWorkers = 1 << 12
)

// Check reports every fault of the options themselves.
func (o *Options) Check() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if len(o.Sample.Fanouts) == 0 {
		fault("there are no fanouts; give one for each layer, seed hop first")
	} else if err := o.Sample.Check(); err != nil {
		faults = append(faults, err)
	}
	for _, n := range []struct {
		name        string
		value, most int
	}{
		{"delta", o.Cache.Delta, math.MaxInt32}, {"window", o.Cache.Window, math.MaxInt32},
		{"halo hops", o.Cache.HaloHops, math.MaxInt32}, {"workers", o.Workers, mostWorkers},
	} {
		if n.value < 0 || n.value > n.most {
			fault("%s is %d; it must be 0 to %d", n.name, n.value, n.most)
		}
	}
	if g := o.Cache.Gamma; !(g > 0 && g <= 1) {
		fault("gamma is %g; it must be above 0 and at most 1", g)
	}
	if !slices.Contains(policy.Initial(), o.Cache.Initial) {
		fault("initial is %q; a prefetch buffer is filled by %s", o.Cache.Initial, strings.Join(policy.Initial(), " or "))
	}
	if o.LastShort && (o.GlobalBatch || o.GlobalSeeds || o.StreamPerPart) {
		fault("last-short counts as published figures do, with a stream for each rank that has seeds and a batch of its own")
	}
	if len(o.Policies) == 0 {
		fault("there are no policies; name some of %v", Policies())
	}
	for i, p := range o.Policies {
		if policy.Find(p) == nil {
			fault("policy %q is unknown; there are %v", p, Policies())
		} else if slices.Contains(o.Policies[:i], p) {
			fault("policy %s is named twice", p)
		}
	}
	return errors.Join(append([]error{o.Spec.Check()}, append(faults, o.checkSizes()...)...)...)
}

func (o *Options) checkSizes() (faults []error) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if len(o.Alphas)+len(o.HaloFractions) == 0 {
		fault("there are no alphas; give the sizes of a rank's cache as fractions of an average rank's vertices")
	}
	if len(o.Alphas) > 0 && len(o.HaloFractions) > 0 {
		fault("there are alphas and halo fractions; the size of a cache is one of the two")
	}
	for _, list := range []struct {
		name  string
		sizes []float64
	}{{"alpha", o.Alphas}, {"halo fraction", o.HaloFractions}} {
		for i, a := range list.sizes {
			switch {
			case !(a >= 0) || math.IsInf(a, 1):
				fault("%s %g must be 0 or more, and finite", list.name, a)
			case i > 0 && a <= list.sizes[i-1]:
				fault("%s %g comes after %g; give them in ascending order", list.name, a, list.sizes[i-1])
			}
		}
	}
	return faults
}

// sizes returns the sizes that are simulated, and what they are fractions of.
func (o *Options) sizes() ([]float64, string) {
	if len(o.HaloFractions) > 0 {
		return o.HaloFractions, "halo fraction"
	}
	return o.Alphas, "alpha"
}

// Simulation is ready to run.
type Simulation struct {
	o        Options
	job      *job.Job
	shards   *shard.Shards
	policies []*policy.Policy
	windows  [][]int // [policies][sizes] minibatches known in advance

	transposed bool // the graph is not symmetric
}

// ErrOptions says that nothing is wrong with the parts.
var ErrOptions = errors.New("this cannot be simulated")

// New prepares the simulation of a run on the parts, which must outlive it. Errors are about the options (ErrOptions), or parts that do not
// fit them: a number of ranks that does not divide the parts, no training seeds.
func New(s *shard.Shards, o Options) (*Simulation, error) {
	if o.Ranks == 0 {
		o.Ranks = s.Parts
	}
	if o.Workers == 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	if err := o.Check(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOptions, err)
	}
	if _, _, err := s.RankRange(0, o.Ranks); err != nil {
		return nil, err
	}
	j, err := job.New(s, o.Spec)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.Dir, err)
	}
	sim := &Simulation{o: o, job: j, shards: s}
	for _, name := range o.Policies {
		sim.policies = append(sim.policies, policy.Find(name))
	}
	if n := o.Epochs * j.Items(); n > math.MaxInt32 { // counts are of 32 bits
		j.Close()
		return nil, fmt.Errorf("%w: %d epochs are %d minibatches of a rank; at most %d are counted", ErrOptions, o.Epochs, n, math.MaxInt32)
	}
	return sim, nil
}

// Close gives the memory back.
func (s *Simulation) Close() { s.job.Close() }

// Result is what was counted, summed over ranks.
type Result struct {
	Options     Options // with defaults filled in
	Vertices    int64
	Steps       int     // of an epoch
	Minibatches int     // of a rank in a step
	Remote      int64   // rows of all epochs without a cache
	Each        []int64 // [Epochs*Steps] the same, step by step
	Asked       Asked   // what sampling would cost in all epochs with topology.kind partitioned
	Bytes       int64   // the largest resident set, by the formula of docs/simulate.md

	Capacity  []int       // [sizes] rows of a rank's cache, the largest of any rank
	Windows   [][]int     // [policies][sizes] minibatches known in advance
	Rows      [][]int64   // [policies][sizes] rows fetched in all epochs
	Filled    [][]int64   // [policies][sizes] rows that the caches begin with, fetched before the first step
	Predicted [][]float64 // [policies][sizes] expected rows of an epoch; NaN where there is no prediction
	Traces    [][]Trace   // [policies][sizes] what a dynamic policy did; nil for others, and for the optimum, which decides nothing

	used used
}

// Asked is what minibatches ask of the owners of their vertices where each rank holds the edges of its
// own alone.
type Asked struct{ Vertices, Neighbours, Bytes int64 }

func (a *Asked) add(o Asked) {
	a.Vertices += o.Vertices
	a.Neighbours += o.Neighbours
	a.Bytes += o.Bytes
}

// Trace is what a policy did, step by step, summed over ranks.
type Trace []Decided // [Epochs*Steps]

// Decided is the decisions of one step.
type Decided struct {
	Fetched      int64 // misses
	Early        int64 // rows fetched beside the misses: replacements that were not missed, or rows fetched for a later step
	Evictions    int64 // rows that others overwrote
	Replacements int64 // rows that came in an eviction round
}

func (d *Decided) add(o Decided) {
	d.Fetched += o.Fetched
	d.Early += o.Early
	d.Evictions += o.Evictions
	d.Replacements += o.Replacements
}

// PerEpoch returns the mean rows of an epoch, and their ratio to no cache: 1 if there is nothing to fetch.
func (r *Result) PerEpoch(p, size int) (rows, ratio float64) {
	n := r.Rows[p][size]
	return float64(n) / float64(r.Options.Epochs), share(n, r.Remote, 1)
}

// HitRates returns the share of remote accesses that transferred nothing, and the share that found their row at hand: MassiveGNN's
// hit rate (eq. 8), which does not charge rows fetched beside the misses.
func (r *Result) HitRates(p, size int) (hit, buffer float64) {
	fetched := r.Rows[p][size]
	for _, d := range r.Traces[p][size] {
		fetched -= d.Early
	}
	return 1 - share(r.Rows[p][size], r.Remote, 1), 1 - share(fetched, r.Remote, 1)
}

// share returns a/b, or what it is said to be if there is nothing to have a share of.
func share(a, b int64, ofNothing float64) float64 {
	if b == 0 {
		return ofNothing
	}
	return float64(a) / float64(b)
}
