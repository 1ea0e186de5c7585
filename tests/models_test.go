//go:build e2e

package tests

import (
	"fmt"
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"halognn/src/model/nn"
	"halognn/src/model/task"
)

// Every setting of model, optimiser and schedule trains: the loss falls and the model beats the
// majority class.
func TestModelsAndOptimisersLearn(t *testing.T) {
	unlessShort(t)
	t.Parallel()
	for _, c := range []struct {
		name string
		sets []string
	}{
		{"sage", nil},
		{"mlp", []string{"model.kind=mlp"}},
		{"maxima", []string{"model.aggregation=max"}},
		{"gcn", []string{"model.kind=gcn", "train.lr=0.02"}},
		{"gcn by both ends", []string{"model.kind=gcn", "model.gcn_norm=both", "train.lr=0.02"}},
		{"gin", []string{"model.kind=gin", "model.norm=layer"}},
		{"gat", []string{"model.kind=gat", "model.activation=elu", "train.lr=0.02"}},
		{"gat of averaged heads",
			[]string{"model.kind=gat", "model.head_merge=mean", "model.heads=3", "train.lr=0.02"}},
		{"gatv2", []string{"model.kind=gatv2", "model.norm=layer", "train.lr=0.02"}},
		{"residual", []string{"model.kind=gcn", "model.residual=true", "model.layers=3",
			"sample.fanouts=5,3,2", "train.lr=0.02"}},
		{"jumping", []string{"model.jumping=cat"}},
		{"jumping by maxima", []string{"model.kind=gcn", "model.jumping=max", "train.lr=0.02"}},
		{"elu", []string{"model.activation=elu"}},
		{"one layer", []string{"model.layers=1", "sample.fanouts=5"}},
		{"three layers", []string{"model.layers=3", "sample.fanouts=5,3,2"}},
		{"all neighbours", []string{"sample.fanouts=-1,-1"}},
		{"layer norm", []string{"model.norm=layer"}},
		{"batch norm", []string{"model.norm=batch"}},
		{"mlp with layer norm", []string{"model.kind=mlp", "model.norm=layer"}},
		{"sgd", []string{"train.optimizer=sgd", "train.lr=0.1"}},
		{"sgd without momentum", []string{"train.optimizer=sgd", "train.lr=0.3",
			"train.momentum=0"}},
		{"adamw", []string{"train.optimizer=adamw", "train.weight_decay=0.01"}},
		{"weight decay", []string{"train.weight_decay=0.001"}},
		{"sum by the library", []string{"train.allreduce=mpi"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o := trained(t, smallParts.dir(t), 2, append(c.sets, "train.epochs=3")...)
			if !(o.epochs[2].Loss < 0.9*o.epochs[0].Loss) {
				t.Errorf("the loss went from %g to %g", o.epochs[0].Loss, o.epochs[2].Loss)
			}
			if o.MetricName != "accuracy" ||
				!(o.TestMetric.Value > o.MajorityAccuracy.Value+0.05) ||
				o.TestMetric.Value != o.TestAccuracy.Value {
				t.Errorf("%s is %g (accuracy %g), the majority class %g", o.MetricName,
					o.TestMetric.Value, o.TestAccuracy.Value, o.MajorityAccuracy.Value)
			}
		})
	}
}

// Any two optimisers give different losses, so none is another one under a wrong name.
func TestOptimisersDiffer(t *testing.T) {
	unlessShort(t)
	t.Parallel()
	seen := map[string]string{}
	for _, sets := range [][]string{
		{"train.optimizer=adam"}, {"train.optimizer=adam", "train.weight_decay=0.01"},
		{"train.optimizer=adamw", "train.weight_decay=0.01"},
		{"train.optimizer=sgd"}, {"train.optimizer=sgd", "train.momentum=0.5"},
		{"train.optimizer=sgd", "train.weight_decay=0.01"},
		{"model.norm=layer"}, {"train.schedule=cosine"},
	} {
		name := filepath.Join(sets...)
		digest := trained(t, smallParts.dir(t), 1, sets...).WeightsDigest
		if other, taken := seen[digest]; taken {
			t.Errorf("%s ends with the weights of %s", name, other)
		}
		seen[digest] = name
	}
}

// An MLP reads only the rows of its seeds, so nothing is fetched.
func TestMLPMovesNoRows(t *testing.T) {
	t.Parallel()
	o := trained(t, smallParts.dir(t), 4, "model.kind=mlp", "run.ranks_per_node=1")
	if o.Remote != 0 || o.Peer != 0 || o.RemoteBytes != 0 || o.Local != 1800 {
		t.Errorf("an epoch of 1800 seeds took %+v", o.Rows)
	}
}

