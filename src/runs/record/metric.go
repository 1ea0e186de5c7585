package record

import (
	"encoding/json"
	"strconv"

	"halognn/src/model/task"
)

// Metric is the value of a metric over some vertices. If these vertices give it no value, it has
// the reason instead. The zero Metric has no value and no reason. In JSON it is the number, or
// null.
type Metric struct {
	Value float64 // in [0, 1]
	Known bool
	Why   string // why there is no value
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

// MetricText writes a metric as text: its value (a share is written in per cent) or, if there is no
// value, a dash and the reason.
func MetricText(metric string, m Metric) string {
	switch {
	case !m.Known:
		return "– (" + m.Why + ")"
	case !task.IsShare(metric):
		return strconv.FormatFloat(m.Value, 'f', 4, 64)
	}
	return strconv.FormatFloat(100*m.Value, 'f', 2, 64) + " %"
}

// MetricOf returns a Metric with the value. If the labels counted in the argument of give m no
// value, the Metric has the reason instead.
func MetricOf(m *task.Metric, of *task.Tally, value float64) Metric {
	if why := m.Why(of); why != "" {
		return Metric{Why: why}
	}
	return Metric{Value: value, Known: true}
}
