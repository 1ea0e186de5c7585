package task

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/base/npy"
	"halognn/src/devices/compute"
	"halognn/src/devices/compute/ref"
)

// Gradients of every score and loss equal finite differences of the loss, and a negative that is
// missing is no term. Without links gradients of parameters are 0, whatever they were.
func TestLossesOfLinks(t *testing.T) {
	const rows, cols = 6, 9
	old := scorerChunk
	scorerChunk = 3
	defer func() { scorerChunk = old }()
	truth := mem.Bytes([]int32{2, 3, 0, 1, 0, 2, 3, 1, -1, -1, 4, 5, 4, 0, 2, 5, 4, 3})
	z := embeddings(rows, cols)
	for _, p := range []Pairs{
		{},
		{Loss: CrossEntropy},
		{Score: Cosine, Scale: 3},
		{Score: Cosine, Loss: CrossEntropy},
		{Score: DistMult},
		{Score: MLP},
		{Score: MLP, Loss: CrossEntropy},
	} {
		l := pairLoss{rating{pairs: p}}
		l.scorer.Scorer = drawnScorer(p.Score, cols, 1, 0)
		d := compute.Matrix{Rows: rows, Cols: cols, Data: make([]float32, rows*cols)}
		s := l.loss(ref.New(), d, z, truth, 5)
		if s.Sums[Rated] != 2 || s.Loss <= 0 {
			t.Errorf("%+v: %+v", p, s)
		}
		differences(t, fmt.Sprintf("%+v", p), l.loss, l.scorer.Scorer, z, d, truth)
		// inference rates links as training does
		l.loss(ref.New(), d, z, truth, 5)
		r := Rater{Pairs: p, Values: l.scorer.Values}
		for i, x := range l.score {
			pair := npy.View[int32](truth)[2+2*i:]
			if pair[0] < 0 {
				continue
			}
			a := slices.Clone(z.Row(int(pair[0])))
			r.Prepare(a)
			if y := r.Rate(a, z.Row(int(pair[1]))); math.Abs(float64(x-y)) > 1e-6 {
				t.Errorf("%+v: pair %d is rated %g in training and %g later", p, i, x, y)
			}
		}
		l.loss(ref.New(), compute.Matrix{Cols: cols}, compute.Matrix{Cols: cols},
			mem.Bytes([]int32{0, 3}), 5)
		for k, grads := range l.scorer.Grads {
			if slices.ContainsFunc(grads, func(g float32) bool { return g != 0 }) {
				t.Errorf("%+v: parameter %d has a gradient of no links", p, k)
			}
		}
	}
	alone := mem.Bytes([]int32{2, 1, 0, 1, -1, -1, 3, 1, 4, 5}) // the first has no negative
	d := compute.Matrix{Rows: rows, Cols: cols, Data: make([]float32, rows*cols)}
	if s := (&pairLoss{}).loss(ref.New(), d, z, alone, 2); s.Sums[Rated] != 1 ||
		s.Sums[Reciprocal] > 1 {
		t.Errorf("one of two links is ranked: %+v", s)
	}
	none := compute.Matrix{}
	if s := (&pairLoss{}).loss(ref.New(), none, none, nil, 0); s != (Stats{}) {
		t.Errorf("no links: %+v", s)
	}
}

// A row of zeros has the cosine 0 with all, whatever it is moved by a little: no pair of it has a
// gradient, and others have theirs.
func TestCosineOfZeros(t *testing.T) {
	z := embeddings(3, 9)
	clear(z.Row(0))
	l := pairLoss{rating{pairs: Pairs{Score: Cosine}}}
	d := compute.Matrix{Rows: 3, Cols: 9, Data: make([]float32, 27)}
	l.loss(ref.New(), d, z, mem.Bytes([]int32{1, 2, 0, 1, 0, 2, 1, 2}), 1)
	for r := range 3 {
		zero := !slices.ContainsFunc(d.Row(r), func(x float32) bool { return x != 0 })
		large := slices.ContainsFunc(d.Row(r), func(x float32) bool {
			return !(math.Abs(float64(x)) < 10)
		})
		if zero != (r == 0) || large {
			t.Errorf("row %d has the gradient %v", r, d.Row(r))
		}
	}
}

func embeddings(rows, cols int) compute.Matrix {
	z := compute.Matrix{Rows: rows, Cols: cols, Data: make([]float32, rows*cols)}
	for i := range z.Data {
		z.Data[i] = float32(math.Sin(float64(3*i+1))) / 2
	}
	return z
}

// drawnScorer returns a score with parameters for so many outputs, and memory for the loss of
// labels.
func drawnScorer(score string, cols, outputs, labelled int) (s Scorer) {
	switch score {
	case DistMult:
		s.Values = [][]float32{make([]float32, outputs*cols)}
	case MLP:
		s.Values = [][]float32{make([]float32, cols*cols), make([]float32, cols),
			make([]float32, outputs*cols), slices.Repeat([]float32{0.5}, outputs)}
	}
	for k, values := range s.Values {
		for i := range values {
			values[i] = float32(math.Sin(float64(5*i+k+2))) / 2
		}
		s.Grads = append(s.Grads, make([]float32, len(values)))
	}
	s.Scratch = make([]float32, ScorerScratch(score, cols, labelled))
	return s
}

