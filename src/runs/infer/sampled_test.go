package infer

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"halognn/src/base/npy"
	"halognn/src/data/shard"
	"halognn/src/model/nn"
	"halognn/src/ranks/comm"
	"halognn/src/runs/session/sessiontest"
	"halognn/src/step/job"
	"halognn/src/topology/sample"
)

// Sampled inference draws by the fanouts of evaluation: with all neighbours it predicts the same as
// layer-wise inference.
func TestEvalFanoutsPredict(t *testing.T) {
	shards := generated(t)
	o := sageOptions()
	all := []int{sample.All, sample.All, sample.All}
	full, err := predictedBy(t, shards, o, Request{Full: true})
	if err != nil {
		t.Fatal(err)
	}
	o.Eval = sample.Neighbours(all...)
	wide, err := predictedBy(t, shards, o, Request{})
	if err != nil {
		t.Fatal(err)
	}
	o.Eval = sample.Spec{}
	narrow, err := predictedBy(t, shards, o, Request{})
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
func predictedBy(t *testing.T, shards *shard.Shards, o job.Spec, what Request) ([]int32, error) {
	t.Helper()
	what.Path = filepath.Join(t.TempDir(), "predictions.npy")
	var weights []nn.Tensor
	err := onRanks(shards, 1, o, func(_ context.Context, s Passes) error {
		for _, x := range s.Model.Params.Tensors(s.Model.Params.Values) {
			weights = append(weights, nn.Tensor{Name: x.Name, Shape: x.Shape,
				Data: slices.Clone(x.Data)})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	err = comm.RunWorld(2, func(c comm.Comm) error {
		env := sessiontest.Env(c, shards)
		m := &Model{Weights: weights, In: shards.Features, Out: shards.Classes, Task: shards.Task}
		_, err := Predict(context.Background(), env, o, m, what)
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
