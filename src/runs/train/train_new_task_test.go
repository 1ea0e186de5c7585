package train

// This test adds a task to the table of tasks, and trains it.

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/base/npy"
	"halognn/src/data/dataset"
	"halognn/src/devices/compute"
	"halognn/src/model/task"
	"halognn/src/ranks/comm"
	"halognn/src/runs/config"
	"halognn/src/runs/infer"
	"halognn/src/runs/session/sessiontest"
	"halognn/src/topology/graph"
)

// number is a task of one number a vertex, NaN for none, with squared errors.
func number() *task.Task {
	value := func(label []byte) float32 { return npy.View[float32](label)[0] }
	return &task.Task{
		Name: "number", Has: "a number", Loss: "squared error", DType: "<f4", Column: "value",
		File: "numbers",
		Metrics: []*task.Metric{{Name: "distance", Doc: "the mean absolute error", Less: true,
			Value: func(t *task.Tally) (float64, bool) {
				return t.Sums[0] / max(1, t.Sums[1]), t.Sums[1] > 0
			}}},
		Minibatch: func(dev compute.Device, dlogits, logits compute.Matrix, labels []byte,
			globalSeeds int) (s task.Stats) {
			z := make([]float32, len(logits.Data))
			dev.Download(z, logits.Data)
			for i, y := range npy.View[float32](labels) {
				d := float64(z[i] - y)
				s.Loss += d * d / float64(globalSeeds)
				s.Sums[0] += math.Abs(d)
				s.Sums[1]++
				z[i] = float32(2 * d / float64(globalSeeds))
			}
			dev.Upload(dlogits.Data, z)
			return s
		},
		Fault: func([]byte, int) string { return "" },
		Facts: func(int) int { return 0 },
		Truth: func(label []byte, _ []float64) bool { return value(label) == value(label) },
		Judge: func(t *task.Tally, z []float32, label []byte) {
			t.Sums[0] += math.Abs(float64(z[0] - value(label)))
			t.Sums[1]++
		},
		Predict:       func(label []byte, z []float32) { copy(label, mem.Bytes(z)) },
		Probabilities: func(y, z []float32) { copy(y, z) },
		Cells: func(line []string, label []byte, _ func(int) string) []string {
			return append(line, strconv.FormatFloat(float64(value(label)), 'g', -1, 32))
		},
	}
}

// A task is a row of the table: graphs may have its labels, its metric is a word of the config and
// chooses the best epoch, numbers do not depend on the ranks, and its predictions are written.
func TestATaskIsOneRow(t *testing.T) {
	defer task.Register(number())()
	if _, err := config.WithDefaults([]string{"data.parts=p", "run.dir=d",
		"train.metric=distance"}); err != nil {
		t.Errorf("the config does not know its metric: %v", err)
	}
	labels, split := make([]float32, 90), graph.Split{}
	for v := range labels {
		labels[v] = float32(1 + math.Sin(float64(v*6)))
		list := []*[]graph.VertexID{&split.Train, &split.Train, &split.Valid, &split.Test}[v%4]
		*list = append(*list, graph.VertexID(v))
	}
	s := sessiontest.Handmade(t, 2, dataset.Meta{Task: "number", Classes: 1}, mem.Bytes(labels),
		split)
	o := sageOptions()
	o.Model.Layers, o.Model.Dropout, o.Sample.Fanouts = 1, 0, []int{3}
	o.Epochs = 30
	j := journey{shards: s, ranks: 2, dir: t.TempDir()}
	sum := j.finished(t, o)
	var values []float64
	for _, r := range j.records(t) {
		var kind string
		var epoch, step, rows int
		var loss, factor, value float64
		if _, err := fmt.Sscan(strings.Trim(r, "{}"), &kind, &epoch, &step, &loss, &rows, &factor,
			&value); err == nil && kind == "eval" {
			values = append(values, value)
		}
	}
	first, best := values[0], slices.Min(values)
	if sum.MetricName != "distance" || sum.ValidMetric.Value != best || !(best < 0.8*first) {
		t.Errorf("%s is %g, the best of all %g, at first %g", sum.MetricName, sum.ValidMetric.Value,
			best, first)
	}
	m, err := infer.ReadModel(j.dir)
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "numbers.csv")
	if err := comm.RunWorld(2, func(c comm.Comm) error {
		env := sessiontest.Env(c, s)
		done, err := infer.Predict(context.Background(), env, o.Spec, m,
			infer.Request{Full: true, Path: out})
		if err == nil && done.Judged[0].Metric != sum.TestMetric {
			t.Errorf("it judges %+v, the run %+v", done.Judged, sum.TestMetric)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(out)
	if lines := strings.Split(string(text), "\n"); err != nil || lines[0] != "id,value" ||
		len(lines) != 92 {
		t.Errorf("%v, %q", err, lines)
	}
}
