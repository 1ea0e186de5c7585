package train

import (
	"testing"

	"halognn/src/rows/policy"
	"halognn/src/runs/record"
	"halognn/src/topology/sample"
)

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
