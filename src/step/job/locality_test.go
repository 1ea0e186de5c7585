package job

import (
	"math"
	"slices"
	"strings"
	"testing"

	"halognn/src/model/nn"
)

// Algorithm 2, line by line: doubled above the upper bound, half of the way back below the lower
// one, fixed between the two and at the most.
func TestFactorAdapts(t *testing.T) {
	for _, c := range []struct {
		most          float64
		shares, wants []float64
	}{
		{8, []float64{0.9, 0.5, 0.3, 0.9, 0}, []float64{1, 2, 4, 8, 8, 8}},
		{6, []float64{0.9, 0.9, 0.9, 0.1}, []float64{1, 2, 4, 6, 6}},
		{8, []float64{0.1, 0.9}, []float64{1, 1, 1}},
		{8, []float64{0.3, 0.18, 0.9}, []float64{1, 2, 2, 2}},
		{8, []float64{0.3, 0.3, 0.1, 0.1, 0.21, 0.1, 0.2, 0.9},
			[]float64{1, 2, 4, 3, 2.5, 5, 3.75, 3.75, 3.75}},
		{8, []float64{0.2}, []float64{1, 1}},
	} {
		l := Locality{Favour: c.most, Adapts: true, Adaption: Adaption{Lower: 0.15, Upper: 0.2}}
		f := l.Start()
		got := []float64{f.Value}
		for _, share := range c.shares {
			f = l.Next(f, share)
			got = append(got, f.Value)
		}
		if !slices.Equal(got, c.wants) {
			t.Errorf("up to %g, shares %v: %v, want %v", c.most, c.shares, got, c.wants)
		}
	}
	l := Locality{Favour: 4}
	if f := l.Next(l.Start(), 0.9); f.Value != 4 {
		t.Errorf("a factor that does not adapt becomes %g", f.Value)
	}
}

func TestShareOfLoading(t *testing.T) {
	a := Adaption{Link: 1e6, Edges: 1e4}
	for _, c := range []struct {
		bytes, edges int64
		want         float64
	}{{0, 0, 0}, {0, 10, 0}, {10, 0, 1}, {3e6, 1e4, 0.75}, {1e6, 3e4, 0.25}} {
		if got := a.Share(c.bytes, c.edges); math.Abs(got-c.want) > 1e-15 {
			t.Errorf("%d bytes, %d edges: %g, want %g", c.bytes, c.edges, got, c.want)
		}
	}
}

// A model that reads no neighbours has no factor to adapt; bounds in the wrong order are refused
// for every model, adapted to or not.
func TestLocalityThatClashes(t *testing.T) {
	right := Adaption{Lower: 0.1, Upper: 0.2, Link: 1, Edges: 1}
	wrong := Adaption{Lower: 0.2, Upper: 0.1}
	for _, c := range []struct {
		kind string
		l    Locality
		want string
	}{
		{"sage", Locality{Favour: 1, Adapts: true, Adaption: right},
			"sample.locality_adapt adapts"},
		{"mlp", Locality{Favour: 1, Adapts: true, Adaption: right}, ""},
		{"sage", Locality{Favour: 1, Adaption: wrong}, "swap them"},
		{"mlp", Locality{Favour: 1, Adaption: wrong}, "swap them"},
	} {
		s := Spec{Model: nn.Config{Kind: c.kind}, Batch: 1, Epochs: 1, Locality: c.l}
		err := s.Check()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s, %+v: %v, want %q", c.kind, c.l, err, c.want)
		}
	}
}
