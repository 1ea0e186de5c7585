// Package simulate counts the feature rows that training would fetch from other ranks, for many
// cache policies and sizes at once, without training and without MPI. It samples the same
// minibatches as a run, with the same random keys, and plans their exchanges of rows with package
// exchange.
//
//	rank r:  Streams ─> Sampler ─> exchange.Locate ─> remote vertices of minibatch t, t+1, ...
//	         (each sampled once)                       │
//	           ┌───────────────────────────────────────┘
//	           ├─ accesses [N] += 1 ─ Top(score) of every static policy, size ─> rows
//	           └─ Policy.Step of every dynamic policy, size ─> rows, step by step
//	nodes:   scores summed over ranks ─> Settings.Place ─> rows of own cache, peers' caches, far
//
// The rows that a static cache leaves to fetch follow from the accesses of each vertex: all
// accesses less those of cached vertices. Dynamic policies decide step by step, by the code that
// training uses. In both cases the rows equal those of a training run with the same parts, ranks,
// nodes, minibatches, seed and cache.
//
// If draws depend on what a rank has at hand (job.Locality), each policy and size has minibatches
// of its own.
//
// Memory beyond the mapped topology, for N vertices, W ranks simulated at a time, D dynamic
// policies, A sizes of at most C rows: W times 20 N bytes (accesses, prediction and a ranking) and
// D A (4 N + 24 C), and the minibatches of a window; docs/guide/tuning-the-cache.md has the full
// formula. Features are never opened.
package simulate

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"

	"halognn/src/base/trace"
	"halognn/src/data/shard"
	"halognn/src/model/nn"
	"halognn/src/ranks/comm"
	"halognn/src/rows/access"
	"halognn/src/rows/policy"
	"halognn/src/step/job"
	"halognn/src/step/parallel"
	"halognn/src/topology/sample"
)

// Policies lists every policy that can be simulated.
func Policies() []string { return policy.Names(nil) }

// Options describe the simulated run, and the policies and sizes to count.
type Options struct {
	// Spec is the run. Policies read their settings from its field Cache. The policy and the size
	// in this field are not read, because the lists below have the policies and sizes to count.
	job.Spec

	// LastShort cuts the seeds into full minibatches and a short last one. Training cuts them into
	// pieces of nearly equal size instead.
	LastShort bool
	Policies  []string // names of policies, or keys of Own

	// Own holds the settings of policies that have cache settings of their own. The key is the
	// policy's entry in Policies: NAME:key=value:...
	Own map[string]policy.Settings

	// Sizes of a rank's cache, ascending; set only one of the two lists.
	Alphas        []float64 // sizes as fractions of an average rank's vertices
	HaloFractions []float64 // sizes as fractions of the rank's 1-hop halo

	Workers int // goroutines; 0: one for each CPU
}

// Policy returns the policy that an entry of Policies names, or nil if there is no such policy.
func (o *Options) Policy(name string) *policy.Policy {
	base, _, own := strings.Cut(name, ":")
	if _, known := o.Own[name]; own != known {
		return nil
	}
	return policy.Find(base)
}

// settings returns the settings of an entry of Policies.
func (o *Options) settings(name string) policy.Settings {
	if own, ok := o.Own[name]; ok {
		return own
	}
	return o.Cache
}

// Limits on options. Larger values are typing errors, and would exhaust the memory.
const (
	mostEpochs  = 1e6
	mostWorkers = 1 << 12
)

// checkReads returns an error for a model that reads no neighbours: its minibatches have no remote
// vertices.
func checkReads(s *job.Spec) error {
	if s.Model.ReadsNeighbours() {
		return nil
	}
	return fmt.Errorf("a model of kind %s reads no neighbours, so it reads no rows of other "+
		"ranks, and "+
		"there is nothing to count; set model.kind=sage", s.Model.Kind)
}

