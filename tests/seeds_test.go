//go:build e2e

package tests

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"halognn/src/data/dataset"
	"halognn/src/data/shard"
	"halognn/src/topology/graph"
	"halognn/src/topology/partition"
)

// For each meaning of sample.batch and each source of seeds, an epoch has the documented steps,
// trains every seed once, and its global minibatches differ by at most one seed.
func TestBatchScopes(t *testing.T) {
	t.Parallel()
	parts := smallParts.dir(t)
	s, err := shard.Open(parts, shard.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const ranks, batch = 4, 100
	all := 0
	var ofPart []int
	for _, size := range s.Splits {
		ofPart = append(ofPart, size.Train)
		all += size.Train
	}
	var ofRank []int
	for r := range ranks {
		ofRank = append(ofRank, ofPart[2*r]+ofPart[2*r+1])
	}
	ceil := func(a, b int) int { return (a + b - 1) / b }
	for _, c := range []struct {
		scope, seeds, streams string
		steps, most           int // most: seeds of a global minibatch
	}{
		{"rank", "local", "rank", ceil(slices.Max(ofRank), batch), ranks * batch},
		{"rank", "local", "part", ceil(slices.Max(ofPart), batch), 8 * batch},
		{"rank", "global", "rank", ceil(ceil(all, ranks), batch), ranks * batch},
		{"rank", "global", "part", ceil(ceil(all, 8), batch), 8 * batch},
		{"global", "local", "rank", ceil(all, batch), batch},
		{"global", "local", "part", ceil(all, batch), batch},
		{"global", "global", "rank", ceil(all, batch), batch},
		{"global", "global", "part", ceil(all, batch), batch},
	} {
		t.Run(c.scope+" "+c.seeds+" "+c.streams, func(t *testing.T) {
			t.Parallel()
			got := trained(t, parts, ranks, "sample.batch_scope="+c.scope, "sample.seeds="+c.seeds,
				"sample.streams="+c.streams,
				fmt.Sprintf("sample.batch=%d", batch))
			if got.StepsPerEpoch != c.steps || len(got.steps) != 2*c.steps {
				t.Fatalf("%d steps an epoch, %d in all, want %d and %d", got.StepsPerEpoch,
					len(got.steps), c.steps, 2*c.steps)
			}
			trainedSeeds, least, most := 0, math.MaxInt, 0
			for _, step := range got.steps {
				trainedSeeds += step.Seeds
				least, most = min(least, step.Seeds), max(most, step.Seeds)
			}
			if trainedSeeds != 2*all {
				t.Errorf("2 epochs trained %d seeds, want %d", trainedSeeds, 2*all)
			}
			if most > c.most || most-least > 1 {
				t.Errorf("global minibatches have %d to %d seeds, want at most %d and near-equal "+
					"ones", least, most, c.most)
			}
		})
	}
}

// With seeds drawn globally and batches counted globally, training does not depend on the number of
// ranks, except for the draws of neighbours, which belong to the stream.
func TestGlobalBatchesAreTheSameOnAnyRanks(t *testing.T) {
	t.Parallel()
	sets := []string{"sample.batch_scope=global", "sample.seeds=global", "sample.fanouts=-1,-1",
		"train.optimizer=sgd", "train.lr=0.1",
		"sample.batch=300", "model.dropout=0"}
	want := trained(t, smallParts.dir(t), 1, sets...)
	for _, ranks := range []int{2, 8} {
		sameLosses(t, trained(t, smallParts.dir(t), ranks, sets...), want)
	}
}

// Ranks without training seeds take part with weight 0: nothing hangs, and all ranks train the same
// model as those with seeds.
func TestRanksWithoutSeeds(t *testing.T) {
	unlessShort(t)
	t.Parallel()
	data := handmade{split: func(v int) [3]bool {
		return [3]bool{v < 50, v%2 == 0 && v >= 50,
			v%2 == 1 && v >= 50}
	}}.write(t, t.TempDir()+"/data")
	parts := partitioned(t, data, 8, "contiguous", "--allow-imbalance")
	sets := []string{"sample.batch=20", "train.optimizer=sgd", "train.lr=0.1"}
	alone := trained(t, parts, 1, append(sets, "sample.streams=part")...)
	if alone.StepsPerEpoch != 3 {
		t.Errorf("%d steps an epoch, want 3: the 50 seeds of part 0 by 20", alone.StepsPerEpoch)
	}
	for _, ranks := range []int{2, 4, 8} {
		got := trained(t, parts, ranks, append(sets, "sample.streams=part")...)
		sameLosses(t, got, alone)
		if got.steps[0].Seeds != 17 && got.steps[0].Seeds != 16 {
			t.Errorf("%d ranks: a step has %d seeds, want a third of 50", ranks, got.steps[0].Seeds)
		}
		// A stream for each rank, and seeds from everywhere: the ranks without seeds of their own
		// now get some.
		for _, more := range []string{"sample.streams=rank", "sample.seeds=global",
			"sample.batch_scope=global"} {
			trained(t, parts, ranks, append(sets, more)...)
		}
	}
}

// With more ranks than seeds, some ranks have an empty piece at every step, and others at some
// steps.
func TestFewerSeedsThanRanks(t *testing.T) {
	t.Parallel()
	data := handmade{split: func(v int) [3]bool {
		return [3]bool{v == 7 || v == 300, v%100 == 1,
			v%100 == 2}
	}}.write(t, t.TempDir()+"/data")
	parts := partitioned(t, data, 8, "contiguous", "--allow-imbalance")
	for _, seeds := range []string{"local", "global"} {
		got := trained(t, parts, 8, "sample.seeds="+seeds, "sample.batch=1",
			"sample.batch_scope=global", "train.eval_mode=full")
		if got.StepsPerEpoch != 2 || got.steps[0].Seeds != 1 {
			t.Errorf("%s seeds: %d steps an epoch, the first with %d seeds, want 2 of 1", seeds,
				got.StepsPerEpoch, got.steps[0].Seeds)
		}
		big := trained(t, parts, 8, "sample.seeds="+seeds, "sample.batch=1000")
		if !strings.Contains(big.notes, "note: batch 1000 is larger than") {
			t.Errorf("no word about a batch of 1000 for 2 seeds:\n%s", big.notes)
		}
	}
}

// Parts without vertices, and a graph without edges, train like others.
func TestEmptyParts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, isolated := range []bool{false, true} {
		data := handmade{isolated: isolated}.write(t, fmt.Sprintf("%s/data-%t", dir, isolated))
		d, err := dataset.Open(data)
		if err != nil {
			t.Fatal(err)
		}
		same, part := make([]graph.VertexID, d.Meta.Vertices), make([]int32, d.Meta.Vertices)
		for v := range same {
			same[v] = graph.VertexID(v)
			part[v] = int32(1 + v/200*2) // parts 1 and 3 of 4
		}
		parts := fmt.Sprintf("%s/parts-%t", dir, isolated)
		err = shard.Write(parts, d,
			shard.Layout{NewID: same, Offsets: []int64{0, 0, 200, 200, 400},
				Report: partition.Measure(d.Graph, part, 4, d.Split)}, shard.Alone{})
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		sets := []string{"sample.streams=part", "train.optimizer=sgd", "train.lr=0.1",
			"train.eval_mode=full", "run.ranks_per_node=1"}
		want := trained(t, parts, 1, sets...)
		for _, ranks := range []int{2, 4} {
			sameLosses(t, trained(t, parts, ranks, sets...), want)
		}
		halognn(t).must(t, "check", parts)
	}
}

