package train

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"halognn/src/comm"
	"halognn/src/compute/ref"
	"halognn/src/nn"
	"halognn/src/npy"
	"halognn/src/policy"
	"halognn/src/record"
	"halognn/src/sample"
	"halognn/src/shard"
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

// Sampled inference draws by the fanouts of evaluation: with all neighbours it predicts the same as
// layer-wise inference.
func TestEvalFanoutsPredict(t *testing.T) {
	shards := generated(t)
	o := sageOptions()
	all := []int{sample.All, sample.All, sample.All}
	full, err := predictedBy(t, shards, o, Inference{Full: true})
	if err != nil {
		t.Fatal(err)
	}
	o.Eval = sample.Neighbours(all...)
	wide, err := predictedBy(t, shards, o, Inference{})
	if err != nil {
		t.Fatal(err)
	}
	o.Eval = sample.Spec{}
	narrow, err := predictedBy(t, shards, o, Inference{})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(wide, full) {
		t.Error("sampled predictions with all neighbours differ from full ones")
	}
	if slices.Equal(narrow, full) {
		t.Error("samples of 4, 3 and 2 neighbours predict what all do: this tests nothing")
	}
}

// predictedBy predicts the classes of all vertices with the weights that a session begins with.
func predictedBy(t *testing.T, shards *shard.Shards, o Options, what Inference) ([]int32, error) {
	t.Helper()
	what.Path = filepath.Join(t.TempDir(), "predictions.npy")
	var weights []nn.Tensor
	err := onRanks(shards, 1, o, func(_ context.Context, s *session) error {
		for _, x := range s.model.Params.Tensors(s.model.Params.Values) {
			weights = append(weights, nn.Tensor{Name: x.Name, Shape: x.Shape, Data: slices.Clone(x.Data)})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	err = comm.RunWorld(2, func(c comm.Comm) error {
		env := Env{Comm: c, RanksPerNode: 1, Shards: shards, Device: ref.New(), Host: ref.Host{},
			Workers: 2, Dir: t.TempDir()}
		m := &Model{Weights: weights, In: shards.Features, Out: shards.Classes, Task: shards.Task}
		_, err := Infer(context.Background(), env, o, m, what)
		return err
	})
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(what.Path); err != nil {
		return nil, fmt.Errorf("no predictions: %w", err)
	}
	f, err := npy.Map[int32](what.Path, -1)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return slices.Clone(f.Data), nil
}
