package record

import (
	"encoding/json"
	"errors"
	"testing"

	"halognn/src/model/task"
)

// A metric without a value is null in a file and a dash with its reason in a line, never a number.
func TestMetricWithoutValue(t *testing.T) {
	for _, c := range []struct {
		metric           Metric
		json, line, area string
	}{
		{Metric{Value: 0.25, Known: true}, "0.25", "25.00 %", "0.2500"},
		{Metric{Value: 1, Known: true}, "1", "100.00 %", "1.0000"},
		{Metric{Known: true}, "0", "0.00 %", "0.0000"},
		{Metric{Why: "no vertices"}, "null", "– (no vertices)", "– (no vertices)"},
	} {
		text, err := json.Marshal(c.metric)
		back := Metric{Value: 7, Known: true, Why: "of before"}
		if err = errors.Join(err, json.Unmarshal(text, &back)); err != nil {
			t.Fatal(err)
		}
		if line := MetricText(task.Accuracy, c.metric); string(text) != c.json || line != c.line {
			t.Errorf("%+v is %s in a file and %q in a line", c.metric, text, line)
		}
		if line := MetricText(task.ROCAUC, c.metric); line != c.area {
			t.Errorf("%+v is %q in a line as an area, want %q", c.metric, line, c.area)
		}
		if c.metric.Why = ""; back != c.metric {
			t.Errorf("%s is read as %+v", text, back)
		}
	}
	if err := json.Unmarshal([]byte(`"0.5"`), new(Metric)); err == nil {
		t.Error("a word is read as a metric")
	}
}
