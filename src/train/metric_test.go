package train

import (
	"fmt"
	"math"
	"testing"

	"halognn/src/comm"
	"halognn/src/compute"
	"halognn/src/nn"
)

func TestMetricOfTask(t *testing.T) {
	for _, c := range []struct {
		task    string
		classes int
		want    string
	}{
		{nn.Multiclass, 5, Accuracy}, {nn.Multiclass, 2, ROCAUC}, {nn.Multilabel, 2, MicroF1},
		{nn.Multilabel, 9, MicroF1}, {nn.Multiclass, 1, Accuracy},
	} {
		if got := metricName(c.task, c.classes); got != c.want {
			t.Errorf("%s of %d classes is judged by %s, want %s", c.task, c.classes, got, c.want)
		}
	}
}

// Scores are worked out by hand, and the same however the vertices are spread over ranks.
func TestQuality(t *testing.T) {
	type vertex struct {
		z     []float32
		label int32
		marks []uint8
	}
	for _, c := range []struct {
		name, metric     string
		vertices         []vertex
		quality, correct float64
		shortfall        float64
	}{
		{"nothing", Accuracy, nil, 0, 0, 0},
		{"accuracy: the first of equal logits counts, vertices without a label do not", Accuracy,
			[]vertex{
				{z: []float32{1, 3, 2}, label: 1}, {z: []float32{2, 2, 1}, label: 0},
				{z: []float32{2, 2, 1}, label: 1},
				{z: []float32{-1, -2, -3}, label: 2}, {z: []float32{9, 0, 0}, label: -1},
			}, 0.5, 0.5, 2.0 / 4},
		// class 1 scores 2, 1, -1; class 0 scores 0, 1: of 6 pairs 3 are in order and 1 is a tie
		{"ROC-AUC", ROCAUC, []vertex{
			{z: []float32{0, 2}, label: 1}, {z: []float32{1, 2}, label: 1}, {z: []float32{1, 0}, label: 1},
			{z: []float32{3, 3}, label: 0}, {z: []float32{0, 1}, label: 0}, {z: []float32{0, 50}, label: -1},
		}, 3.5 / 6, 3.0 / 5, 2.0 / 5},
		{"ROC-AUC of one class", ROCAUC, []vertex{{z: []float32{0, 2}, label: 1}}, 0, 1, 0},
		// 2 true positives, 1 false negative, 1 false positive; 0 is not above 0
		{"micro-F1", MicroF1, []vertex{
			{z: []float32{1, -1, 0}, marks: []uint8{1, 0, 1}},
			{z: []float32{1, 1, -1}, marks: []uint8{0, 1, 0}},
		}, 2 * 2.0 / (2*2 + 1 + 1), 2 * 2.0 / (2*2 + 1 + 1), 1.0 / 3 / 2},
	} {
		for ranks := 1; ranks <= 3; ranks++ {
			err := comm.RunWorld(ranks, func(w comm.Comm) error {
				var s score
				for i, v := range c.vertices {
					if i%ranks == w.Rank() {
						s.add(c.metric, compute.Matrix{Rows: 1, Cols: len(v.z), Data: v.z}, []int32{v.label}, v.marks)
					}
				}
				q, err := s.quality(w, c.metric)
				if err == nil && (q.metric != c.quality || q.accuracy != c.correct ||
					math.Abs(q.shortfall-c.shortfall) > 1e-12) {
					err = fmt.Errorf("%s is %g, accuracy %g, shortfall %g, want %g, %g and %g",
						c.metric, q.metric, q.accuracy, q.shortfall, c.quality, c.correct,
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
