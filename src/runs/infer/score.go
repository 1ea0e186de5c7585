package infer

import (
	"fmt"

	"halognn/src/model/nn"
	"halognn/src/model/task"
	"halognn/src/ranks/comm"
	"halognn/src/runs/record"
)

// Score counts how well a set of vertices was predicted.
type Score struct {
	task   *task.Task
	metric *task.Metric
	task.Tally
	// [classes, classes] number of vertices by true and by predicted class; nil if they are not
	// counted
	Confusion []int64
	// scores and labels of all vertices, kept only for a metric that needs them
	scores []task.Scored
}

func (s Passes) Score() Score {
	return Score{task: s.Task, metric: s.Metric, Tally: task.NewTally(s.Task,
		s.Job.Model.Outputs())}
}

// Add scores a prediction: the logits of a vertex and its label.
func (s *Score) Add(z []float32, label []byte) {
	if !nn.Finite(z) {
		s.Undefined++
		return
	}
	if !s.See(s.task, label) {
		return
	}
	s.task.Judge(&s.Tally, z, label)
	if s.Confusion != nil {
		var predicted [4]byte
		s.task.Predict(predicted[:], z)
		s.Confusion[int(s.task.Class(label))*len(z)+int(s.task.Class(predicted[:]))]++
	}
	if s.metric.Score != nil {
		s.scores = append(s.scores, s.metric.Score(z, label))
	}
}

// Quality is a score over all ranks. It has the metric by which the best epoch is chosen, and the
// share of right predictions. It also has the mean shortfall, which is at most the mean loss, and
// at least the mean loss minus log(classes).
type Quality struct {
	Metric, Accuracy record.Metric
	Shortfall        float64
	judged           task.Tally
}

// Quality sums the score over all ranks. If predictions are not finite, it returns nn.ErrDiverged.
// Training may not have noticed this, because the loss before the last update was still finite.
// Every rank gets the same result. Collective.
func (s *Score) Quality(c comm.Comm) (q Quality, err error) {
	if q.judged, err = OverRanks(c, &s.Tally); err != nil {
		return q, err
	}
	if n := q.judged.Undefined; n > 0 {
		return q, comm.AgreedOn(c, fmt.Errorf("the predictions for %.0f vertices or links are "+
			"not finite: %w", n,
			nn.ErrDiverged))
	}
	q.Shortfall = q.judged.Shortfall / max(1, q.judged.Labelled)
	if q.Accuracy, err = s.value(c, s.task.Metrics[0], &q.judged); err != nil {
		return q, err
	}
	q.Metric, err = s.value(c, s.metric, &q.judged)
	return q, err
}

// All returns every metric of the task that can be computed from sums and is defined for the
// vertices.
func (q *Quality) All(of *task.Task) map[string]float64 {
	all := map[string]float64{}
	for _, m := range of.Metrics {
		if m.Value != nil && m.Why(&q.judged) == "" {
			all[m.Name], _ = m.Value(&q.judged)
		}
	}
	return all
}

// value returns the metric m over the vertices of all ranks. The argument `sums` is the tally of
// all ranks. Collective.
func (s *Score) value(c comm.Comm, m *task.Metric, sums *task.Tally) (record.Metric, error) {
	if m.Score == nil {
		x, _ := m.Value(sums)
		return record.MetricOf(m, sums, x), nil
	}
	curve, err := curveOf(c, s.scores)
	if err != nil {
		return record.Metric{}, err
	}
	return record.MetricOf(m, sums, m.OfCurve(curve)), nil
}

// OverRanks sums a tally over all ranks. Collective.
func OverRanks(c comm.Comm, own *task.Tally) (sum task.Tally, err error) {
	numbers := own.Numbers()
	all, err := comm.Allgather(c, numbers...)
	sum.Facts = make([]float64, len(own.Facts))
	for ; len(all) > 0; all = all[len(numbers):] {
		sum.Add(all)
	}
	return sum, err
}
