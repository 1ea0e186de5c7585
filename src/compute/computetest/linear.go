package computetest

import (
	"fmt"
	"math"

	"halognn/src/compute"
)

// sum adds up terms in float64, and their absolute values.
type sum struct{ value, size float64 }

func (s *sum) add(v float64) {
	s.value += v
	s.size += math.Abs(v)
}

func linearCases() []testCase {
	var all []testCase
	for _, s := range []struct {
		name    string
		r, f, o int
	}{
		{"no rows", 0, 5, 3}, {"one of everything", 1, 1, 1}, {"one feature", 16, 1, 7}, {"one output", 33, 20, 1},
		{"odd", 17, 37, 19}, {"a chunk", 512, 16, 8}, {"a chunk and a row", 513, 33, 47}, {"several tiles of rows", 1030, 20, 9}, {"several tiles of weights", 40, 130, 140},
	} {
		for _, add := range []bool{false, true} {
			all = append(all, testCase{fmt.Sprintf("product/%s/add=%t", s.name, add), func(b *bench) []result {
				return products(b, s.r, s.f, s.o, add)
			}})
		}
	}
	return all
}

// products runs MatMul and its two gradients.
func products(b *bench, r, f, o int, add bool) []result {
	x, w, dy, y0, dx0 := b.normal(r*f), b.normal(o*f), b.normal(r*o), b.normal(r*o), b.normal(r*f)
	if !add { // what was there before must not matter
		for i := range y0 {
			y0[i] = float32(math.NaN())
		}
		for i := range dx0 {
			dx0[i] = float32(math.NaN())
		}
	}
	y, dx := b.matrix(r, o, y0), b.matrix(r, f, dx0)
	dw := compute.Matrix{Rows: o, Cols: f, Data: b.dirty(o * f)}
	mx, mw, mdy := b.matrix(r, f, x), b.matrix(o, f, w), b.matrix(r, o, dy)
	b.dev.MatMul(y, mx, mw, add)
	b.dev.MatMulInput(dx, mdy, mw, add)
	b.dev.MatMulWeights(dw, mdy, mx)
	start := func(v float32) sum {
		s := sum{}
		if add {
			s.add(float64(v))
		}
		return s
	}
	return []result{
		grid("MatMul", b.get(y.Data), r, o, f, func(i, j int) sum {
			s := start(y0[i*o+j])
			for k := range f {
				s.add(float64(x[i*f+k]) * float64(w[j*f+k]))
			}
			return s
		}),
		grid("MatMulInput", b.get(dx.Data), r, f, o, func(i, j int) sum {
			s := start(dx0[i*f+j])
			for k := range o {
				s.add(float64(dy[i*o+k]) * float64(w[k*f+j]))
			}
			return s
		}),
		grid("MatMulWeights", b.get(dw.Data), o, f, r, func(i, j int) sum {
			var s sum
			for k := range r {
				s.add(float64(dy[k*o+i]) * float64(x[k*f+j]))
			}
			return s
		}),
	}
}

// grid makes the result of a matrix whose element (i,j) is at(i,j), a sum of so many terms.
func grid(name string, got []float32, rows, cols, terms int, at func(i, j int) sum) result {
	r := result{name: name, got: got, terms: terms}
	r.expect = func() (want, size []float64) {
		for i := range rows {
			for j := range cols {
				s := at(i, j)
				want, size = append(want, s.value), append(size, s.size)
			}
		}
		return want, size
	}
	return r
}