// differences holds gradients, which a loss has computed, to finite differences of it.
func differences(
	t *testing.T, name string, loss LossFunc, s Scorer, z, d compute.Matrix, truth []byte,
) {
	t.Helper()
	check := func(of string, values, grads []float32) {
		for i := range values {
			const step = 1e-2
			at := func(by float32) float64 {
				old := values[i]
				values[i] += by
				defer func() { values[i] = old }()
				return loss(ref.New(), compute.Matrix{}, z, truth, 5).Loss
			}
			slope := (at(step) - at(-step)) / (2 * step)
			if got := float64(grads[i]); math.Abs(got-slope) > 2e-4 {
				t.Errorf("%s: gradient %d of %s is %g, differences give %g", name, i, of, got,
					slope)
			}
		}
	}
	check("embeddings", z.Data, d.Data)
	for k, values := range s.Values {
		check(fmt.Sprintf("parameter %d", k), values, slices.Clone(s.Grads[k]))
	}
}

// Gradients of links with classes and numbers are finite differences too, in chunks and whole, and
// inference makes the outputs of training.
func TestLossesOfLabelledLinks(t *testing.T) {
	const rows, cols = 6, 9
	old := scorerChunk
	scorerChunk = 3
	defer func() { scorerChunk = old }()
	pairs := []int32{4, 0, 0, 1, 0, 2, 3, 1, 5, 3}
	z := embeddings(rows, cols)
	for _, c := range []struct {
		of      *Task
		outputs int
		Objective
		labels []byte // of five links
	}{
		{&linkClasses, 3, Objective{Pairs: Pairs{Score: DistMult}},
			mem.Bytes([]int32{0, 1, 2, 2, 0})},
		{&linkClasses, 3, Objective{Pairs: Pairs{Score: MLP}}, mem.Bytes([]int32{0, 1, 2, 2, 0})},
		{&linkClasses, 2,
			Objective{Pairs: Pairs{Score: MLP}, Smoothing: 0.1, Weights: []float64{1, 3}},
			mem.Bytes([]int32{0, 1, 1, 1, 0})},
		{&linkNumbers, 1, Objective{Scale: Scale{Mean: []float32{1}, Std: []float32{2}}},
			mem.Bytes([]float32{1, 2, 3, -1, 2})},
		{&linkNumbers, 1, Objective{Loss: LossHuber, Pairs: Pairs{Score: Cosine}},
			mem.Bytes([]float32{1, 2, 3, -1, 2})},
		{&linkNumbers, 2,
			Objective{
				Pairs: Pairs{Score: MLP}, Scale: Scale{Mean: []float32{1, 0}, Std: []float32{2, 3}},
			},
			mem.Bytes([]float32{1, 2, 3, -1, 2, 1, 0, 0, 5, 4})},
	} {
		name := fmt.Sprintf("%s %+v", c.of.Name, c.Pairs)
		c.Scorer = drawnScorer(c.Pairs.Score, cols, c.outputs, c.outputs)
		s := c.Scorer
		loss, err := c.of.LossWith(c.Objective, c.outputs)
		if err != nil {
			t.Fatal(err)
		}
		truth := append(mem.Bytes(append([]int32{5, 0}, pairs...)), c.labels...)
		d := compute.Matrix{Rows: rows, Cols: cols, Data: make([]float32, rows*cols)}
		if got := loss(ref.New(), d, z, truth, 5); got.Loss <= 0 {
			t.Errorf("%s: %+v", name, got)
		}
		differences(t, name, loss, s, z, d, truth)
		rater := Rater{Pairs: c.Pairs, Values: s.Values}
		l := rating{pairs: c.Pairs, scorer: hostScorer{Scorer: s}}
		l.begin(ref.New(), z, pairs)
		var outputs []float32
		for p := pairs; len(p) > 0; p = p[2:] {
			outputs = rater.Outputs(outputs, z.Row(int(p[0])), z.Row(int(p[1])))
		}
		for i, x := range l.score {
			if len(outputs) != len(l.score) || math.Abs(float64(x-outputs[i])) > 1e-6 {
				t.Fatalf("%s: outputs %v in training, %v later", name, l.score, outputs)
			}
		}
	}
	if _, err := linkNumbers.LossWith(Objective{Weights: []float64{1, 2}}, 2); err == nil {
		t.Error("numbers with weights of classes")
	}
}

// The values are those of scikit-learn's average_precision_score, and OGB's mean rank of ties.
func TestMetricsOfLinks(t *testing.T) {
	got := curveOf([]float32{0.1, 0.4, 0.35, 0.8}, []int32{0, 0, 1, 1}).Precision()
	if math.Abs(got-0.8333333333) > 1e-9 {
		t.Errorf("average precision %g", got)
	}
	var r Ranked
	r.See(0, 0)
	r.See(2, 3) // ranks 3 to 6: 4.5
	m := r.Metrics(curveOf([]float32{2, 1, 3, 0.5}, []int32{1, 0, 1, 0}))
	for label := range int32(2) {
		if m := r.Metrics(curveOf([]float32{2}, []int32{label})); len(m) != len(HitsAt)+1 {
			t.Errorf("of one class alone: %v", m)
		}
	}
	for name, want := range map[string]float64{MRR: (1 + 1/4.5) / 2, "hits_1": 0.5, "hits_3": 0.5,
		"hits_10": 1, AUC: 1, AveragePrecision: 1} {
		if math.Abs(m[name]-want) > 1e-9 {
			t.Errorf("%s is %g, want %g", name, m[name], want)
		}
	}
}
