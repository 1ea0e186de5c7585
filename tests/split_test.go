//go:build e2e

package tests

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// alike fails the test unless a run whose ranks share minibatches trained on the same edges as a
// run with one rank for each of its nodes and no cache, with the same loss in every step up to
// round-off, and fetched no row twice for a node.
func alike(t *testing.T, got, want *outcome) {
	t.Helper()
	sameTraining(t, got, want)
	// Both numbers are means over epochs, rounded down.
	if sum := got.Remote + got.Cached; got.Peer != 0 || sum > want.Remote ||
		sum < want.Remote-min(1, got.Cached) {
		t.Errorf("%d rows of other nodes and %d cached, %d of peers; want %d", got.Remote,
			got.Cached, got.Peer, want.Remote)
	}
}

// sameTraining fails the test unless two runs trained on the same edges, with the same loss in
// every step up to round-off, and computed and read equally much.
func sameTraining(t *testing.T, got, want *outcome) {
	t.Helper()
	if got.EdgesDigest != want.EdgesDigest || len(got.steps) != len(want.steps) {
		t.Fatalf("edges %s in %d steps, want %s in %d", got.EdgesDigest, len(got.steps),
			want.EdgesDigest, len(want.steps))
	}
	for i, w := range want.steps {
		if g := got.steps[i]; math.Abs(g.Loss-w.Loss) > 2e-5*math.Abs(w.Loss) {
			t.Fatalf("epoch %d, step %d: the loss is %v, want %v", w.Epoch, w.Step, g.Loss, w.Loss)
		}
	}
	if got.Edges != want.Edges || got.Loaded != want.Loaded {
		t.Errorf("%d edges, %d rows read; want %d, %d", got.Edges, got.Loaded, want.Edges,
			want.Loaded)
	}
	if math.Abs(got.TestMetric.Value-want.TestMetric.Value) > 0.02 {
		t.Errorf("test metric %v, want %v", got.TestMetric.Value, want.TestMetric.Value)
	}
}

// modeCase is a run in a mode: the number of ranks, and settings.
type modeCase struct {
	ranks int
	sets  []string
}

// linearCases are settings that both split and push-pull can have.
var linearCases = []modeCase{
	{1, nil},
	{2, []string{"model.layers=3", "sample.fanouts=4,3,2", "pipeline.depth=0"}},
	{4, []string{"model.kind=gcn", "model.gcn_norm=both", "sample.seeds=global",
		"model.aggregation=max"}}, // ignored by gcn
	{8, []string{"model.kind=gin", "model.residual=true", "model.jumping=cat",
		"train.eval_mode=full"}},
}

// tryMode compares each case, by compare, with a run of data parallelism on alone(ranks) ranks,
// and, in every bit, with a run in the same mode with other plumbing.
func tryMode(t *testing.T, mode string, cases []modeCase, alone func(ranks int) int,
	compare func(t *testing.T, got, want *outcome)) {
	unlessShort(t)
	t.Parallel()
	parts := smallParts.dir(t)
	for _, c := range cases {
		t.Run(fmt.Sprint(c.ranks, " ranks ", c.sets), func(t *testing.T) {
			t.Parallel()
			sets := append([]string{"sample.batch_scope=global", "train.optimizer=sgd",
				"train.lr=0.05"}, c.sets...)
			want := trained(t, parts, alone(c.ranks), append(sets, "cache.policy=none")...)
			sets = append([]string{"parallel.mode=" + mode}, sets...)
			got := trained(t, parts, c.ranks, sets...)
			compare(t, got, want)
			sameNumbers(t, trained(t, parts, c.ranks, append(sets, "pipeline.depth=6",
				"pipeline.workers=3", "compute.threads=2", "run.ranks_per_node=1",
				"topology.kind=partitioned")...), got)
		})
	}
}

