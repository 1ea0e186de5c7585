package train

import (
	"context"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/base/trace"
	"halognn/src/data/shard"
	"halognn/src/data/shard/shardtest"
	"halognn/src/forecast/plan"
	"halognn/src/forecast/simulate"
	"halognn/src/model/nn"
	"halognn/src/ranks/comm"
	"halognn/src/rows/access"
	"halognn/src/rows/policy"
	"halognn/src/runs/record"
	"halognn/src/runs/session/sessiontest"
	"halognn/src/step/job"
	"halognn/src/step/parallel"
	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
	"halognn/tests/race"
)

// Ranks of a node that fetch as one come to the numbers of ranks that fetch for themselves, with
// any model, sampler, cache, depth and topology, on nodes that are alike or not. What crosses is
// less: rows that several want are fetched once.
func TestNodesThatFetchAsOneKeepTheNumbers(t *testing.T) {
	race.Alone(t)
	four, three := generatedIn(t, 4), generatedIn(t, 3)
	labor := sample.Neighbours(4, 3, 2)
	labor.Kind = sample.Labor
	group := policy.Settings{Policy: policy.VIP, Alpha: 0.1, Placement: policy.PlacementGroup,
		PeerCost: 0.3}
	for _, c := range []struct {
		name   string
		ranks  int
		change func(*Options)
	}{
		{"sage", 4, func(*Options) {}},
		{"sage, nothing ahead", 4, func(o *Options) { o.Depth = 0 }},
		{"sage, one node smaller", 3, func(*Options) {}},
		{"gat by labor", 4, func(o *Options) {
			o.Model.Kind, o.Model.Heads, o.Model.Hidden, o.Sample = "gat", 2, 6, labor
		}},
		{"gat, one node smaller, nothing ahead", 3, func(o *Options) {
			o.Model.Kind, o.Model.Heads, o.Model.Hidden, o.Depth = "gat", 2, 6, 0
		}},
		{"sage by labor, all edges in evaluation", 3,
			func(o *Options) { o.Sample, o.EvalFull = labor, true }},
		{"several streams a rank", 2, func(o *Options) { o.StreamPerPart = true }},
		{"partitioned", 4, func(o *Options) { o.Partitioned = true }},
		{"sums", 4, func(o *Options) { o.Sums = true }},
		{"weighted sums", 4, func(o *Options) { o.Model.Kind, o.Sums = "gcn", true }},
		{"sums, look-ahead", 4, func(o *Options) {
			o.Sums = true
			o.Cache = policy.Settings{Policy: policy.Lookahead, Alpha: 0.1}
		}},
		{"static caches", 4, func(o *Options) {
			o.Cache = policy.Settings{Policy: policy.VIP, Alpha: 0.1}
		}},
		{"a divided cache", 4, func(o *Options) { o.Cache = group }},
		{"draws that adapt", 4, func(o *Options) {
			*o = nearby(sample.Poisson)
			o.Epochs = 4
			o.Locality.Adapts = true
			o.Locality.Adaption = job.Adaption{Lower: 0.25, Upper: 0.38, Link: 2e5, Edges: 6e4}
		}},
		{"look-ahead", 4, func(o *Options) {
			o.Cache = policy.Settings{Policy: policy.Lookahead, Alpha: 0.1}
		}},
		{"look-ahead that levels, one node smaller", 3, func(o *Options) {
			o.Cache = policy.Settings{Policy: policy.Lookahead, Alpha: 0.1, Level: true}
		}},
		{"sieve, nothing ahead", 4, func(o *Options) {
			o.Cache = policy.Settings{Policy: policy.Sieve, Alpha: 0.1}
			o.Depth = 0
		}},
		{"rounds", 4, func(o *Options) {
			o.Cache = policy.Settings{Policy: policy.Prefetch, Alpha: 0.1, Gamma: 0.9, Delta: 2,
				Evict: true, Initial: policy.Degree}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			shards := four
			if c.ranks == 3 {
				shards = three
			}
			o := sageOptions()
			c.change(&o)
			nodes := 2
			if c.ranks == 2 { // of one rank each: nothing is shared
				nodes = 1
			}
			off := asNodes(t, shards, c.ranks, nodes, o, false)
			on := asNodes(t, shards, c.ranks, nodes, o, true)
			holdToEachOther(t, off, on, nodes > 1)
		})
	}
}

