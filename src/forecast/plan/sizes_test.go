package plan

import (
	"errors"
	"strings"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/base/trace"
	"halognn/src/data/dataset"
	"halognn/src/data/shard"
	"halognn/src/data/shard/shardtest"
	"halognn/src/devices/compute"
	"halognn/src/devices/compute/ref"
	"halognn/src/model/task"
	"halognn/src/ranks/comm"
	"halognn/src/rows/exchange"
	"halognn/src/rows/policy"
	"halognn/src/step/job"
	"halognn/src/topology/graph"
	"halognn/src/topology/partition"
	"halognn/src/topology/sample"
)

// What sizes alone tell brackets what a plan finds by sampling, of every way to train.
func TestBounds(t *testing.T) {
	all := shardtest.Open(t, generatedOptions, shardtest.Options{Parts: 4})
	bare := shardtest.Cut(t, shardtest.Bare(t, shardtest.BareOptions{EdgeFeatures: true}),
		shardtest.Options{Parts: 4})
	for name, change := range map[string]func(j *Job){
		"learned rows": func(j *Job) { j.Model.Learned = 64 },
		"features of edges": func(j *Job) {
			j.Model.Kind, j.Model.EdgeFeatures, j.Model.Learned, j.Depth = "gine", true, 4, 4
		},
		"means of features of edges": func(j *Job) {
			j.Model.Kind, j.Model.Heads, j.Model.Slope = "gatv2", 2, 0.2
			j.Model.EdgeFeatures, j.Model.Learned = true, 4
		},
		"no cache": func(*Job) {}, "a cache": func(j *Job) { j.Cache.Policy = policy.Lookahead },
		"a large cache": func(j *Job) { j.Cache.Policy, j.Cache.Alpha = policy.Lookahead, 1e9 },
		"static":        func(j *Job) { j.Cache.Policy = policy.VIP },
		"a window":      func(j *Job) { j.Cache.Policy, j.Cache.Window = policy.Lookahead, 1<<20 },
		"attention": func(j *Job) {
			j.Model.Kind, j.Model.Heads, j.Model.Slope = "gat", 4,
				0.2
		},
		"no neighbours": func(j *Job) { j.Model.Kind = "mlp" },
		"all neighbours": func(j *Job) {
			j.Sample = sample.Neighbours(sample.All, sample.All, sample.All)
		},
		"ladies": func(j *Job) {
			j.Sample = sample.Spec{Kind: sample.LADIES, Vertices: []int{64, 64, 64}}
			j.Cache.Policy = "sieve"
		},
		"one node": func(j *Job) { j.RanksPerNode = 4 },
		"nodes":    func(j *Job) { j.AsNodes, j.RanksPerNode = true, 2 },
		"nodes, learned rows": func(j *Job) {
			j.AsNodes, j.RanksPerNode, j.Model.Learned = true, 2, 64
		},
		"nodes, features of edges": func(j *Job) {
			j.Model.Kind, j.Model.EdgeFeatures, j.Model.Learned, j.Depth = "gine", true, 4, 4
			j.AsNodes, j.RanksPerNode = true, 2
		},
		"nodes, look-ahead": func(j *Job) {
			j.AsNodes, j.RanksPerNode, j.Cache.Policy = true, 2, policy.Lookahead
		},
		"nodes that divide a look-ahead cache": func(j *Job) {
			j.AsNodes, j.RanksPerNode, j.Cache.Policy = true, 2, policy.Lookahead
			j.Cache.Placement = policy.PlacementGroup
		},
		"split":       func(j *Job) { j.Mode.Sharing = sample.Together },
		"push-pull":   func(j *Job) { j.Mode.Columns = true },
		"partitioned": func(j *Job) { j.Partitioned = true },
		"evaluation":  func(j *Job) { j.Eval = sample.Neighbours(20, 20, 20) },
		"large":       func(j *Job) { j.Batch, j.Depth = sample.MaxBatch, 1<<16 },
		"jumping":     func(j *Job) { j.Model.Jumping = "cat" },
		"one slot":    func(j *Job) { j.Workers, j.Depth = 64, 0 },
	} {
		t.Run(name, func(t *testing.T) {
			j, parts := planJob(), all
			if change(&j); j.Model.Learned > 0 {
				parts = bare
			}
			least, most, err := Bounds(shard.Sizes(&parts.Meta, parts.Dir), j)
			if err != nil {
				t.Fatal(err)
			}
			got, err := New(parts, j, Options{Rates: Rates{Sample: 1, Lookups: 1, Rows: 1, Flops: 1,
				Network: 1, Device: 1, Bus: 1}})
			if err != nil {
				t.Fatal(err)
			}
			lo, exact, hi := Own(least).Sum(), Own(got.Memory).Sum(), Own(most).Sum()
			if lo > exact || exact > hi+hi/10 {
				t.Errorf("%d bytes are predicted, and sizes tell %d to %d:\n%v\n%v\n%v", exact, lo,
					hi, got.Memory, least, most)
			}
			for _, name := range []string{trace.MemMinibatches, trace.MemParameters,
				trace.MemActivations,
				trace.MemEvaluation, trace.MemFeatures} {
				if x := got.Memory.Of(name); x > most.Of(name)+most.Of(name)/10+1<<12 {
					t.Errorf("%s: %d bytes are predicted, and sizes tell %d", name, x,
						most.Of(name))
				}
			}
			for _, name := range []string{trace.MemFeatures, trace.MemTopology} {
				x, some := least.Of(name), name == trace.MemTopology || parts == all
				if x == 0 && some || x > got.Memory.Of(name)+1<<13 {
					t.Errorf("%s: %d bytes by sizes, %d by the files", name, x, got.Memory.Of(name))
				}
			}
		})
	}
}

