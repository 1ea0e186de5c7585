package task

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/devices/compute"
	"halognn/src/devices/compute/ref"
)

// The losses equal PyTorch's MSELoss, L1Loss and HuberLoss of scaled targets, reduction "mean", and
// the gradient is their slope. The values follow from the definitions in float64.
func TestLossesOfNumbers(t *testing.T) {
	z := []float32{0.5, -1.25, 2, 0.25, -0.75, 3}
	y := mem.Bytes([]float32{11, 4, 9, 6, 10, 2})
	scale := Scale{Mean: []float32{10, 4}, Std: []float32{2, 0.5}}
	for _, c := range []struct {
		loss string
		want float64
	}{
		{LossSquared, 11.90625}, {LossAbsolute, 2.5416666666666665},
		{LossHuber, 2.1302083333333335},
	} {
		of := func(z []float32) (Stats, []float32) {
			d := make([]float32, len(z))
			return regressionLoss(Objective{Loss: c.loss, Scale: scale})(ref.New(),
				compute.Matrix{Rows: 3, Cols: 2, Data: d},
				compute.Matrix{Rows: 3, Cols: 2, Data: z}, y, 3), d
		}
		s, d := of(z)
		if math.Abs(s.Loss-c.want) > 1e-6 {
			t.Errorf("%s: %.17g, want %.17g", c.loss, s.Loss, c.want)
		}
		for i := range z {
			const h = 1.0 / 1024 // exact in float32; no kink lies that near
			at := func(step float32) float64 {
				moved := append([]float32{}, z...)
				moved[i] += step
				s, _ := of(moved)
				return s.Loss
			}
			if slope := (at(h) - at(-h)) / (2 * h); i > 0 && math.Abs(slope-float64(d[i])) > 1e-5 {
				t.Errorf("%s: gradient %d is %g, want %g", c.loss, i, d[i], slope)
			}
		}
		if s.Sums[judged] != 6 || math.Abs(s.Sums[absolute]-12.5) > 1e-9 {
			t.Errorf("sums %v", s.Sums)
		}
	}
}

// Metrics are those of their definitions, whatever the split of vertices over ranks.
func TestMetricsOfNumbers(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 1))
	const n, outputs = 50, 3
	all, parts := NewTally(&regression, outputs), []Tally{NewTally(&regression, outputs),
		NewTally(&regression, outputs), NewTally(&regression, outputs)} // the last stays empty
	y, z := make([][]float32, n), make([][]float32, n)
	for v := range n {
		y[v], z[v] = make([]float32, outputs), make([]float32, outputs)
		for c := range outputs {
			y[v][c] = float32(100*c) + float32(rng.NormFloat64())
			z[v][c] = y[v][c] + float32(rng.NormFloat64())/2
		}
		part := &parts[v%2]
		if !part.See(&regression, mem.Bytes(y[v])) {
			t.Fatal("a vertex with numbers has no label")
		}
		regression.Judge(part, z[v], mem.Bytes(y[v]))
	}
	for i := range parts {
		all.Add(parts[i].Numbers())
	}
	wrong, off, variance := 0.0, 0.0, 0.0
	for c := range outputs {
		mean := 0.0
		for v := range n {
			mean += float64(y[v][c]) / n
		}
		for v := range n {
			e, d := float64(z[v][c]-y[v][c]), float64(y[v][c])-mean
			wrong, off, variance = wrong+e*e, off+math.Abs(e), variance+d*d
		}
	}
	for _, c := range []struct {
		of   *Metric
		want float64
	}{
		{&rmse, math.Sqrt(wrong / (n * outputs))},
		{&mae, off / (n * outputs)},
		{&r2, 1 - wrong/variance},
	} {
		x, ok := c.of.Value(&all)
		if why := c.of.Why(&all); !ok || why != "" || math.Abs(x-c.want) > 1e-5 {
			t.Errorf("%s is %g, %t, %q; want %g", c.of.Name, x, ok, why, c.want)
		}
	}
	equal := NewTally(&regression, 1)
	for range 3 {
		equal.See(&regression, mem.Bytes([]float32{0.1}))
	}
	if why := r2.Why(&equal); why != "all numbers equal" {
		t.Errorf("equal numbers: %q", why)
	}
}

func TestLabelsOfNumbers(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, c := range []struct {
		label []float32
		known bool
		fault string
	}{
		{[]float32{1, 2}, true, ""},
		{[]float32{nan, nan}, false, ""},
		{[]float32{1, nan}, true, "1 of its 2 numbers are NaN"},
		{[]float32{1, inf}, true, "must be finite"},
	} {
		label := mem.Bytes(c.label)
		fault := regression.Fault(label, 2)
		if known := regression.Truth(label, nil); known != c.known ||
			(fault == "") != (c.fault == "") || !strings.Contains(fault, c.fault) {
			t.Errorf("%v: %t, %q", c.label, known, fault)
		}
	}
}

func TestScale(t *testing.T) {
	s, err := ScaleOf(4, []float64{10, 2000}, []float64{30, 1000200}) // 1 2 3 4; 493 to 507
	if err != nil || s.Mean[0] != 2.5 || math.Abs(float64(s.Std[0])-math.Sqrt(1.25)) > 1e-7 ||
		s.Mean[1] != 500 || math.Abs(float64(s.Std[1])-math.Sqrt(50)) > 1e-4 {
		t.Errorf("%+v, %v", s, err)
	}
	z := []float32{1, 1, -2, 0}
	s.Undo(z)
	for i, want := range []float64{
		2.5 + math.Sqrt(1.25), 500 + math.Sqrt(50), 2.5 - 2*math.Sqrt(1.25), 500,
	} {
		if math.Abs(float64(z[i])-want) > 1e-4 {
			t.Errorf("number %d is %g, want %g", i, z[i], want)
		}
	}
	for _, c := range []struct {
		n            float64
		sum, squares float64
		want         string
	}{
		{3, 6, 12, "is 2 for all 3"},
		{0, 0, 0, "nothing to learn"},
		{2, 1e40, 1e80, "beyond float32"},
	} {
		if _, err := ScaleOf(c.n, []float64{c.sum}, []float64{c.squares}); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
