package simulate

import (
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
	"halognn/src/model/nn"
	"halognn/src/rows/policy"
	"halognn/src/step/job"
	"halognn/src/step/parallel"
	"halognn/src/topology/sample"
	"halognn/tests/race"
)

// Bounds for any graph: no static cache beats the oracle, no policy beats the optimum, and a larger
// oracle cache never transfers more rows. A cache whose first rows are sure to be read transfers no
// more rows than no cache, even in the shortest run.
func TestBounds(t *testing.T) {
	o := options()
	r := simulated(t, generated(t), o)
	at := func(name string) []int64 { return r.Rows[slices.Index(o.Policies, name)] }
	for p, name := range o.Policies {
		for a, alpha := range o.Alphas {
			rows := r.Rows[p][a]
			if rows < at(policy.Optimum)[a] {
				t.Errorf("alpha %g: %s fetches %d rows, fewer than the optimum's %d", alpha, name,
					rows, at(policy.Optimum)[a])
			}
			if policy.Find(name).Static() && rows < at(policy.Oracle)[a] {
				t.Errorf("alpha %g: %s fetches %d rows, fewer than the oracle's %d", alpha, name,
					rows, at(policy.Oracle)[a])
			}
			if alpha == 0 && rows != r.Remote {
				t.Errorf("%s without room fetches %d rows, want all %d", name, rows, r.Remote)
			}
			all := rows + r.Filled[p][a]
			if (name == policy.Lookahead || name == policy.Optimum) && all > r.Remote {
				t.Errorf("alpha %g: %s transfers %d rows with its first fill; without a cache %d",
					alpha, name, all, r.Remote)
			}
			if name == policy.Oracle && alpha == 5 && rows != 0 {
				t.Errorf("an oracle with room for everything fetches %d rows", rows)
			}
		}
	}
	none := slices.Index(o.Policies, policy.None)
	counted, _ := r.PerEpoch(none, 0)
	if off := math.Abs(r.Predicted[none][0]/counted - 1); off > 0.05 {
		t.Errorf("%.1f rows an epoch predicted, %.1f counted", r.Predicted[none][0], counted)
	}
}

// A policy with settings of its own counts what it counts where these are the run's.
func TestOwnSettings(t *testing.T) {
	s := generated(t)
	const own = "prefetch:delta=3:leave=unused"
	o := options()
	set := o.Cache
	set.Delta, set.Leave = 3, policy.LeaveUnused
	o.Policies, o.Own = []string{policy.Prefetch, own}, map[string]policy.Settings{own: set}
	both := simulated(t, s, o)
	o.Policies, o.Own, o.Cache = []string{policy.Prefetch}, nil, set
	alone := simulated(t, s, o)
	if !slices.Equal(both.Rows[1], alone.Rows[0]) {
		t.Errorf("%s: %d rows, %d where the run has the settings", own, both.Rows[1], alone.Rows[0])
	}
	if slices.Equal(both.Rows[0], both.Rows[1]) {
		t.Errorf("%d rows by either setting", both.Rows[0])
	}
}

