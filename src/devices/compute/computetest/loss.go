package computetest

import (
	"fmt"
	"math"

	"halognn/src/devices/compute"
)

var lossTests = family{
	cases: func() (all []testCase) {
		for _, s := range rowShapes {
			for _, gradient := range []bool{true, false} {
				all = append(all,
					testCase{fmt.Sprintf("softmax/%s/gradient=%t", s.name, gradient),
						func(b *bench) []result {
							return softmax(b, s.rows, s.cols, gradient)
						}},
					testCase{fmt.Sprintf("sigmoid/%s/gradient=%t", s.name, gradient),
						func(b *bench) []result {
							return sigmoid(b, s.rows, s.cols, gradient)
						}})
			}
		}
		return all
	},
	misuse: func(b *bench) []wrong {
		return []wrong{
			{"label beyond the classes", func() {
				b.dev.SoftmaxCrossEntropy(compute.Matrix{}, b.zeros(1, 4), []int32{4}, 1)
			}},
			{"a target too few", func() {
				b.dev.SigmoidBCE(compute.Matrix{}, b.zeros(1, 4), make([]uint8, 3), 1)
			}},
		}
	},
	calls: func(l *Layer) []Call {
		elements := l.Destinations * l.Classes
		z, dz := l.matrix(l.Destinations, l.Classes), l.matrix(l.Destinations, l.Classes)
		return []Call{
			{"SoftmaxCrossEntropy", func() {
				l.dev.SoftmaxCrossEntropy(dz, z, l.Labels, 1)
			}, 4 * (2*elements + l.Destinations), 0},
			{"SoftmaxCrossEntropy without gradient", func() {
				l.dev.SoftmaxCrossEntropy(compute.Matrix{}, z, l.Labels, 1)
			}, 4 * (elements + l.Destinations), 0},
			{"SigmoidBCE", func() { l.dev.SigmoidBCE(dz, z, l.Targets, 1) },
				4*2*elements + elements, 0},
		}
	},
}

// scalars returns the result for losses and counts. The error of a loss below 1 may be as large as
// the rounding error of the number 1.
func scalars(name string, terms int, got, want []float64) result {
	r := result{name: name, want: want, size: make([]float64, len(want)), terms: terms}
	for i, v := range got {
		r.got = append(r.got, float32(v))
		r.size[i] = math.Max(math.Abs(want[i]), 1)
	}
	return r
}

func (b *bench) gradient(rows, cols int, wanted bool) compute.Matrix {
	if !wanted {
		return compute.Matrix{}
	}
	return compute.Matrix{Rows: rows, Cols: cols, Data: b.dirty(rows * cols)}
}

func softmax(b *bench, rows, cols int, gradient bool) []result {
	const scale = 0.125
	z := b.normal(rows * cols)
	labels := make([]int32, rows)
	for r := range labels {
		labels[r] = int32(b.random.IntN(cols))
		// the first and the last logit are equal, so the first one counts as the largest
		if r%5 == 0 {
			z[r*cols], z[r*cols+cols-1] = 9, 9
		}
		// a row with a probability close to 1, whose tiny gradient must not be rounded to 0
		if r%7 == 0 {
			z[r*cols+int(labels[r])] = 30
		}
	}
	dz := b.gradient(rows, cols, gradient)
	loss, correct := b.dev.SoftmaxCrossEntropy(dz, b.matrix(rows, cols, z), labels, scale)

	var wantLoss float64
	wantCorrect := 0
	want := result{name: "SoftmaxCrossEntropy: gradient", want: make([]float64, rows*cols),
		size: make([]float64, rows*cols), terms: 4}
	for r := range rows {
		row, label := z[r*cols:(r+1)*cols], int(labels[r])
		var total, others float64
		top := 0
		for j, v := range row {
			e := math.Exp(float64(v))
			total += e
			if j != label {
				others += e
			}
			if v > row[top] {
				top = j
			}
		}
		wantLoss += (math.Log(total) - float64(row[label])) * scale
		if top == label {
			wantCorrect++
		}
		for j, v := range row {
			g := math.Exp(float64(v)) / total * scale
			if j == label {
				g = -others / total * scale
			}
			want.want[r*cols+j], want.size[r*cols+j] = g, math.Abs(g)
		}
	}
	results := []result{scalars("SoftmaxCrossEntropy", 1, []float64{loss, float64(correct)},
		[]float64{wantLoss, float64(wantCorrect)})}
	if gradient {
		want.got = b.get(dz.Data)
		results = append(results, want)
	}
	return results
}

func sigmoid(b *bench, rows, cols int, gradient bool) []result {
	const scale = 0.25
	z, targets := b.normal(rows*cols), make([]uint8, rows*cols)
	for i := range z {
		z[i] *= 4
		targets[i] = uint8(b.random.IntN(2))
	}
	dz := b.gradient(rows, cols, gradient)
	loss, counts := b.dev.SigmoidBCE(dz, b.matrix(rows, cols, z), targets, scale)

	var wantLoss float64
	var wantCounts [3]float64
	want := result{name: "SigmoidBCE: gradient", want: make([]float64, rows*cols),
		size: make([]float64, rows*cols), terms: 4}
	for i, v := range z {
		z, t := float64(v), float64(targets[i])
		wantLoss += (math.Max(z, 0) - z*t + math.Log1p(math.Exp(-math.Abs(z)))) * scale
		want.want[i] = (1/(1+math.Exp(-z)) - t) * scale
		want.size[i] = scale
		switch {
		case z > 0 && t == 1:
			wantCounts[0]++
		case z > 0:
			wantCounts[1]++
		case t == 1:
			wantCounts[2]++
		}
	}
	results := []result{scalars("SigmoidBCE", 1,
		[]float64{loss, float64(counts[0]), float64(counts[1]), float64(counts[2])},
		[]float64{wantLoss, wantCounts[0], wantCounts[1], wantCounts[2]})}
	if gradient {
		want.got = b.get(dz.Data)
		results = append(results, want)
	}
	return results
}
