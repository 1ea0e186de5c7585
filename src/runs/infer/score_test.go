package infer

import (
	"fmt"
	"math"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/model/task"
	"halognn/src/ranks/comm"
	"halognn/src/runs/record"
)

// Scores are worked out by hand, and the same however the vertices are spread over ranks. Vertices
// that give a metric no value say why.
func TestQuality(t *testing.T) {
	type vertex struct {
		z     []float32
		label int32
		marks []uint8
	}
	const accuracy, rocAUC, microF1 = task.Accuracy, task.ROCAUC, task.MicroF1
	known := func(x float64) record.Metric { return record.Metric{Value: x, Known: true} }
	none := func(why string) record.Metric { return record.Metric{Why: why} }
	wrong := []vertex{{z: []float32{2, 1}, label: 1}, {z: []float32{0, 1}, label: 1}}
	for _, c := range []struct {
		name, metric     string
		vertices         []vertex
		quality, correct record.Metric
		shortfall        float64
	}{
		{"accuracy of nothing", accuracy, nil, none("no vertices"), none("no vertices"), 0},
		{"ROC-AUC of nothing", rocAUC, nil, none("no vertices"), none("no vertices"), 0},
		{"micro-F1 of nothing", microF1, nil, none("no vertices"), none("no vertices"), 0},
		{"accuracy without labels", accuracy,
			[]vertex{{z: []float32{1, 2, 3}, label: -1}, {z: []float32{3, 2, 1}, label: -1}},
			none("no labels"), none("no labels"), 0},
		{"accuracy: the first of equal logits counts, vertices without a label do not", accuracy,
			[]vertex{
				{z: []float32{1, 3, 2}, label: 1}, {z: []float32{2, 2, 1}, label: 0},
				{z: []float32{2, 2, 1}, label: 1},
				{z: []float32{-1, -2, -3}, label: 2}, {z: []float32{9, 0, 0}, label: -1},
			}, known(0.5), known(0.5), 2.0 / 4},
		{"nothing right is a value", accuracy, []vertex{{z: []float32{1, 0, 0}, label: 1}},
			known(0), known(0), 1},
		// class 1 scores 2, 1, -1; class 0 scores 0, 1: of 6 pairs 3 are in order and 1 is a tie
		{"ROC-AUC", rocAUC, []vertex{
			{z: []float32{0, 2}, label: 1}, {z: []float32{1, 2}, label: 1}, {z: []float32{1, 0},
				label: 1},
			{z: []float32{3, 3}, label: 0}, {z: []float32{0, 1}, label: 0}, {z: []float32{0, 50},
				label: -1},
		}, known(3.5 / 6), known(3.0 / 5), 2.0 / 5},
		{"ROC-AUC of class 1 alone", rocAUC, wrong, none("only class 1"), known(0.5),
			1.0 / 2},
		{"ROC-AUC of class 0 alone", rocAUC,
			[]vertex{{z: []float32{2, 0}, label: 0}, {z: []float32{0, 1}, label: -1}},
			none("only class 0"), known(1), 0},
		{"ROC-AUC without labels", rocAUC, []vertex{{z: []float32{0, 2}, label: -1}},
			none("no labels"), none("no labels"), 0},
		// 2 true positives, 1 false negative, 1 false positive; 0 is not above 0
		{"micro-F1", microF1, []vertex{
			{z: []float32{1, -1, 0}, marks: []uint8{1, 0, 1}},
			{z: []float32{1, 1, -1}, marks: []uint8{0, 1, 0}},
		}, known(2 * 2.0 / (2*2 + 1 + 1)), known(2 * 2.0 / (2*2 + 1 + 1)), 1.0 / 3 / 2},
		{"micro-F1 without a label to find", microF1, []vertex{
			{z: []float32{1, -1}, marks: []uint8{0, 0}}, {z: []float32{-1, -1},
				marks: []uint8{0, 0}},
		}, none("no labels"), none("no labels"), 1.0 / 2 / 2},
		{"micro-F1 of a label that is not found", microF1,
			[]vertex{{z: []float32{-1, -1}, marks: []uint8{0, 1}}}, known(0), known(0), 1.0 / 2},
	} {
		for ranks := 1; ranks <= 3; ranks++ {
			err := comm.RunWorld(ranks, func(w comm.Comm) error {
				of := task.Find(task.Multiclass)
				if c.metric == microF1 {
					of = task.Find(task.Multilabel)
				}
				s := Score{task: of, metric: of.Metrics[0], Tally: task.NewTally(of, 2)}
				if c.metric == rocAUC {
					s.metric = of.Metrics[1]
				}
				for i, v := range c.vertices {
					if i%ranks == w.Rank() {
						label := v.marks
						if label == nil {
							label = mem.Bytes([]int32{v.label})
						}
						s.Add(v.z, label)
					}
				}
				q, err := s.Quality(w)
				if err == nil && (q.Metric != c.quality || q.Accuracy != c.correct ||
					math.Abs(q.Shortfall-c.shortfall) > 1e-12) {
					err = fmt.Errorf("%s is %+v, accuracy %+v, shortfall %g, want %+v, %+v and %g",
						c.metric, q.Metric, q.Accuracy, q.Shortfall, c.quality, c.correct,
						c.shortfall)
				}
				return err
			})
			if err != nil {
				t.Errorf("%s, %d ranks: %v", c.name, ranks, err)
			}
		}
	}
}