func TestBadOptions(t *testing.T) {
	s := generated(t)
	for _, c := range []struct {
		name string
		bad  func(*Options)
		want []string
	}{
		{"all at once", func(o *Options) { o.Batch, o.Epochs, o.Sample.Fanouts = 0, 0, nil },
			[]string{"batch is 0", "epochs is 0", "no fanouts"}},
		{"fanout", func(o *Options) { o.Sample.Fanouts = []int{3, 0} },
			[]string{"fanouts[1] is 0"}},
		{"no fanouts for a formula", func(o *Options) {
			o.Sample = sample.Spec{Kind: sample.LADIES, Vertices: []int{5}}
			o.Policies = []string{"degree", "vip"}
		}, []string{"sample.kind is ladies, which cannot be combined with cache.policy vip"}},
		{"no fanouts for the first fill", func(o *Options) {
			o.Sample = sample.Spec{Kind: sample.LADIES, Vertices: []int{5}}
			o.Policies, o.Cache.Initial = []string{"degree", "prefetch"}, "inclusion"
		}, []string{"cannot be combined with cache.initial inclusion, because it follows from " +
			"fanouts"}},
		{"unknown policy", func(o *Options) { o.Policies = []string{"lru"} },
			[]string{`"lru"`, "vip"}},
		{"a model without neighbours", func(o *Options) { o.Model.Kind = "mlp" },
			[]string{"mlp reads no neighbours"}},
		{"policy twice", func(o *Options) { o.Policies = []string{"vip", "vip"} },
			[]string{"vip is named twice"}},
		{"no policy", func(o *Options) { o.Policies = nil }, []string{"no policies"}},
		{"no alpha", func(o *Options) { o.Alphas = nil }, []string{"no alphas"}},
		{"alphas fall", func(o *Options) { o.Alphas = []float64{0.2, 0.1} },
			[]string{"0.1 comes after 0.2"}},
		{"alpha", func(o *Options) { o.Alphas = []float64{-1} }, []string{"alpha -1"}},
		{"ranks", func(o *Options) { o.Ranks = 4 }, []string{"6 parts, 4 ranks"}},
		{"two kinds of sizes", func(o *Options) { o.HaloFractions = []float64{0.1} },
			[]string{"alphas and halo fractions"}},
		{"halo fraction", func(o *Options) { o.Alphas, o.HaloFractions = nil, []float64{0.5, 0.1} },
			[]string{"halo fraction 0.1 comes after 0.5"}},
		{"more than can be", func(o *Options) {
			o.Batch, o.Epochs, o.Workers = math.MaxInt,
				math.MaxInt, math.MaxInt
		},
			[]string{"batch is 9223372036854775807; it must be 1 to", "epochs is", "workers is"}},
		{"a node shares what changes",
			func(o *Options) { o.Cache.Placement = policy.PlacementGroup },
			[]string{"cache.placement is group, which cannot be combined with cache.policy sieve",
				"cache.policy optimum"}},
		{"nodes that fetch as one", func(o *Options) { o.AsNodes, o.RanksPerNode = true, 2 },
			[]string{"set exchange.nodes=off"}},
		{"parts of owners", func(o *Options) { o.Cache.Placement = policy.PlacementParts },
			[]string{"cache.placement is parts, which cannot be combined with cache.source " +
				"owners"}},
		{"halo of files", func(o *Options) {
			o.Cache.Source, o.Alphas, o.HaloFractions = policy.SourceFiles, nil, []float64{0.5}
		}, []string{"give alphas"}},
		{"locality of draws of all alike", func(o *Options) { o.Locality.Favour = 2 },
			[]string{"cannot be combined with sample.kind neighbour, because it draws all " +
				"neighbours alike",
				"locality vertices is 0"}},
		{"locality and what is known in advance", func(o *Options) { near(o) },
			[]string{"cannot be combined with cache.policy oracle, because it samples",
				"combined with cache.policy lookahead", "combined with cache.policy optimum"}},
		{"locality that adapts to a cache that changes", func(o *Options) {
			near(o)
			o.Policies = []string{policy.Sieve}
			o.Locality.Adapts, o.Locality.Adaption = true, job.Adaption{Lower: 0.5, Upper: 0.1,
				Link: -1}
		}, []string{"combined with cache.policy sieve", "locality_lower is 0.5, above sample.locality_upper, " +
			"which is 0.1",
			"locality link is -1 bytes/s and edges 0 edges/s"}},
		{"locality and sums", func(o *Options) {
			near(o)
			o.Policies, o.Sums, o.Model.Kind = []string{policy.VIP}, true, "sage"
		}, []string{"set exchange.sums=off, or sample.locality=1"}},
		{"adapting up to nothing", func(o *Options) {
			o.Locality.Adapts, o.Locality.Adaption = true, job.Adaption{Upper: 1, Link: 1, Edges: 1}
		}, []string{"sample.locality_adapt adapts a factor up to sample.locality, which is 0"}},
		{"a factor below 1", func(o *Options) { o.Locality.Favour = 0.5 },
			[]string{"locality is 0.5; it must be at least 1"}},
		{"last short", func(o *Options) { o.LastShort, o.GlobalSeeds = true, true },
			[]string{"last-short"}},
		{"a mode", func(o *Options) { o.Mode.Sharing = sample.Together },
			[]string{"simulate modes"}},
	} {
		o := options()
		c.bad(&o)
		_, err := New(s, o)
		if err == nil {
			t.Errorf("%s: no error", c.name)
			continue
		}
		if options := c.name != "ranks"; errors.Is(err, ErrOptions) != options {
			t.Errorf("%s: %v is ErrOptions: %t, want %t", c.name, err, !options, options)
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q does not say %q", c.name, err, want)
			}
		}
	}
}