// asNodes trains with and without ranks that fetch as one.
func asNodes(t *testing.T, s *shard.Shards, ranks, node int, o Options, on bool) *record.Summary {
	t.Helper()
	o.AsNodes = on
	var sum *record.Summary
	dir := t.TempDir()
	err := comm.RunWorld(ranks, func(c comm.Comm) error {
		of := s
		if o.Partitioned { // of which a rank maps its own part
			own, err := shard.Open(s.Dir, shard.Options{Rank: c.Rank(), Ranks: ranks})
			if err != nil {
				return err
			}
			defer own.Close()
			of = own
		}
		env := sessiontest.Env(c, of)
		env.RanksPerNode = node
		got, err := Run(context.Background(), Env{Env: env, Dir: dir}, o)
		if c.Rank() == 0 {
			sum = got
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

// holdToEachOther compares a run of ranks that fetch for themselves with one of ranks that fetch as
// one.
func holdToEachOther(t *testing.T, off, on *record.Summary, shares bool) {
	t.Helper()
	if on.LossDigest != off.LossDigest || on.WeightsDigest != off.WeightsDigest ||
		on.BlocksDigest != off.BlocksDigest || *on.TestAccuracy != *off.TestAccuracy {
		t.Errorf("other numbers: %+v, %+v", on.Quality, off.Quality)
	}
	if !reflect.DeepEqual(on.Locality, off.Locality) {
		t.Errorf("draws adapt to %+v, and to %+v if each rank fetches for itself", on.Locality,
			off.Locality)
	}
	if shares && on.ExpectedRowsPerStep != 0 {
		t.Errorf("%g rows a step are predicted, of ranks that fetch for themselves",
			on.ExpectedRowsPerStep)
	}
	if off.Shared != 0 || off.NodeBytes != 0 {
		t.Errorf("ranks share %d rows, though each fetches for itself", off.Shared)
	}
	if on.Cached != off.Cached || on.PeerCached != off.PeerCached || on.Local != off.Local ||
		on.Summed != off.Summed || on.Sums != off.Sums ||
		// Means, rounded down.
		off.Fetched-on.Fetched-on.Shared < 0 || off.Fetched-on.Fetched-on.Shared > 1 {
		t.Errorf("%+v, but each rank for itself %+v", on.Rows, off.Rows)
	}
	if shares != (on.Shared > 0) || on.Remote > off.Remote ||
		shares && on.RemoteBytes >= off.RemoteBytes {
		t.Errorf("%d rows are fetched and %d shared, %d bytes; alone %d and %d", on.Fetched,
			on.Shared, on.RemoteBytes, off.Fetched, off.RemoteBytes)
	}
}

// A cache that changes may be divided among the ranks of a node, each of which decides about what
// it buys. No number changes, with any policy, model, sampler, topology, depth, sums, and unequal
// nodes; more rows are found in caches than in those of each rank's own.
func TestNodesDivideCachesThatChange(t *testing.T) {
	race.Alone(t)
	four, three := generatedIn(t, 4), generatedIn(t, 3)
	labor := sample.Neighbours(4, 3, 2)
	labor.Kind = sample.Labor
	sieve := policy.Settings{Policy: policy.Sieve, Alpha: 0.1}
	rounds := policy.Settings{Policy: policy.Prefetch, Alpha: 0.05, Gamma: 0.5, Delta: 2,
		Evict: true, Initial: policy.Degree}
	ahead := policy.Settings{Policy: policy.Lookahead, Alpha: 0.1}
	for _, c := range []struct {
		name   string
		ranks  int
		cache  policy.Settings
		change func(*Options)
	}{
		{"sieve", 4, sieve, func(*Options) {}},
		{"sieve, nothing ahead", 4, sieve, func(o *Options) { o.Depth = 0 }},
		{"sieve, one node smaller", 3, sieve, func(*Options) {}},
		{"gat by labor, sieve", 4, sieve, func(o *Options) {
			o.Model.Kind, o.Model.Heads, o.Model.Hidden, o.Sample = "gat", 2, 6, labor
		}},
		{"rounds", 4, rounds, func(*Options) {}},
		{"rounds, partitioned", 4, rounds, func(o *Options) { o.Partitioned = true }},
		{"rounds, one node smaller, nothing ahead", 3, rounds, func(o *Options) { o.Depth = 0 }},
		{"rounds that start with what minibatches read most", 4, policy.Settings{
			Policy: policy.Prefetch, Alpha: 0.05, Gamma: 0.9, Delta: 2, Evict: true,
			Initial: policy.VIP, Leave: policy.LeaveUnused}, func(*Options) {}},
		{"look-ahead", 4, ahead, func(*Options) {}},
		{"look-ahead of 3, nothing ahead", 4, policy.Settings{Policy: policy.Lookahead, Alpha: 0.1,
			Window: 3}, func(o *Options) { o.Depth = 0 }},
		{"look-ahead that levels, one node smaller", 3, policy.Settings{Policy: policy.Lookahead,
			Alpha: 0.1, Level: true}, func(*Options) {}},
		{"look-ahead, partitioned", 4, ahead, func(o *Options) { o.Partitioned = true }},
		{"sums, sieve", 4, sieve, func(o *Options) { o.Sums = true }},
		{"weighted sums, rounds", 4, rounds, func(o *Options) {
			o.Model.Kind, o.Sums = "gcn", true
		}},
		{"sums, look-ahead", 4, ahead, func(o *Options) { o.Sums = true }},
	} {
		t.Run(c.name, func(t *testing.T) {
			shards := four
			if c.ranks == 3 {
				shards = three
			}
			o := sageOptions()
			o.Cache, o.Epochs = c.cache, 3
			if o.Cache.Evict { // rows leave that some minibatches do not read
				o.Batch = 5
			}
			c.change(&o)
			o.Cache.Placement = policy.PlacementOwn
			own := asNodes(t, shards, c.ranks, 2, o, true)
			o.Cache.Placement = policy.PlacementGroup
			got := asNodes(t, shards, c.ranks, 2, o, true)
			if got.LossDigest != own.LossDigest || got.WeightsDigest != own.WeightsDigest ||
				got.BlocksDigest != own.BlocksDigest || *got.TestAccuracy != *own.TestAccuracy {
				t.Errorf("other numbers: %+v, %+v", got.Quality, own.Quality)
			}
			few := got.Remote < own.Remote
			if c.ranks == 3 { // half of the caches are those of a rank alone on its node
				few = got.Remote <= own.Remote
			}
			if !few || got.PeerCached == 0 || got.Cached == 0 || got.Shared == 0 ||
				got.Evictions == 0 || (got.Replacements > 0) != o.Cache.Evict ||
				(got.Early > 0) != (own.Early > 0) {
				t.Errorf("%+v, and with caches of each rank's own %+v", got.Rows, own.Rows)
			}
		})
	}
}

// So it is with graphs of several types, whose rows differ in length, and with learned rows.
func TestTypedNodesThatFetchAsOneKeepTheNumbers(t *testing.T) {
	race.Alone(t)
	s := shardtest.Cut(t, typedData(t), shardtest.Options{Parts: 4})
	for _, c := range []struct {
		name   string
		change func(*Options)
	}{
		{"rgcn", func(*Options) {}},
		{"gat", func(o *Options) { o.Model.Kind = "gat" }},
		{"sums and look-ahead", func(o *Options) {
			o.Sums, o.Cache = true, policy.Settings{Policy: policy.Lookahead, Alpha: 0.1}
		}},
		{"static caches", func(o *Options) {
			o.Cache = policy.Settings{Policy: policy.VIP, Alpha: 0.1}
		}},
	} {
		o := typedOptions("rgcn")
		o.StreamPerPart, o.Epochs = false, 2
		c.change(&o)
		off, on := asNodes(t, s, 4, 2, o, false), asNodes(t, s, 4, 2, o, true)
		holdToEachOther(t, off, on, true)
		o.AsNodes, o.Ranks, o.RanksPerNode = true, 4, 2
		r := simulatedNodes(t, s, o)
		all, epochs := r.Totals[0][1], int64(o.Epochs)
		if all.Remote/epochs != on.Remote || all.Shared/epochs != on.Shared ||
			all.RowBytes/epochs != on.RemoteBytes || all.Sums/epochs != on.Sums {
			t.Errorf("%+v are simulated, %+v counted", all, on.Rows)
		}
		if t.Failed() {
			t.Fatal(c.name)
		}
	}
}

// Rows of edges and learned rows, too, cross once for a node: no number changes, at any depth, with
// sums, samplers, links, topologies, several minibatches a step and unequal nodes, and what is
// fetched and shared together is what ranks fetch for themselves.
func TestNodesShareEdgeAndLearnedRows(t *testing.T) {
	race.Alone(t)
	edges := shardtest.Bare(t, shardtest.BareOptions{EdgeFeatures: true})
	bare := shardtest.Bare(t, shardtest.BareOptions{})
	linked := shardtest.Bare(t, shardtest.BareOptions{Links: true})
	for _, c := range []struct {
		name, data   string
		ranks, parts int
		o            Options
		change       func(*Options)
	}{
		{"learned", bare, 4, 4, learnedOptions("sage"), func(*Options) {}},
		{"learned, nothing ahead", bare, 4, 4, learnedOptions("sage"),
			func(o *Options) { o.Depth = 0 }},
		{"learned, far ahead by labor", bare, 4, 4, learnedOptions("gatv2"), func(o *Options) {
			o.Depth, o.Sample.Kind = 5, sample.Labor
		}},
		{"learned, one node smaller", bare, 3, 3, learnedOptions("sage"), func(*Options) {}},
		{"learned, partitioned", bare, 4, 4, learnedOptions("sage"), func(o *Options) {
			o.Partitioned, o.EvalFull = true, false
		}},
		{"learned, two minibatches a step", typedData(t, 1), 4, 8, learnedOptions("sage"),
			func(o *Options) { o.StreamPerPart = true }},
		{"learned, of two types", typedData(t, 1, 2), 4, 4, learnedOptions("rgcn"),
			func(*Options) {}},
		{"learned, with sums", manyAuthors(t), 4, 4, learnedOptions("rgcn"), func(o *Options) {
			o.Sums, o.Model.Fold, o.Batch, o.Sample = true, nn.FoldAlways, 2,
				sample.Neighbours(5, 4)
		}},
		{"learned, of links", linked, 4, 4, linkOptions(2), func(o *Options) {
			o.Cache.Policy, o.Batch = policy.None, 40
			o.Model.Learned, o.Learned = 16,
				nn.LearnedOptions{LR: 0.05, Scale: 0.01, Unread: nn.UnreadZero}
		}},
		{"edges", edges, 4, 4, learnedOptions("gine"), func(*Options) {}},
		{"edges, nothing ahead", edges, 4, 4, learnedOptions("gatv2"), func(o *Options) {
			o.Depth = 0
		}},
		{"edges, one node smaller", edges, 3, 3, learnedOptions("gatv2"), func(*Options) {}},
		{"edges, partitioned by labor", edges, 4, 4, learnedOptions("gine"), func(o *Options) {
			o.Partitioned, o.EvalFull, o.Sample.Kind = true, false, sample.Labor
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := shardtest.Cut(t, c.data, shardtest.Options{Parts: c.parts})
			o := c.o
			o.Epochs, o.Model.EdgeFeatures = 2, c.data == edges
			c.change(&o)
			off := asNodes(t, s, c.ranks, 2, o, false)
			on := asNodes(t, s, c.ranks, 2, o, true)
			if on.LossDigest != off.LossDigest || on.LearnedDigest != off.LearnedDigest ||
				on.WeightsDigest != off.WeightsDigest || on.BlocksDigest != off.BlocksDigest {
				t.Errorf("other numbers: %+v, %+v", on.Quality, off.Quality)
			}
			apart := func(off, on, shared int64) bool { // means, rounded down
				return on >= off || shared <= 0 || off-on-shared < 0 || off-on-shared > 1
			}
			a, b := off.Shuffles, on.Shuffles
			if apart(a.Rows, b.Rows, b.Shared) || a.Shared != 0 || a.Sums != b.Sums ||
				(b.Sums > 0) != o.Sums || on.NodeBytes <= 0 || (b.Late > 0) != (o.Depth > 0) ||
				b.Late > a.Late || off.NodeBytes != 0 {
				t.Errorf("learned rows: %+v, and as nodes %+v", a, b)
			}
			o.AsNodes, o.Ranks, o.RanksPerNode = true, c.ranks, 2
			r, n := simulatedNodes(t, s, o), int64(o.Epochs)
			got := [...]int64{r.Learned.Rows + r.Learned.Sums, r.Learned.Shared, r.Learned.Sums,
				r.EdgeRows, r.EdgeShared, r.Learned.Bytes}
			gradients := a.Rows / 2 // those of off are as many as its rows and sums
			want := [...]int64{b.Rows - gradients, b.Shared, b.Sums / 2, on.EdgeRows, on.EdgeShared,
				b.Bytes}
			for i := range got {
				if d := got[i]/n - want[i]; d < -1 || d > 1 {
					t.Errorf("%v are simulated, in %d epochs, and %v counted in each", got, n, want)
					break
				}
			}
			holdNodesPlan(t, s, o, on)
			if (c.data == edges) != (off.EdgeRows > 0) || off.EdgeShared != 0 ||
				// three ranks of this graph read no edge twice
				c.data == edges && c.ranks > 3 && (apart(off.EdgeRows, on.EdgeRows,
					on.EdgeShared) || on.EdgeBytes >= off.EdgeBytes) {
				t.Errorf("%d rows of edges cross in %d bytes, and %d are shared; else %d in %d",
					on.EdgeRows, on.EdgeBytes, on.EdgeShared, off.EdgeRows, off.EdgeBytes)
			}
		})
	}
}

// holdNodesPlan holds the plan of a run that fetches edge or learned rows as nodes to its counts.
// The plan samples all steps of one epoch.
func holdNodesPlan(t *testing.T, s *shard.Shards, o Options, run *record.Summary) {
	t.Helper()
	j := plan.Job{Spec: o.Spec, Evaluations: -1, Machine: plan.Machine{Workers: 2}}
	p, err := plan.New(s, j,
		plan.Options{Rates: plan.Rates{Sample: 1e7, Lookups: 1e8, Rows: 1e7, Flops: 1e10,
			Network: 1e9}})
	if err != nil {
		t.Fatal(err)
	}
	steps := float64(p.Steps)
	x := p.Shuffles
	for what, n := range map[string][2]float64{
		"edge rows":           {p.Traffic.EdgeRows * steps, float64(run.EdgeRows)},
		"shared edge rows":    {p.Traffic.EdgeShared * steps, float64(run.EdgeShared)},
		"bytes of edge rows":  {p.Traffic.EdgeBytes * steps, float64(run.EdgeBytes)},
		"learned rows":        {(2*x.Hidden - x.Shared) * steps, float64(run.Shuffles.Rows)},
		"shared learned rows": {x.Shared * steps, float64(run.Shuffles.Shared)},
		"learned bytes":       {x.Bytes * steps, float64(run.Shuffles.Bytes)},
	} {
		// sums within a node are few
		if math.Abs(n[0]-n[1]) > 0.1*n[1]+0.03*float64(run.Shuffles.Rows) {
			t.Errorf("%.1f %s are planned, %.0f counted", n[0], what, n[1])
		}
	}
	// no step is under way at first
	if want := float64(p.Collectives); run.CollectivesPerStep > want ||
		run.CollectivesPerStep < want-1.5 {
		t.Errorf("%v collectives are planned, %v counted", want, run.CollectivesPerStep)
	}
	planned, taken := p.Memory.Of(trace.MemMinibatches), run.Memory[trace.MemMinibatches]
	if planned < taken || planned > 2*taken {
		t.Errorf("%d bytes of minibatches are planned, %d taken", planned, taken)
	}
}

// Ranks that share minibatches refuse to fetch as one.
func TestModesThatDoNotFetchAsNodes(t *testing.T) {
	for _, m := range parallel.Modes() {
		s := sageOptions().Spec
		s.AsNodes, s.Mode = true, m.Mode
		err := parallel.Check(&s)
		if (err == nil) != (m.Name == parallel.ModeData) {
			t.Errorf("mode %s: %v", m.Name, err)
		}
	}
	s := sageOptions().Spec
	s.AsNodes, s.Cache = true, policy.Settings{Policy: policy.VIP, Source: policy.SourceFiles}
	if err := parallel.Check(&s); err == nil {
		t.Error("rows from files are not refused")
	}
	s.Cache = policy.Settings{Policy: policy.None}
	for _, c := range []struct {
		ranks, node int
		want        bool
	}{{4, 2, true}, {3, 2, true}, {4, 4, false}, {4, 1, false}} {
		s.Ranks, s.RanksPerNode = c.ranks, c.node
		shards := generatedIn(t, c.ranks)
		j, err := job.New(shards, s)
		if err != nil {
			t.Fatal(err)
		}
		if got := j.FetchesAsNodes(); got != c.want {
			t.Errorf("%d ranks, %d on a node: %v", c.ranks, c.node, got)
		}
		j.Close()
	}
}

// What simulate counts of nodes that fetch as one is what training fetches, shares, finds in caches
// and evicts, step by step, with any cache, and nodes that are alike or not.
func TestNodesThatFetchAsOneAreSimulatedRowForRow(t *testing.T) {
	race.Alone(t)
	rounds := policy.Settings{Gamma: 0.5, Delta: 2, Evict: true, Initial: policy.Degree}
	group := func(s policy.Settings) policy.Settings {
		s.Placement, s.PeerCost = policy.PlacementGroup, 0.3
		return s
	}
	sums := func(o *Options) { o.Sums = true }
	weighted := func(o *Options) { o.Model.Kind, o.Sums = "gcn", true }
	for _, c := range []struct {
		policy string
		ranks  int
		with   policy.Settings
		change func(*Options)
	}{
		{policy.None, 4, policy.Settings{}, nil},
		{policy.None, 3, policy.Settings{}, nil},
		{policy.VIP, 4, policy.Settings{}, nil},
		{policy.Oracle, 3, policy.Settings{}, nil},
		{policy.VIP, 4, group(policy.Settings{}), nil},
		{policy.Oracle, 3, group(policy.Settings{}), nil},
		{policy.Sieve, 4, policy.Settings{}, nil},
		{policy.Prefetch, 3, rounds, nil},
		{policy.Lookahead, 4, policy.Settings{Window: 3, Level: true}, nil},
		{policy.Lookahead, 3, policy.Settings{}, nil},
		{policy.Sieve, 4, group(policy.Settings{}), nil},
		{policy.Prefetch, 4, group(rounds), nil},
		{policy.Prefetch, 3, group(rounds), func(o *Options) { o.Cache.Initial = policy.VIP }},
		{policy.Lookahead, 4, group(policy.Settings{Window: 3, Level: true}), nil},
		{policy.Lookahead, 3, group(policy.Settings{}), nil},
		{policy.None, 4, policy.Settings{}, sums},
		{policy.VIP, 3, policy.Settings{}, sums},
		{policy.Oracle, 4, group(policy.Settings{}), sums},
		{policy.VIP, 4, group(policy.Settings{}), weighted},
		{policy.Lookahead, 4, policy.Settings{Window: 3}, sums},
		{policy.Sieve, 4, group(policy.Settings{}), sums},
		{policy.Lookahead, 3, group(policy.Settings{}), weighted},
	} {
		shards, o := generatedIn(t, c.ranks), sageOptions()
		o.Cache, o.Batch, o.Epochs, o.EvalEvery = c.with, 5, 3, 0
		o.Cache.Policy, o.Cache.Alpha = c.policy, 0.1
		if c.change != nil {
			c.change(&o)
		}
		name := fmt.Sprintf("%s %s of %d", c.policy, c.with.Placement, c.ranks)
		got := asNodes(t, shards, c.ranks, 2, o, true)
		o.AsNodes, o.Ranks, o.RanksPerNode = true, c.ranks, 2
		before := mem.Allocated()
		r := simulatedNodes(t, shards, o)
		p, n := 0, int64(o.Epochs)
		all := r.Totals[p][1]
		for what, x := range map[string][2]int64{
			"fetched":   {all.Remote / n, got.Remote},
			"vectors":   {r.Rows[p][1] - all.Remote, all.Sums},
			"sums":      {all.Sums / n, got.Sums},
			"summed":    {all.Summed / n, got.Summed},
			"shared":    {r.Shared[p][1] / n, got.Shared},
			"of peers":  {r.Peer[p][1] / n, got.PeerCached},
			"found":     {all.Cached / n, got.Cached},
			"early":     {all.Early / n, got.Early + got.Replaced},
			"evictions": {all.Evictions / n, got.Evictions},
		} {
			if x[0] != x[1] {
				t.Errorf("%s: %d rows %s are simulated, %d counted", name, x[0], what, x[1])
			}
		}
		if r.Shared[p][1] == 0 || r.Read[p][1] != all.Accesses() {
			t.Errorf("%s: %d rows are shared; %d are read, %+v", name, r.Shared[p][1],
				r.Read[p][1], all)
		}
		var steps trace.Counters
		for _, d := range r.Traces[p][1] {
			steps.Add(d)
		}
		if r.Traces[p][1] != nil && steps != all {
			t.Errorf("%s: steps have %+v, all %+v", name, steps, all)
		}
		if left := mem.Allocated() - before; left != 0 {
			t.Errorf("%s: %d bytes were not given back", name, left)
		}
	}
}

// Where owners add rows and ranks divide a static cache, each rank fetching what it lacks, what
// travels is simulated row for row and sum for sum.
func TestSumsBesideDividedCachesAreSimulated(t *testing.T) {
	race.Alone(t)
	shards, o := generatedIn(t, 4), sageOptions()
	o.Sums, o.Epochs, o.EvalEvery = true, 2, 0
	o.Cache = policy.Settings{Policy: policy.VIP, Alpha: 0.1, Placement: policy.PlacementGroup,
		PeerCost: 0.3}
	got := asNodes(t, shards, 4, 2, o, false)
	o.Ranks, o.RanksPerNode = 4, 2
	all := simulatedNodes(t, shards, o).Totals[0][1].Per(int64(o.Epochs))
	if all.Remote != got.Remote || all.Sums != got.Sums || all.Summed != got.Summed ||
		all.Cached != got.Cached || all.PeerCached != got.PeerCached || all.Shared != 0 ||
		got.Sums == 0 || got.PeerCached == 0 || all.IDBytes != got.IDBytes {
		t.Errorf("%+v are simulated, %+v counted", all, got.Rows)
	}
}

// simulatedNodes simulates a run with a cache of half the size, with its own, and without.
func simulatedNodes(t *testing.T, s *shard.Shards, o Options) *simulate.Result {
	t.Helper()
	policies, a := []string{o.Cache.Policy}, o.Cache.Alpha
	if o.Cache.Policy != policy.None {
		policies = append(policies, policy.None)
	}
	sim, err := simulate.New(s, simulate.Options{Spec: o.Spec, Policies: policies,
		Alphas: []float64{a / 2, a + 1e-9}, Workers: 4})
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

// A run with a divided cache that changes goes on where it stopped: buyers begin with what their
// node reads next.
func TestDividedCachesGoOn(t *testing.T) {
	race.Alone(t)
	shards := generatedIn(t, 4)
	for _, c := range []policy.Settings{
		{Policy: policy.Lookahead, Alpha: 0.1, Window: 4},
		{Policy: policy.Prefetch, Alpha: 0.05, Gamma: 0.5, Delta: 2, Evict: true,
			Initial: policy.Degree},
	} {
		o := sageOptions()
		o.AsNodes, o.Cache, o.Batch, o.Epochs = true, c, 5, 3
		o.Cache.Placement = policy.PlacementGroup
		want := (&journey{shards: shards, ranks: 4, node: 2, dir: t.TempDir()}).finished(t, o)
		for _, after := range []int{1, 3} {
			j := &journey{shards: shards, ranks: 4, node: 2, dir: t.TempDir()}
			j.stopped(t, o, after)
			if got := j.finished(t, o); got.LossDigest != want.LossDigest ||
				got.WeightsDigest != want.WeightsDigest || got.PeerCached == 0 {
				t.Errorf("%s, stopped after %d: %+v, want %+v", c.Policy, after, got, want)
			}
		}
	}
}

// What a node lacks is bought by its ranks: each row by one of them, from what any of them reads.
func TestRanksOfANodeBuyWhatItLacks(t *testing.T) {
	s := sageOptions().Spec
	s.AsNodes, s.Ranks = true, 4
	shards := generatedIn(t, 4)
	j, err := job.New(shards, s)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	for _, of := range [][]int{{0, 0, 1, 1}, {0, 1, 0, 1}, {0, 1, 1, 1}, {2, 2, 2, 1}} {
		j.SetNodes(of)
		for rank := range j.Ranks {
			seeds := 0
			for _, q := range j.Neighbours(rank) {
				seeds += len(j.Workload(q, 1).Seeds())
			}
			for v := range graph.VertexID(shards.Vertices) {
				has := func(r access.Range) bool { return r.Has(v) }
				near, buyers := slices.ContainsFunc(j.Local(rank), has), 0
				for _, q := range j.Neighbours(rank) {
					r := j.Bought(q, j.Workload(q, 1))
					if len(r.Seeds()) != seeds {
						t.Fatalf("%v: %d seeds of the node's %d", of, len(r.Seeds()), seeds)
					}
					if !slices.ContainsFunc(r.Local, has) {
						buyers++
					}
				}
				if near && buyers != 0 || !near && buyers != 1 {
					t.Fatalf("%v: %d ranks buy %d for rank %d, on its node: %v", of, buyers, v,
						rank, near)
				}
			}
		}
	}
}

// Plans know what nodes fetch as one, within a tenth of what runs count, the collectives, and no
// less memory than runs take.
func TestNodesThatFetchAsOneArePlanned(t *testing.T) {
	race.Alone(t)
	shards := generatedIn(t, 4)
	for _, c := range []struct {
		name  string
		cache policy.Settings
	}{
		{"no cache", policy.Settings{Policy: policy.None}},
		{"static caches", policy.Settings{Policy: policy.VIP, Alpha: 0.2}},
		{"a divided cache", policy.Settings{Policy: policy.VIP, Alpha: 0.2,
			Placement: policy.PlacementGroup, PeerCost: 0.3}},
		{"a share of each rank's halo", policy.Settings{Policy: policy.VIP, HaloFraction: 0.3}},
		{"look-ahead", policy.Settings{Policy: policy.Lookahead, Alpha: 0.2}},
		{"a divided sieve", policy.Settings{Policy: policy.Sieve, Alpha: 0.2,
			Placement: policy.PlacementGroup}},
		{"divided rounds", policy.Settings{Policy: policy.Prefetch, Alpha: 0.2, Gamma: 0.9,
			Delta: 2, Evict: true, Initial: policy.Degree, Placement: policy.PlacementGroup}},
		{"divided look-ahead", policy.Settings{Policy: policy.Lookahead, Alpha: 0.2,
			Placement: policy.PlacementGroup}},
		{"sums", policy.Settings{Policy: policy.None}},
		{"sums, static caches", policy.Settings{Policy: policy.VIP, Alpha: 0.2}},
		{"sums, a divided cache", policy.Settings{Policy: policy.VIP, Alpha: 0.2,
			Placement: policy.PlacementGroup, PeerCost: 0.3}},
		{"sums, look-ahead", policy.Settings{Policy: policy.Lookahead, Alpha: 0.2}},
		{"sums, a divided sieve", policy.Settings{Policy: policy.Sieve, Alpha: 0.2,
			Placement: policy.PlacementGroup}},
		{"sums, divided look-ahead", policy.Settings{Policy: policy.Lookahead, Alpha: 0.2,
			Placement: policy.PlacementGroup}},
	} {
		o := sageOptions()
		o.Cache, o.Epochs, o.EvalEvery = c.cache, 4, 0
		o.Sums = strings.HasPrefix(c.name, "sums")
		got := asNodes(t, shards, 4, 2, o, true)
		o.AsNodes, o.Ranks, o.RanksPerNode = true, 4, 2
		rates := plan.Rates{Sample: 1e7, Lookups: 1e8, Rows: 1e7, Flops: 1e10, Network: 1e9}
		p, err := plan.New(shards, plan.Job{Spec: o.Spec, Evaluations: -1,
			Machine: plan.Machine{Workers: 2}},
			plan.Options{Rates: rates})
		if err != nil {
			t.Fatal(err)
		}
		steps := float64(got.StepsPerEpoch)
		for what, x := range map[string][2]float64{
			"fetched": {p.Traffic.Rows, float64(got.Remote) / steps},
			"shared":  {p.Traffic.Shared, float64(got.Shared) / steps},
			"peer":    {p.Traffic.Peer, float64(got.PeerCached) / steps},
			"summed":  {p.Traffic.Sums, float64(got.Sums) / steps},
		} {
			near := 0.1 * float64(got.Remote+got.Shared) / steps
			some := what != "peer" || c.cache.Placement == policy.PlacementGroup
			if what == "summed" {
				some = o.Sums
			}
			if math.Abs(x[0]-x[1]) > near || (x[1] > 0) != some {
				t.Errorf("%s: %.1f %s rows a step are planned, %.1f counted", c.name, x[0], what,
					x[1])
			}
		}
		if float64(p.Collectives) != got.CollectivesPerStep {
			t.Errorf("%s: %d collectives are planned, %g counted", c.name, p.Collectives,
				got.CollectivesPerStep)
		}
		planned, taken := p.Memory.Of(trace.MemMinibatches), got.Memory[trace.MemMinibatches]
		if planned < taken || planned > 2*taken {
			t.Errorf("%s: %d bytes of minibatches are planned, %d taken", c.name, planned, taken)
		}
		t.Logf("%s: %.1f fetched, %.1f shared, %.1f summed planned, %d, %d and %d in %g steps "+
			"counted; %d bytes, %d", c.name, p.Traffic.Rows, p.Traffic.Shared, p.Traffic.Sums,
			got.Remote, got.Shared, got.Sums, steps, planned, taken)
	}
}

// A run that chooses how nodes fetch says which way and why, and has the numbers of others.
func TestNodesAreChosen(t *testing.T) {
	race.Alone(t)
	shards := generatedIn(t, 4)
	o := sageOptions()
	off := asNodes(t, shards, 4, 2, o, false)
	o.TryNodes = true
	got := asNodes(t, shards, 4, 2, o, true)
	c := got.NodesChoice
	if c == nil || off.NodesChoice != nil || got.LossDigest != off.LossDigest ||
		(got.Shared > 0) != (c.Nodes == "on") || c.OnRows >= c.OffRows || c.Why == "" {
		t.Errorf("%+v, %+v: %+v", c, off.NodesChoice, got.Rows)
	}
	o = learnedOptions("gine") // rows of vertices alone are none
	o.Model.EdgeFeatures, o.TryNodes, o.Epochs = true, true, 1
	bare := shardtest.Cut(t, shardtest.Bare(t, shardtest.BareOptions{EdgeFeatures: true}),
		shardtest.Options{Parts: 4})
	if c := asNodes(t, bare, 4, 2, o, true).NodesChoice; c == nil || c.OnRows >= c.OffRows ||
		c.OffRows < 100 {
		t.Errorf("edge and learned rows: %+v", c)
	}
	o = sageOptions()
	o.TryNodes = true
	o.WithoutNodes = "they have none"
	if c := asNodes(t, shards, 4, 2, o, true).NodesChoice; c == nil || c.Why != o.WithoutNodes {
		t.Errorf("%+v", c)
	}
	// A cache that changes is divided only if nodes fetch as one, else each rank has its own.
	o.Cache = policy.Settings{Policy: policy.Sieve, Alpha: 0.1, Placement: policy.PlacementGroup}
	got = asNodes(t, shards, 4, 2, o, true)
	o.TryNodes, o.Cache.Placement = false, policy.PlacementOwn
	off = asNodes(t, shards, 4, 2, o, false)
	if got.Remote != off.Remote || got.Cached != off.Cached || got.PeerCached > 0 ||
		!strings.Contains(got.NodesChoice.Why, "a cache of its own") {
		t.Errorf("%+v %+v, and with caches of each rank's own %+v", got.NodesChoice, got.Rows,
			off.Rows)
	}
	o.TryNodes, o.WithoutNodes, o.Cache.Placement = true, "", policy.PlacementGroup
	got = asNodes(t, shards, 4, 2, o, true)
	if got.LossDigest != off.LossDigest || (got.PeerCached > 0) != (got.NodesChoice.Nodes == "on") {
		t.Errorf("%+v: %+v", got.NodesChoice, got.Rows)
	}
}
