package simulate

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/data/dataset"
	"halognn/src/data/shard"
	"halognn/src/data/shard/shardtest"
	"halognn/src/rows/access"
	"halognn/src/rows/policy"
	"halognn/src/step/job"
	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
)

// generated is a small graph in six parts.
func generated(t *testing.T) *shard.Shards {
	t.Helper()
	return generatedOf(t, 600)
}

func generatedOf(t *testing.T, vertices int) *shard.Shards {
	t.Helper()
	return ordered(t, vertices, nil)
}

// ordered is generated with the vertices of a part in order of a score.
func ordered(t *testing.T, vertices int,
	score func(testing.TB, *dataset.Dataset, []int32) []float32) *shard.Shards {
	t.Helper()
	graph := dataset.GenerateOptions{Vertices: vertices, Degree: 6, Features: 6, Classes: 4,
		Seed: 1}
	return shardtest.Open(t, graph, shardtest.Options{Parts: 6, Order: score})
}

func options() Options {
	return Options{
		Spec: job.Spec{
			Sample: sample.Neighbours(3, 2), Batch: 16, Seed: 4, Epochs: 2,
			Cache: policy.Settings{Gamma: 0.9, Delta: 3, Evict: true, Initial: policy.Degree},
		},
		Policies: Policies(), Alphas: []float64{0, 0.1, 0.5, 1, 5}, Workers: 2,
	}
}

func simulated(t *testing.T, s *shard.Shards, o Options) *Result {
	t.Helper()
	sim, err := New(s, o)
	if err != nil {
		t.Fatal(err)
	}
	defer sim.Close()
	r, err := sim.Run()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Each part ordered for a run begins with the vertices that the run's minibatches of that part read
// most.
func TestPartsOrderedForARun(t *testing.T) {
	o := options()
	s := ordered(t, 600, func(t testing.TB, d *dataset.Dataset, part []int32) []float32 {
		m, err := access.New(d.Graph, access.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Free()
		train := make([][]graph.VertexID, 6)
		for _, v := range d.Split.Train {
			train[part[v]] = append(train[part[v]], v)
		}
		heat, err := m.OwnParts(part, train, o.Batch, o.Sample.Fanouts)
		if err != nil {
			t.Fatal(err)
		}
		return heat
	})
	sim, err := New(s, o)
	if err != nil {
		t.Fatal(err)
	}
	defer sim.Close()
	m, err := access.New(&s.Topology().Graph, access.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Free()
	for k := range s.Parts {
		r := sim.reader(k, 1)
		p, err := m.Reads(r)
		if err != nil {
			t.Fatal(err)
		}
		for v := s.Offsets[k] + 1; v < s.Offsets[k+1]; v++ {
			if p[v] > p[v-1]+1e-6 {
				t.Errorf("part %d: row %d is read with %g, the one before with %g", k,
					v-s.Offsets[k], p[v], p[v-1])
			}
		}
		mem.Free(p)
	}
}

// A planned window is as good as knowing all minibatches, also in a run of many epochs; without
// evictions, a buffer is the static cache that it is filled by.
func TestPlannedWindowIsTheOptimum(t *testing.T) {
	s := generated(t)
	o := options()
	o.Alphas, o.Epochs, o.Cache.Evict = []float64{0.05, 0.1, 0.2, 0.5, 1}, 6, false
	o.Ranks, o.Batch = 3, 20
	r := simulated(t, s, o)
	at := func(name string) []int64 { return r.Rows[slices.Index(o.Policies, name)] }
	for i, alpha := range o.Alphas {
		got, best := at(policy.Lookahead)[i], at(policy.Optimum)[i]
		t.Logf("alpha %g: a window of %d of %d steps transfers %d rows, the optimum %d, the "+
			"static oracle %d", alpha, r.Windows[slices.Index(o.Policies, policy.Lookahead)][i],
			r.Steps, got, best, at(policy.Oracle)[i])
		if float64(got) > 1.01*float64(best) {
			t.Errorf("alpha %g: a window of %d steps transfers %d rows, the optimum %d", alpha,
				r.Windows[slices.Index(o.Policies, policy.Lookahead)][i], got, best)
		}
		if at(policy.Prefetch)[i] != at(policy.Degree)[i] {
			t.Errorf("alpha %g: a buffer that evicts nothing transfers %d rows, a static cache %d",
				alpha, at(policy.Prefetch)[i], at(policy.Degree)[i])
		}
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
		}, []string{"cannot be combined with cache.initial inclusion, because it is computed " +
			"from fanouts"}},
		{"unknown policy", func(o *Options) { o.Policies = []string{"lru"} },
			[]string{`"lru"`, "vip"}},
		{"a model without neighbours", func(o *Options) { o.Model.Kind = "mlp" },
			[]string{"mlp reads no neighbours"}},
		{"policy twice", func(o *Options) { o.Policies = []string{"vip", "vip"} },
			[]string{"vip is named twice"}},
		{"no policy", func(o *Options) { o.Policies = nil }, []string{"no policies"}},
		{"no alpha", func(o *Options) { o.Alphas = nil }, []string{"no cache sizes"}},
		{"alphas fall", func(o *Options) { o.Alphas = []float64{0.2, 0.1} },
			[]string{"0.1 comes after 0.2"}},
		{"alpha", func(o *Options) { o.Alphas = []float64{-1} }, []string{"alpha -1"}},
		{"ranks", func(o *Options) { o.Ranks = 4 }, []string{"6 parts, but the job has 4 ranks"}},
		{"two kinds of sizes", func(o *Options) { o.HaloFractions = []float64{0.1} },
			[]string{"--alphas and --halo-fractions exclude"}},
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
			[]string{
				"policy optimum tells how many rows are fetched but not which, and nodes that " +
					"fetch as one need to know which; leave it out, or set exchange.nodes=off",
			}},
		{"nodes that fetch as one, near draws",
			func(o *Options) { near(o); o.AsNodes, o.RanksPerNode = true, 2 },
			[]string{"together with draws that depend on the cache"}},
		{"parts of owners", func(o *Options) { o.Cache.Placement = policy.PlacementParts },
			[]string{"cache.placement is parts, which cannot be combined with cache.source " +
				"owners"}},
		{"halo of files", func(o *Options) {
			o.Cache.Source, o.Alphas, o.HaloFractions = policy.SourceFiles, nil, []float64{0.5}
		}, []string{"give --alphas"}},
		{"locality of draws of all alike", func(o *Options) { o.Locality.Favour = 2 },
			[]string{"cannot be combined with sample.kind neighbour, because it draws all " +
				"neighbours with the same probability",
				"sample.locality_vertices is 0"}},
		{"locality and what is known in advance", func(o *Options) { near(o) },
			[]string{"cannot be combined with cache.policy oracle, because it samples",
				"combined with cache.policy lookahead", "combined with cache.policy optimum"}},
		{"locality that adapts to a cache that changes",
			func(o *Options) {
				near(o)
				o.Policies = []string{policy.Sieve}
				o.Locality.Adapts = true
				o.Locality.Adaption = job.Adaption{Lower: 0.5, Upper: 0.1, Link: -1}
			},
			[]string{
				"combined with cache.policy sieve",
				"locality_lower is 0.5, above sample.locality_upper, which is 0.1",
				"sample.locality_link is -1 bytes/s and sample.locality_edges is 0 edges/s",
			}},
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