// Nodes that fetch as one are counted where there are none: of one rank each, or a single one.
func TestNodesWithoutEffect(t *testing.T) {
	for _, node := range []int{0, 1, 6} {
		o := options()
		o.AsNodes, o.Ranks, o.RanksPerNode = true, 6, node
		if err := o.Check(); err != nil {
			t.Errorf("%d ranks a node: %v", node, err)
		}
	}
}

// Of a graph with vertex types no model is counted that training refuses.
func TestModelThatTellsNoTypesApart(t *testing.T) {
	s := shardtest.Open(t, dataset.GenerateOptions{Kind: dataset.MAG, Vertices: 100, Classes: 4,
		Features: 1, Seed: 3}, shardtest.Options{Parts: 6})
	o, modes := options(), modeOptions()
	o.Policies, o.Model.Kind, modes.Model.Kind = []string{policy.None}, "gcn", "gcn"
	_, err := New(s, o)
	_, both := CompareModes(s, modes)
	for _, err := range []error{err, both} {
		if !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(),
			"gcn does not tell apart") {
			t.Error(err)
		}
	}
}

// Sparse rows are cached if they stay, and ranks that share minibatches do not share them.
func TestSparseRows(t *testing.T) {
	s := shardtest.Cut(t, shardtest.Bare(t, shardtest.BareOptions{Sparse: true}),
		shardtest.Options{Parts: 4})
	o := options()
	o.Policies = []string{policy.Lookahead}
	if _, err := New(s, o); !errors.Is(err, ErrOptions) ||
		!strings.Contains(err.Error(), "cannot be combined with cache.policy lookahead") {
		t.Errorf("lookahead of sparse rows: %v", err)
	}
	o.Sparse = true
	if o.Policies = o.Possible(); !slices.Equal(o.Policies, policy.Names((*policy.Policy).Static)) {
		t.Errorf("possible: %v", o.Policies)
	}
	sim, err := New(s, o)
	if err != nil {
		t.Fatal(err)
	}
	sim.Close()
	m, err := CompareModes(s, modeOptions())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range m.Counts {
		if c.Mode != parallel.ModeData {
			t.Errorf("mode %s of sparse rows is counted", c.Mode)
		}
	}
}

// Rounds are counted in minibatches, of which a rank may train several in a step.
func TestRoundsAreCountedInMinibatches(t *testing.T) {
	for _, c := range []struct {
		name        string
		minibatches int // of a step
		delta       int
		own         bool
		want        []string // hit rates: before the first round, and after each round shown
	}{
		{"one a step", 1, 4, false, []string{"after 0 rounds 0.1500", "after 1 rounds 0.5500"}},
		{"settings of its own", 1, 4, true, []string{"after 0 rounds 0.1500",
			"after 1 rounds 0.5500"}},
		{"two a step", 2, 4, false, []string{"after 0 rounds 0.0500", "after 1 rounds 0.2500",
			"after 3 rounds 0.6500"}},
		{"a round within a step", 3, 4, false,
			[]string{"after 0 rounds 0.0000", "after 1 rounds 0.1000", "after 2 rounds 0.2500",
				"after 5 rounds 0.6500"}},
		{"several rounds in a step", 8, 2, false, []string{"after 0 rounds 0.0000",
			"after 31 rounds 0.7000"}},
		{"no round", 1, 8, false, nil},
	} {
		r := &Result{
			Options: Options{
				Spec:     job.Spec{Cache: policy.Settings{Delta: c.delta, Evict: true}},
				Policies: []string{policy.Prefetch}, Alphas: []float64{1},
			}, Minibatches: c.minibatches,
			Traces: [][]Trace{{nil}},
		}
		if c.own { // the policy has settings of its own, the config others
			r.Options.Policies[0] += ":delta=4"
			r.Options.Own = map[string]policy.Settings{r.Options.Policies[0]: r.Options.Cache}
			r.Options.Cache = policy.Settings{Delta: 3}
		}
		for step := range int64(8) { // the hit rate of a step is a tenth of its number
			r.Each, r.Traces[0][0] = append(r.Each, 10),
				append(r.Traces[0][0], trace.Counters{Remote: 10 - step, Cached: step})
		}
		table := r.rounds(func(string) []string { return nil })
		var rows []string
		for _, row := range table {
			rows = append(rows, strings.Join(row, " "))
		}
		for _, want := range c.want {
			if !slices.Contains(rows, want) {
				t.Errorf("%s: %q is not in %q", c.name, want, rows)
			}
		}
		if (c.want == nil) != (table == nil) {
			t.Errorf("%s: %q", c.name, rows)
		}
	}
}

