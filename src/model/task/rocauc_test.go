package task

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestMetricsOfSums(t *testing.T) {
	for _, c := range []struct {
		of   *Metric
		sums Sums // true positives, false positives, false negatives
		want float64
		ok   bool
	}{
		{&accuracy, Sums{3, 1, 1}, 0.75, true}, {&microF1, Sums{3, 1, 1}, 0.75, true},
		{&microF1, Sums{3, 2, 1}, 6.0 / 9, true}, {&microF1, Sums{0, 0, 1}, 0, true},
		{&accuracy, Sums{}, 0, false}, {&microF1, Sums{}, 0, false},
		{&microF1, Sums{0, 3, 0}, 0, false},
	} {
		if x, ok := c.of.Value(&Tally{Sums: c.sums}); ok != c.ok || ok && x != c.want {
			t.Errorf("%s of %v is %g, %t, want %g, %t", c.of.Name, c.sums, x, ok, c.want, c.ok)
		}
	}
}

// curveOf is the curve of scores in any order.
func curveOf(scores []float32, labels []int32) *Curve {
	var all []Scored
	for i, x := range scores {
		all = append(all, Scored{x, float32(labels[i])})
	}
	slices.SortFunc(all, Scored.Compare)
	c := new(Curve)
	for _, s := range all {
		c.Add(s)
	}
	return c
}

func areaUnderROC(scores []float32, labels []int32) (area float64, ok bool) {
	return curveOf(scores, labels).Area()
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
		if area, ok := areaUnderROC(c.scores, c.labels); area != c.area || ok != c.ok {
			t.Errorf("%s: got %g, %t, want %g, %t", c.name, area, ok, c.area, c.ok)
		}
	}
}

var negativeZero = float32(math.Copysign(0, -1))

func TestROCAUCOfNaNEnds(t *testing.T) {
	nan := float32(math.NaN())
	area, ok := areaUnderROC([]float32{nan, 1, nan, 0}, []int32{0, 1, 1, 0})
	if area != 0.625 || !ok {
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
		if area, _ := areaUnderROC(scores, labels); area != won/pairs {
			t.Errorf("seed %d: area %g, mean over pairs %g", seed, area, won/pairs)
		}
		rng.Shuffle(n, func(i, j int) {
			scores[i], scores[j] = scores[j], scores[i]
			labels[i], labels[j] = labels[j], labels[i]
		})
		if area, _ := areaUnderROC(scores, labels); area != won/pairs {
			t.Errorf("seed %d: area %g after a shuffle, %g before", seed, area, won/pairs)
		}
	}
}
