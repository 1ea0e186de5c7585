// Package plan predicts the cost of a job before it runs: the memory of a rank, item by item; the
// rows that cross the network; and the time of a step, term by term. It reads the topology of the
// parts and samples a few minibatches, without training.
//
//	Job, parts ── layout ──> ranks, as many as the job has: vertices [first_r, first_r+1), seeds
//	     │
//	     ├─ access.Inclusion ──> p(v): remote rows of a step, less the cached  Traffic, Curve
//	     ├─ probe: a few minibatches ──> sizes of blocks ──> bytes             Memory
//	     └─ Rates, measured or given ──> seconds of a step, limit              Times, Suggestion
//
// If K divides P, a job of K ranks on P parts is planned as it will run. If P divides K, each part
// and its seeds are cut into K/P equal pieces: an upper estimate of traffic, because a partition
// into K parts would keep more neighbours together.
//
// docs/guide/size-a-job.md has the formulas. The package fetches no rows and starts no ranks.
package plan

import (
	"cmp"
	"errors"
	"fmt"
	"math"

	"halognn/src/base/trace"
	"halognn/src/data/shard"
	"halognn/src/devices/compute"
	"halognn/src/model/nn"
	"halognn/src/rows/access"
	"halognn/src/rows/policy"
	"halognn/src/step/job"
	"halognn/src/step/parallel"
	"halognn/src/topology/sample"
)

// Job describes a run and its machine. Numbers that are 0 have defaults.
type Job struct {
	// Spec is the run. By default there is one rank for each part, one rank a node, and one epoch.
	// Only policy oracle depends on the number of epochs. Cache.Policy may also be auto.
	job.Spec
	Machine
	// number of sampled evaluations in the run; 0 means one for each epoch, a negative number none
	Evaluations int

	auto bool // cache.policy is auto
}

// Machine describes the processors and memory that a rank of a job has.
type Machine struct {
	Workers int              // goroutines that prepare minibatches; default 1
	Threads int              // threads that train; default 1
	Cores   float64          // CPUs of a rank; default Workers + Threads
	GPU     *GPU             // GPUs that train; nil if the CPUs train
	Scratch bool             // inference keeps hidden rows in files
	Stored  compute.Elements // type of the rows that a layer reads
}

// laid is a job with its ranks laid out on the parts of the graph.
type laid struct {
	*job.Job
	Machine
	Evaluations int  // number of sampled evaluations; may be 0
	auto        bool // cache.policy is auto
}

// lay returns the job laid out on its parts. The layout of j.Spec is given (`l`).
func (j *Job) lay(l *job.Job) *laid {
	return &laid{l, j.Machine, max(0, cmp.Or(j.Evaluations, l.Epochs)), j.auto}
}

// Options are the settings of a plan.
type Options struct {
	Rates   Rates // given rates; a rate of 0 is measured, but for the network it is assumed
	Device  compute.Device
	Host    compute.Host
	Memory  int64    // memory of a node in bytes; 0 if suggestions need not fit any
	Analyse int      // number of ranks to analyse, evenly spread; 0 means up to 8
	Actions *Actions // traces to write, for which more ranks are analysed; nil if none

	// assumption about the edges, for shards that have only sizes
	Bound Bound
	Cut   float64 // share of the edges that join vertices of different nodes
}

// check rejects rates that are negative, NaN or infinite.
func (o *Options) check() error {
	r := &o.Rates
	for _, x := range []float64{r.Sample, r.Lookups, r.Rows, r.Flops, r.Network, r.Device, r.Bus} {
		if !(x >= 0) || math.IsInf(x, 1) {
			return fmt.Errorf("a rate is %g; give a finite rate above 0, or 0 to have it "+
				"measured", x)
		}
	}
	return nil
}

const (
	analysed  = 8     // default for the number of analysed ranks
	mostRanks = 65534 // largest number of ranks that package exchange can number
)

// The errors of a job that cannot be planned. With ErrJob the user must change the config or the
// command, with ErrParts the parts. All other errors are failures of reading or measuring.
var (
	ErrJob   = errors.New("the job cannot be planned")
	ErrParts = errors.New("the parts do not fit the job")
)

