package plan

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/base/trace"
	"halognn/src/data/dataset"
	"halognn/src/data/shard"
	"halognn/src/data/shard/shardtest"
	"halognn/src/devices/compute"
	"halognn/src/devices/compute/cpu"
	"halognn/src/devices/compute/ref"
	"halognn/src/model/nn"
	"halognn/src/model/task"
	"halognn/src/rows/access"
	"halognn/src/rows/cache"
	"halognn/src/rows/policy"
	"halognn/src/step/job"
	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
)

// generated is a graph of 8000 vertices in parts.
func generated(t *testing.T, parts int) *shard.Shards {
	t.Helper()
	return shardtest.Open(t, generatedOptions, shardtest.Options{Parts: parts})
}

var generatedOptions = dataset.GenerateOptions{Vertices: 8000, Degree: 10, Features: 10, Classes: 4,
	Seed: 1}

func planJob() Job {
	return Job{
		Spec: job.Spec{
			Model:     nn.Config{Kind: "sage", Layers: 3, Hidden: 16, Norm: "layer", Dropout: 0.5},
			Optimizer: nn.DefaultOptimizer("adam"), Sample: sample.Neighbours(5, 4, 3), Batch: 32,
			Seed: 1, Epochs: 2, Depth: 2,
			Cache: policy.Settings{Policy: policy.None, Alpha: 0.3, Evict: true},
		},
	}
}

var given = Options{Rates: Rates{Sample: 1e7, Lookups: 1e8, Rows: 1e7, Flops: 1e10, Network: 1e9}}

func planned(t *testing.T, s *shard.Shards, j Job, o Options) *Prediction {
	t.Helper()
	before := mem.Allocated()
	p, err := New(s, j, o)
	if err != nil {
		t.Fatal(err)
	}
	if left := mem.Allocated() - before; left != 0 {
		t.Errorf("%d bytes were not given back", left)
	}
	return p
}

