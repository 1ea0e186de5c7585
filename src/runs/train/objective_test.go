package train

import (
	"context"
	"testing"

	"halognn/src/base/npy"
	"halognn/src/ranks/comm"
	"halognn/src/runs/record"
	"halognn/src/runs/session/sessiontest"
)

// Balanced weights follow from the counts of the training seeds and reach the loss: a run with the
// same weights in its config has the same losses, a run without weights has others.
func TestClassWeightsReachTheLoss(t *testing.T) {
	digest := func(ranks int, change func(o *Options)) (sum *record.Summary) {
		t.Helper()
		shards, o := generated(t), sageOptions()
		change(&o)
		err := comm.RunWorld(ranks, func(c comm.Comm) error {
			env := Env{Env: sessiontest.Env(c, shards),
				Dir: t.TempDir()}
			s, err := Run(context.Background(), env, o)
			if c.Rank() == 0 {
				sum = s
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return sum
	}
	shards := generated(t)
	count, total := make([]float64, 4), 0.0
	for p := range shards.Meta.Parts {
		for _, v := range shards.Train(p) {
			count[npy.View[int32](shards.Labels().Data)[v]]++
			total++
		}
	}
	weights := make([]float64, 4)
	for c, n := range count {
		weights[c] = total / (4 * n)
	}
	plain := digest(2, func(*Options) {})
	balanced := digest(2, func(o *Options) { o.Loss.Balanced = true })
	spelled := digest(2, func(o *Options) { o.Loss.Weights = weights })
	smooth := digest(2, func(o *Options) { o.Loss.Smoothing = 0.1 })
	if balanced.LossDigest != spelled.LossDigest {
		t.Errorf("balanced %s, spelled out %s", balanced.LossDigest, spelled.LossDigest)
	}
	if balanced.LossDigest == plain.LossDigest || smooth.LossDigest == plain.LossDigest {
		t.Errorf("plain %s, balanced %s, smooth %s", plain.LossDigest, balanced.LossDigest,
			smooth.LossDigest)
	}
	// The confusion matrix is that of the test set, whose right predictions lie on its diagonal.
	tested, right := int64(0), int64(0)
	for i, row := range plain.Confusion {
		for j, n := range row {
			tested += n
			if i == j {
				right += n
			}
		}
	}
	want := 0
	for p := range shards.Meta.Parts {
		want += len(shards.Test(p))
	}
	if int(tested) != want || float64(right)/float64(tested) != plain.TestAccuracy.Value {
		t.Errorf("%d of %d right in the matrix; %d tested, accuracy %g", right, tested, want,
			plain.TestAccuracy.Value)
	}
}