// Ranks that share minibatches do together what one rank does alone, with any model, topology,
// depth and device threads. Their numbers depend only on how many they are.
func TestSplitIsOneRank(t *testing.T) {
	tryMode(t, "split", append(slices.Clone(linearCases),
		modeCase{4, []string{"model.kind=gat", "model.norm=layer"}},
		modeCase{2, []string{"model.kind=mlp", "model.norm=batch"}},
		modeCase{4, []string{"sample.kind=ladies", "sample.layer_vertices=600",
			"sample.eval_fanouts=6,6"}},
		modeCase{2, []string{"sample.kind=ladies", "sample.layer_vertices=600", "model.layers=3",
			"sample.fanouts=4,3,2", "model.kind=gcn", "sample.seeds=global",
			"train.eval_mode=full"}},
		modeCase{8, []string{"model.norm=batch", "model.layers=3", "sample.fanouts=4,3,2"}},
		modeCase{2, []string{"model.aggregation=max", "sample.eval_fanouts=6,6"}},
	), func(int) int { return 1 }, alike)
}

// With nodes of several ranks, hybrid does what one rank for each node does, and the cache changes
// none of its numbers. With nodes of one rank it equals data parallelism, and on one node split
// parallelism, in every bit.
func TestHybridIsARankForEachNode(t *testing.T) {
	unlessShort(t)
	t.Parallel()
	parts := smallParts.dir(t)
	perNode := func(n int) string { return fmt.Sprint("run.ranks_per_node=", n) }
	for i, c := range []struct {
		nodes, perNode int
		sets           []string
	}{
		{2, 2, []string{"model.kind=gat", "model.norm=layer"}},
		{2, 2, []string{"model.norm=batch"}},
		{2, 2, []string{"sample.kind=ladies", "sample.layer_vertices=600"}},
		{2, 1, []string{"sample.kind=ladies", "sample.layer_vertices=600"}},
		{1, 4, []string{"sample.kind=ladies", "sample.layer_vertices=600"}},
		{4, 2, []string{"model.layers=3", "sample.fanouts=4,3,2", "sample.seeds=global"}},
		{2, 4, []string{"model.kind=gcn", "model.gcn_norm=both", "sample.eval_fanouts=6,6"}},
		// Poisson's estimates of the sums over all neighbours make gin's sums large: at a rate of
		// 0.05 it diverges, as it does on the exact sums.
		{2, 1, []string{"model.kind=gin", "sample.kind=poisson", "train.lr=0.001"}},
		{1, 4, []string{"model.kind=gatv2", "train.eval_mode=full"}},
	} {
		ranks := c.nodes * c.perNode
		t.Run(fmt.Sprint(c.nodes, " nodes of ", c.perNode, " ranks ", c.sets), func(t *testing.T) {
			t.Parallel()
			sets := append([]string{"sample.batch_scope=global", "train.optimizer=sgd",
				"train.lr=0.05"}, c.sets...)
			hybrid := append([]string{"parallel.mode=hybrid", perNode(c.perNode)}, sets...)
			got := trained(t, parts, ranks, append(hybrid, "cache.policy=none")...)
			want := trained(t, parts, c.nodes, append(sets, "cache.policy=none", perNode(1))...)
			alike(t, got, want)
			switch {
			case c.perNode == 1:
				sameNumbers(t, got, want)
			case c.nodes == 1:
				sameNumbers(t, got, trained(t, parts, ranks,
					append(sets, "parallel.mode=split")...))
			}
			cached := trained(t, parts, ranks, append(hybrid, "cache.policy=sim", "cache.alpha=0.2",
				"pipeline.depth=6", "pipeline.workers=3", "compute.threads=2")...)
			sameNumbers(t, cached, got)
			alike(t, cached, want)
			policy := []string{"prefetch", "sieve", "halo1"}[i%3]
			sameNumbers(t, trained(t, parts, ranks, append(hybrid, "cache.policy="+policy,
				"cache.initial=degree", "cache.delta=4", "cache.alpha=0.2")...), got)
			if c.nodes > 1 && (cached.Cached == 0 || cached.Remote >= got.Remote) {
				t.Errorf("%d rows cached, %d fetched, %d without a cache", cached.Cached,
					cached.Remote, got.Remote)
			}
		})
	}
}