// laidOut returns a planner of a job, whose defaults it sets, without its graph.
func laidOut(t *testing.T, s *shard.Shards, j *Job) *planner {
	t.Helper()
	if err := j.fill(s); err != nil {
		t.Fatal(err)
	}
	l, err := job.New(s, j.Spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return &planner{job: j.lay(l), options: &Options{}, shards: s}
}

// probed returns the minibatches of a rank that a planner samples.
func probed(t *testing.T, p *planner, rank int) *rankPlan {
	t.Helper()
	r := &rankPlan{rank: rank, reader: p.job.Workload(rank, 1)}
	var err error
	if r.trial, err = p.newTrial(trialOf{rank: rank, train: true, layer: -1}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.trial.close)
	if err := p.probe(r); err != nil {
		t.Fatal(err)
	}
	return r
}

// The predicted remote rows of a step are within 5 % of those in the minibatches of two epochs, for
// ranks that own one part or several, alone on their nodes or not.
func TestRowsAreThoseOfTheMinibatches(t *testing.T) {
	s, rated := generated(t, 4), shardtest.Open(t, dataset.GenerateOptions{Vertices: 4000,
		Degree:   6,
		Features: 4, Classes: 4, SplitLinks: "80/10/10", FeatureType: dataset.Float16, Seed: 1},
		shardtest.Options{Parts: 4})
	links := func(j *Job) {
		j.Links.Negatives, j.Links.Exclude, j.Batch =
			sample.Negatives{Kind: sample.NegativesUniform, Count: 2}, true, 128
	}
	for _, c := range []struct {
		name           string
		ranks, perNode int
		cache          policy.Settings
		change         func(j *Job)
	}{
		{"no cache", 4, 1, policy.Settings{Policy: policy.None}, nil},
		{"vip", 4, 1, policy.Settings{Policy: policy.VIP, Alpha: 0.2}, nil},
		{"degree, two parts a rank", 2, 1, policy.Settings{Policy: policy.Degree, Alpha: 0.2}, nil},
		{"a stream for every part", 2, 1, policy.Settings{Policy: policy.VIP, HaloFraction: 0.3},
			func(j *Job) { j.StreamPerPart = true }},
		{"two ranks a node", 4, 2, policy.Settings{Policy: policy.VIP, Alpha: 0.2}, nil},
		{"seeds from anywhere", 4, 1, policy.Settings{Policy: policy.VIP, Alpha: 0.2},
			func(j *Job) { j.GlobalSeeds = true }},
		{"global batch", 4, 1, policy.Settings{Policy: policy.VIP, Alpha: 0.2},
			func(j *Job) { j.GlobalBatch, j.Batch = true, 128 }},
		{"lookahead", 4, 1, policy.Settings{Policy: policy.Lookahead, Alpha: 0.2}, nil},
		{"prefetch", 4, 1, policy.Settings{Evict: true, Policy: policy.Prefetch, Gamma: 0.95,
			Delta: 4, Initial: "degree", Alpha: 0.2}, nil},
		{"prefetch, a stream for every part", 2, 1,
			policy.Settings{Evict: true, Policy: policy.Prefetch, Gamma: 0.95, Delta: 4,
				Initial: "vip", Alpha: 0.2}, func(j *Job) { j.StreamPerPart = true }},
		{"sieve", 4, 1, policy.Settings{Policy: policy.Sieve, Alpha: 0.2}, nil},
		{"links", 4, 1, policy.Settings{Policy: policy.None}, links},
		{"links, lookahead", 4, 1, policy.Settings{Policy: policy.Lookahead, Alpha: 0.2}, links},
	} {
		j, s := planJob(), s
		j.Ranks, j.RanksPerNode, j.Cache = c.ranks, c.perNode, c.cache
		if c.change != nil {
			c.change(&j)
		}
		if j.Links.Exclude {
			s = rated
		}
		p := predicted(t, s, j)
		if want := counted(t, s, j, p.Window); math.Abs(p.Rows-want) > 0.05*want {
			t.Errorf("%s: %.1f rows a step are predicted, %.1f counted", c.name, p.Rows, want)
		}
		if p.Busiest*float64(c.ranks/c.perNode) < p.Rows-1e-6 {
			t.Errorf("%s: the busiest of %d links moves %.1f of %.1f rows", c.name,
				c.ranks/c.perNode, p.Busiest, p.Rows)
		}
	}
}

// lookedAt returns a planner that has looked at ranks of a job.
func lookedAt(t *testing.T, s *shard.Shards, j *Job) *planner {
	t.Helper()
	p := laidOut(t, s, j)
	var err error
	if p.graph, err = access.New(&s.Topology().Graph, access.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.graph.Free)
	t.Cleanup(p.free)
	if err := p.lookAtRanks(); err != nil {
		t.Fatal(err)
	}
	return p
}

// predicted returns only the traffic of a plan.
func predicted(t *testing.T, s *shard.Shards, j Job) Traffic {
	t.Helper()
	p := lookedAt(t, s, &j)
	traffic, err := p.traffic(&j.Cache)
	if err != nil {
		t.Fatal(err)
	}
	return traffic
}

// trail returns the remote vertices of a rank's minibatches in two epochs, in order: drawn by the
// sampler and looked up part by part, without code of the planner.
func trail(t *testing.T, s *shard.Shards, j Job, rank int) (remote [][]graph.VertexID,
	r *access.Workload) {
	t.Helper()
	per := s.Parts / j.Ranks
	var seeds [][]graph.VertexID // of each stream
	var begin []graph.VertexID
	for p := range s.Parts {
		if p%per == 0 || j.StreamPerPart {
			seeds = append(seeds, nil)
		}
		seeds[len(seeds)-1] = append(seeds[len(seeds)-1], s.Train(p)...)
		begin = append(begin, graph.VertexID(s.Offsets[p]))
		if links, of := s.LinksOf(0); len(links) > 0 { // a part a rank
			for i := of[p]; i < of[p+1]; i++ {
				seeds[p] = append(seeds[p], graph.VertexID(i))
			}
		}
	}
	o := sample.StreamOptions{Batch: j.Batch, Seed: j.Seed, Original: s.Topology().Original}
	if len(s.Train(0)) == 0 {
		o.Original = nil
	}
	if j.GlobalBatch {
		o.Scope = sample.ScopeGlobal
	}
	if j.GlobalSeeds {
		o.Seeds = sample.SeedsGlobal
	}
	streams, err := sample.NewStreams(seeds, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(streams.Free)
	if links, _ := s.LinksOf(0); len(links) > 0 {
		begin = append(begin, graph.VertexID(s.Vertices))
		if j.Sample.Links, err = streams.Rate(links, begin, s.Topology(),
			j.Links.LinkOptions); err != nil {
			t.Fatal(err)
		}
	}
	each, node := len(seeds)/j.Ranks, rank/j.RanksPerNode*j.RanksPerNode
	first, end := s.Offsets[node*per], s.Offsets[(node+j.RanksPerNode)*per]
	r = &access.Workload{
		Local:  []access.Range{{First: graph.VertexID(first), End: graph.VertexID(end)}},
		Sample: j.Sample, Topology: s.Topology(), Epochs: 2, Reader: sample.Reader{Streams: streams,
			First: rank * each, Count: each, Seed: j.Seed},
	}
	all := slices.Concat(seeds...)
	for _, own := range seeds[rank*each : (rank+1)*each] {
		source := access.Source{Seeds: own, PerBatch: float64(len(own)) / float64(streams.Steps()),
			Minibatches: 1}
		if j.GlobalSeeds {
			source.Seeds, source.PerBatch = all,
				float64(len(all))/float64(streams.Steps()*len(seeds))
		}
		r.Sources = append(r.Sources, source)
	}
	sampler, err := sample.New(s.Topology(), sample.Options{Spec: j.Sample, ForwardOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer sampler.Free()
	var mb sample.Minibatch
	defer mb.Free()
	for epoch := 1; epoch <= 2; epoch++ {
		for item := range streams.Steps() * each {
			step, stream := item/each, r.First+item%each
			err := sampler.Sample(&mb, streams.Piece(epoch, step, stream, nil),
				sample.Key{Seed: j.Seed, Epoch: epoch, Step: step, Stream: stream})
			if err != nil {
				t.Fatal(err)
			}
			var distant []graph.VertexID
			for _, v := range mb.Frontier {
				if int64(v) < first || int64(v) >= end {
					distant = append(distant, v)
				}
			}
			remote = append(remote, distant)
		}
	}
	return remote, r
}

// counted runs the cache on the trails of all ranks, and returns the transferred rows of a step.
func counted(t *testing.T, s *shard.Shards, j Job, window int) float64 {
	t.Helper()
	m, err := access.New(&s.Topology().Graph, access.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Free()
	rows := 0
	steps := 0
	for rank := range j.Ranks {
		remote, r := trail(t, s, j, rank)
		steps = len(remote) / r.Count
		capacity := access.Capacity(j.Cache.Alpha, s.Vertices, j.Ranks)
		if j.Cache.HaloFraction > 0 {
			halo, err := m.HaloSize(&access.Workload{Local: r.Local})
			if err != nil {
				t.Fatal(err)
			}
			capacity = int(j.Cache.HaloFraction * float64(halo))
		}
		decides, held := policyOf(t, m, r, j.Cache, capacity, window, remote)
		var d cache.Decision
		fed := 0
		for i, distant := range remote {
			for l, sees := decides.(*cache.Lookahead); sees && fed < len(remote) &&
				fed <= i+window; fed++ {
				l.Feed(remote[fed], nil)
			}
			decides.Step(distant, &d)
			rows += int(d.Counters().Remote)
		}
		d.Free()
		decides.Free()
		mem.Free(held)
	}
	return float64(rows) / float64(steps)
}

// policyOf makes a cache of any policy.
func policyOf(t *testing.T, m *access.Graph, r *access.Workload, o policy.Settings, capacity,
	window int, remote [][]graph.VertexID) (decides cache.Policy, held []graph.VertexID) {
	t.Helper()
	kind := policy.Find(o.Policy)
	var err error
	if kind.Static() {
		if held, err = kind.Hold(m, r, capacity); err == nil {
			decides, err = cache.NewStatic(len(r.Topology.Original), held)
		}
	} else {
		decides, held, err = kind.Open(&policy.Setup{
			Graph: m, Workload: r, Settings: &o, Capacity: capacity, Window: window,
			Ahead: slices.Values(remote[:min(window+1, len(remote))]),
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	return decides, held
}

// With more ranks than parts the minibatches are those of smaller ranks: more rows are remote, and
// the plan says that it is an estimate.
func TestMoreRanksThanParts(t *testing.T) {
	s := generated(t, 4)
	last := 0.0
	for _, ranks := range []int{1, 2, 4, 8, 32} {
		j := planJob()
		j.Ranks = ranks
		p := planned(t, s, j, given)
		share := p.Traffic.Reads / float64(ranks) / p.Minibatch.Vertices[3]
		if share <= last && ranks > 1 {
			t.Errorf("%d ranks: %.3f of a minibatch is remote, with half as many ranks %.3f", ranks,
				share, last)
		}
		last = share
		if p.Exact != (ranks <= 4) || p.Analysed != min(ranks, analysed) {
			t.Errorf("%d ranks: exact %t, %d looked at", ranks, p.Exact, p.Analysed)
		}
		if text := strings.Join(p.Notes, "\n"); strings.Contains(text,
			"upper estimate") != (ranks > 4) {
			t.Errorf("%d ranks: the notes are %q", ranks, text)
		}
	}
}

// The memory of ranks that share parts is that of ranks with parts of their own, as far as these
// differ.
func TestMemoryOfMoreRanksThanParts(t *testing.T) {
	typed := dataset.GenerateOptions{Kind: "mag", Vertices: 600, Features: 8, Classes: 4, Seed: 1}
	for name, c := range map[string]struct {
		graph  dataset.GenerateOptions
		change func(*Job)
	}{
		"a cache": {dataset.GenerateOptions{Vertices: 2000, Degree: 10,
			Features: 10, Classes: 4, Seed: 1}, func(j *Job) { j.Cache.Policy = policy.VIP }},
		"types, learned rows and sums": {typed, func(j *Job) { j.Model.Learned, j.Sums = 8, true }},
	} {
		var of [2]trace.Memory
		for i, parts := range []int{4, 8} {
			j := planJob()
			j.Ranks, j.RanksPerNode = 8, 2
			c.change(&j)
			of[i] = planned(t, shardtest.Open(t, c.graph, shardtest.Options{Parts: parts}), j,
				given).Memory
		}
		for _, item := range of[0] {
			x, y := float64(item.Bytes), float64(of[1].Of(item.Name))
			if math.Abs(x-y) > 0.25*max(x, y) { // cuts differ
				t.Errorf("%s: %s take %g bytes, and with parts of their own %g", name, item.Name,
					x, y)
			}
		}
	}
}

func TestBadJobsAreRefused(t *testing.T) {
	s := generated(t, 4)
	for _, c := range []struct {
		name, message string
		change        func(*Job, *Options)
	}{
		{"ranks that fit no parts", "3 ranks cannot share 4 parts",
			func(j *Job, _ *Options) { j.Ranks = 3 }},
		{"more ranks than a list has room for", "4611686018427387904 ranks",
			func(j *Job, _ *Options) { j.Ranks = 1 << 62 }},
		{"a batch beyond any graph", "batch is 9223372036854775807",
			func(j *Job, _ *Options) { j.Batch = math.MaxInt }},
		{"endless cores", "cores is +Inf", func(j *Job, _ *Options) { j.Cores = math.Inf(1) }},
		{"negative ranks", "ranks is -1", func(j *Job, _ *Options) { j.Ranks = -1 }},
		{"no batch", "batch is 0", func(j *Job, _ *Options) { j.Batch = 0 }},
		{"two faults", "pipeline depth is -1",
			func(j *Job, _ *Options) { j.Batch, j.Depth = 0, -1 }},
		{"a policy that nobody knows", `"lru"`,
			func(j *Job, _ *Options) { j.Cache.Policy = "lru" }},
		{"no workers", "-1 workers", func(j *Job, _ *Options) { j.Workers, j.Cores = -1, 1 }},
		{"no threads", "-1 threads", func(j *Job, _ *Options) { j.Threads, j.Cores = -1, 1 }},
		{"window", "cache window is -1", func(j *Job, _ *Options) { j.Cache.Window = -1 }},
		{"delta", "cache delta is -1", func(j *Job, _ *Options) { j.Cache.Delta = -1 }},
		{"alpha", "alpha is NaN", func(j *Job, _ *Options) { j.Cache.Alpha = math.NaN() }},
		{"a model that cannot be", "tree", func(j *Job, _ *Options) { j.Model.Kind = "tree" }},
		{"a negative rate", "a rate is -1", func(_ *Job, o *Options) { o.Rates.Rows = -1 }},
		{"an endless rate", "a rate is +Inf",
			func(_ *Job, o *Options) { o.Rates.Network = math.Inf(1) }},
		{"nothing to measure with", "no device", func(_ *Job, o *Options) { o.Rates.Rows = 0 }},
	} {
		j, o := planJob(), given
		c.change(&j, &o)
		_, err := New(s, j, o)
		if err == nil || !strings.Contains(err.Error(), c.message) {
			t.Errorf("%s: the error is %v; it should speak of %q", c.name, err, c.message)
		}
		parts := c.name == "ranks that fit no parts"
		if job := !parts && c.name != "nothing to measure with"; errors.Is(err,
			ErrParts) != parts || errors.Is(err, ErrJob) != job {
			t.Errorf("%s: %v is ErrParts %t, ErrJob %t", c.name, err, parts, job)
		}
	}
}

func TestRatesAreMeasured(t *testing.T) {
	s, rated := generated(t, 2), shardtest.Open(t, dataset.GenerateOptions{Vertices: 4000,
		Degree:   6,
		Features: 4, Classes: 4, SplitLinks: "80/10/10", Seed: 1}, shardtest.Options{Parts: 2})
	for _, c := range []struct {
		kind    string
		sharing sample.Sharing
		score   string
	}{{"sage", sample.Alone, ""}, {"mlp", sample.Alone, ""}, {"sage", sample.Together, ""},
		{"sage", sample.Alone, task.MLP}, {"mlp", sample.Alone, task.DistMult}} {
		j, kind, s := planJob(), c.kind, s
		if j.Links.Score = c.score; c.score != "" {
			j.Links.Negatives, s = sample.Negatives{Kind: sample.NegativesJoint, Count: 4}, rated
		}
		j.Model.Kind, j.Model.Layers, j.Sample = kind, 2, sample.Neighbours(4, 3)
		j.Mode.Sharing = c.sharing
		device, before := ref.New(), mem.Allocated()
		p, err := New(s, j, Options{Device: device, Host: ref.Host{}})
		if err != nil {
			t.Fatal(err)
		}
		if err := device.Close(); err != nil || mem.Allocated() != before {
			t.Errorf("%s: %d bytes were not given back (%v)", kind, mem.Allocated()-before, err)
		}
		for name, x := range map[string]float64{"edges": p.Rates.Sample, "lookups": p.Rates.Lookups,
			"rows": p.Rates.Rows, "flop": p.Rates.Flops} {
			if !(x > 1e3) || math.IsInf(x, 1) {
				t.Errorf("%s: %g %s a second", kind, x, name)
			}
		}
		if p.Rates.Network != AssumedNetwork ||
			!strings.Contains(strings.Join(p.Notes, "\n"), "assumed") {
			t.Errorf("%s: the network is %g, the notes are %q", kind, p.Rates.Network, p.Notes)
		}
		if kind == "mlp" && c.score == "" && p.Traffic.Reads != 0 { // negatives lie anywhere
			t.Errorf("a model without neighbours reads %g remote rows", p.Traffic.Reads)
		}
	}
}

// A device that knows its peak has it beside the rate of training, unless that rate was given.
func TestPeakStandsBesideTheRate(t *testing.T) {
	s := generated(t, 2)
	device, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer device.Close()
	o := Options{Device: device, Host: ref.Host{}}
	p, err := New(s, planJob(), o)
	if err != nil {
		t.Fatal(err)
	}
	if r := p.Rates; compute.CapabilitiesOf(device).Peaks == nil {
		if r.Peak != 0 {
			t.Errorf("a device without a peak has %g", r.Peak)
		}
	} else if text := ofPeak(r); !(r.Flops > 0 && r.Flops < r.Peak) ||
		!strings.Contains(text, "of the peak") {
		t.Errorf("%g flop/s of %g: %q", r.Flops, r.Peak, text)
	}
	o.Rates.Flops = 1e10
	if p, err = New(s, planJob(), o); err != nil || p.Rates.Peak != 0 {
		t.Errorf("beside a rate that was given there is a peak of %g", p.Rates.Peak)
	}
}

// The slower the network, the larger the suggested cache; with a fast enough network no cache is
// suggested.
func TestSuggestion(t *testing.T) {
	s := generated(t, 4)
	last := -1.0
	for _, network := range []float64{1e12, 1e7, 3e6, 1e5} {
		j, o := planJob(), given
		o.Rates.Network = network
		p := planned(t, s, j, o)
		if p.Suggestion.Alpha < last {
			t.Errorf("network %g: alpha %g is suggested, for a faster one %g", network,
				p.Suggestion.Alpha, last)
		}
		last = p.Suggestion.Alpha
		x := p.Times // the model, written out
		train := x.Train + x.Sync
		prepare := x.Sample + x.Lookup + max(x.Score, x.Remote, x.Copy)
		if x.Base != x.Sample+max(x.Remote, x.Copy)+train || x.Prepare != prepare ||
			x.Prefetch != max(prepare, train) {
			t.Errorf("network %g: the model of %+v", network, x)
		}
		if binds := p.Times.Binds == "network"; binds != (network < 1e12) && network != 1e7 {
			t.Errorf("network %g: %s binds", network, p.Times.Binds)
		}
		for i := 1; i < len(p.Curve); i++ {
			if p.Curve[i].Rows > p.Curve[i-1].Rows+1e-6 {
				t.Errorf("alpha %g leaves %.1f rows, more than %.1f with less", p.Curve[i].Alpha,
					p.Curve[i].Rows, p.Curve[i-1].Rows)
			}
		}
		if network == 1e5 {
			o.Memory = p.MemoryRank + p.Curve[3].Bytes
			if tight := planned(t, s, j, o); tight.Suggestion.Alpha > p.Curve[3].Alpha ||
				tight.Suggestion.Alpha == 0 {
				t.Errorf("with room for alpha %g, %g is suggested", p.Curve[3].Alpha,
					tight.Suggestion.Alpha)
			}
		}
	}
	if last <= 0 {
		t.Error("no cache is suggested for a slow network")
	}
}

// A cache fits if the caches of all ranks of a node fit beside the node's shared memory. A node has
// no more ranks than the job.
func TestWhatFitsANode(t *testing.T) {
	s := generated(t, 4)
	for _, perNode := range []int{1, 2, 4, 1 << 40} {
		j, o := planJob(), given
		j.RanksPerNode, j.Cache.Policy = perNode, policy.VIP
		p := planned(t, s, j, o)
		if p.RanksPerNode != min(perNode, 4) {
			t.Errorf("%d ranks a node are planned of 4", p.RanksPerNode)
		}
		if p.RanksPerNode == 4 { // no row is remote
			if p.Traffic.Policy != policy.None || p.Memory.Of(trace.MemCacheRows) != 0 ||
				p.Traffic.Reads != 0 || p.Curve != nil {
				t.Errorf("one node is planned to have a cache: %+v", p.Traffic)
			}
			continue
		}
		cached := p.Memory.Of(trace.MemCacheRows) + p.Memory.Of(trace.MemCacheIndex)
		if o.Memory = p.MemoryNode; planned(t, s, j, o).lacks() != "" {
			t.Error("a job does not fit the memory that it needs")
		}
		o.Memory--
		if text := planned(t, s, j, o).lacks(); !strings.HasPrefix(text, "DOES NOT FIT") ||
			strings.Contains(text, "fewer ranks a node") != (perNode > 1) {
			t.Errorf("a byte less than is needed: %q", text)
		}
		o.Memory = p.MemoryNode + int64(perNode)*(p.Curve[3].Bytes-cached)
		for i, point := range planned(t, s, j, o).Curve {
			if want := point.Bytes <= p.Curve[3].Bytes; point.Fits != want || i == 3 && !want {
				t.Errorf("%d ranks a node: alpha %g fits: %t, want %t", perNode, point.Alpha,
					point.Fits, want)
			}
		}
	}
}

func TestReports(t *testing.T) {
	j := planJob()
	j.Cache.Policy = policy.Lookahead
	p := planned(t, generated(t, 2), j, given)
	var table, text bytes.Buffer
	if err := p.Print(&table); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"features (one copy a node)", "t_remote", "T_prefetch", "binds",
		"suggested: cache.policy"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("the tables do not have %q:\n%s", want, &table)
		}
	}
	if err := p.WriteJSON(&text); err != nil {
		t.Fatal(err)
	}
	var back Prediction
	if err := json.Unmarshal(text.Bytes(), &back); err != nil {
		t.Fatal(err)
	}
	if back.MemoryRank != p.MemoryRank || back.Memory.Sum() != p.MemoryRank ||
		back.Traffic.Rows != p.Traffic.Rows || back.Traffic.Window < 1 {
		t.Errorf("plan.json reads as %+v", back)
	}
}
