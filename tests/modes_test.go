package tests

import (
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"
)

// alike fails the test unless a run trained on the same edges as one with data parallelism, to the
// same loss up to round-off in every step, and read no row of another rank.
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

// In a run, ranks that share minibatches do what one rank does alone, and ranks that hold columns of
// the features what ranks do that hold rows, whatever model, topology, depth and device threads; and
// their numbers depend on nothing but how many they are.
func TestModesAgree(t *testing.T) {
	unlessShort(t)
	t.Parallel()
	parts := smallParts.dir(t)
	for _, c := range []struct {
		mode  string
		ranks int
		sets  []string
	}{
		{"split", 1, nil},
		{"split", 2, []string{"model.layers=3", "sample.fanouts=4,3,2", "pipeline.depth=0"}},
		{"split", 4, []string{"model.kind=gat", "model.norm=layer"}},
		{"split", 4, []string{"model.kind=gcn", "model.gcn_norm=both", "sample.seeds=global"}},
		{"split", 8, []string{"model.kind=gin", "model.residual=true", "model.jumping=cat",
			"train.eval_mode=full"}},
		{"split", 2, []string{"model.kind=mlp"}},
		{"split", 2, []string{"model.aggregation=max", "sample.eval_fanouts=6,6"}},
		{"push-pull", 1, nil},
		{"push-pull", 2, []string{"model.layers=3", "sample.fanouts=4,3,2", "pipeline.depth=0",
			"model.norm=batch"}},
		{"push-pull", 4, []string{"model.kind=gcn", "model.gcn_norm=both", "sample.seeds=global"}},
		{"push-pull", 8, []string{"model.kind=gin", "model.residual=true", "model.jumping=cat",
			"train.eval_mode=full"}},
		{"push-pull", 4, []string{"model.kind=mlp", "sample.streams=part"}},
		{"push-pull", 2, []string{"sample.streams=part", "sample.eval_fanouts=6,6",
			"model.norm=layer"}},
	} {
		t.Run(fmt.Sprint(c.mode, " ", c.ranks, " ranks ", c.sets), func(t *testing.T) {
			t.Parallel()
			sets := append([]string{"sample.batch_scope=global", "train.optimizer=sgd",
				"train.lr=0.05"}, c.sets...)
			compared := 1
			if c.mode == "push-pull" {
				compared = c.ranks
			}
			want := trained(t, parts, compared, append(sets, "cache.policy=none",
				"run.ranks_per_node=1")...)
			sets = append([]string{"parallel.mode=" + c.mode}, sets...)
			got := trained(t, parts, c.ranks, sets...)
			alike(t, got, want)
			sameNumbers(t, trained(t, parts, c.ranks, append(sets, "pipeline.depth=6",
				"pipeline.workers=3", "compute.threads=2", "run.ranks_per_node=1",
				"topology.kind=partitioned")...), got)
		})
	}
}

// Under either MPI too, to the bits of ranks in one process.
func TestModesUnderMPI(t *testing.T) {
	launcher(t)
	parts := smallParts.dir(t)
	for _, c := range []struct {
		mode  string
		ranks int
		sets  []string
	}{
		{"split", 2, []string{"model.kind=gat"}},
		{"split", 4, []string{"model.layers=3", "sample.fanouts=4,3,2", "run.ranks_per_node=2",
			"topology.kind=partitioned"}},
		{"push-pull", 2, []string{"model.kind=gin"}},
		{"push-pull", 4, []string{"model.layers=3", "sample.fanouts=4,3,2", "run.ranks_per_node=2",
			"topology.kind=partitioned"}},
	} {
		t.Run(fmt.Sprint(c.mode, " ", c.ranks, " ranks ", c.sets), func(t *testing.T) {
			sets := append(c.sets, "parallel.mode="+c.mode)
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

// A run goes on from a checkpoint within an epoch to the bits and the counts of one that was not
// interrupted; its trace has the stages of its mode and a track of shuffles; and another number of
// ranks goes on with it where the minibatches stay the same.
func TestModesGoOn(t *testing.T) {
	unlessShort(t)
	for _, c := range []struct {
		mode   string
		sets   []string
		stages []string
	}{
		{"split", []string{"sample.batch_scope=global"},
			[]string{"found 1", "owners 1", "join 1", "shuffle"}},
		{"push-pull", []string{"sample.streams=part"},
			[]string{"pack", "sizes", "push", "join", "shuffle"}},
	} {
		t.Run(c.mode, func(t *testing.T) {
			t.Parallel()
			modeGoesOn(t, c.mode, c.sets, c.stages)
		})
	}
}

func modeGoesOn(t *testing.T, mode string, fixed, stages []string) {
	parts := smallParts.dir(t)
	sets := append([]string{"parallel.mode=" + mode, "checkpoint.every_steps=2"}, fixed...)
	want := trained(t, parts, 4, append(sets, "train.epochs=3")...)
	run := newRunDir(t)
	begin := trainArgs(t, parts, run, append(sets, "train.epochs=1")...)
	halognn(t).must(t, append(begin, "--ranks-in-process", "4", "--trace")...)
	spans := string(read(t, filepath.Join(run, "trace", "rank-0001.json")))
	for _, stage := range stages {
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
	alone := trained(t, parts, 1, append(fixed, "train.epochs=4", "cache.policy=none")...)
	if other.EdgesDigest != alone.EdgesDigest {
		t.Errorf("two ranks go on to edges %s, want %s", other.EdgesDigest, alone.EdgesDigest)
	}
}

// With GPUs, what travels in a step travels through the hosts: the same edges, the losses of data
// parallelism up to round-off, and the same bits whatever carries gradients.
func TestModesOnGPUs(t *testing.T) {
	unlessShort(t)
	env := emulatedGPU(t)
	for _, c := range []struct{ mode, compared string }{{"split", "1"}, {"push-pull", "2"}} {
		t.Run(c.mode, func(t *testing.T) {
			t.Parallel()
			run := func(ranks string, sets ...string) *outcome {
				dir := newRunDir(t)
				args := trainArgs(t, smallParts.dir(t), dir, append(sets, "compute.device=cuda",
					"sample.batch_scope=global", "train.optimizer=sgd", "train.lr=0.05",
					"model.norm=layer", "cache.policy=none")...)
				r := start(t, env, halognn(t).path,
					append(args, "--ranks-in-process", ranks)...).wait(t)
				if r.code != 0 {
					t.Fatal(r)
				}
				return outcomeOf(t, dir, r)
			}
			want := run(c.compared, "run.ranks_per_node=1")
			got := run("2", "parallel.mode="+c.mode, "compute.gradients=staged")
			alike(t, got, want)
			sameNumbers(t, run("2", "parallel.mode="+c.mode, "compute.gradients=mpi",
				"topology.kind=partitioned", "compute.gpu_rows=0.5"), got)
		})
	}
}