func TestLearningRates(t *testing.T) {
	unlessShort(t)
	t.Parallel()
	const base = 0.02
	for _, c := range []struct {
		name string
		sets []string
		want func(step, steps, perEpoch int) float64
	}{
		{"constant", nil, func(int, int, int) float64 { return base }},
		{"warm-up", []string{"train.warmup_steps=4"},
			func(s, _, _ int) float64 { return base * min(1, float64(s+1)/4) }},
		{"step", []string{"train.schedule=step", "train.step_epochs=1", "train.step_factor=0.5"},
			func(s, _, perEpoch int) float64 {
				return base * math.Pow(0.5, float64(s/perEpoch))
			}},
		{"cosine", []string{"train.schedule=cosine"}, func(s, steps, _ int) float64 {
			return base * (1 + math.Cos(math.Pi*float64(s)/float64(steps))) / 2
		}},
		{"warm-up, then cosine", []string{"train.schedule=cosine", "train.warmup_steps=3"},
			func(s, steps, _ int) float64 {
				if s < 3 {
					return base * float64(s+1) / 3
				}
				return base * (1 + math.Cos(math.Pi*float64(s-3)/float64(steps-3))) / 2
			}},
	} {
		o := trained(t, smallParts.dir(t), 1,
			append(c.sets, "train.epochs=3", "sample.batch=600", "train.lr=0.02")...)
		if len(o.steps) != 9 {
			t.Fatalf("%s: %d steps, want 9", c.name, len(o.steps))
		}
		for i, s := range o.steps {
			if want := c.want(i, 9, 3); math.Abs(s.LR-want) > 1e-12 {
				t.Errorf("%s: step %d has learning rate %g, want %g", c.name, i, s.LR, want)
			}
		}
	}
}

// Validation runs when it is due, the best one selects the model, and patience ends the run.
func TestEvaluationsAndPatience(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		sets     []string
		want     []int // epochs with a validation; nil: any
		patience int
	}{
		{"every epoch", []string{"train.epochs=4"}, []int{1, 2, 3, 4}, 0},
		{"every other epoch", []string{"train.epochs=5", "train.eval_every=2"}, []int{2, 4, 5}, 0},
		{"the last epoch", []string{"train.epochs=3", "train.eval_every=0"}, []int{3}, 0},
		{"patience", []string{"train.epochs=200", "train.patience=2", "train.lr=0.1"}, nil, 2},
		{"patience, full", []string{"train.epochs=200", "train.patience=3", "train.lr=0.1",
			"train.eval_mode=full"}, nil, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o := trained(t, smallParts.dir(t), 2, c.sets...)
			var at []int
			var best evalLine
			since := 0
			for _, e := range o.evals {
				at = append(at, e.Epoch)
				since++
				if best.Epoch == 0 || e.ValidMetric.Value > best.ValidMetric.Value {
					best, since = e, 0
				}
				if full := e.Mode == "full"; full != (e.TestAccuracy != nil) {
					t.Errorf("epoch %d, %s: test accuracy %v", e.Epoch, e.Mode, e.TestAccuracy)
				}
			}
			if c.want != nil && !slices.Equal(at, c.want) {
				t.Errorf("validations after epochs %v, want %v", at, c.want)
			}
			if o.BestEpoch != best.Epoch || o.ValidMetric != best.ValidMetric {
				t.Errorf("the best is epoch %d with %v, want epoch %d with %v", o.BestEpoch,
					o.ValidMetric, best.Epoch, best.ValidMetric)
			}
			// the final test uses the model of that epoch
			if best.TestAccuracy != nil && *best.TestAccuracy != *o.TestAccuracy {
				t.Errorf("test accuracy is %v, after the best epoch it was %v", o.TestAccuracy,
					*best.TestAccuracy)
			}
			if c.patience > 0 && (since != c.patience || o.Epochs != best.Epoch+c.patience) {
				t.Errorf("%d epochs, %d validations after the best one; want to stop after %d",
					o.Epochs, since, c.patience)
			}
			_, metadata, err := nn.ReadSafetensors(filepath.Join(o.dir, "model.safetensors"))
			if err != nil || metadata["epoch"] != fmt.Sprint(best.Epoch) {
				t.Errorf("model.safetensors is of epoch %s (%v), want %d", metadata["epoch"], err,
					best.Epoch)
			}
		})
	}
}