// fetchesAsNodes reports whether ranks of a node fetch as one. Job.FetchesAsNodes reports the same,
// once there is a job.
func (o *Options) fetchesAsNodes() bool {
	n := o.RanksPerNode
	return o.AsNodes && n > 1 && (o.Ranks == 0 || n < o.Ranks)
}

// Check returns every error of the options themselves.
func (o *Options) Check() error {
	var errs []error
	reject := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if o.Sample.HasFanouts() && o.Sample.Hops() == 0 {
		reject("there are no fanouts; give one for each layer, seed hop first")
	} else {
		errs = append(errs, o.Sample.Check())
	}
	if err := checkReads(&o.Spec); err != nil {
		errs = append(errs, err)
	}
	if o.Workers < 0 || o.Workers > mostWorkers {
		reject("workers is %d; it must be 0 to %d", o.Workers, mostWorkers)
	}
	if o.Mode.Sharing != sample.Alone || o.Mode.Columns {
		reject("simulate works only if every rank has its own minibatches; set " +
			"parallel.mode=data, or compare modes with `simulate modes`")
	}
	if o.Locality.Favours() && o.Sums {
		reject("simulate cannot count sums if draws depend on the cache; set " +
			"exchange.sums=off, or sample.locality=1")
	}
	if o.fetchesAsNodes() && o.Locality.Favours() {
		reject("simulate cannot count nodes that fetch as one together with draws that depend on " +
			"the cache; set exchange.nodes=off, or sample.locality=1")
	}
	if o.LastShort && (o.GlobalBatch || o.GlobalSeeds || o.StreamPerPart) {
		reject("--last-short needs each rank to have its own batch, seeds and stream of seeds; " +
			"set sample.batch_scope=rank, sample.seeds=local and sample.streams=rank, or leave " +
			"the flag out")
	}
	if o.Cache.FromFiles() && len(o.HaloFractions) > 0 {
		reject("with cache.source=%s all rows are remote and a rank has no halo; give --alphas "+
			"instead of --halo-fractions",
			policy.SourceFiles)
	}
	if len(o.Policies) == 0 {
		reject("there are no policies; name some of %v", Policies())
	}
	told := map[string]bool{}
	for i, p := range o.Policies {
		if o.Policy(p) == nil {
			reject("policy %q is unknown; choose some of %v", p, Policies())
			continue
		}
		if slices.Contains(o.Policies[:i], p) {
			reject("policy %s is named twice; leave one out", p)
		}
		for _, why := range o.refused(p) {
			if !told[why] {
				told[why] = true
				reject("%s", why)
			}
		}
	}
	return errors.Join(append([]error{o.Spec.Check(), o.Model.CheckTypes()},
		append(errs, o.checkSizes()...)...)...)
}

// Possible lists the policies that can be counted. The caller must have set o.Sparse if rows are
// sparse, because some policies do not work with sparse rows.
func (o *Options) Possible() []string {
	least := len(o.refused(policy.None))
	return policy.Names(func(p *policy.Policy) bool { return len(o.refused(p.Name)) <= least })
}

// refused returns why a policy cannot be counted: the reasons for which training refuses it, except
// the size of its cache.
func (o *Options) refused(name string) (why []string) {
	spec := o.Spec
	spec.Cache = o.settings(name)
	spec.Cache.Policy, spec.Cache.HaloFraction = o.Policy(name).Name, 0
	for _, r := range parallel.Refusals(&spec) {
		why = append(why, r.Error())
	}
	if o.Model.Schema.Typed() && o.Policy(name).Hindsight {
		why = append(why, fmt.Sprintf("policy %s is the best only for rows of one size; leave it "+
			"out for a graph with vertex types", name))
	}
	if o.fetchesAsNodes() && o.Policy(name).Hindsight {
		why = append(why, fmt.Sprintf("policy %s tells how many rows are fetched but not which, "+
			"and nodes that fetch as one need to know which; leave it out, or set "+
			"exchange.nodes=off", name))
	}
	if o.Sums && o.Policy(name).Hindsight {
		why = append(why, fmt.Sprintf("policy %s can count rows, but not sums; leave it out, or "+
			"set exchange.sums=off", name))
	}
	return why
}

