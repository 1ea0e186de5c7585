//go:build e2e

package tests

import (
	"bytes"
	"fmt"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"halognn/src/base/trace"
	"halognn/src/rows/policy"
	"halognn/src/topology/sample"
)

// The place of the topology changes no number. Ranks that hold only the in-edges of their own
// vertices get the same bits as ranks that hold all edges, in training, evaluation and the final
// test, on any number of ranks. A rank cannot read edges that it does not hold: their pages are not
// mapped (shard.Options.Rank).
func TestPartitionedTopologyChangesNoNumber(t *testing.T) {
	unlessShort(t)
	t.Parallel()
	parts, weighted := smallParts.dir(t), weightedParts.dir(t)
	multilabel := partitioned(t,
		handmade{task: "multilabel"}.write(t, filepath.Join(t.TempDir(), "data")), 4, "ldg",
		"--allow-imbalance")
	for i, c := range []struct {
		parts string
		ranks int
		sets  []string
	}{
		{parts, 1, []string{"cache.policy=none"}},
		{parts, 2, []string{"cache.policy=sieve", "run.ranks_per_node=1"}},
		{parts, 4, []string{"cache.policy=none", "run.ranks_per_node=1", "pipeline.depth=6",
			"pipeline.workers=3"}},
		{parts, 8, []string{"cache.policy=sieve", "run.ranks_per_node=2", "pipeline.depth=0"}},
		{parts, 4, []string{"cache.policy=none", "sample.streams=part", "sample.seeds=global",
			"train.eval_mode=full", "topology.load=copy"}},
		{parts, 2, []string{"cache.policy=none", "model.layers=1", "sample.fanouts=4"}},
		{parts, 2, []string{"cache.policy=none", "model.layers=3", "sample.fanouts=300,2,1",
			"sample.eval_fanouts=2,2,2"}},
		{parts, 2, []string{"cache.policy=none", "model.kind=mlp"}},
		{parts, 4, []string{"cache.policy=none", "model.layers=3", "sample.fanouts=4,3,2"}},
		{parts, 2, []string{"cache.policy=none", "model.kind=gcn"}},
		{parts, 4, []string{"cache.policy=none", "model.kind=gcn", "model.gcn_norm=both",
			"run.ranks_per_node=1",
			"train.eval_mode=full"}},
		{parts, 2, []string{"cache.policy=sieve", "model.kind=gin", "run.ranks_per_node=1",
			"train.class_weights=balanced"}},
		{parts, 4, []string{"cache.policy=none", "model.kind=gat", "sample.seeds=global",
			"run.ranks_per_node=2"}},
		{multilabel, 4, []string{"cache.policy=sieve", "run.ranks_per_node=1", "run.stage_dir=" +
			t.TempDir()}},
		{parts, 4, []string{"cache.policy=prefetch", "sample.kind=poisson", "run.ranks_per_node=1",
			"exchange.sums=on", "sample.eval_fanouts=4,4"}},
		{parts, 4, []string{"cache.policy=none", "sample.kind=ladies", "sample.layer_vertices=300",
			"model.kind=gcn", "model.gcn_norm=both", "run.ranks_per_node=1"}},
		{parts, 2, []string{"cache.policy=none", "sample.kind=poisson", "parallel.mode=split"}},
		{parts, 4, []string{"cache.policy=none", "sample.kind=ladies", "sample.layer_vertices=300",
			"parallel.mode=push-pull", "run.ranks_per_node=1"}},
		{weighted, 4, []string{"cache.policy=none", "run.ranks_per_node=1", "topology.load=copy"}},
		{weighted, 2, []string{"cache.policy=none", "sample.kind=poisson", "sample.seeds=global",
			"run.ranks_per_node=1", "train.eval_mode=full"}},
		{weighted, 4, []string{"cache.policy=sieve", "sample.kind=ladies",
			"sample.layer_vertices=300", "run.ranks_per_node=1"}},
		{weighted, 2, []string{"cache.policy=none", "sample.kind=labor", "model.kind=gcn",
			"model.gcn_norm=both", "run.stage_dir=" + t.TempDir()}},
		{weighted, 4, []string{"cache.policy=none", "parallel.mode=split", "model.kind=gin"}},
	} {
		t.Run(fmt.Sprint(c.ranks, " ranks ", c.sets), func(t *testing.T) {
			t.Parallel()
			want := trained(t, c.parts, c.ranks, c.sets...)
			got := trained(t, c.parts, c.ranks, append(c.sets, "topology.kind=partitioned")...)
			sameNumbers(t, got, want)
			for i, e := range want.epochs {
				one, other := moved(got.epochs[i].Rows), moved(e.Rows)
				if one != other {
					t.Errorf("epoch %d: moved %+v, replicated %+v", e.Epoch, one, other)
				}
			}
			mode := []string{"full", "sampled"}[i%2]
			infer := func(run string) []byte {
				path := filepath.Join(t.TempDir(), "predictions.npy")
				halognn(t).must(t, "infer", "--run", run, "--out", path, "--ranks-in-process",
					strconv.Itoa(c.ranks), "--mode", mode)
				return read(t, path)
			}
			if !bytes.Equal(infer(got.dir), infer(want.dir)) {
				t.Errorf("infer --mode %s: other predictions", mode)
			}
		})
	}
}