// model.safetensors is as docs/formats.md says: with the names of PyTorch Geometric, the last layer
// first.
func TestModelFileHasPyGNames(t *testing.T) {
	unlessShort(t)
	t.Parallel()
	for _, c := range []struct {
		sets []string
		want map[string][]int
	}{
		{[]string{"model.norm=layer"}, map[string][]int{
			"convs.0.lin_l.weight": {16,
				16}, "convs.0.lin_l.bias": {16}, "convs.0.lin_r.weight": {16, 16},
			"convs.1.lin_l.weight": {5, 16}, "convs.1.lin_l.bias": {5}, "convs.1.lin_r.weight": {5,
				16},
			"norms.0.weight": {16}, "norms.0.bias": {16},
		}},
		{[]string{"model.kind=mlp", "model.hidden=8"}, map[string][]int{
			"lins.0.weight": {8, 16}, "lins.0.bias": {8}, "lins.1.weight": {5,
				8}, "lins.1.bias": {5},
		}},
		{[]string{"model.kind=gcn"}, map[string][]int{
			"convs.0.lin.weight": {16, 16}, "convs.0.bias": {16}, "convs.1.lin.weight": {5, 16},
			"convs.1.bias": {5},
		}},
		{[]string{"model.kind=gin"}, map[string][]int{
			"convs.0.nn.0.weight": {16, 16}, "convs.0.nn.0.bias": {16},
			"convs.0.nn.2.weight": {16, 16}, "convs.0.nn.2.bias": {16},
			"convs.1.nn.0.weight": {16, 16}, "convs.1.nn.0.bias": {16},
			"convs.1.nn.2.weight": {5, 16}, "convs.1.nn.2.bias": {5},
			"convs.0.eps": {1}, "convs.1.eps": {1},
		}},
		{[]string{"model.kind=gat", "model.heads=4"}, map[string][]int{
			"convs.0.lin.weight": {16, 16}, "convs.0.att_src": {1, 4, 4},
			"convs.0.att_dst": {1, 4, 4}, "convs.0.bias": {16},
			"convs.1.lin.weight": {20, 16}, "convs.1.att_src": {1, 4, 5},
			"convs.1.att_dst": {1, 4, 5}, "convs.1.bias": {5},
		}},
		{[]string{"model.kind=gatv2", "model.heads=4"}, map[string][]int{
			"convs.0.lin_l.weight": {16, 16}, "convs.0.lin_l.bias": {16},
			"convs.0.lin_r.weight": {16, 16}, "convs.0.lin_r.bias": {16},
			"convs.0.att": {1, 4, 4}, "convs.0.bias": {16},
			"convs.1.lin_l.weight": {20, 16}, "convs.1.lin_l.bias": {20},
			"convs.1.lin_r.weight": {20, 16}, "convs.1.lin_r.bias": {20},
			"convs.1.att": {1, 4, 5}, "convs.1.bias": {5},
		}},
	} {
		o := trained(t, smallParts.dir(t), 1, c.sets...)
		tensors, _, err := nn.ReadSafetensors(filepath.Join(o.dir, "model.safetensors"))
		if err != nil {
			t.Fatal(err)
		}
		got := map[string][]int{}
		for _, x := range tensors {
			got[x.Name] = x.Shape
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%v: the model has %v, want %v", c.sets, got, c.want)
		}
	}
}

// float16 and int8 rows are sent as stored, in a half and a quarter of the bytes, and models train
// on them as well in every mode.
func TestNarrowFeatures(t *testing.T) {
	unlessShort(t)
	t.Parallel()
	var single []*outcome // with float32 rows, by mode
	for _, c := range []struct {
		dtype string
		bytes int64
		off   float64 // relative difference of losses: values are rounded to 11 bits, and to 8
	}{{"float32", 4, 0}, {"float16", 2, 0.01}, {"int8", 1, 0.02}} {
		data := filepath.Join(t.TempDir(), "data")
		halognn(t).must(t, "generate", "--vertices", "1000", "--features", "12", "--classes", "4",
			"--feature-type", c.dtype, "--out", data)
		parts := partitioned(t, data, 2, "ldg", "--allow-imbalance")
		for i, mode := range []string{"data", "split", "hybrid", "push-pull"} {
			o := trained(t, parts, 2, "run.ranks_per_node=1", "train.epochs=3",
				"parallel.mode="+mode)
			if len(single) == i {
				single = append(single, o)
			}
			for _, e := range o.epochs {
				if want := e.Remote * 12 * c.bytes; i == 0 && (e.RemoteBytes != want || want == 0) {
					t.Errorf("%s: %d rows took %d bytes, want %d", c.dtype, e.Remote, e.RemoteBytes,
						want)
				}
			}
			if single[i].BlocksDigest != o.BlocksDigest {
				t.Errorf("%s, %s changed the minibatches", c.dtype, mode)
			}
			for k := range o.steps {
				if s, h := single[i].steps[k].Loss, o.steps[k].Loss; math.Abs(s-h) > c.off*s {
					t.Errorf("%s, step %d: loss %g with %s rows, %g with float32", mode, k, h,
						c.dtype, s)
				}
			}
		}
	}
}