// A run on one of several splits of a dataset equals a run on a dataset with this split alone, and
// a sweep over splits consists of such runs.
func TestSplitsOfARun(t *testing.T) {
	t.Parallel()
	dir, n := t.TempDir(), 90
	in := filepath.Join(dir, "in")
	if err := os.Mkdir(in, 0o777); err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	edges, y, x := make([]int64, 8*n), make([]int64, n), make([]float32, 4*n)
	for i := range edges {
		edges[i] = rng.Int64N(int64(n))
	}
	masks := [3][]uint8{make([]uint8, 2*n), make([]uint8, 2*n), make([]uint8, 2*n)}
	for v := range n {
		y[v], x[4*v+v%3] = int64(v%3), 1
		masks[rng.IntN(3)][2*v]++
		masks[rng.IntN(3)][2*v+1]++
	}
	file := func(name string) string { return filepath.Join(in, name+".npy") }
	save(t, file("edge_index"), edges, 2, 4*n)
	save(t, file("x"), x, n, 4)
	save(t, file("y"), y, n)
	for k, name := range []string{"train_mask", "val_mask", "test_mask"} {
		save(t, file(name), masks[k], n, 2)
	}
	// one part each, as parts are balanced by the seeds of the first split
	parts := map[string]string{}
	for _, index := range []string{"all", "0", "1"} {
		data := filepath.Join(dir, "data-"+index)
		parts[index] = filepath.Join(dir, "parts-"+index)
		halognn(t).must(t, "import", "--format", "npz", "--in", in, "--undirected", "--split-index",
			index, "--out", data)
		halognn(t).must(t, "partition", "--data", data, "--parts", "1", "--method", "random",
			"--out", parts[index])
		halognn(t).must(t, "check", data)
		halognn(t).must(t, "check", parts[index])
	}
	sets := []string{"train.epochs=2", "sample.batch=8"}
	for k, index := range []string{"0", "1"} {
		want := trained(t, parts[index], 1, sets...)
		got := trained(t, parts["all"], 1, append(sets, "data.split="+index)...)
		sameLosses(t, got, want)
		if got.LossDigest != want.LossDigest || got.TestMetric != want.TestMetric {
			t.Errorf("split %d: digest %s, test %v; want %s, %v", k, got.LossDigest, got.TestMetric,
				want.LossDigest, want.TestMetric)
		}
		// scores are of the run's split if the parts have it, otherwise of their first split
		for _, name := range []string{"all", index, "0"} {
			out := halognn(t).must(t, "infer", "--run", got.dir, "--parts", parts[name], "--out",
				filepath.Join(t.TempDir(), "p.npy")).out
			_, score, _ := strings.Cut(out, "test accuracy ")
			of := fmt.Sprintf("%.2f %%", 100*got.TestMetric.Value)
			same := strings.HasPrefix(strings.TrimSpace(score), of)
			if score == "" || !same && name != "0" {
				t.Errorf("split %d on parts %s, want %s: %s", k, name, of, out)
			}
		}
	}
	r := halognn(t).run(t, "train", "--config", "../inputs/demo.yaml", "--set",
		"data.parts="+parts["0"],
		"--set", "data.split=1", "--set", "run.dir="+filepath.Join(dir, "none"))
	if m := r.message(t); r.code != 3 || !strings.Contains(m, "hold one split, 0") {
		t.Errorf("a split that is not there:\n%s", r)
	}
	sweep := []string{"sweep", "--config", "../inputs/demo.yaml", "--ranks-in-process", "1",
		"--set",
		"train.epochs=1", "--set", "data.parts=" + parts["all"], "--out", filepath.Join(dir,
			"sweep")}
	s := halognn(t).must(t, append(sweep, "--split-index", "all", "--seeds", "2")...)
	if !strings.Contains(s.out, "over seeds and splits") || !strings.Contains(s.out,
		"4 of 4 runs") ||
		!strings.Contains(s.out, "±") {
		t.Errorf("a sweep over splits:\n%s", s)
	}
	for _, c := range []struct {
		code int
		says string
		more []string
	}{
		{2, "data.split is given by --set and by --split-index", []string{"--split-index", "all",
			"--set", "data.split=1"}},
		{3, "the parts have only splits 0 to 1", []string{"--split-index", "0,2",
			"--out", filepath.Join(dir, "another")}},
		{2, "is a run of another sweep", []string{"--split-index", "0"}},
		{2, "hold one split, 0", []string{"--split-index", "all", "--set",
			"data.parts=" + parts["0"]}},
	} {
		if r := halognn(t).run(t, append(sweep, c.more...)...); r.code != c.code ||
			!strings.Contains(r.message(t), c.says) {
			t.Errorf("want %d, %q:\n%s", c.code, c.says, r)
		}
	}
}
