package task

import "slices"

// Tasks of classes need one sum over labels (Tally.Facts). The constant positive is its index. If a
// vertex has one class, the sum is the number of labels of class 1. If a vertex may have several
// labels, it is the number of all labels.
const positive = 0

func one(int) int { return 1 }

// Sums are what a task adds up over its predictions. In tasks of classes there is a term for each
// vertex and class, in tasks of numbers one for each vertex and output.
type Sums [3]float64

// Indices of Sums in tasks of classes. If each vertex has one class, a wrong prediction counts as
// one false positive and one false negative.
const (
	TruePositive = iota
	FalsePositive
	FalseNegative
)

// Tally holds the sums over vertices from which metrics are computed. They are float64, so counts
// are exact up to 2^53.
type Tally struct {
	Vertices float64
	Labelled float64   // number of vertices with a label
	Facts    []float64 // sums over labels alone; Task.Facts returns their number
	// Number of vertices with an output that is not finite. The other sums leave out these
	// vertices.
	Undefined float64
	Shortfall float64 // sum over vertices of a lower bound of the loss
	Sums      Sums
}

// NewTally returns an empty tally for the task t with the given number of outputs.
func NewTally(t *Task, outputs int) Tally {
	return Tally{Facts: make([]float64, t.Facts(outputs))}
}

// Numbers returns all sums in one slice.
func (t *Tally) Numbers() []float64 {
	return slices.Concat([]float64{t.Vertices, t.Labelled, t.Undefined, t.Shortfall}, t.Sums[:],
		t.Facts)
}

// Add adds the sums of other vertices, which are in the order of Numbers.
func (t *Tally) Add(x []float64) {
	t.Vertices, t.Labelled, t.Undefined, t.Shortfall = t.Vertices+x[0], t.Labelled+x[1],
		t.Undefined+x[2], t.Shortfall+x[3]
	x = x[4:]
	for i := range t.Sums {
		t.Sums[i] += x[i]
	}
	for i := range t.Facts {
		t.Facts[i] += x[len(t.Sums)+i]
	}
}

// See counts a vertex, and what its label alone adds to Facts. It reports whether the vertex has a
// label.
func (t *Tally) See(of *Task, label []byte) bool {
	t.Vertices++
	ok := of.Truth(label, t.Facts)
	if ok {
		t.Labelled++
	}
	return ok
}

// Metric is a row of the table of metrics. The first metric of a task is also computed for each
// training step, and is always reported, even if the user chose another metric.
type Metric struct {
	Name, Doc string
	Share     bool // written in per cent
	Less      bool // smaller values are better
	// if not 0, the metric is defined only for this number of classes
	Classes int

	// Value computes the metric. For a training step only Tally.Sums is set. If the metric is
	// undefined, ok is false.
	Value func(t *Tally) (value float64, ok bool)
	// Without returns the reason why the metric has no value for the labels in t, whatever is
	// predicted. It returns "" if the metric has a value.
	Without func(t *Tally) string
	// Score and OfCurve are for a metric that cannot be computed from sums, because it ranks all
	// vertices by a score. Score returns the score of a vertex, and OfCurve the value of the
	// metric.
	Score   func(z []float32, label []byte) Scored
	OfCurve func(*Curve) float64
}

// The names of metrics.
const (
	Accuracy = "accuracy"
	ROCAUC   = "roc_auc"
	MicroF1  = "micro_f1"
)

var (
	accuracy = Metric{Name: Accuracy, Doc: "share of vertices or links whose class is right",
		Share: true,
		Value: func(t *Tally) (share float64, ok bool) {
			s := &t.Sums
			n := s[TruePositive] + s[FalsePositive]
			return s[TruePositive] / max(1, n), n > 0
		}}
	// this metric judges two classes by ranking vertices, because the shares of the classes may
	// differ between splits
	rocAUC = Metric{Name: ROCAUC, Doc: "area under the ROC curve, of two classes", Classes: 2,
		Without: func(t *Tally) string {
			switch t.Facts[positive] {
			case 0:
				return "only class 0"
			case t.Labelled:
				return "only class 1"
			}
			return ""
		},
		Score: func(z []float32, label []byte) Scored {
			// the difference of the scores of class 1 and class 0
			return Scored{z[1] - z[0], float32(class(label))}
		},
		OfCurve: func(c *Curve) float64 {
			area, _ := c.Area()
			return area
		}}
	// this is 2 TP / (2 TP + FP + FN); if no vertex has a label, it is undefined
	microF1 = Metric{Name: MicroF1, Share: true,
		Doc: "over all labels, with several a vertex",
		Value: func(t *Tally) (f1 float64, ok bool) {
			s := &t.Sums
			all := 2*s[TruePositive] + s[FalsePositive] + s[FalseNegative]
			return 2 * s[TruePositive] / max(1, all), s[TruePositive]+s[FalseNegative] > 0
		},
		Without: func(t *Tally) string {
			if t.Facts[positive] == 0 {
				return "no labels"
			}
			return ""
		}}
)

// Why says why the metric is undefined for the vertices in t, or returns "" if it is defined. For
// example, a share is 0/0 if there are no vertices, an F1-score if there are no labels, and a
// ranking if there is only one class.
func (m *Metric) Why(t *Tally) string {
	switch {
	case t.Vertices == 0:
		return "no vertices"
	case t.Labelled == 0:
		return "no labels"
	case m.Without != nil:
		return m.Without(t)
	}
	return ""
}

// Better reports whether the value x is better than the value y.
func (m *Metric) Better(x, y float64) bool {
	if m.Less {
		return x < y
	}
	return x > y
}

// Metrics returns all metrics.
func Metrics() (all []*Metric) {
	for _, t := range tasks {
		for _, m := range t.Metrics {
			if !slices.Contains(all, m) {
				all = append(all, m)
			}
		}
	}
	return all
}

// IsShare reports whether values of the metric called name are written in per cent.
func IsShare(name string) bool {
	return !slices.ContainsFunc(Metrics(),
		func(m *Metric) bool { return m.Name == name && !m.Share })
}