// Ranks that hold columns of the features do what ranks that hold rows do, and fetch no rows, with
// any model, topology, depth and device threads.
func TestPushPullIsDataParallelism(t *testing.T) {
	tryMode(t, "push-pull", append(slices.Clone(linearCases),
		modeCase{4, []string{"model.kind=mlp", "sample.streams=part"}},
		modeCase{2, []string{"model.norm=batch"}},
		modeCase{2, []string{"sample.streams=part", "sample.eval_fanouts=6,6",
			"model.norm=layer"}},
	), func(ranks int) int { return ranks }, func(t *testing.T, got, want *outcome) {
		sameTraining(t, got, want)
		if got.Remote+got.Peer != 0 || want.Ranks > 1 && got.Shuffles.Rows == 0 {
			t.Errorf("%d rows fetched, %d of peers, %d of sums", got.Remote, got.Peer,
				got.Shuffles.Rows)
		}
	})
}

// All modes give the same bits under either MPI as in one process.
func TestModesUnderMPI(t *testing.T) {
	launcher(t)
	parts := smallParts.dir(t)
	for _, c := range []struct {
		ranks int
		sets  []string
	}{
		{2, []string{"model.kind=gat"}},
		{4, []string{"model.layers=3", "sample.fanouts=4,3,2", "run.ranks_per_node=2",
			"topology.kind=partitioned"}},
		{4, []string{"parallel.mode=hybrid", "model.kind=gat", "run.ranks_per_node=2",
			"model.norm=batch"}},
		{2, []string{"parallel.mode=hybrid", "sample.kind=ladies",
			"sample.layer_vertices=600"}}, // nodes as launched
		{2, []string{"parallel.mode=push-pull", "model.kind=gin"}},
		{4, []string{"parallel.mode=push-pull", "model.layers=3", "sample.fanouts=4,3,2",
			"run.ranks_per_node=2", "topology.kind=partitioned"}},
	} {
		t.Run(fmt.Sprint(c.ranks, " ranks ", c.sets), func(t *testing.T) {
			sets := append([]string{"parallel.mode=split"}, c.sets...)
			want := trained(t, parts, c.ranks, sets...)
			got := trainedMPI(t, parts, c.ranks, sets...)
			sameNumbers(t, got, want)
			for i, e := range want.epochs {
				if moved(got.epochs[i].Rows) != moved(e.Rows) {
					t.Errorf("epoch %d: moved %+v, in process %+v", e.Epoch,
						moved(got.epochs[i].Rows), moved(e.Rows))
				}
			}
		})
	}
}

