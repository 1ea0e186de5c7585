package nn

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestCounts(t *testing.T) {
	multiclass := Counts{TruePositive: 3, FalsePositive: 1, FalseNegative: 1}
	if a, ok := multiclass.Accuracy(); a != 0.75 || !ok {
		t.Errorf("3 of 4 right: accuracy %g, %t, want 0.75", a, ok)
	}
	if f, ok := multiclass.MicroF1(); f != 0.75 || !ok {
		t.Errorf("3 of 4 right: micro-F1 %g, %t, want 0.75", f, ok)
	}
	sum := Counts{TruePositive: 1, FalsePositive: 2}
	sum.Add(Counts{TruePositive: 2, FalseNegative: 1})
	if f, ok := sum.MicroF1(); f != 6.0/9 || !ok {
		t.Errorf("micro-F1 of %+v is %g, %t, want 2/3", sum, f, ok)
	}
	if f, ok := (Counts{FalseNegative: 1}).MicroF1(); f != 0 || !ok {
		t.Errorf("one label, not found: micro-F1 %g, %t, want 0", f, ok)
	}
	if a, ok := (Counts{}).Accuracy(); ok {
		t.Errorf("no vertices: accuracy %g, want none", a)
	}
	for _, c := range []Counts{{}, {FalsePositive: 3}} {
		if f, ok := c.MicroF1(); ok {
			t.Errorf("no labels, %+v: micro-F1 %g, want none", c, f)
		}
	}
}

func TestROCAUCByHand(t *testing.T) {
	for _, c := range []struct {
		name   string
		scores []float32
		labels []int32
		area   float64
		ok     bool
	}{
		{"separated", []float32{1, 2, 3, 4}, []int32{0, 0, 1, 1}, 1, true},
		{"reversed", []float32{4, 3, 2, 1}, []int32{0, 0, 1, 1}, 0, true},
		{"all tied", []float32{7, 7, 7}, []int32{0, 1, 0}, 0.5, true},
		{"one pair of four lost", []float32{1, 3, 2, 4}, []int32{0, 0, 1, 1}, 0.75, true},
		{"a tie across classes", []float32{1, 2, 2, 3}, []int32{0, 0, 1, 1}, 0.875, true},
		{"zeros of both signs tie", []float32{0, negativeZero}, []int32{0, 1}, 0.5, true},
		{"one class", []float32{1, 2}, []int32{1, 1}, 0, false},
		{"no vertices", nil, nil, 0, false},
	} {
		if area, ok := ROCAUC(c.scores, c.labels); area != c.area || ok != c.ok {
			t.Errorf("%s: got %g, %t, want %g, %t", c.name, area, ok, c.area, c.ok)
		}
	}
}

var negativeZero = float32(math.Copysign(0, -1))

func TestROCAUCOfNaNEnds(t *testing.T) {
	nan := float32(math.NaN())
	if area, ok := ROCAUC([]float32{nan, 1, nan, 0}, []int32{0, 1, 1, 0}); area != 0.625 || !ok {
		t.Errorf("got %g, %t, want 0.625: NaN is below 0, and two of them are a tie", area, ok)
	}
}

// The area is the mean over all pairs of classes, whatever the order of the vertices.
func TestROCAUCIsTheMeanOverPairs(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 0))
		n := 2 + rng.IntN(60)
		scores, labels := make([]float32, n), make([]int32, n)
		for i := range n {
			scores[i], labels[i] = float32(rng.IntN(9)), int32(rng.IntN(2))
		}
		labels[0], labels[1] = 0, 1
		won, pairs := 0.0, 0.0
		for i := range n {
			for j := range n {
				if labels[i] == 1 && labels[j] == 0 {
					pairs++
					switch {
					case scores[i] > scores[j]:
						won++
					case scores[i] == scores[j]:
						won += 0.5
					}
				}
			}
		}
		if area, _ := ROCAUC(scores, labels); area != won/pairs {
			t.Errorf("seed %d: area %g, mean over pairs %g", seed, area, won/pairs)
		}
		rng.Shuffle(n, func(i, j int) {
			scores[i], scores[j] = scores[j], scores[i]
			labels[i], labels[j] = labels[j], labels[i]
		})
		if area, _ := ROCAUC(scores, labels); area != won/pairs {
			t.Errorf("seed %d: area %g after a shuffle, %g before", seed, area, won/pairs)
		}
	}
}