// Caches are ranked over the whole graph, with the rows and predictions of runs that hold the whole
// topology: before the first step a rank maps the files of all ranks, unless the ranking was saved.
func TestCachesOfAPartitionedTopology(t *testing.T) {
	unlessShort(t)
	t.Parallel()
	parts := copyOf(t, smallParts.dir(t), t.TempDir(), "parts")
	policies := policy.Names(func(p *policy.Policy) bool { return p.Rank != nil })
	sets := []string{"run.ranks_per_node=1", "cache.alpha=0.2"}
	args := []string{"analyze", parts, "--config", baseFile.dir(t), "--ranks", "4", "--policies",
		strings.Join(policies, ",")}
	same := func(cached ...string) {
		t.Helper()
		want, got := trained(t, parts, 4, cached...),
			trained(t, parts, 4, append(cached, "topology.kind=partitioned")...)
		sameNumbers(t, got, want)
		if got.Remote != want.Remote || got.ExpectedRowsPerStep != want.ExpectedRowsPerStep ||
			got.Cache.Capacity != want.Cache.Capacity {
			t.Errorf("%v: %d rows fetched, %g a step expected, %d kept; on the whole graph "+
				"%d, %g, %d",
				cached, got.Remote, got.ExpectedRowsPerStep, got.Cache.Capacity, want.Remote,
				want.ExpectedRowsPerStep, want.Cache.Capacity)
		}
	}
	for _, c := range [][]string{
		{"cache.policy=vip"}, {"cache.policy=sim", "model.kind=gat"},
		{"cache.policy=prefetch", "cache.delta=3"},
		{"cache.policy=prefetch", "cache.delta=3", "cache.initial=vip", "cache.halo_fraction=0.4"},
		{"cache.policy=degree", "cache.halo_fraction=0.5", "cache.halo_hops=1"},
		{"cache.policy=vip", "cache.placement=group", "cache.peer_cost=0.1",
			"run.ranks_per_node=2"},
		{"cache.policy=vip", "cache.source=files"},
	} {
		same(append(slices.Clone(sets), c...)...)
	}
	chosen := trained(t, parts, 4, append(slices.Clone(sets), "cache.policy=auto",
		"topology.kind=partitioned")...)
	sameNumbers(t, chosen, trained(t, parts, 4, append(slices.Clone(sets), "cache.policy=none")...))
	if chosen.Cache == nil || !strings.Contains(chosen.Cache.Chosen, "rows a step") {
		t.Errorf("auto: %+v", chosen.Cache)
	}
	halognn(t).must(t, args...)
	for _, p := range policies {
		same(append(slices.Clone(sets), "cache.policy="+p)...)
	}
	for _, c := range []struct{ flag, value, says string }{
		{"--policies", "sieve", `"sieve" ranks no vertices`},
		{"--ranks", "3", "but the job has 3 ranks"},
		{"--alpha", "-1", "--alpha is -1"},
	} {
		if r := halognn(t).run(t, append(args, c.flag, c.value)...); r.code == 0 ||
			!strings.Contains(r.err, c.says) {
			t.Errorf("%s %s: %v", c.flag, c.value, r)
		}
	}
}

