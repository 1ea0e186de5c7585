package train

import (
	"math"
	"testing"

	"halognn/src/data/shard/shardtest"
	"halognn/src/step/parallel"
	"halognn/src/topology/sample"
	"halognn/tests/race"
)

// Ranks that train minibatches of a typed graph together draw the edges of ranks that train them
// alone, and come to their numbers but for rounding, on both topologies.
func TestTypedGraphsAreSplit(t *testing.T) {
	race.Alone(t)
	s := shardtest.Cut(t, typedData(t), shardtest.Options{Parts: 4})
	split, err := parallel.ModeOf(parallel.ModeSplit)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		kind   string
		change func(*Options)
	}{
		{"rgcn", func(o *Options) { o.EvalFull = false }},
		{"sage", func(o *Options) { o.RelationFanouts = "writes=1,2 cites=-1,2 prints=300,1" }},
		{"rgcn", func(o *Options) { o.Sample.Kind = sample.Poisson }},
		{"sage", func(o *Options) { o.Sample.Kind = sample.Labor }},
		{"gat", func(o *Options) { o.Sample = sample.Neighbours(-1, -1) }},
		{"gatv2", func(o *Options) {}},
	} {
		o := typedOptions(c.kind)
		o.StreamPerPart, o.Epochs = false, 1
		c.change(&o)
		alone, shared := o, o
		alone.Batch, shared.Mode = o.Batch*4, split.Mode
		want := typedRun(t, s, 1, alone, false)
		for _, partitioned := range []bool{false, true} {
			shared.Partitioned = partitioned
			got := typedRun(t, s, 4, shared, false)
			if got.EdgesDigest != want.EdgesDigest || want.EdgesDigest == "" {
				t.Errorf("%s by %s, partitioned %v: other edges are drawn", c.kind, o.Sample.Kind,
					partitioned)
			}
			if !partitioned {
				holdCrossing(t, c.kind, s, shared, 4, got)
			}
			if d := math.Abs(got.TrainLoss - want.TrainLoss); !(d < 1e-4) ||
				*got.TestAccuracy != *want.TestAccuracy || got.Shuffles.Rows == 0 {
				t.Errorf("%s by %s, partitioned %v: loss %v, accuracy %v, %d rows between ranks; "+
					"%v and %v alone", c.kind, o.Sample.Kind, partitioned, got.TrainLoss,
					*got.TestAccuracy, got.Shuffles.Rows, want.TrainLoss, *want.TestAccuracy)
			}
		}
	}
}

// So do ranks that predict links of one relation.
func TestTypedLinksAreSplit(t *testing.T) {
	s := shardtest.TypedLinks(t, 80, 200, 6, false)
	split, err := parallel.ModeOf(parallel.ModeSplit)
	must(t, err)
	o := linkOptions(4)
	o.StreamPerPart, o.Model.Kind, o.Model.Hidden, o.Model.Dropout = false, "rgcn", 12, 0
	alone, shared := o, o
	alone.Batch, shared.Mode = o.Batch*4, split.Mode
	want, _ := trainLinks(t, s, 1, alone)
	for _, shared.Partitioned = range []bool{false, true} {
		got, _ := trainLinksOn(t, s, 4, 4, shared)
		if got.EdgesDigest != want.EdgesDigest || want.EdgesDigest == "" {
			t.Errorf("partitioned %v: other edges are drawn", shared.Partitioned)
		}
		if !shared.Partitioned {
			holdCrossing(t, "links", s, shared, 4, got)
		}
		if d := math.Abs(got.TrainLoss - want.TrainLoss); !(d < 1e-4) {
			t.Errorf("partitioned %v: loss %v, alone %v", shared.Partitioned, got.TrainLoss,
				want.TrainLoss)
		}
		for metric, x := range want.Links {
			if math.Abs(got.Links[metric]-x) > 0.02 {
				t.Errorf("partitioned %v: %s is %v, alone %v", shared.Partitioned, metric,
					got.Links[metric], x)
			}
		}
	}
}
