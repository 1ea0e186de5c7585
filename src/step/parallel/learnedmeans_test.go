package parallel

import (
	"math"
	"math/rand/v2"
	"testing"

	"halognn/src/devices/compute"
	"halognn/src/devices/compute/ref"
	"halognn/src/rows/exchange"
	"halognn/src/topology/graph"
)

// oneRank is an exchange of one rank that has all rows.
func oneRank(t *testing.T, vertices int) *exchange.Exchange {
	t.Helper()
	x, err := exchange.NewPlanning(0, 1, []int64{0, int64(vertices)},
		[]exchange.Kind{{Cols: 3, Type: compute.Float32}}, func(int) bool { return true }, nil)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// The gradient of a row is the sum of the gradients of the means that it is in, each divided by its
// rows, in the order of relations and of destinations, and its own last: to the bit. That of a row
// that is read itself is the row's.
func TestGradientsOfAveragedRows(t *testing.T) {
	const places, plain, cols = 40, 6, 3
	random := rand.New(rand.NewPCG(1, 2))
	e := &learnedOf{}
	a := &e.means
	a.Indptr = []int64{0}
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
	a.types = []meansOf{of, {}}
	e.types = []ofLearned{{kind: 0, vertices: places, read: of.rows()},
		{kind: 1, first: places, vertices: plain, read: plain, at: of.rows()}}
	for v := range places + plain {
		e.ids = append(e.ids, graph.VertexID(v))
	}
	own := oneRank(t, len(e.ids))
	if err := own.Find(&e.plan, e.ids); err != nil {
		t.Fatal(err)
	}
	e.readers.makeLists(e, own)
	x := compute.Matrix{Rows: of.rows() + plain, Cols: cols,
		Data: make([]float32, (of.rows()+plain)*cols)}
	for i := range x.Data {
		x.Data[i] = float32(random.NormFloat64())
	}
	want := make([][cols]float32, places+plain)
	for k := range a.count() {
		in := a.Indices[a.Indptr[k]:a.Indptr[k+1]]
		for _, source := range in {
			for j, g := range x.Row(k) {
				share := 1 / float32(len(in))
				want[compute.SourceOf(source)][j] += float32(g * share)
			}
		}
	}
	for i := range plain {
		copy(want[places+i][:], x.Row(of.rows()+i))
	}
	got := compute.Matrix{Rows: len(want), Cols: cols, Data: make([]float32, len(want)*cols)}
	e.readers.add(ref.New(), got, true, x)
	for i := range want {
		for j, w := range want[i] {
			if g := got.Row(i)[j]; math.Float32bits(g) != math.Float32bits(w) {
				t.Errorf("row %d, column %d: gradient %v, want %v", i, j, g, w)
			}
		}
	}
	e.readers.free()
	e.plan.Free()
}