// A hop that asks has two collectives. A minibatch of L hops has 2L with those of its rows if ranks
// have seeds of their own, and 2L + 2 with seeds of all ranks, as published figures count. Every
// sampler has equally many.
func TestRoundsOfAPartitionedTopology(t *testing.T) {
	unlessShort(t)
	t.Parallel()
	for _, c := range []struct {
		ranks int
		seeds string
		sets  []string
		want  float64
	}{{1, "local", nil, 2}, {2, "local", nil, 4}, {4, "local", nil, 4}, {4, "global", nil, 6},
		{4, "local", []string{"model.layers=3", "sample.fanouts=4,3,2"}, 6},
		{2, "local", []string{"sample.kind=labor"}, 4}, {2, "local",
			[]string{"sample.kind=poisson"}, 4},
		{2, "global", []string{"sample.kind=ladies", "sample.layer_vertices=300"}, 6}} {
		got := trained(t, smallParts.dir(t), c.ranks, append(c.sets, "topology.kind=partitioned",
			"sample.seeds="+c.seeds, "cache.policy=none")...)
		if got.CollectivesPerStep != c.want || (c.ranks == 1) != (got.Asked == 0) ||
			c.sets == nil && got.Drawn > 5*got.Asked {
			t.Errorf("%d ranks, seeds %s %v: %g collectives a step, want %g; %d vertices asked "+
				"for, %d "+
				"neighbours",
				c.ranks, c.seeds, c.sets, got.CollectivesPerStep, c.want, got.Asked, got.Drawn)
		}
		if least := 4*got.Asked + 4*got.Drawn; got.Sampling.Bytes < least {
			t.Errorf("%d ranks: %d bytes of sampling, at least %d are ids", c.ranks,
				got.Sampling.Bytes, least)
		}
	}
}

// askers are the kinds of draws for which hops ask: owners return more or less for a vertex.
var askers = []struct {
	parts *fixture
	sets  []string
}{
	{smallParts, []string{"sample.seeds=local"}},
	{smallParts, []string{"sample.seeds=global"}},
	{smallParts, []string{"sample.kind=poisson", "model.kind=gin"}},
	{smallParts, []string{"sample.kind=ladies", "sample.layer_vertices=300"}},
	{weightedParts, []string{"sample.seeds=global"}},
	{weightedParts, []string{"sample.kind=poisson"}},
	{weightedParts, []string{"sample.kind=ladies", "sample.layer_vertices=300"}},
}

// A simulation counts what a run asks, byte for byte.
func TestAskedVerticesAreAsSimulated(t *testing.T) {
	unlessShort(t)
	t.Parallel()
	for _, a := range askers {
		run := trained(t, a.parts.dir(t), 4, append(a.sets, "topology.kind=partitioned",
			"cache.policy=none", "cache.alpha=0.1")...)
		args := []string{"simulate", "--parts", a.parts.dir(t), "--ranks", "4",
			"--set", "sample.fanouts=5,3", "--set", "model.layers=2", "--set", "sample.batch=96",
			"--epochs", "2", "--policies", "none", "--alphas", "0.1", "--out",
			filepath.Join(t.TempDir(), "simulated")}
		for _, set := range a.sets {
			args = append(args, "--set", set)
		}
		out := halognn(t).must(t, args...).out
		for what, n := range map[string]int64{
			"vertices asked for": run.Asked, "neighbours returned": run.Drawn,
			"sampling bytes": run.Sampling.Bytes,
			"more collectives " +
				"of a rank": int64(run.CollectivesPerStep-2) * int64(run.StepsPerEpoch),
		} {
			m := regexp.MustCompile(what + ` +([0-9]+)`).FindStringSubmatch(out)
			if m == nil || m[1] != strconv.FormatInt(n, 10) {
				t.Errorf("%s, %v: %s %q are simulated, %d counted", a.parts.name, a.sets, what,
					m, n)
			}
		}
	}
}