func TestMultilabel(t *testing.T) {
	t.Parallel()
	data := handmade{task: task.Multilabel}.write(t, filepath.Join(t.TempDir(), "data"))
	parts := partitioned(t, data, 4, "contiguous", "--allow-imbalance")
	sets := []string{"train.epochs=30", "sample.batch=20", "train.eval_every=5", "train.lr=0.03",
		"model.dropout=0.1"}
	o := trained(t, parts, 4, sets...)
	if o.MetricName != "micro_f1" || o.MajorityAccuracy != nil ||
		o.TestMetric.Value != o.TestAccuracy.Value {
		t.Errorf("metric %s, majority %v, test metric %g, test accuracy %g", o.MetricName,
			o.MajorityAccuracy, o.TestMetric.Value, o.TestAccuracy.Value)
	}
	// better than knowing each vertex's community, but not which vertices are odd
	if !(o.TestMetric.Value > 0.8) {

		t.Errorf("micro-F1 is %g", o.TestMetric.Value)
	}
	sameNumbers(t, trained(t, parts, 4, append(sets, "pipeline.depth=4",
		"pipeline.workers=3")...), o)
}

func TestTwoClassesAreRanked(t *testing.T) {
	t.Parallel()
	data := handmade{classes: 2}.write(t, filepath.Join(t.TempDir(), "data"))
	o := trained(t, partitioned(t, data, 4, "contiguous", "--allow-imbalance"), 4, "train.epochs=5",
		"sample.batch=20")
	if o.MetricName != "roc_auc" || o.TestMetric.Value == o.TestAccuracy.Value ||
		!(o.TestMetric.Value > 0.8) ||
		!(o.TestAccuracy.Value > 0.6) {
		t.Errorf("%s: valid %g, test %g; accuracy %g, %g", o.MetricName, o.ValidMetric.Value,
			o.TestMetric.Value, o.ValidAccuracy.Value, o.TestAccuracy.Value)
	}
}

// Every kind of model gives the same bits, whatever prepares and computes a minibatch.
func TestModelsComeToTheSameNumbers(t *testing.T) {
	unlessShort(t)
	t.Parallel()
	for i, model := range [][]string{
		{"model.aggregation=max", "model.norm=layer", "model.jumping=cat"},
		{"model.edge_weights=true"}, {"model.edge_weights=true", "model.kind=gcn",
			"model.gcn_norm=both"},
		{"model.kind=gcn", "model.norm=batch"}, {"model.kind=gcn", "model.gcn_norm=both"},
		{"model.kind=gin"},
		{"model.kind=gat", "model.activation=elu", "model.norm=layer"},
		{"model.kind=gat", "model.head_merge=mean", "model.heads=3"},
		{"model.kind=gatv2", "model.norm=layer"},
	} {
		t.Run(strings.Join(model, " "), func(t *testing.T) {
			t.Parallel()
			small := smallParts.dir(t)
			if slices.Contains(model, "model.edge_weights=true") {
				small = weightedParts.dir(t)
			}
			sets := append([]string{"run.ranks_per_node=1"}, model...)
			want := trained(t, small, 4, sets...)
			for _, c := range [][]string{
				{"pipeline.depth=7", "compute.threads=3", "pipeline.workers=3",
					"topology.load=copy"},
				{"pipeline.depth=0", "cache.policy=vip", "cache.alpha=0.2"},
				{"cache.policy=" + []string{"prefetch", "lookahead"}[i%2], "cache.alpha=0.1"},
			} {
				sameNumbers(t, trained(t, small, 4, append(c, sets...)...), want)
			}
			parts := append([]string{"sample.streams=part"}, model...)
			sameLosses(t, trained(t, small, 2, parts...), trained(t, small, 4, parts...))
		})
	}
}

// Models that cannot use edge weights refuse a graph that has them, by name, and train on it once
// they are told to ignore the weights.
func TestWeightsThatAModelCannotUse(t *testing.T) {
	t.Parallel()
	parts, config := weightedParts.dir(t), baseFile.dir(t)
	for _, set := range []string{"model.kind=gat", "model.kind=gatv2", "model.aggregation=max"} {
		r := halognn(t).run(t, "train", "--config", config, "--set", "data.parts="+parts, "--set",
			set, "--set", "run.dir="+filepath.Join(t.TempDir(), "run"))
		if message := r.message(t); !strings.Contains(message, "the edges of the graph "+
			"have weights") ||
			!strings.Contains(message, "edge_weights") {
			t.Errorf("%s: %s", set, message)
		}
		trained(t, parts, 1, set, "model.edge_weights=false", "train.epochs=1")
	}
}