func (o *Options) checkSizes() (errs []error) {
	reject := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if len(o.Alphas)+len(o.HaloFractions) == 0 {
		reject("there are no cache sizes; give --alphas, the sizes of a rank's cache as " +
			"fractions of an average rank's vertices")
	}
	if len(o.Alphas) > 0 && len(o.HaloFractions) > 0 {
		reject("--alphas and --halo-fractions exclude each other; give the sizes of caches by " +
			"only one of them")
	}
	for _, list := range []struct {
		name  string
		sizes []float64
	}{{"alpha", o.Alphas}, {"halo fraction", o.HaloFractions}} {
		for i, a := range list.sizes {
			switch {
			case !(a >= 0) || math.IsInf(a, 1):
				reject("%s %g must be 0 or more, and finite", list.name, a)
			case i > 0 && a <= list.sizes[i-1]:
				reject("%s %g comes after %g; give them in ascending order", list.name, a,
					list.sizes[i-1])
			}
		}
	}
	return errs
}

// sizes returns the simulated sizes, and the name of the option that has them.
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
	own      []*policy.Settings // settings of each policy
	windows  [][]int            // [policies][sizes] minibatches known in advance
	shared   map[int]shared     // caches that ranks share, by the first rank of each node

	transposed bool  // the graph is not symmetric
	gradients  int64 // bytes that all ranks send each other in a step to add gradients
}

// ErrOptions marks errors of the options, not of the parts.
var ErrOptions = errors.New("this cannot be simulated")

// New prepares the simulation of a run on the parts, which must outlive it. Its errors are about
// the options (ErrOptions), or about parts that do not fit them: the number of ranks does not
// divide the parts, or there are no training seeds.
func New(s *shard.Shards, o Options) (*Simulation, error) {
	o.Ranks, o.Workers = cmp.Or(o.Ranks, s.Parts), cmp.Or(o.Workers, runtime.GOMAXPROCS(0))
	o.Fit(s)
	if err := o.Check(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOptions, err)
	}
	if _, _, err := s.RankRange(0, o.Ranks); err != nil {
		return nil, err
	}
	o.Cache.PeerCost = o.Cache.Cost()
	spec := o.Spec
	spec.Cache.Policy = o.Policy(o.Policies[0]).Name // Check has found all names known
	j, err := job.New(s, spec)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.Dir, err)
	}
	sim := &Simulation{o: o, job: j, shards: s}
	for _, name := range o.Policies {
		own := o.settings(name)
		own.PeerCost = o.Cache.PeerCost
		sim.policies = append(sim.policies, o.Policy(name))
		sim.own = append(sim.own, &own)
	}
	if n := o.Epochs * j.Items(); n > math.MaxInt32 { // counts have 32 bits
		j.Close()
		return nil, fmt.Errorf("%w: %d epochs are %d minibatches of a rank, but at most %d can "+
			"be counted; lower --epochs",
			ErrOptions, o.Epochs, n, math.MaxInt32)
	}
	// a model cannot be trained on parts without labels, so they have no gradients; their rows can
	// be counted
	if elements, exact, err := nn.Elements(j.Model); err == nil {
		sim.gradients = comm.SumBytes(elements, exact, o.Ranks, o.HalfGradient)
	}
	return sim, nil
}

// Close frees the memory.
func (s *Simulation) Close() { s.job.Close() }