// fill sets the defaults and returns all errors that do not depend on the parts. If RanksPerNode is
// above Ranks, it is set to Ranks.
func (j *Job) fill(s *shard.Shards) error {
	j.Ranks = cmp.Or(j.Ranks, s.Parts)
	j.RanksPerNode = min(cmp.Or(j.RanksPerNode, 1), max(1, j.Ranks))
	j.Workers, j.Threads, j.Epochs = cmp.Or(j.Workers, 1), cmp.Or(j.Threads, 1), cmp.Or(j.Epochs, 1)
	j.Cores = cmp.Or(j.Cores, float64(j.Workers+j.Threads))
	if j.GPU != nil {
		j.Model.Fold = nn.FoldNever
	}
	j.Fit(s)
	var refused error
	if j.Sparse || j.Model.Schema.Typed() || j.Model.LearnsRows() || j.Model.EdgeIn > 0 {
		// This checks the defaults that are set here. The config's own check has not seen them.
		refused = parallel.Check(&j.Spec)
	}
	if !j.Reads() {
		j.Sample, j.Eval = sample.Spec{}, sample.Spec{}
	}
	var faults []error
	fault := func(format string,
		args ...any) {
		faults = append(faults, fmt.Errorf(format, args...))
	}
	if most := min(mostRanks, int(s.Vertices)); j.Ranks > most {
		fault("the job has %d ranks, but may have at most %d", j.Ranks, most)
	}
	if j.Workers < 1 || j.Threads < 1 {
		fault("the job has %d workers and %d threads; there must be at least 1 of each",
			j.Workers, j.Threads)
	}
	if !(j.Cores > 0) || math.IsInf(j.Cores, 1) {
		fault("the number of cores is %g; it must be above 0 and finite", j.Cores)
	}
	j.auto = j.Cache.Policy == policy.Auto
	if j.auto {
		j.Cache.Policy = policy.Lookahead
	}
	if p := policy.Find(j.Cache.Policy); p == nil || p.Hindsight {
		fault("plan does not know cache.policy %q; choose one of %v", j.Cache.Policy,
			policy.Names(policy.Trainable))
	}
	if !(j.Cache.Alpha >= 0) || math.IsInf(j.Cache.Alpha, 1) {
		fault("cache.alpha is %g; it must be 0 or more, and finite", j.Cache.Alpha)
	}
	if err := errors.Join(append(faults, refused, j.Spec.Check(), j.Model.Check(),
		j.Optimizer.Check(),
		j.fillGPU())...); err != nil {
		return fmt.Errorf("%w: %w", ErrJob, err)
	}
	all := j.RanksPerNode == j.Ranks && !j.Cache.FromFiles()
	if all || !j.Reads() { // no row is remote, so training does not open a cache
		j.Cache, j.auto = policy.Settings{Policy: policy.None}, false
	}
	return nil
}

// Prediction is the predicted cost of a job.
type Prediction struct {
	Parts        string `json:"parts"`
	Ranks        int    `json:"ranks"`
	RanksPerNode int    `json:"ranks_per_node"`
	Exact        bool   `json:"exact_ranks"` // no part is cut (see the package comment)
	Analysed     int    `json:"analysed_ranks"`
	Steps        int    `json:"steps_per_epoch"`
	Minibatches  int    `json:"minibatches_per_step"` // number of minibatches of a rank

	Minibatch   Minibatch `json:"minibatch"`
	Traffic     Traffic   `json:"traffic"`
	Collectives int       `json:"rounds_per_step"` // number of collectives that a rank starts
	Gradients   int64     `json:"gradient_bytes"`  // bytes that all ranks send in a step
	Sampling    *Sampling `json:"rounds,omitempty"`
	// set only if ranks share minibatches, hold columns or learn rows
	Shuffles   *Shuffles     `json:"shuffles,omitempty"`
	Memory     trace.Memory  `json:"memory"`
	MemoryRank int64         `json:"memory_per_rank"`
	MemoryNode int64         `json:"memory_per_node"` // shared memory of a node counts once
	MemoryHas  int64         `json:"memory_of_a_node,omitempty"`
	Device     *DeviceMemory `json:"device_memory,omitempty"`
	Draws      *Draws        `json:"draws,omitempty"` // set only for a job with GPUs
	Rates      Rates         `json:"rates"`
	Times      Times         `json:"seconds_per_step"`
	Curve      []Point       `json:"cache_sizes"`
	Suggestion *Suggestion   `json:"suggestion,omitempty"`
	Notes      []string      `json:"notes,omitempty"`

	// Sizes says that the plan is made from sizes alone. Then only traffic and gradients have
	// times.
	Sizes bool `json:"sizes_alone,omitempty"`
}