// The planned cost of sampling is what a run counts: vertex for vertex and byte for byte, if the
// plan has sampled every minibatch of an epoch.
func TestRoundsAreAsPlanned(t *testing.T) {
	unlessShort(t)
	t.Parallel()
	for _, a := range askers {
		for _, ranks := range []int{1, 2, 4} {
			sets := append([]string{
				"topology.kind=partitioned", "cache.policy=none",
				"train.epochs=1", "sample.batch_scope=global",
				"sample.batch=450", "sample.fanouts=5,300,2", "model.layers=3",
				"run.ranks_per_node=1",
			}, a.sets...)
			args := []string{"--ranks", strconv.Itoa(ranks)}
			for _, s := range sets {
				args = append(args, "--set", s)
			}
			plan, run := planned(t, a.parts.dir(t), args...),
				trained(t, a.parts.dir(t), ranks, sets...)
			if 32%run.StepsPerEpoch != 0 || float64(plan.Collectives) != run.CollectivesPerStep {
				t.Errorf("%d ranks, %v: %d steps; %d collectives a step are planned, %g "+
					"are counted",
					ranks, a.sets, run.StepsPerEpoch, plan.Collectives, run.CollectivesPerStep)
			}
			if (plan.Sampling == nil) != (ranks == 1) {
				t.Fatalf("%d ranks: collectives %+v", ranks, plan.Sampling)
			} else if ranks == 1 {
				continue
			}
			steps := float64(run.StepsPerEpoch)
			for _, c := range []struct {
				what    string
				planned float64
				counted int64
			}{
				{"vertices asked for", plan.Sampling.Asked, run.Asked},
				{"neighbours", plan.Sampling.Drawn, run.Drawn},
				{"bytes", plan.Sampling.Bytes, run.Sampling.Bytes},
			} {
				if math.Abs(c.planned*steps-float64(c.counted)) > 0.5 {
					t.Errorf("%d ranks, %s, %v: %g %s are planned, %d counted", ranks, a.parts.name,
						a.sets, c.planned*steps, c.what, c.counted)
				}
			}
		}
	}
}

// The parts of 512 ranks can be planned too: a hop sends every rank a count and a word, whether or
// not it asks that rank, and a rank holds about a 512th of the edges.
func TestRoundsOf512RanksArePlanned(t *testing.T) {
	unlessShort(t)
	t.Parallel()
	const ranks = 512
	args := []string{"--ranks", strconv.Itoa(ranks), "--set", "cache.policy=none", "--set",
		"sample.batch=1", "--set"}
	apart := planned(t, smallParts.dir(t), append(args, "topology.kind=partitioned")...)
	whole := planned(t, smallParts.dir(t), append(args, "topology.kind=replicated")...)
	least := float64(ranks*ranks*sample.AskBytes) +
		apart.Sampling.Asked*(sample.VertexBytes+1) + apart.Sampling.Drawn*sample.VertexBytes
	if apart.Sampling.Asked <= 0 || math.Abs(apart.Sampling.Bytes-least) > 0.5 ||
		apart.Collectives != 4 {
		t.Errorf("planned are %+v and %d collectives", apart.Sampling, apart.Collectives)
	}
	if whole.Sampling != nil || whole.Collectives != 2 {
		t.Errorf("with a replicated topology %+v and %d collectives", whole.Sampling,
			whole.Collectives)
	}
	bytes := func(p *plannedJob) int64 {
		for _, item := range p.Memory {
			if item.Name == trace.MemTopology {
				return item.Bytes
			}
		}
		return 0
	}
	if own, all := bytes(apart), bytes(whole); own < all/ranks/4 || own > 4*all/ranks {
		t.Errorf("a rank holds %d bytes of a topology of %d", own, all)
	}
}