// A run resumed from a checkpoint within an epoch has the bits and the counts of an uninterrupted
// run, and its trace has a track of shuffles. It can be resumed on another number of ranks if the
// minibatches stay the same: with as many nodes, or with a stream for each part.
func TestModesGoOn(t *testing.T) {
	unlessShort(t)
	t.Parallel()
	parts := smallParts.dir(t)
	for _, c := range []struct {
		nodes   int
		sets    []string
		stages  []string
		numbers []string // sample.streams, and other settings of the draws
	}{
		{1, []string{"parallel.mode=split", "model.norm=batch"},
			[]string{"layer 2", "choose 2", "found 1", "join 1"},
			[]string{"sample.streams=rank", "sample.kind=ladies", "sample.layer_vertices=600"}},
		{2, []string{"parallel.mode=hybrid", "model.norm=batch"},
			[]string{"join 1", "serve 2", "collect", "pass on"}, []string{"sample.streams=rank"}},
		{1, []string{"parallel.mode=push-pull"}, []string{"pack", "push", "join"},
			[]string{"sample.streams=part"}},
	} {
		t.Run(c.sets[0], func(t *testing.T) {
			t.Parallel()
			perNode := func(ranks int) string {
				return fmt.Sprint("run.ranks_per_node=", ranks/c.nodes)
			}
			fixed := append(c.numbers, "sample.batch_scope=global")
			sets := append(append(c.sets, "checkpoint.every_steps=2"), fixed...)
			want := trained(t, parts, 4, append(sets, "train.epochs=3", perNode(4))...)
			run := newRunDir(t)
			begin := trainArgs(t, parts, run, append(sets, "train.epochs=1", perNode(4))...)
			halognn(t).must(t, append(begin, "--ranks-in-process", "4", "--trace")...)
			spans := string(read(t, filepath.Join(run, "trace", "rank-0001.json")))
			for _, stage := range append(c.stages, "shuffle") {
				if !strings.Contains(spans, `"`+stage+`"`) {
					t.Errorf("the trace has no stage %q", stage)
				}
			}
			r := halognn(t).must(t, "train", "--resume", run, "--set", "train.epochs=3",
				"--ranks-in-process", "4")
			got := outcomeOf(t, run, r)
			sameNumbers(t, got, want)
			if got.Shuffles.Rows != want.Shuffles.Rows ||
				got.Shuffles.Bytes != want.Shuffles.Bytes ||
				got.Edges != want.Edges || got.Loaded != want.Loaded || got.Remote != want.Remote {
				t.Errorf("counted %+v, without interruption %+v", got.Rows, want.Rows)
			}
			if c.nodes > 1 {
				r = halognn(t).run(t, "train", "--resume", run, "--set", "train.epochs=4", "--set",
					"run.ranks_per_node=1", "--ranks-in-process", "4")
				if r.code == 0 || !strings.Contains(r.err, "was made by 2 nodes") {
					t.Errorf("four nodes go on with a run of two: %v", r)
				}
			}
			r = halognn(t).must(t, "train", "--resume", run, "--set", "train.epochs=4", "--set",
				perNode(2), "--ranks-in-process", "2")
			other := outcomeOf(t, run, r)
			alone := trained(t, parts, c.nodes, append(fixed, "train.epochs=4", "cache.policy=none",
				"run.ranks_per_node=1")...)
			if other.EdgesDigest != alone.EdgesDigest {
				t.Errorf("two ranks go on to edges %s, want %s", other.EdgesDigest,
					alone.EdgesDigest)
			}
		})
	}
}

// With GPUs, rows between layers travel like gradients: the edges are the same, the losses are
// those of one GPU up to round-off, and the bits are the same whatever carries gradients.
func TestModesOnGPUs(t *testing.T) {
	unlessShort(t)
	t.Parallel()
	env := emulatedGPU(t)
	run := func(ranks string, sets ...string) *outcome {
		dir := newRunDir(t)
		args := trainArgs(t, smallParts.dir(t), dir, append(sets, "compute.device=cuda",
			"sample.batch_scope=global", "train.optimizer=sgd", "train.lr=0.05", "model.norm=layer",
			"cache.policy=none")...)
		r := start(t, env, halognn(t).path, append(args, "--ranks-in-process", ranks)...).wait(t)
		if r.code != 0 {
			t.Fatal(r)
		}
		return outcomeOf(t, dir, r)
	}
	pushed := run("2", "parallel.mode=push-pull", "compute.gradients=staged")
	sameTraining(t, pushed, run("2"))
	sameNumbers(t, run("2", "parallel.mode=push-pull", "compute.gradients=mpi",
		"topology.kind=partitioned", "compute.gpu_rows=0.5"), pushed)
	want := run("1")
	hybrid := run("4", "parallel.mode=hybrid", "run.ranks_per_node=2", "compute.gpu_rows=0.5")
	alike(t, hybrid, run("2", "run.ranks_per_node=1"))
	got := run("2", "parallel.mode=split", "compute.gradients=staged")
	alike(t, got, want)
	sameNumbers(t, run("2", "parallel.mode=split", "compute.gradients=mpi",
		"topology.kind=partitioned", "compute.gpu_rows=0.5"), got)
}