// Minibatch is the mean size of the sampled minibatches.
type Minibatch struct {
	Seeds    float64   `json:"seeds"`
	Vertices []float64 `json:"frontier"` // vertices after each hop, the seeds first
	Edges    []float64 `json:"edges"`    // edges of each hop
}

func (p *planner) node(rank int) (lo, hi int) {
	n := p.job.RanksPerNode
	return rank / n * n, min((rank/n+1)*n, p.job.Ranks)
}

func (p *planner) between(lo, hi int) int64 {
	first, _ := p.job.Vertices(lo)
	_, last := p.job.Vertices(hi - 1)
	return last - first
}

func (p *planner) rows(rank int) int64 {
	first, last := p.job.Vertices(rank)
	return last - first
}

// New plans a job on the parts. It returns all errors in the job at once (ErrJob), an error for
// parts that do not fit it (ErrParts), or another failure.
func New(s *shard.Shards, j Job, o Options) (*Prediction, error) {
	if err := j.Trainable(s); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrParts, err)
	}
	if err := j.fill(s); err != nil {
		return nil, err
	}
	if err := o.check(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrJob, err)
	}
	l, err := job.New(s, j.Spec)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrParts, s.Dir, err)
	}
	defer l.Close()
	p := &planner{job: j.lay(l), options: &o, shards: s}
	if o.Actions != nil {
		if err := o.Actions.refuse(p.job); err != nil {
			return nil, err
		}
		o.Analyse = o.Actions.analysed(p.job.Ranks)
	}
	if !s.HasTopology() {
		return p.sizedPlan()
	}
	t := s.Topology()
	m, err := access.New(&t.Graph, access.Options{Columns: &t.Columns})
	if err != nil {
		return nil, err
	}
	defer m.Free()
	p.graph = m
	defer p.free()
	return p.plan()
}

// planner is the state of New.
type planner struct {
	job     *laid
	options *Options
	shards  *shard.Shards
	graph   *access.Graph
	ranks   []*rankPlan   // analyses of the analysed ranks
	forward bool          // nothing is trained
	ofRows  *access.Kinds // kinds of feature rows; set by the first call of the method kinds

	// The counts of a step that Shuffles defines. It is nil if ranks send each other nothing that
	// Shuffles counts.
	shuffles *Shuffles

	together   nodeScore
	parameters int // number of parameters that an allreduce moves
	unrounded  int // number of parameters, from the first one on, that are never rounded
	device     onGPU
	draws      *Draws // draws on GPUs; nil without GPUs, and if nothing is trained
	// results of scannedDegrees; 0 if no device scans all neighbours of a vertex
	meanDegree, reachedDegree float64
}

func (p *planner) exact() bool { return len(p.ranks) == p.job.Ranks }

func (p *planner) free() {
	p.together.free()
	for _, r := range p.ranks {
		r.free()
	}
}

