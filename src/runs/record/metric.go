package record

import (
	"encoding/json"
	"strconv"

	"halognn/src/model/task"
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

// MetricText writes a value of a metric, a share in per cent, or a dash and why there is none.
func MetricText(metric string, m Metric) string {
	switch {
	case !m.Known:
		return "– (" + m.Why + ")"
	case !task.IsShare(metric):
		return strconv.FormatFloat(m.Value, 'f', 4, 64)
	}
	return strconv.FormatFloat(100*m.Value, 'f', 2, 64) + " %"
}

// MetricOf returns the value of m, or why the labels counted in of give it none.
func MetricOf(m *task.Metric, of *task.Tally, value float64) Metric {
	if why := m.Why(of); why != "" {
		return Metric{Why: why}
	}
	return Metric{Value: value, Known: true}
}