// No simulation uses more memory than the formula gives, nor much less: for static policies, for
// sim, and for dynamic policies.
func TestMemoryIsThatOfTheFormula(t *testing.T) {
	race.Alone(t)
	plain := generatedOf(t, 60000)
	typed := shardtest.Open(t, dataset.GenerateOptions{Kind: dataset.MAG, Vertices: 15000,
		Features: 6,
		Classes:  4, Seed: 1}, shardtest.Options{Parts: 6, Features: shard.FeaturesDegree})
	types := func(o *Options) {
		o.Model = nn.Config{Kind: "rgcn", Layers: 2, Hidden: 8}
	}
	for _, c := range []struct {
		policies []string
		ranks    int
		set      func(o *Options)
	}{
		{[]string{policy.VIP, policy.Inclusion}, 3, types},
		{[]string{policy.Prefetch}, 3, types},
		{[]string{policy.Lookahead}, 3, types},
		{[]string{policy.None, policy.VIP, policy.Oracle}, 3, func(*Options) {}},
		{[]string{policy.Degree}, 3, func(*Options) {}},
		{[]string{policy.Sim}, 1, func(*Options) {}},
		{[]string{policy.Sim}, 6, func(*Options) {}},
		{[]string{policy.Sieve, policy.Optimum}, 3, func(*Options) {}},
		{[]string{policy.Prefetch}, 3, func(*Options) {}},
		{[]string{policy.Lookahead}, 3, func(*Options) {}},
		{[]string{policy.VIP, policy.Sim}, 3, near}, {[]string{policy.Prefetch}, 3, near},
	} {
		o := options()
		c.set(&o)
		s := plain
		if o.Model.Kind != "" {
			s = typed
		}
		o.Policies, o.Ranks, o.Batch, o.Epochs, o.Alphas = c.policies, c.ranks, 6000, 1,
			[]float64{0.1, 0.5}
		var r *Result
		sim, err := New(s, o)
		if err != nil {
			t.Fatal(err)
		}
		peak := peakOf(func() {
			if r, err = sim.Run(); err != nil {
				t.Fatal(err)
			}
		})
		together := min(o.Workers, o.Ranks)
		each := o.Workers / together
		arrays := int64(together) * sim.rankBytes(each, r.used, r.Capacity)
		if sim.job.FavoursNear() {
			arrays = sim.nearBytes(together, each, r.used, r.Capacity)
		}
		arrays += 12 * int64(sim.job.Streams.Streams()*sim.job.Steps()*o.Batch) // orders of seeds
		if sim.transposed {
			arrays += 4*s.Edges + 8*s.Vertices + 4*sim.columns()
		}
		if slack := int64(1 << 18); peak > arrays+slack || arrays > 4*peak {
			t.Errorf("%v, %d ranks: %d bytes are said to be held, and %d are", c.policies, c.ranks,
				arrays, peak)
		}
		t.Logf("%v, %d ranks: %d bytes are said to be held, and %d are", c.policies, c.ranks,
			arrays, peak)
		if r.Bytes < arrays {
			t.Errorf("%v: %d bytes in all, %d of them arrays", c.policies, r.Bytes, arrays)
		}
		sim.Close()
	}
}

// near makes vertices at hand likelier.
func near(o *Options) {
	o.Sample.Kind, o.Locality.Favour, o.Locality.Vertices = sample.Poisson, 4, 100
}

// peakOf returns how many bytes of arrays f holds at once at most, beyond those there are. The peak
// that package mem keeps is of all time, so an array that nobody touches raises what is held to it
// first: then it moves by f alone.
func peakOf(f func()) int64 {
	ballast := mem.Make[byte](int(mem.PeakAllocated() - mem.Allocated()))
	defer mem.Free(ballast)
	before := mem.Allocated()
	f()
	return mem.PeakAllocated() - before
}
