package job

import (
	"math"
	"testing"

	"halognn/src/model/nn"
	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
)

// Learned rows follow the schedule of the weights, from a base of their own: through the warm-up
// and every fall.
func TestLearnedRowsFollowTheSchedule(t *testing.T) {
	streams, err := sample.NewStreams([][]graph.VertexID{{0, 1, 2, 3}},
		sample.StreamOptions{Batch: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer streams.Free()
	j := Job{Streams: streams, Spec: Spec{Epochs: 2, Learned: nn.LearnedOptions{LR: 0.5},
		Schedule: nn.Schedule{
			Kind: nn.ScheduleStep, Base: 0.04, Warmup: 2, Every: 3, Gamma: 0.1}}}
	for update, want := range []struct{ weights, rows float64 }{
		{0.02, 0.25}, {0.04, 0.5}, // rise
		{0.04, 0.5}, {0.04, 0.5}, {0.04, 0.5}, // three steps after it
		{0.004, 0.05}, {0.004, 0.05}, {0.004, 0.05},
	} {
		weights, rows := j.Rates(update)
		if math.Abs(weights-want.weights) > 1e-12 || math.Abs(rows-want.rows) > 1e-12 {
			t.Errorf("update %d: rates %g and %g, want %g and %g", update, weights, rows,
				want.weights, want.rows)
		}
	}
}