// With Most a rank decides about all that ranks of its node read, where they divide a cache; and no
// run measures what a row of a peer's cache costs there.
func TestPlanOfDividedCaches(t *testing.T) {
	parts := shardtest.Open(t, generatedOptions, shardtest.Options{Parts: 4})
	j := planJob()
	j.AsNodes, j.RanksPerNode, j.Cache.Policy, j.Cache.Window = true, 2, policy.Lookahead, 4
	j.Cache.PeerCost = -1
	var most [2]trace.Memory
	for i, placement := range []string{policy.PlacementOwn, policy.PlacementGroup} {
		var err error
		j.Cache.Placement = placement
		if _, most[i], err = Bounds(shard.Sizes(&parts.Meta, parts.Dir), j); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{trace.MemMinibatches, trace.MemCacheIndex} {
		if own, divided := most[0].Of(name), most[1].Of(name); divided <= own {
			t.Errorf("%s: at most %d bytes, with own caches %d", name, divided, own)
		}
	}
	got, err := New(parts, j, given)
	if err != nil {
		t.Fatal(err)
	}
	if notes := strings.Join(got.Notes, "\n"); strings.Contains(notes, "cache.peer_cost") ||
		!strings.Contains(notes, "divide their caches") || got.Traffic.Cost != 0 {
		t.Errorf("cost %g:\n%s", got.Traffic.Cost, notes)
	}
}

// The bounds hold the final test too, of graphs whose vertices have most of their edges at a few,
// and where parts differ in size.
func TestBoundsOfTheFinalTest(t *testing.T) {
	for name, o := range map[string]dataset.GenerateOptions{
		"many vertices without edges": {Vertices: 60000, Degree: 3, Features: 64, Classes: 4,
			Seed: 1},
		"hubs": {Kind: "rmat", Vertices: 20000, Degree: 20, Features: 64, Classes: 4,
			Seed: 1},
	} {
		for _, perNode := range []int{1, 2} {
			parts := shardtest.Open(t, o, shardtest.Options{Parts: 2})
			j := planJob()
			j.Model.Hidden, j.Sample, j.Batch, j.RanksPerNode = 128, sample.Neighbours(3, 3, 3), 64,
				perNode
			least, most, err := Bounds(shard.Sizes(&parts.Meta, parts.Dir), j)
			if err != nil {
				t.Fatal(err)
			}
			got, err := New(parts, j, given)
			if err != nil {
				t.Fatal(err)
			}
			for _, item := range got.Memory {
				if lo, hi := least.Of(item.Name),
					most.Of(item.Name); item.Name == trace.MemEvaluation &&
					(item.Bytes < lo || item.Bytes > hi) {
					t.Errorf("%s, %d ranks a node: %s take %d bytes, and sizes tell %d to %d", name,
						perNode, item.Name, item.Bytes, lo, hi)
				}
			}
			if lo, x, hi := Own(least).Sum(), Own(got.Memory).Sum(), Own(most).Sum(); x < lo ||
				x > hi {
				t.Errorf("%s, %d ranks a node: %d bytes are predicted, and sizes tell %d to %d",
					name, perNode, x, lo, hi)
			}
		}
	}
}

// They hold a minibatch whose rank buys all rows that ranks of its node want, no two of them the
// same.
func TestMostMessagesOfNodes(t *testing.T) {
	const each, cols = 1000, 100 // rows that each rank wants
	node := []int{0, 0, 1, 1}
	s := shardtest.Open(t, generatedOptions, shardtest.Options{Parts: 4})
	j := planJob()
	j.RanksPerNode, j.AsNodes = 2, true
	p := laidOut(t, s, &j)
	p.options.Bound = Most
	err := comm.RunWorld(len(node), func(c comm.Comm) error {
		o := exchange.Options{Offsets: []int64{0, 2 * each, 4 * each, 6 * each, 8 * each},
			Kinds: []exchange.Kind{{Cols: cols, Type: compute.Float32}}, Host: idle{},
			Tables: make([][]byte, 4)}
		for r := range node {
			if node[r] == node[c.Rank()] {
				o.Tables[r] = make([]byte, 4*cols*2*each)
			}
		}
		near, err := c.Split(node[c.Rank()], c.Rank())
		if err != nil {
			return err
		}
		o.Node = &exchange.Node{Comm: near, Of: node}
		f, err := exchange.Open(c, o)
		if err != nil {
			return err
		}
		var ids []graph.VertexID // half of the rows of the other node's first rank
		first := (1 - node[c.Rank()]) * 4 * each
		for i := range each {
			ids = append(ids, graph.VertexID(first+near.Rank()*each+i))
		}
		var plan exchange.Plan
		defer plan.Free()
		if err := f.Fetch(&plan, ids); err != nil {
			return err
		}
		most, took := p.sizedMessages(each, 4*cols), plan.MessageBytes()
		if c.Rank()%2 == 0 && (took > most+most/8 || took < most*3/4) { // arrays have slack
			t.Errorf("rank %d: messages take %d bytes, by sizes at most %d", c.Rank(), took, most)
		}
		return errors.Join(f.Close(), near.Free())
	})
	if err != nil {
		t.Fatal(err)
	}
}

// idle is a host that copies nothing.
type idle struct{ ref.Host }

func (idle) SliceRows(_, _ []byte, _ int, _ []int32) {}

// Of learned rows seeds may all be a rank's own, at least, and of a graph with types none.
func TestLeastOfLearnedRows(t *testing.T) {
	p := &planner{job: &laid{Job: new(job.Job)}, options: &Options{}}
	p.job.Model.Learned = 256
	p.job.Model.Learns = []bool{true}
	own := p.sizedLearned(&shape{kinds: []kindShape{{all: 10}}})
	all := p.sizedLearned(&shape{kinds: []kindShape{{all: 10, foreign: 10}}})
	if own != 10*(1024+20+8) || all <= own {
		t.Errorf("10 own rows take %d bytes, others %d", own, all)
	}
}

// Rows of edges are counted of the node that has most of them, and least.
func TestSizedEdges(t *testing.T) {
	s := shardtest.Cut(t, shardtest.Bare(t, shardtest.BareOptions{EdgeFeatures: true}),
		shardtest.Options{Parts: 4})
	j := planJob()
	j.Ranks, j.RanksPerNode, j.Model.Learned = 4, 1, 4
	p := laidOut(t, s, &j)
	rows, most, least := s.Topology().Graph.Indptr, int64(0), s.Edges
	for k := range s.Parts {
		n := rows[s.Offsets[k+1]] - rows[s.Offsets[k]]
		most, least = max(most, n), min(least, n)
	}
	for bound, want := range map[Bound]int64{Most: most, Least: least} {
		p.options.Bound = bound
		if got := p.sizedEdges(0, 1); got != want {
			t.Errorf("bound %d: %d edges, not %d", bound, got, want)
		}
	}
}

// A node of 1 TB has enough for 300 M edges, however chunks of the final test share them. The rank
// with the most tells how much each needs.
func TestChunksShareTheEdges(t *testing.T) {
	const parts, vertices, edges = 8, 20_000_000, 300_000_000
	m := shard.Meta{Format: shard.Format, Parts: parts, Vertices: vertices, Edges: edges,
		Classes:  16,
		Features: 64, FeatureType: dataset.Float32, EdgeFeatures: 16, Task: task.Multiclass,
		Offsets: []int64{0}}
	for k := range parts {
		m.Offsets = append(m.Offsets, vertices*int64(k+1)/parts)
		m.Splits = append(m.Splits, shard.SplitSizes{Train: 1000})
		m.Report.Parts = append(m.Report.Parts, partition.PartReport{Edges: edges / parts})
	}
	j := planJob()
	j.RanksPerNode, j.Depth = parts, 4
	j.Model.Kind, j.Model.EdgeFeatures, j.Model.Hidden = "gine", true, 64
	most := func() trace.Memory {
		_, most, err := Bounds(shard.Sizes(&m, "parts"), j)
		if err != nil {
			t.Fatal(err)
		}
		return most
	}
	even := most()
	// of an edge at least its features, as they come and as they are read, and messages
	if got := Own(even).Node(parts); got < edges*(3*4*16+3*4*64) || got > 1e12 {
		t.Errorf("8 ranks are said to need up to %d GB: %v", got/1e9, even)
	}
	m.Report.Parts[0].Edges, m.Report.Parts[1].Edges = edges/4, 0
	if uneven := most(); uneven.Of(trace.MemEvaluation) <= even.Of(trace.MemEvaluation) {
		t.Errorf("a rank with twice the edges needs up to %v, and with as many as others %v",
			uneven, even)
	}
}

// Links are planned from parts, and not bounded by sizes.
func TestLinksHaveNoBounds(t *testing.T) {
	parts := shardtest.TypedLinks(t, 60, 100, 3, true)
	j := planJob()
	j.Ranks, j.Model.Kind, j.Mode.Sharing, j.Mode.Name = parts.Parts, "rgcn", sample.Together,
		"split"
	planned(t, parts, j, given)
	if _, _, err := Bounds(shard.Sizes(&parts.Meta, parts.Dir), j); !errors.Is(err, ErrJob) ||
		!strings.Contains(err.Error(), "which links are seeds") {
		t.Errorf("links, by sizes: %v", err)
	}
}

// A model of any documented width is counted, or refused where no address space has it.
func TestBoundsOfLargeModels(t *testing.T) {
	parts := shardtest.Open(t, generatedOptions, shardtest.Options{Parts: 4})
	j := planJob()
	j.Model.Hidden = 1 << 16
	least, _, err := Bounds(shard.Sizes(&parts.Meta, parts.Dir), j)
	if err != nil {
		t.Fatal(err)
	}
	item, cure := Largest(Own(least), 4)
	if want := int64(8) * 4 << 32; item.Name != trace.MemParameters || item.Bytes < want ||
		cure == "" {
		t.Errorf("the largest is %v, want %d bytes of the model at least", item, want)
	}
	j.Model.Kind, j.Model.Heads, j.Model.HeadMerge, j.Model.Slope = "gat", 1<<10, "mean", 0.2
	if _, _, err = Bounds(shard.Sizes(&parts.Meta, parts.Dir), j); err != nil &&
		!errors.Is(err, mem.ErrMemory) {
		t.Error(err)
	}
}

// A plan from sizes alone is near that of the parts, given what they cut: of a graph without hubs.
func TestPlanOfSizes(t *testing.T) {
	parts := shardtest.Open(t, generatedOptions, shardtest.Options{Parts: 4})
	j := planJob()
	exact, err := New(parts, j, given)
	if err != nil {
		t.Fatal(err)
	}
	o := given
	cut := 0
	g := &parts.Topology().Graph
	for k := range parts.Parts {
		lo, hi := parts.Offsets[k], parts.Offsets[k+1]
		for _, u := range g.Indices[g.Indptr[lo]:g.Indptr[hi]] {
			if int64(u) < lo || int64(u) >= hi {
				cut++
			}
		}
	}
	o.Cut = float64(cut) / float64(parts.Edges)
	p, err := New(shard.Sizes(&parts.Meta, "sizes"), j, o)
	if err != nil {
		t.Fatal(err)
	}
	for name, of := range map[string][2]float64{
		"memory": {float64(p.MemoryRank), float64(exact.MemoryRank)},
		"minibatches": {float64(p.Memory.Of(trace.MemMinibatches)),
			float64(exact.Memory.Of(trace.MemMinibatches))},
		"remote reads": {p.Traffic.Reads, exact.Traffic.Reads},
		"sync":         {p.Times.Sync, exact.Times.Sync},
		"steps":        {float64(p.Steps), float64(exact.Steps)},
	} {
		if ratio := of[0] / of[1]; !(ratio > 0.8 && ratio < 1.8) { // estimates from above
			t.Errorf("%s: %g by sizes, %g by parts", name, of[0], of[1])
		}
	}
	if !p.Sizes || len(p.Notes) < 2 || p.Suggestion != nil {
		t.Errorf("it does not say that it is of sizes: %+v", p)
	}
	j.Partitioned = true
	if _, err := New(shard.Sizes(&parts.Meta, "sizes"), j, o); !errors.Is(err, ErrJob) {
		t.Errorf("a partitioned topology: %v", err)
	}
}