func (p *planner) plan() (*Prediction, error) {
	j := p.job
	if err := p.lookAtRanks(); err != nil {
		return nil, err
	}
	out := &Prediction{
		Parts: p.shards.Dir, Ranks: j.Ranks, RanksPerNode: j.RanksPerNode, Exact: j.Exact,
		Analysed: len(p.ranks),
		Steps:    j.Steps(), Minibatches: j.Minibatches(), Minibatch: p.minibatch(),
	}
	var err error
	if out.Traffic, err = p.traffic(&j.Cache); err != nil {
		return nil, err
	}
	p.addEdgeRows(&out.Traffic)
	if err := p.lookAtDraws(&out.Traffic); err != nil {
		return nil, err
	}
	if out.Memory, err = p.memory(&out.Traffic); err != nil {
		return nil, err
	}
	out.Sampling, out.Shuffles = p.sampling(), p.shuffles
	mode, err := parallel.ModeOf(j.Mode.Name)
	if err != nil {
		return nil, err
	}
	out.Collectives = j.Minibatches() * mode.Collectives(parallel.Messages{Hops: j.Sample.Hops(),
		Asking: p.askingHops(), Group: p.groupSize(),
		Norms: j.Model.BatchNorms(), Layers: j.Sample.Layers(), EdgeRows: j.Model.EdgeIn > 0,
		Rated: j.Sample.Links != nil, Learned: j.Model.LearnsRows(),
		LearnedSums: j.LearnedSums() != nil,
		UnderWay:    j.Depth > 0, Nodes: j.FetchesAsNodes()})
	out.MemoryRank = out.Memory.Sum()
	out.MemoryNode = out.Memory.Node(j.RanksPerNode)
	out.MemoryHas = p.options.Memory
	if p.job.GPU != nil {
		if out.Device, err = p.deviceMemory(&out.Traffic); err != nil {
			return nil, err
		}
	}
	if err := p.lookAtDevice(&out.Traffic); err != nil {
		return nil, err
	}
	if out.Rates, err = p.measure(); err != nil {
		return nil, err
	}
	out.Gradients = p.gradientBytes()
	out.Times = p.times(&out.Traffic, &out.Rates)
	if err := p.ifDrawnThere(&out.Traffic, &out.Rates, &out.Times); err != nil {
		return nil, err
	}
	out.Draws = p.draws
	if err := p.sizes(out); err != nil {
		return nil, err
	}
	if a := p.options.Actions; a != nil {
		if err := a.write(p, &out.Traffic, &out.Rates); err != nil {
			return nil, fmt.Errorf("writing the trace: %w", err)
		}
	}
	p.note(out)
	return out, nil
}

func (p *planner) lookAtRanks() error {
	for _, rank := range p.chosen() {
		r, err := p.look(rank)
		if err != nil {
			return fmt.Errorf("rank %d: %w", rank, err)
		}
		p.ranks = append(p.ranks, r)
	}
	if p.shares() {
		return p.probeShares()
	}
	p.join()
	if p.shuffles = p.learned(); p.job.Mode.Columns {
		p.shuffles = p.pushed()
	}
	return nil
}

// chosen returns the ranks to analyse. They are evenly spread.
func (p *planner) chosen() []int {
	n := min(cmp.Or(p.options.Analyse, analysed), p.job.Ranks)
	ranks := make([]int, n)
	for i := range ranks {
		ranks[i] = (2*i + 1) * p.job.Ranks / (2 * n)
	}
	return ranks
}