// Result holds the counts, summed over the ranks.
type Result struct {
	Options     Options // the options with defaults filled in
	Vertices    int64
	Steps       int     // steps of an epoch
	Minibatches int     // minibatches of a rank in a step
	Remote      int64   // rows that all epochs fetch without a cache and without locality
	Each        []int64 // [Epochs*Steps] rows of each step without a cache
	Asked       Asked   // what sampling would cost in all epochs with a partitioned topology
	AskingHops  int     // hops of a minibatch that ask other ranks
	EdgeRows    int64   // feature rows of edges fetched in all epochs, if the model reads some
	EdgeShared  int64   // feature rows of edges that another rank of the node has fetched
	// learned rows fetched in all epochs, and their gradients, if the model learns rows
	Learned   parallel.LearnedCounts
	Gradients int64 // bytes that all ranks send each other in all epochs to add gradients
	Bytes     int64 // the predicted largest resident set

	// [sizes] capacity of the largest cache of a rank, in rows or, if rows differ in size, in bytes
	Capacity []int
	Windows  [][]int   // [policies][sizes] minibatches known in advance
	Rows     [][]int64 // [policies][sizes] rows and sums fetched in all epochs
	// [policies][sizes] reads of vertices that are not local, cached or not; equal to Remote unless
	// draws depend on the cache
	Read [][]int64
	// [policies][sizes] rows, sums and bytes transferred in all epochs, if owners send sums or rows
	// differ in size
	Totals [][]trace.Counters
	Peer   [][]int64 // [policies][sizes] rows read from caches of peers
	// [policies][sizes] rows fetched in the same step for another rank of the node
	Shared [][]int64
	Filled [][]int64 // [policies][sizes] rows fetched before the first step
	// [policies][sizes] expected rows of an epoch; NaN if there is no prediction
	Predicted [][]float64
	// [policies][sizes] decisions of dynamic policies, step by step; nil for static policies, and
	// for one that decides with hindsight
	Traces [][]Trace
	// [policies][sizes][epochs] factors by which near vertices were favoured; nil without locality
	Factors [][][]float64

	used   used
	kinds  *access.Kinds
	edgeIn int // columns of a row of an edge
}

// Asked counts what minibatches ask other ranks on a partitioned topology.
type Asked struct{ Vertices, Neighbours, Bytes int64 }

func (a *Asked) add(o Asked) {
	a.Vertices += o.Vertices
	a.Neighbours += o.Neighbours
	a.Bytes += o.Bytes
}

// Trace is what a policy decided, step by step, summed over ranks.
type Trace []trace.Counters // [Epochs*Steps]

// PerEpoch returns the mean number of rows of an epoch, and its ratio to the rows without a cache.
// The ratio is 1 if nothing is fetched.
func (r *Result) PerEpoch(p, size int) (rows, ratio float64) {
	n := r.Rows[p][size]
	return float64(n) / float64(r.Options.Epochs), share(n, r.Remote, 1)
}

// Cost returns the cost of an epoch's rows, in units of the cost of a far row. A row of a peer's
// cache costs PeerCost, and a row in the rank's own cache nothing (data placement, ICS 2022, eq. 3,
// summed over ranks).
func (r *Result) Cost(p, size int) float64 {
	n := float64(r.Rows[p][size]) + r.Options.Cache.PeerCost*float64(r.Peer[p][size])
	return n / float64(r.Options.Epochs)
}

// HitRates returns two rates. The hit rate is 1 - transferred rows and sums / remote accesses. The
// buffer hit rate is the share of remote accesses found in the cache. It is MassiveGNN's hit rate
// (eq. 8), which does not count rows fetched ahead as misses.
func (r *Result) HitRates(p, size int) (hit, buffer float64) {
	if r.Options.Sums { // then all caches have been played, and have counters
		return r.Totals[p][size].HitRates()
	}
	fetched := r.Rows[p][size] + r.Shared[p][size]
	early := int64(0)
	for _, d := range r.Traces[p][size] {
		early += d.Early
	}
	read := r.Read[p][size]
	return 1 - share(fetched, read, 1), 1 - share(fetched-early, read, 1)
}

// share returns a/b, or ofNothing if b is 0.
func share(a, b int64, ofNothing float64) float64 {
	if b == 0 {
		return ofNothing
	}
	return float64(a) / float64(b)
}
