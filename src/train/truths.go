package train

import (
	"encoding/json"
	"fmt"
	"strconv"

	"halognn/src/comm"
	"halognn/src/graph"
)

// Metric is the value of a metric over some vertices, or why they give it none. The zero Metric is
// unknown. In JSON it is the number, or null.
type Metric struct {
	Value float64 // in [0, 1]
	Known bool
	Why   string // it is not known
}

// MarshalJSON implements json.Marshaler.
func (m Metric) MarshalJSON() ([]byte, error) {
	if !m.Known {
		return []byte("null"), nil
	}
	return json.Marshal(m.Value)
}

// UnmarshalJSON implements json.Unmarshaler.
func (m *Metric) UnmarshalJSON(text []byte) error {
	var x *float64
	err := json.Unmarshal(text, &x)
	if *m = (Metric{}); x != nil {
		m.Value, m.Known = *x, true
	}
	return err
}

// metricText writes a value of a metric in per cent, or a dash and why there is none.
func metricText(metric string, m Metric) string {
	if !m.Known {
		return "– (" + m.Why + ")"
	}
	return strconv.FormatFloat(100*m.Value, 'f', 2, 64) + " %"
}

// truths counts what a set of vertices has to judge predictions by. It does not depend on the
// predictions, so whether a metric has a value is known before the first step.
type truths struct {
	vertices int64
	labelled int64 // of these; with several labels a vertex all
	positive int64 // of the labelled ones, those of class 1; with several labels a vertex, labels
}

// see counts a vertex by its label, -1 for none, or by its marks where it may have several. It
// reports whether the vertex can be judged.
func (t *truths) see(label int32, marks []uint8) bool {
	t.vertices++
	for _, is := range marks {
		t.positive += int64(is)
	}
	if marks == nil && label < 0 {
		return false
	}
	if marks == nil && label == 1 {
		t.positive++
	}
	t.labelled++
	return true
}

// add adds the counts of other vertices.
func (t *truths) add(u truths) {
	t.vertices += u.vertices
	t.labelled += u.labelled
	t.positive += u.positive
}

// metric returns a metric of these vertices: the value, unless they give it none.
func (t truths) metric(name string, value float64) Metric {
	if why := t.why(name); why != "" {
		return Metric{Why: why}
	}
	return Metric{Value: value, Known: true}
}

// why says why these vertices give a metric no value; "" if they do. The share of nothing, the
// F1-score of no labels and the order of one class are 0/0, and no model changes that.
func (t truths) why(name string) string {
	switch {
	case t.vertices == 0:
		return "no vertices"
	case t.labelled == 0, name == MicroF1 && t.positive == 0:
		return "no labels"
	case name == ROCAUC && t.positive == 0:
		return "only class 0"
	case name == ROCAUC && t.positive == t.labelled:
		return "only class 1"
	}
	return ""
}

// shareBeside names the share of right predictions that stands beside a metric.
func shareBeside(metric string) string {
	if metric == MicroF1 {
		return MicroF1
	}
	return Accuracy
}

// lookAtValidation counts what the validation vertices have to judge by, and refuses to wait for a
// better metric where there is none. Collective.
func (r *run) lookAtValidation() error {
	var own truths
	for p := r.first; p < r.last; p++ {
		for _, v := range r.Shards.Valid(p) {
			own.see(r.truth(v))
		}
	}
	all, err := comm.Allgather(r.Comm, own.vertices, own.labelled, own.positive)
	if err != nil {
		return err
	}
	for ; len(all) > 0; all = all[3:] {
		r.valid.add(truths{vertices: all[0], labelled: all[1], positive: all[2]})
	}
	if why := r.valid.why(r.metric); why != "" && r.o.Patience > 0 {
		return comm.AgreedOn(r.Comm, fmt.Errorf("%s: train.patience is %d, but no validation can be "+
			"better than another: the validation split gives no %s (%s); set train.patience=0, or "+
			"import the graph with another split", r.Shards.Dir, r.o.Patience, r.metric, why))
	}
	return nil
}

// truth returns the label of a vertex of the own parts or, with several labels a vertex, its marks.
func (r *run) truth(v graph.VertexID) (label int32, marks []uint8) {
	if targets := r.Shards.Targets(); targets != nil {
		classes := r.Shards.Meta.Classes
		return -1, targets[int(v)*classes : (int(v)+1)*classes]
	}
	return r.Shards.Labels()[v], nil
}