// note adds notes that say how far the figures can be trusted.
func (p *planner) note(out *Prediction) {
	add := func(format string, args ...any) {
		out.Notes = append(out.Notes, fmt.Sprintf(format, args...))
	}
	if !out.Exact {
		add("the plan is for %d ranks on %d parts, so every part was cut into %d pieces of "+
			"equal length. A partition into %d parts keeps more neighbours together, so the "+
			"remote rows are an upper estimate",
			out.Ranks, p.shards.Parts, out.Ranks/p.shards.Parts, out.Ranks)
	}
	if !p.exact() {
		add("only %d of %d ranks were analysed, chosen evenly among all", len(p.ranks), out.Ranks)
	}
	if p.job.FavoursNear() {
		add("with sample.locality the draws depend on the cache, so rows were counted over some " +
			"minibatches of a rank, and no other cache sizes are compared")
	}
	if p.job.FavoursNear() && p.job.Locality.Adapts {
		add("the factor of sample.locality is assumed to be %g, the largest that "+
			"sample.locality_adapt allows; epochs with a smaller factor fetch more rows",
			p.job.Locality.Favour)
	}
	if w := p.job.Streams.Warning(); w != "" {
		add("%s", w)
	}
	if p.job.auto {
		add("cache.policy=auto tries caches while it trains; this plan assumes %s, which "+
			"transfers least",
			p.job.Cache.Policy)
	}
	if p.job.FetchesAsNodes() && p.job.TryNodes {
		add("exchange.nodes=auto measures at the start of a run whether fetching as nodes is " +
			"faster; this plan assumes exchange.nodes=on")
	}
	switch as := p.job.FetchesAsNodes(); {
	case as && p.job.Divides(&p.job.Cache):
		add("ranks of a node fetch as one and divide their caches, but the table of cache sizes " +
			"is for exchange.nodes=off and cache.placement=own")
	case as:
		add("ranks of a node fetch as one: rows that several ranks want are predicted as if " +
			"dynamic caches kept the rows read most, and the table of cache sizes is for " +
			"exchange.nodes=off")
	}
	if p.job.OwnersSums() != nil && p.shares() {
		add("with exchange.sums owners send sums of rows; where ranks share minibatches the plan " +
			"predicts the rows without sums, an upper estimate")
	} else if p.job.OwnersSums() != nil {
		if p.job.TrySums {
			add("exchange.sums=auto measures at the start of a run whether sums save more time " +
				"than they take; this plan assumes exchange.sums=on")
		}
		add("the table of cache sizes is for exchange.sums=off")
	}
	if out.Traffic.Counted > 0 && out.Traffic.Sums > 0 {
		add("which sums owners send depends on the rows in the cache, so policy %s was "+
			"simulated over %d minibatches of a rank", p.job.Cache.Policy, out.Traffic.Counted)
	} else if out.Traffic.Counted > 0 {
		why := "decides by earlier reads, for which there is no formula"
		if p.job.Divides(&p.job.Cache) {
			why = "decides about the rows that a node wants from a rank"
		}
		add("policy %s %s, so it was simulated over %d minibatches of a rank",
			p.job.Cache.Policy, why,
			out.Traffic.Counted)
	}
	if p.shuffles != nil && !p.relays() && out.RanksPerNode > 1 &&
		out.RanksPerNode < out.Ranks {
		add("rows that ranks send each other within a step are assumed to go to all other ranks " +
			"equally, on the same node or not")
	}
	if j := p.job; j.Cache.Placement == policy.PlacementGroup && j.Cache.PeerCost < 0 &&
		!j.Divides(&j.Cache) {
		add("a row from a peer's cache is assumed to cost %g of a row from another node; a run "+
			"measures it (cache.peer_cost)", policy.AssumedPeerCost)
	}
	if p.job.Cache.FromFiles() {
		add("remote rows are read from files. The time depends on the disk and is not " +
			"predicted, so no cache is suggested")
	}
	if out.Rates.assumed {
		add("the rate of the network is not known, so %g GB/s a node is assumed; give --network",
			out.Rates.Network/1e9)
	}
	if out.Rates.assumedGPU {
		add("there is no GPU here: rates that are not given are those of an A100; give " +
			"--flops, --gpu-bandwidth and --bus")
	}
	switch d := out.Draws; {
	case d == nil:
	case d.Auto == parallel.DrawHost && p.job.DrawOn == parallel.DrawDevice:
		add("a run with sample.on=device would be refused: %s", d.Why)
	case d.Auto == parallel.DrawHost:
		add("with sample.on=auto the host draws too: %s", d.Why)
	case d.On == parallel.DrawHost:
		add("with sample.on=auto the GPU would draw. It needs %s MB for the topology and %s MB "+
			"for %d minibatches. A step would take %.3g s instead of %.3g s, and the GPU would "+
			"idle %.0f %% of it instead of %.0f %% (computed, not measured)", megabytes(d.Topology),
			megabytes(d.Bytes), d.Slots, d.Step, out.Times.Step, 100*d.Idle, 100*out.Times.Idle)
	}
	if d := out.Device; d != nil && d.Items.Sum() > d.Size {
		add("the GPU is too small: the job needs %s MB and the GPU has %s MB; lower "+
			"compute.gpu_rows, sample.batch, sample.fanouts, model.hidden or pipeline.depth",
			megabytes(d.Items.Sum()), megabytes(d.Size))
	}
}

// samplerOptions returns the options of a rank's samplers. The caller sets how many there are.
func (p *planner) samplerOptions(near sample.Near) sample.Options {
	return sample.Options{
		Spec: p.job.Sample, Eval: p.job.Eval, Near: near,
		Workers: 1, MaxSeeds: p.job.Streams.MaxPiece(), Map: p.vertexMap(),
		Weights: p.job.Model.EdgeWeights,
	}
}

// vertexMap returns the kind of vertex map in the samplers of the run.
func (p *planner) vertexMap() sample.MapKind {
	if p.job.Partitioned {
		return sample.MapHash
	}
	return sample.MapAuto
}
