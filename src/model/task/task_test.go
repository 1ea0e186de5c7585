package task

import (
	"math"
	"strings"
	"testing"
)

func TestChoose(t *testing.T) {
	for _, c := range []struct {
		asked       string
		task        *Task
		classes     int
		want, fault string
	}{
		{"auto", &multiclass, 5, Accuracy, ""},
		{"", &multiclass, 1, Accuracy, ""},
		{"auto", &multiclass, 2, ROCAUC, ""},
		{"", &multilabel, 5, MicroF1, ""},
		{"auto", &multilabel, 2, MicroF1, ""},
		{MicroF1, &multilabel, 2, MicroF1, ""},
		{Accuracy, &multiclass, 2, Accuracy, ""},
		{ROCAUC, &multiclass, 2, ROCAUC, ""},
		{ROCAUC, &multiclass, 3, "", "is for 2 classes, but the graph has 3"},
		{MicroF1, &multiclass, 3, "", "does not judge one class a vertex; use auto, or accuracy"},
		{Accuracy, &multilabel, 3, "",
			"does not judge several labels a vertex; use auto, or micro_f1"},
	} {
		m, err := c.task.Choose(c.asked, c.classes)
		if (m == nil) != (c.want == "") || m != nil && m.Name != c.want ||
			(err != nil) != (c.fault != "") ||
			err != nil && !strings.Contains(err.Error(), c.fault) {
			t.Errorf("%s of %s, %d classes: %v, %v", c.asked, c.task.Name, c.classes, m, err)
		}
	}
}

func TestArgmax(t *testing.T) {
	inf, zero := float32(math.Inf(1)), float32(0)
	for _, c := range []struct {
		z    []float32
		want int32
	}{
		{[]float32{1}, 0}, {[]float32{1, 2, 2, 1}, 1}, {[]float32{-3, -2, -1}, 2},
		{[]float32{-1, -2, -3}, 0}, {[]float32{-zero, 0, -zero}, 0},
		{[]float32{float32(math.Copysign(0, -1)), 0}, 0}, {[]float32{-inf, -1, inf, inf}, 2},
		{[]float32{1e-45, 0, -1e-45}, 0}, {[]float32{-inf, -inf}, 0},
	} {
		if got := argmax(c.z); got != c.want {
			t.Errorf("argmax(%v) is %d, want %d", c.z, got, c.want)
		}
	}
	nan := float32(math.NaN())
	for _, z := range [][]float32{{nan}, {1, nan, 2}, {-nan, 1}, {-nan, -nan}} {
		if got := argmax(z); got < 0 || int(got) >= len(z) {
			t.Errorf("argmax(%v) is %d", z, got)
		}
	}
}
