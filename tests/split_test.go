package tests

import (
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"
)

// alike fails the test unless a run whose ranks share minibatches trained on the same edges as a
// rank alone, to the same loss up to round-off in every step, and moved no row twice.
func alike(t *testing.T, got, want *outcome) {
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
	if got.Edges != want.Edges || got.Loaded != want.Loaded || got.Remote+got.Peer != 0 {
		t.Errorf("%d edges, %d rows read, %d of others; want %d, %d", got.Edges, got.Loaded,
			got.Remote+got.Peer, want.Edges, want.Loaded)
	}
	if math.Abs(got.TestMetric-want.TestMetric) > 0.02 {
		t.Errorf("test metric %v, want %v", got.TestMetric, want.TestMetric)
	}
}

// In a run, ranks that share minibatches do what one rank does alone, whatever model, topology,
// depth and device threads; and their numbers depend on nothing but how many they are.
func TestSplitIsOneRank(t *testing.T) {
	unlessShort(t)
	t.Parallel()
	parts := smallParts.dir(t)
	for _, c := range []struct {
		ranks int
		sets  []string
	}{
		{1, nil},
		{2, []string{"model.layers=3", "sample.fanouts=4,3,2", "pipeline.depth=0"}},
		{4, []string{"model.kind=gat", "model.norm=layer"}},
		{4, []string{"model.kind=gcn", "model.gcn_norm=both", "sample.seeds=global"}},
		{8, []string{"model.kind=gin", "model.residual=true", "model.jumping=cat",
			"train.eval_mode=full"}},
		{2, []string{"model.kind=mlp"}},
		{2, []string{"model.aggregation=max", "sample.eval_fanouts=6,6"}},
	} {
		t.Run(fmt.Sprint(c.ranks, " ranks ", c.sets), func(t *testing.T) {
			t.Parallel()
			sets := append([]string{"sample.batch_scope=global", "train.optimizer=sgd",
				"train.lr=0.05"}, c.sets...)
			want := trained(t, parts, 1, append(sets, "cache.policy=none")...)
			split := append([]string{"parallel.mode=split"}, sets...)
			got := trained(t, parts, c.ranks, split...)
			alike(t, got, want)
			sameNumbers(t, trained(t, parts, c.ranks, append(split, "pipeline.depth=6",
				"pipeline.workers=3", "compute.threads=2", "run.ranks_per_node=1",
				"topology.kind=partitioned")...), got)
		})
	}
}

// Under either MPI too, to the bits of ranks in one process.
func TestSplitUnderMPI(t *testing.T) {
	launcher(t)
	parts := smallParts.dir(t)
	for _, c := range []struct {
		ranks int
		sets  []string
	}{
		{2, []string{"model.kind=gat"}},
		{4, []string{"model.layers=3", "sample.fanouts=4,3,2", "run.ranks_per_node=2",
			"topology.kind=partitioned"}},
	} {
		t.Run(fmt.Sprint(c.ranks, " ranks ", c.sets), func(t *testing.T) {
			sets := append(c.sets, "parallel.mode=split")
			want := trained(t, parts, c.ranks, sets...)
			got := trainedMPI(t, parts, c.ranks, sets...)
			sameNumbers(t, got, want)
			for i, e := range want.epochs {
				if got.epochs[i].rows != e.rows {
					t.Errorf("epoch %d: moved %+v, in process %+v", e.Epoch, got.epochs[i].rows,
						e.rows)
				}
			}
		})
	}
}

// A run whose ranks share minibatches goes on from a checkpoint within an epoch to the bits and the
// counts of one that was not interrupted; its trace has a track of shuffles; and another number of
// ranks goes on with it where the minibatches stay the same.
func TestSplitGoesOn(t *testing.T) {
	unlessShort(t)
	t.Parallel()
	parts := smallParts.dir(t)
	sets := []string{"parallel.mode=split", "sample.batch_scope=global", "checkpoint.every_steps=2"}
	want := trained(t, parts, 4, append(sets, "train.epochs=3")...)
	run := newRunDir(t)
	begin := trainArgs(t, parts, run, append(sets, "train.epochs=1")...)
	halognn(t).must(t, append(begin, "--ranks-in-process", "4", "--trace")...)
	spans := string(read(t, filepath.Join(run, "trace", "rank-0001.json")))
	for _, stage := range []string{"found 1", "owners 1", "join 1", "shuffle"} {
		if !strings.Contains(spans, `"`+stage+`"`) {
			t.Errorf("the trace has no stage %q", stage)
		}
	}
	r := halognn(t).must(t, "train", "--resume", run, "--set", "train.epochs=3",
		"--ranks-in-process", "4")
	got := outcomeOf(t, run, r)
	sameNumbers(t, got, want)
	if got.Shuffled != want.Shuffled || got.ShuffleBytes != want.ShuffleBytes ||
		got.Edges != want.Edges || got.Loaded != want.Loaded {
		t.Errorf("counted %+v, without interruption %+v", got.Rows, want.Rows)
	}
	r = halognn(t).must(t, "train", "--resume", run, "--set", "train.epochs=4",
		"--ranks-in-process", "2")
	other := outcomeOf(t, run, r)
	alone := trained(t, parts, 1, "sample.batch_scope=global", "train.epochs=4",
		"cache.policy=none")
	if other.EdgesDigest != alone.EdgesDigest {
		t.Errorf("two ranks go on to edges %s, want %s", other.EdgesDigest, alone.EdgesDigest)
	}
}
