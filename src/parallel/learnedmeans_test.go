package parallel

import (
	"math"
	"math/rand/v2"
	"testing"

	"halognn/src/compute"
	"halognn/src/compute/ref"
	"halognn/src/exchange"
)

// The gradient of a row is the sum of the gradients of the means that it is in, each divided by its
// rows, in the order of relations and of destinations, and its own last: to the bit.
func TestGradientsOfAveragedRows(t *testing.T) {
	const places, cols = 40, 3
	random := rand.New(rand.NewPCG(1, 2))
	a := &learnedMeans{Edges: exchange.Edges{Indptr: []int64{0}}}
	add := func(segments, most int) span {
		begin := a.count()
		for range segments {
			for k := range 1 + random.IntN(most) {
				place := int32(random.IntN(places))
				if k > 0 && random.IntN(3) == 0 {
					place = ^place // begins a group
				}
				a.Indices = append(a.Indices, place)
			}
			a.Indptr = append(a.Indptr, int64(len(a.Indices)))
		}
		return span{begin, a.count()}
	}
	of := meansOf{averaged: true, means: add(30, 6)}
	of.own = add(12, 1)
	a.types = []meansOf{of}
	means := compute.Matrix{Rows: of.rows(), Cols: cols, Data: make([]float32, of.rows()*cols)}
	for i := range means.Data {
		means.Data[i] = float32(random.NormFloat64())
	}
	want := make([][cols]float32, places)
	for k := range a.count() {
		in := a.Indices[a.Indptr[k]:a.Indptr[k+1]]
		for _, source := range in {
			for j, g := range means.Row(k) {
				share := 1 / float32(len(in))
				want[compute.SourceOf(source)][j] += float32(g * share)
			}
		}
	}
	sums := a.gradients(cols)
	a.back(sums, 0, means)
	got := a.spread(ref.New(), places, sums)
	for i := range want {
		for j, w := range want[i] {
			if g := got.Row(i)[j]; math.Float32bits(g) != math.Float32bits(w) {
				t.Errorf("row %d, column %d: gradient %v, want %v", i, j, g, w)
			}
		}
	}
}
