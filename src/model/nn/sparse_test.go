package nn

import (
	"math"
	"math/rand/v2"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/devices/compute"
	"halognn/src/devices/compute/ref"
)

// Sparse rows give the logits and gradients of the same rows dense, in every model whose input
// layer begins with a linear map; the others refuse them.
func TestSparseRowsAreRows(t *testing.T) {
	for _, a := range architectures {
		t.Run(a.name, func(t *testing.T) {
			c := a.Config
			rng := rand.New(rand.NewPCG(3, 4))
			dev := ref.New()
			defer dev.Close()
			m, err := NewModel(dev, c, 1)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			needs := c.Needs()
			if needs.Types {
				t.Skip("a graph with vertex types has no sparse rows")
			}
			b, rows := randomBatch(t, dev, rng, c, 5)
			for i := range rows {
				if rng.IntN(3) > 0 {
					rows[i] = 0
				}
			}
			h := &b.Hops[0]
			dense := compute.Rows{Cols: c.In, Tables: [][]byte{mem.Bytes(rows)}}
			for i := range h.Sources {
				dense.Of = append(dense.Of, compute.MakeRowRef(0, i))
			}
			own := compute.Matrix{
				Rows: h.Destinations, Cols: c.In, Data: make([]float32, h.Destinations*c.In),
			}
			ref.Host{}.GatherRows(own, dense)
			b.X, b.Own, b.InputGradient = compute.Matrix{}, own, false
			if how := needs.Aggregate; how != compute.NoReduction {
				b.Aggregate = compute.Matrix{
					Rows: own.Rows, Cols: c.In, Data: make([]float32, len(own.Data)),
				}
				ref.Host{}.SegmentRows(b.Aggregate, how, h.Forward, h.Weights, dense)
			}
			given := Sparse{sparseOf(own), sparseOf(b.Aggregate)}
			if !needs.Sums() || !c.Linear() {
				b.Sparse = given
				if _, err := m.Forward(b); err == nil {
					t.Error("sparse rows are read")
				}
				return
			}
			logits := func() (z, grads []float32) {
				y, err := m.Forward(b)
				if err != nil {
					t.Fatal(err)
				}
				_, g := m.Loss(b, y)
				z = append(z, y.Data...)
				m.Backward(g, nil)
				return z, append(grads, m.Params.Grads...)
			}
			z, grads := logits()
			b.Own, b.Aggregate = compute.Matrix{}, compute.Matrix{}
			b.Sparse = given
			gotZ, gotGrads := logits()
			for _, x := range []struct {
				name      string
				got, want []float32
			}{{"logit", gotZ, z}, {"gradient", gotGrads, grads}} {
				most := 0.0
				for _, w := range x.want {
					most = max(most, math.Abs(float64(w)))
				}
				for i, w := range x.want {
					if d := math.Abs(float64(x.got[i] - w)); !(d <= 1e-5*(1+most)) {
						t.Fatalf("%s %d is %g, want %g", x.name, i, x.got[i], w)
					}
				}
			}
		})
	}
}

// sparseOf returns the entries of a matrix; none of one without columns.
func sparseOf(x compute.Matrix) *compute.SparseMatrix {
	if x.Cols == 0 {
		return nil
	}
	s := &compute.SparseMatrix{Rows: x.Rows, Cols: x.Cols}
	s.Entries.Indptr, s.Transposed.Indptr = []int64{0}, []int64{0}
	for r := range x.Rows {
		for c, v := range x.Row(r) {
			if v != 0 {
				s.Entries.Indices = append(s.Entries.Indices, int32(c))
				s.Values = append(s.Values, v)
			}
		}
		s.Entries.Indptr = append(s.Entries.Indptr, int64(len(s.Values)))
	}
	for c := range x.Cols {
		for r := range x.Rows {
			if v := x.Row(r)[c]; v != 0 {
				s.Transposed.Indices = append(s.Transposed.Indices, int32(r))
				s.TransposedValues = append(s.TransposedValues, v)
			}
		}
		s.Transposed.Indptr = append(s.Transposed.Indptr, int64(len(s.TransposedValues)))
	}
	return s
}