// A run can be resumed on the other topology, with the bits of an uninterrupted run. Its trace has
// the collectives, by stage.
func TestRunsGoOnOnAnotherTopology(t *testing.T) {
	unlessShort(t)
	t.Parallel()
	parts := smallParts.dir(t)
	sets := []string{"cache.policy=none", "run.ranks_per_node=1", "model.layers=3",
		"sample.fanouts=4,3,2"}
	want := trained(t, parts, 2, append(sets, "train.epochs=3")...)
	run := newRunDir(t)
	begin := trainArgs(t, parts, run,
		append(sets, "train.epochs=1", "topology.kind=partitioned")...)
	halognn(t).must(t, append(begin, "--ranks-in-process", "2", "--trace")...)
	for _, c := range []struct{ epochs, kind string }{{"2", "replicated"}, {"3", "partitioned"}} {
		r := halognn(t).must(t, "train", "--resume", run, "--set", "train.epochs="+c.epochs,
			"--set", "topology.kind="+c.kind, "--ranks-in-process", "2")
		if c.epochs == "3" {
			got := outcomeOf(t, run, r)
			if got.LossDigest != want.LossDigest || got.WeightsDigest != want.WeightsDigest ||
				got.BlocksDigest != want.BlocksDigest {
				t.Errorf("goes on to losses %s, weights %s, blocks %s; want %s, %s, %s",
					got.LossDigest,
					got.WeightsDigest, got.BlocksDigest, want.LossDigest, want.WeightsDigest,
					want.BlocksDigest)
			}
		}
	}
	spans := string(read(t, filepath.Join(run, "trace", "rank-0001.json")))
	for _, stage := range []string{"ask 2", "answer 2", "reply 2", "extend 2", "ask 3", "answer 3",
		"reply 3", "extend 3"} {
		if !strings.Contains(spans, `"`+stage+`"`) {
			t.Errorf("the trace has no stage %q", stage)
		}
	}
}

// The same holds under either MPI.
func TestPartitionedTopologyUnderMPI(t *testing.T) {
	launcher(t)
	parts := smallParts.dir(t)
	for _, c := range []struct {
		ranks int
		sets  []string
	}{
		{2, []string{"cache.policy=none"}},
		{4, []string{"cache.policy=sieve", "run.ranks_per_node=1", "pipeline.depth=4",
			"pipeline.workers=2"}},
		{4, []string{"cache.policy=none", "run.ranks_per_node=2", "pipeline.depth=0",
			"sample.seeds=global", "train.eval_mode=full"}},
	} {
		t.Run(fmt.Sprint(c.ranks, " ranks ", c.sets), func(t *testing.T) {
			want := trained(t, parts, c.ranks, c.sets...)
			sameNumbers(t, trainedMPI(t, parts, c.ranks,
				append(c.sets, "topology.kind=partitioned")...), want)
		})
	}
}

// With a GPU the ranks draw on the host as before, and all numbers equal those of the replicated
// topology on that device.
func TestPartitionedTopologyOnGPUs(t *testing.T) {
	unlessShort(t)
	t.Parallel()
	env := emulatedGPU(t)
	var digests []string
	for _, kind := range []string{"replicated", "partitioned"} {
		dir := newRunDir(t)
		args := trainArgs(t, smallParts.dir(t), dir, "compute.device=cuda", "compute.gpu_rows=0.5",
			"cache.policy=none", "model.kind=gcn", "model.gcn_norm=both", "topology.kind="+kind)
		r := start(t, env, halognn(t).path, append(args, "--ranks-in-process", "2")...).wait(t)
		if r.code != 0 {
			t.Fatal(r)
		}
		s := outcomeOf(t, dir, r)
		digests = append(digests, s.LossDigest+s.WeightsDigest)
		if kind == "partitioned" && (s.Asked == 0 || s.DeviceRows[0].Resident == 0) {
			t.Errorf("%d vertices asked for, %+v", s.Asked, s.DeviceRows)
		}
	}
	if digests[0] != digests[1] {
		t.Errorf("losses and weights %s, replicated %s", digests[1], digests[0])
	}
}
