package train

import (
	"context"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/base/npy"
	"halognn/src/data/dataset"
	"halognn/src/model/task"
	"halognn/src/ranks/comm"
	"halognn/src/runs/infer"
	"halognn/src/runs/session/sessiontest"
	"halognn/src/topology/graph"
)

// Numbers far from 0 are learned as well as others, predictions are in their unit, the digest is
// that of any number of ranks, and the run and an inference judge alike.
func TestNumbersAreLearnedInTheirUnit(t *testing.T) {
	labels, split := make([]float32, 2*90), graph.Split{}
	for v := range 90 {
		s := math.Sin(float64(v * 6))
		labels[2*v], labels[2*v+1] = float32(5000+100*s), float32(-0.02*s)
		list := []*[]graph.VertexID{&split.Train, &split.Train, &split.Valid, &split.Test}[v%4]
		*list = append(*list, graph.VertexID(v))
	}
	s := sessiontest.Handmade(t, 2, dataset.Meta{Task: task.Regression, Classes: 2},
		mem.Bytes(labels), split)
	for _, loss := range []string{task.LossAuto, task.LossHuber} {
		o := sageOptions()
		o.Model.Layers, o.Model.Dropout, o.Sample.Fanouts, o.Epochs = 2, 0, []int{3, 3}, 30
		o.Metric, o.Loss.Loss = "r2", loss
		digest := ""
		for _, ranks := range []int{1, 2} {
			o.StreamPerPart = true
			j := journey{shards: s, ranks: ranks, dir: t.TempDir()}
			sum := j.finished(t, o)
			if sum.TestMetric.Value < 0.8 || !sum.TestMetric.Known {
				t.Errorf("%s: r2 of the test vertices is %+v", loss, sum.TestMetric)
			}
			if n := sum.Numbers; sum.TestAccuracy != nil || sum.ValidAccuracy != nil ||
				len(n) != 3 || n["r2"] != sum.TestMetric.Value ||
				!(n["mae"] > 0 && n["mae"] <= n["rmse"]) {
				t.Errorf("%s: %v beside accuracies %v, %v", loss, n, sum.TestAccuracy,
					sum.ValidAccuracy)
			}
			if digest != "" && sum.LossDigest != digest {
				t.Errorf("%s: digest %s on %d ranks, %s on one", loss, sum.LossDigest, ranks,
					digest)
			}
			digest = sum.LossDigest
			m, err := infer.ReadModel(j.dir)
			if err != nil {
				t.Fatal(err)
			}
			out := filepath.Join(t.TempDir(), "numbers.npy")
			if err := comm.RunWorld(2, func(c comm.Comm) error {
				done, err := infer.Predict(context.Background(), sessiontest.Env(c, s), o.Spec, m,
					infer.Request{Full: true, Path: out, Metric: o.Metric})
				if err == nil && done.Judged[0].Metric != sum.TestMetric {
					t.Errorf("it judges %+v, the run %+v", done.Judged, sum.TestMetric)
				}
				return err
			}); err != nil {
				t.Fatal(err)
			}
			f, err := npy.Open(out)
			if err != nil {
				t.Fatal(err)
			}
			rows, err := f.Rows(4)
			if y := npy.View[float32](rows); err != nil || f.Shape[1] != 2 || y[0] < 4800 ||
				y[0] > 5200 {
				t.Errorf("%v, shape %v, first row %v", err, f.Shape, y[:2])
			}
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// Numbers that are the same for all training vertices end the run before the first step, on every
// rank.
func TestConstantNumbersAreRefused(t *testing.T) {
	labels := make([]float32, 90)
	labels[89] = 1
	s := sessiontest.Handmade(t, 2, dataset.Meta{Task: task.Regression, Classes: 1},
		mem.Bytes(labels), graph.Split{Train: []graph.VertexID{0, 1, 2, 3},
			Valid: []graph.VertexID{89}})
	o := sageOptions()
	o.Model.Layers, o.Sample.Fanouts = 1, []int{3}
	j := journey{shards: s, ranks: 2, dir: t.TempDir()}
	_, err := j.start(o, 0)
	if err == nil || !strings.Contains(err.Error(), "number 0 is 0 for all 4 training vertices") {
		t.Errorf("%v", err)
	}
}
