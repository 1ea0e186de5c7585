package train

import (
	"context"
	"fmt"
	"testing"

	"halognn/src/data/dataset"
	"halognn/src/data/shard/shardtest"
	"halognn/src/devices/compute"
	"halognn/src/devices/compute/ref"
	"halognn/src/ranks/comm"
	"halognn/src/rows/policy"
	"halognn/src/runs/record"
	"halognn/src/runs/session"
	"halognn/src/topology/sample"
)

// Without vertices for validation and test a run trains to its end, and infers nothing.
func TestNothingToJudge(t *testing.T) {
	for _, c := range []struct {
		split  string
		infers bool
	}{{"60/0/0", false}, {"60/40/0", true}, {"60/0/40", true}} {
		shards := shardtest.Open(t, dataset.GenerateOptions{Vertices: 300, Degree: 8, Features: 6,
			Classes: 4, Seed: 1, Split: c.split}, shardtest.Options{Parts: 2})
		err := onOneRank(shards, sageOptions(), func(r *run) error {
			kernels := 0
			r.s.Device.Watch(&compute.Probe{OnStart: func(compute.Call) { kernels++ },
				OnDone: func() {}, OnSync: func() {}})
			if _, err := r.evaluateFull(context.Background()); err != nil {
				return err
			}
			if (kernels > 0) != c.infers {
				return fmt.Errorf("the evaluation called %d kernels", kernels)
			}
			return nil
		})
		if dir := t.TempDir(); err == nil {
			err = comm.RunWorld(2, func(cm comm.Comm) error {
				s, err := Run(context.Background(), Env{Env: session.Env{Comm: cm, RanksPerNode: 1,
					Shards: shards,
					Device: ref.New(), Host: ref.Host{}, Workers: 1},
					Dir: dir}, sageOptions())
				if err == nil && s.Epochs != 2 {
					return fmt.Errorf("%d epochs", s.Epochs)
				}
				return err
			})
		}
		if err != nil {
			t.Errorf("split %s: %v", c.split, err)
		}
	}
}

// Fanouts of evaluation change how a model is judged but not how it is trained, at any depth and
// with any cache. With all neighbours, sampled and layer-wise validation agree.
func TestEvalFanoutsJudgeAndDoNotTrain(t *testing.T) {
	shards := generatedIn(t, 12)
	o := resumable()
	want := (&journey{shards: shards, ranks: 2, dir: t.TempDir()}).finished(t, o)
	full := o
	full.EvalFull = true
	judged := (&journey{shards: shards, ranks: 2, dir: t.TempDir()}).finished(t, full)
	all := []int{sample.All, sample.All, sample.All}
	for _, c := range []struct {
		policy  string
		depth   int
		fanouts []int
		valid   record.Metric // of the best epoch
	}{
		{policy.None, 0, all, judged.ValidMetric},
		{policy.VIP, 2, all, judged.ValidMetric},
		{policy.Prefetch, 1, all, judged.ValidMetric},
		{policy.Lookahead, 2, all, judged.ValidMetric}, // evaluates in a pipeline of its own
		{policy.None, 2, o.Sample.Fanouts, want.ValidMetric},
		{policy.None, 2, nil, want.ValidMetric},
	} {
		o := o
		o.Eval, o.Depth = sample.Neighbours(c.fanouts...), c.depth
		o.Cache = policy.Settings{
			Policy: c.policy, Alpha: 0.3, Gamma: 0.9, Delta: 4, Evict: true, Initial: policy.Degree,
		}
		got := (&journey{shards: shards, ranks: 2, dir: t.TempDir()}).finished(t, o)
		if got.LossDigest != want.LossDigest || got.WeightsDigest != want.WeightsDigest ||
			got.BlocksDigest != want.BlocksDigest {
			t.Errorf("%s, fanouts %v: digests %s, %s, %s, want %s, %s, %s", c.policy, c.fanouts,
				got.LossDigest, got.WeightsDigest,
				got.BlocksDigest, want.LossDigest, want.WeightsDigest, want.BlocksDigest)
		}
		if got.ValidMetric != c.valid {
			t.Errorf("%s, fanouts %v: validation gives %v, want %v", c.policy, c.fanouts,
				got.ValidMetric, c.valid)
		}
	}
	if want.ValidMetric == judged.ValidMetric && want.BestEpoch == judged.BestEpoch {
		t.Error("sampled and full validation agree by chance: this tests nothing")
	}
}
