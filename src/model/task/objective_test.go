package task

import (
	"math"
	"strings"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/devices/compute"
	"halognn/src/devices/compute/ref"
)

// The loss equals PyTorch's CrossEntropyLoss(weight, label_smoothing, reduction="sum") divided by
// the seeds. The values were computed by torch 2.1 in float64.
func TestObjectiveIsThatOfPyTorch(t *testing.T) {
	logits := []float32{1, 2, 0.5, -1, 0, 3, 0.25, 0.5, 0.75}
	labels := mem.Bytes([]int32{1, 0, 2})
	for _, c := range []struct {
		o    Objective
		want float64
	}{
		{Objective{Smoothing: 0.1}, 5.341257438938},
		{Objective{Weights: []float64{1, 0.5, 3}}, 6.906082549028},
		{Objective{Weights: []float64{2, 0.25, 1.5}, Smoothing: 0.2}, 8.928891397188},
	} {
		x := objective{Objective: c.o}
		d := compute.Matrix{Rows: 3, Cols: 3, Data: make([]float32, 9)}
		z := compute.Matrix{Rows: 3, Cols: 3, Data: logits}
		s := x.loss(ref.New(), d, z, labels, 1)
		if math.Abs(s.Loss-c.want) > 1e-6 {
			t.Errorf("%+v: loss %.9f, want %.9f", c.o, s.Loss, c.want)
		}
		if s.Sums != (Sums{2, 1, 1}) {
			t.Errorf("sums %v", s.Sums)
		}
		for i := range logits { // finite differences of the loss itself
			const h = 1e-2
			at := func(step float32) float64 {
				moved := append([]float32{}, logits...)
				moved[i] += step
				z := compute.Matrix{Rows: 3, Cols: 3, Data: moved}
				return (&objective{Objective: c.o}).loss(ref.New(), d, z, labels, 1).Loss
			}
			slope := (at(h) - at(-h)) / (2 * h)
			x.loss(ref.New(), d, z, labels, 1)
			if got := float64(d.Data[i]); math.Abs(got-slope) > 2e-4 {
				t.Errorf("%+v: gradient %d is %g, want %g", c.o, i, got, slope)
			}
		}
	}
}

// A plain objective is the kernel's loss; the same numbers come from both.
func TestObjectiveBesideTheKernel(t *testing.T) {
	z := compute.Matrix{Rows: 2, Cols: 3, Data: []float32{1, -2, 0.5, 30, 0, -30}}
	labels := mem.Bytes([]int32{2, 1})
	want, got := make([]float32, 6), make([]float32, 6)
	k := crossEntropy(ref.New(), compute.Matrix{Rows: 2, Cols: 3, Data: want}, z, labels, 5)
	s := new(objective).loss(ref.New(), compute.Matrix{Rows: 2, Cols: 3, Data: got}, z, labels, 5)
	if math.Abs(k.Loss-s.Loss) > 1e-6 || k.Sums != s.Sums {
		t.Errorf("%+v, the kernel has %+v", s, k)
	}
	for i := range want {
		if math.Abs(float64(want[i]-got[i])) > 1e-7 {
			t.Errorf("gradient %d is %g, the kernel's %g", i, got[i], want[i])
		}
	}
}

func TestObjectiveRefusals(t *testing.T) {
	for _, r := range []struct {
		o    Objective
		of   *Task
		want string
	}{
		{Objective{Smoothing: 0.1}, &multilabel, "not for several labels"},
		{Objective{Weights: []float64{1, 2}}, &multiclass, "2 weights for 3 classes"},
		{Objective{Weights: []float64{1, -2, 1}}, &multiclass, "class 1 has -2"},
		{Objective{Weights: []float64{1, math.Inf(1), 1}}, &multiclass, "class 1 has +Inf"},
		{Objective{Smoothing: 1}, &multiclass, "below 1"},
		{Objective{Smoothing: math.NaN()}, &multiclass, "below 1"},
	} {
		if _, err := r.of.LossWith(r.o, 3); err == nil || !strings.Contains(err.Error(), r.want) {
			t.Errorf("%+v: %v, want an error with %q", r.o, err, r.want)
		}
	}
}
