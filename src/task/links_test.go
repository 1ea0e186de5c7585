package task

import (
	"math"
	"testing"

	"halognn/src/compute"
	"halognn/src/compute/ref"
	"halognn/src/npy"
)

// Gradients of every score and loss equal finite differences of the loss, and a negative that is
// missing is no term.
func TestLossesOfLinks(t *testing.T) {
	const rows, cols = 6, 9
	truth := npy.Bytes([]int32{2, 3, 0, 1, 0, 2, 3, 1, -1, -1, 4, 5, 4, 0, 2, 5, 4, 3})
	z := compute.Matrix{Rows: rows, Cols: cols, Data: make([]float32, rows*cols)}
	for i := range z.Data {
		z.Data[i] = float32(math.Sin(float64(3*i+1))) / 2
	}
	for _, p := range []Pairs{{}, {Loss: CrossEntropy}, {Score: Cosine, Scale: 3},
		{Score: Cosine, Loss: CrossEntropy}} {
		l := pairLoss{pairs: p}
		d := compute.Matrix{Rows: rows, Cols: cols, Data: make([]float32, rows*cols)}
		s := l.loss(ref.New(), d, z, truth, 5)
		if s.Sums[Rated] != 2 || s.Loss <= 0 {
			t.Errorf("%+v: %+v", p, s)
		}
		for i := range z.Data {
			const step = 1e-2
			at := func(by float32) float64 {
				old := z.Data[i]
				z.Data[i] += by
				defer func() { z.Data[i] = old }()
				return l.loss(ref.New(), compute.Matrix{}, z, truth, 5).Loss
			}
			slope := (at(step) - at(-step)) / (2 * step)
			if got := float64(d.Data[i]); math.Abs(got-slope) > 2e-4 {
				t.Errorf("%+v: gradient %d is %g, differences give %g", p, i, got, slope)
			}
		}
	}
	if s := (&pairLoss{}).loss(ref.New(), compute.Matrix{}, compute.Matrix{}, nil, 0); s != (Stats{}) {
		t.Errorf("no links: %+v", s)
	}
}

// The values are those of scikit-learn's average_precision_score, and OGB's mean rank of ties.
func TestMetricsOfLinks(t *testing.T) {
	if got := averagePrecision([]float32{0.1, 0.4, 0.35, 0.8}, []int32{0, 0, 1, 1}); math.Abs(got-0.8333333333) > 1e-9 {
		t.Errorf("average precision %g", got)
	}
	var r Ranked
	r.See(0, 0)
	r.See(2, 3) // ranks 3 to 6: 4.5
	m := r.Metrics([]float32{2, 1, 1, 0, 3, 1, 0.5, 0})
	for name, want := range map[string]float64{MRR: (1 + 1/4.5) / 2, "hits_1": 0.5, "hits_3": 0.5,
		"hits_10": 1, AUC: 1, AveragePrecision: 1} {
		if math.Abs(m[name]-want) > 1e-9 {
			t.Errorf("%s is %g, want %g", name, m[name], want)
		}
	}
}
