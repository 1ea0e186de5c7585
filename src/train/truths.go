package train

import (
	"encoding/json"
	"fmt"
	"strconv"

	"halognn/src/comm"
	"halognn/src/task"
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

// metricText writes a value of a metric, a share in per cent, or a dash and why there is none.
func metricText(metric string, m Metric) string {
	switch {
	case !m.Known:
		return "– (" + m.Why + ")"
	case !task.IsShare(metric):
		return strconv.FormatFloat(m.Value, 'f', 4, 64)
	}
	return strconv.FormatFloat(100*m.Value, 'f', 2, 64) + " %"
}

// metricOf returns a metric of vertices: the value, unless they give it none.
func metricOf(m *task.Metric, of *task.Tally, value float64) Metric {
	if why := m.Why(of); why != "" {
		return Metric{Why: why}
	}
	return Metric{Value: value, Known: true}
}

// lookAtValidation counts what the validation vertices have to judge by, and refuses to wait for a
// better metric where there is none. Collective.
func (r *run) lookAtValidation() (err error) {
	var own task.Tally
	for p := r.first; p < r.last; p++ {
		for _, v := range r.Shards.Valid(p) {
			own.See(r.task, r.Shards.Labels().Row(int(v)))
		}
	}
	if r.valid, err = overRanks(r.Comm, &own); err != nil {
		return err
	}
	if why := r.metric.Why(&r.valid); why != "" && r.o.Patience > 0 {
		return comm.AgreedOn(r.Comm, fmt.Errorf("%s: train.patience is %d, but no validation can be "+
			"better than another: the validation split gives no %s (%s); set train.patience=0, or "+
			"import the graph with another split", r.Shards.Dir, r.o.Patience, r.metric.Name, why))
	}
	return nil
}
