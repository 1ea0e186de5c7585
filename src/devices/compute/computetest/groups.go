package computetest

import (
	"fmt"
	"slices"

	"halognn/src/devices/compute"
)

var groupTests = family{
	cases: func() (all []testCase) {
		for _, s := range []struct {
			name      string
			f, o, gap int   // gap: number of unused elements between the weights of groups
			rows      []int // number of rows of each group
		}{
			{"no groups", 3, 4, 5, nil}, {"no rows", 5, 3, 5, []int{0, 0}},
			{"one of everything", 1, 1, 5, []int{1}},
			{"first, middle and last empty", 17, 9, 5, []int{0, 3, 0, 0, 20, 0}},
			{"many small ones", 16, 16, 5, []int{1, 2, 0, 5, 1, 7, 3, 1, 0, 2, 4, 1}},
			{"several chunks and tiles", 33, 18, 5, []int{513, 1, 2600, 0, 300}},
			// widths of tensor cores; on a GPU the tiles have 128 and 512 rows
			{"tiles alone", 16, 8, 0, []int{128, 640, 512}},
			{"weights that are not aligned", 16, 8, 5, []int{128, 640, 300}},
			{"tiles of some groups", 24, 40, 8, []int{0, 127, 129, 0, 1, 1300, 511, 0}},
			{"a large group between tiles", 8, 8, 0, []int{700, 16385, 3, 16384, 128}},
		} {
			all = append(all, testCase{"groups/" + s.name,
				func(b *bench) []result { return groups(b, s.rows, s.f, s.o, s.gap) }})
		}
		return all
	},
	misuse: func(b *bench) []wrong {
		of := func(ends ...int32) compute.Groups { return compute.Groups{Ends: ends, Stride: 12} }
		w := b.zeros(2, 12).Data
		return []wrong{
			{"groups that end before the last row",
				func() { b.dev.GroupMatMul(b.zeros(2, 3), b.zeros(2, 4), w, of(1)) }},
			{"groups that fall",
				func() { b.dev.GroupMatMul(b.zeros(2, 3), b.zeros(2, 4), w, of(3, 2)) }},
			{"weights of fewer groups",
				func() { b.dev.GroupMatMulInput(b.zeros(2, 4), b.zeros(2, 3), w, of(1, 1, 2)) }},
			{"weights that overlap",
				func() { b.dev.GroupMatMulWeights(w, b.zeros(2, 4), b.zeros(2, 4), of(2)) }},
		}
	},
	calls: func(l *Layer) []Call {
		n, groups := l.Destinations, len(l.Ends)
		w, biases := l.array(groups*l.In*l.Out), l.array(groups*l.Out)
		x, y := l.matrix(n, l.In), l.matrix(n, l.Out)
		g := compute.Groups{Ends: l.Ends, Stride: l.In * l.Out}
		bytes, flops := 4*(n*l.In+n*l.Out+groups*l.In*l.Out), 2*n*l.In*l.Out
		return []Call{
			{"GroupMatMul", func() { l.dev.GroupMatMul(y, x, w, g) }, bytes, flops},
			{"GroupMatMulInput", func() { l.dev.GroupMatMulInput(x, y, w, g) }, bytes, flops},
			{"GroupMatMulWeights", func() { l.dev.GroupMatMulWeights(w, y, x, g) }, bytes, flops},
			{"GroupDense", func() { l.dev.GroupDense(y, x, w, biases, g) }, bytes + 4*groups*l.Out,
				flops},
			{"GroupDenseBackward", func() { l.dev.GroupDenseBackward(w, biases, y, x, g) },
				bytes + 4*groups*l.Out, flops},
		}
	},
}

// groups runs GroupMatMul and its two gradients on groups with the given numbers of rows. Between
// the weights of two groups there are `gap` unused elements.
func groups(b *bench, rows []int, f, o, gap int) []result {
	g, n, of := compute.Groups{Stride: f*o + gap}, 0, []int(nil)
	for i, k := range rows {
		n += k
		g.Ends = append(g.Ends, int32(n))
		for range k {
			of = append(of, i)
		}
	}
	x, w, dy := b.factor(n*f), b.factor(len(rows)*g.Stride), b.factor(n*o)
	mx, mdy, mw := b.matrix(n, f, x), b.matrix(n, o, dy), b.matrix(len(rows), g.Stride, w)
	y := compute.Matrix{Rows: n, Cols: o, Data: b.dirty(n * o)}
	dx := compute.Matrix{Rows: n, Cols: f, Data: b.dirty(n * f)}
	dw := compute.Matrix{Rows: len(rows), Cols: g.Stride, Data: b.dirty(len(rows) * g.Stride)}
	b.dev.GroupMatMul(y, mx, mw.Data, g)
	b.dev.GroupMatMulInput(dx, mdy, mw.Data, g)
	b.dev.GroupMatMulWeights(dw.Data, mdy, mx, g)
	bias := b.normal(len(rows) * o)
	dense := compute.Matrix{Rows: n, Cols: o, Data: b.dirty(n * o)}
	b.dev.GroupDense(dense, mx, mw.Data, b.matrix(len(rows), o, bias).Data, g)
	dense2 := compute.Matrix{Rows: len(rows), Cols: g.Stride, Data: b.dirty(len(rows) * g.Stride)}
	dbias := b.dirty(len(rows) * o)
	b.dev.GroupDenseBackward(dense2.Data, dbias, mdy, mx, g)
	exact := append([]float32(nil), dy...)
	b.round(x, w, dy)
	all := []result{
		grid("GroupMatMul", b.get(y.Data), n, o, f, func(i, j int) sum {
			var s sum
			for k := range f {
				s.add(float64(x[i*f+k]) * float64(w[of[i]*g.Stride+j*f+k]))
			}
			return s
		}),
		grid("GroupMatMulInput", b.get(dx.Data), n, f, o, func(i, j int) sum {
			var s sum
			for k := range o {
				s.add(float64(dy[i*o+k]) * float64(w[of[i]*g.Stride+k*f+j]))
			}
			return s
		}),
	}
	all = append(all, grid("GroupDense", b.get(dense.Data), n, o, f+1, func(i, j int) (s sum) {
		for k := range f {
			s.add(float64(x[i*f+k]) * float64(w[of[i]*g.Stride+j*f+k]))
		}
		s.add(float64(bias[of[i]*o+j]))
		return s
	}), grid("GroupDenseBackward, biases", b.get(dbias), len(rows), o, n+1, func(i, j int) (s sum) {
		for lo, hi := g.Rows(i); lo < hi; lo++ {
			s.add(float64(exact[lo*o+j]))
		}
		return s
	}))
	sums, again := b.get(dw.Data), b.get(dense2.Data)
	for i := range rows {
		lo, hi := g.Rows(i)
		if !slices.Equal(sums[i*g.Stride:][:f*o], again[i*g.Stride:][:f*o]) {
			b.t.Errorf("GroupDenseBackward gives other weights than GroupMatMulWeights, of group "+
				"%d", i)
		}
		all = append(all, grid(fmt.Sprintf("GroupMatMulWeights of group %d", i),
			sums[i*g.Stride:][:f*o], o, f, hi-lo, func(r, c int) (s sum) {
				for k := lo; k < hi; k++ {
					s.add(float64(dy[k*o+r]) * float64(x[k*f+c]))
				}
				return s
			}))
	}
	return all
}
