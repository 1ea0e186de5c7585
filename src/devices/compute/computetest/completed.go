package computetest

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"halognn/src/devices/compute"
)

// Completed checks that kernels that complete rows give the same bits as the single kernels that
// they replace. On a device that stores rows in bfloat16, it also compares completed rows stored in
// bfloat16 with rows of float32. And it compares results for gradients of bfloat16 with those for
// the same gradients in float32.
func Completed(t *testing.T, open func() compute.Device) {
	for _, s := range []struct{ rows, cols, out int }{
		{0, 5, 3}, {1, 1, 1}, {17, 37, 19}, {513, 34, 46}, {600, 37, 32}, {1300, 20, 16},
	} {
		t.Run(fmt.Sprintf("[%d,%d] to %d", s.rows, s.cols, s.out), func(t *testing.T) {
			b := newBench(t, open(), guard)
			for _, r := range append(b.rounds(s.rows, s.cols),
				b.completed(s.rows, s.cols, s.out)...) {
				r.check(t)
			}
			if b.dev.Capabilities().Stores == compute.BF16s {
				for _, r := range append(b.gradients(s.rows, s.cols, s.out),
					b.heads(s.rows, s.out)...) {
					r.check(t)
				}
			}
			b.close()
		})
	}
	t.Run("misuse", func(t *testing.T) {
		b := newBench(t, open(), guard)
		dx, dy, w := b.zeros(2, 4), b.zeros(2, 3), b.zeros(3, 4)
		mustPanic(t, func() { b.dev.DenseInput(dx, dy, w, compute.Completion{Own: b.zeros(3, 4)}) })
		mustPanic(t, func() { b.dev.DenseInput(dx, dy, w, compute.Completion{Own: b.zeros(2, 3)}) })
		mustPanic(t, func() {
			b.dev.DenseInput(dx, dy, w,
				compute.Completion{Own: b.zeros(1, 4), Scale: b.array(make([]float32, 1))})
		})
		_, narrow := b.both(2, 4)
		mustPanic(t, func() { b.dev.DenseInput(narrow, dy, w, compute.Completion{}) })
		mustPanic(t, func() { b.dev.Round(dx, dy) })
		back := compute.Completion{Of: b.zeros(2, 4),
			Back: compute.Epilogue{Activation: compute.ActivateReLU}}
		mustPanic(t, func() { b.dev.DenseInput(dx, dy, w, back) })
		s := compute.Segments{Indptr: []int64{0, 0}}
		mustPanic(t, func() { b.dev.SegmentMeanBackward(b.zeros(1, 4), s, s, b.zeros(1, 4), back) })
		b.close()
	})
}

// nothing returns a matrix whose elements, of the given type, are NaN.
func (b *bench) nothing(of compute.Elements, rows, cols int) compute.Matrix {
	return of.MatrixIn(b.dirty(of.Floats(rows*cols)), rows, cols)
}

// read returns the numbers of a matrix of float32 or bfloat16.
func (b *bench) read(m compute.Matrix) []float32 {
	if m.BF16 == nil {
		return b.get(m.Data)
	}
	wide := make([]float32, m.Rows*m.Cols)
	compute.BF16s.MatrixIn(b.get(m.Memory()), m.Rows, m.Cols).Widen(wide)
	return wide
}

// rounds runs Round twice: into another matrix, and in place.
func (b *bench) rounds(rows, cols int) (all []result) {
	numbers, want := b.normal(rows*cols), make([]float64, rows*cols)
	p := b.dev.Capabilities().Precision
	for i, x := range numbers {
		if p.Stored() == compute.BF16s {
			x = p.Round(x)
		}
		want[i] = float64(x)
	}
	x := b.matrix(rows, cols, numbers)
	y := b.nothing(b.dev.Capabilities().Stores, rows, cols)
	b.dev.Round(y, x)
	b.dev.Round(x, x)
	return append(all, exact("Round", b.read(y), want),
		exact("Round in place", b.get(x.Data), want))
}

// completed calls each kernel that completes rows (compute.Completion).
func (b *bench) completed(rows, cols, out int) (all []result) {
	w, dy := b.matrix(out, cols, b.normal(out*cols)), b.matrix(rows, out, b.normal(rows*out))
	s := compute.Segments{Indptr: []int64{0}}
	if rows > 0 {
		s = b.segments(rows/2+1, rows, 4)
	}
	t, weights := transpose(s, rows), b.normal(len(s.Indices))
	h, dout := b.matrix(rows, cols, b.normal(rows*cols)),
		b.matrix(s.Len(), cols, b.normal(s.Len()*cols))
	arg := b.nothing(compute.Float32s, s.Len(), cols)
	b.dev.SegmentMax(b.nothing(compute.Float32s, s.Len(), cols), arg, s, h)
	own := b.matrix(rows/2, cols, b.normal(rows/2*cols))
	types := []compute.Elements{compute.Float32s}
	if b.dev.Capabilities().Stores == compute.BF16s {
		types = append(types, compute.BF16s)
	}
	const spare = 3 // rows that no edge refers to
	backs := b.backs(rows, cols)
	for _, k := range []struct {
		name string
		rows int
		call func(y compute.Matrix, c compute.Completion)
	}{
		{"DenseInput", rows, func(y compute.Matrix, c compute.Completion) {
			b.dev.DenseInput(y, dy, w, c)
		}},
		{"SegmentMeanBackward", rows + spare, func(y compute.Matrix, c compute.Completion) {
			b.dev.SegmentMeanBackward(y, s, t, dout, c)
		}},
		{"SegmentMaxBackward", rows + spare, func(y compute.Matrix, c compute.Completion) {
			b.dev.SegmentMaxBackward(y, t, arg, dout, c)
		}},
		{"SegmentSumCompleted", rows, func(y compute.Matrix, c compute.Completion) {
			b.dev.SegmentSumCompleted(y, t, weights, dout, c)
		}},
	} {
		completions := []compute.Completion{{}, {Own: own}, {Rounded: true},
			{Own: own, Rounded: true}}
		if k.name == "SegmentSumCompleted" {
			scale := b.array(b.normal(1))
			completions = append(completions, compute.Completion{Own: own, Scale: scale},
				compute.Completion{Own: own, Scale: scale, Rounded: true})
		}
		if k.name != "DenseInput" {
			plain := completions[len(completions)-2:]
			for i, back := range backs {
				for _, c := range plain {
					c.Rounded = c.Rounded != (i%3 == 2)
					c.Of, c.Back = back.Of, back.Back
					completions = append(completions, c)
				}
			}
		}
		for _, c := range completions {
			want := b.nothing(compute.Float32s, k.rows, cols)
			if k.name == "DenseInput" {
				b.dev.MatMulInput(want, dy, w, false)
			} else {
				k.call(want, compute.Completion{})
			}
			c.Apply(b.dev, want.RowsAt(0, rows))
			for _, of := range types {
				if of == compute.BF16s && !c.Rounded {
					continue
				}
				got := b.nothing(of, k.rows, cols)
				k.call(got, c)
				if of == compute.BF16s {
					b.dev.Round(want, want)
				}
				name := fmt.Sprintf("%s of %d own rows, scaled %t, rounded %t, back through %v "+
					"of %v, in %v", k.name, c.Own.Rows, c.Scale != nil, c.Rounded,
					c.Back.Activation, c.Of.Elements(), of)
				all = append(all, same(name, b.read(got), b.get(want.Data)))
			}
		}
	}
	return all
}

// backs returns completions that only go back through an epilogue of rows of each type. Some of
// these rows are zeros, and some are not numbers.
func (b *bench) backs(rows, cols int) (all []compute.Completion) {
	y, narrow := b.normal(rows*cols), make([]float32, compute.BF16s.Floats(rows*cols))
	for i := range y {
		y[i] = compute.PrecisionBF16.Round(y[i])
		switch i % 7 {
		case 1, 2:
			y[i] = 0
		case 3:
			y[i] = float32(math.Copysign(0, -1))
		case 4:
			y[i] = float32(math.NaN())
		}
	}
	compute.BF16s.MatrixIn(narrow, rows, cols).Narrow(y)
	for _, f := range epilogues[1:] {
		e := f.epilogue(b, rows, cols)
		e.Add, e.Rounded = compute.Matrix{}, true
		all = append(all, compute.Completion{Of: b.matrix(rows, cols, y), Back: e})
		if b.dev.Capabilities().Stores == compute.BF16s {
			stored := compute.BF16s.MatrixIn(b.array(narrow), rows, cols)
			all = append(all, compute.Completion{Of: stored,
				Back: e})
		}
	}
	return all
}

// gradients runs the backward kernels, first with gradients of float32 and then with gradients of
// bfloat16.
func (b *bench) gradients(rows, cols, out int) (all []result) {
	x := b.matrix(rows, cols, b.normal(rows*cols))
	w, x2, w2 := b.normal(out*cols), b.matrix(rows, out, b.normal(rows*out)), b.normal(out*out)
	gamma, mean, variance := b.array(b.normal(out)), b.dirty(max(rows, out)),
		b.dirty(max(rows, out))
	numbers := b.normal(rows * out)
	for _, f := range epilogues {
		e := f.epilogue(b, rows, out)
		e.Rounded = true
		d := compute.Dense{X: x, W: b.matrix(out, cols, w), Bias: b.array(b.normal(out)), X2: x2,
			W2: b.matrix(out, out, w2), Epilogue: e}
		y, wideY := b.nothing(compute.BF16s, rows, out), b.nothing(compute.Float32s, rows, out)
		b.dev.Dense(y, d)
		b.dev.Dense(wideY, d)
		dense := func(dy, y compute.Matrix) ([]float32, compute.Matrix) {
			g := compute.DenseGradients{W: b.nothing(compute.Float32s, out, cols),
				Bias: b.dirty(out), W2: b.nothing(compute.Float32s, out, out)}
			b.dev.DenseBackward(g, dy, y, d)
			return slices.Concat(b.get(g.W.Data), b.get(g.W2.Data), b.get(g.Bias)), dy
		}
		wide, narrow := b.both(rows, out)
		again := b.nothing(compute.BF16s, rows, out)
		b.dev.Round(again, wide)
		want, after := dense(wide, y)
		b.dev.Round(after, after)
		for name, of := range map[string][2]compute.Matrix{"": {narrow, y},
			", behind rows of float32": {again, wideY}} {
			got, afterNarrow := dense(of[0], of[1])
			all = append(all, same("DenseBackward, "+f.name+name, got, want),
				same("what becomes of the gradient, "+f.name+name, b.read(afterNarrow),
					b.get(after.Data)))
		}
		b.dev.ColumnMoments(mean[:out], variance[:out], x2)
		for _, n := range []struct {
			name string
			call func(dx, dy, x compute.Matrix, dgamma, dbeta []float32)
		}{
			{"LayerNormBackward", func(dx, dy, x compute.Matrix, dgamma, dbeta []float32) {
				b.dev.LayerNorm(b.nothing(compute.Float32s, rows, out), x, gamma, gamma,
					mean[:rows], variance[:rows], 1e-5, compute.Epilogue{})
				b.dev.LayerNormBackward(dx, dgamma, dbeta, dy, x, gamma, mean[:rows],
					variance[:rows], y, e)
			}},
			{"BatchNormBackward", func(dx, dy, x compute.Matrix, dgamma, dbeta []float32) {
				b.dev.ColumnMoments(mean[:out], variance[:out], x)
				b.dev.BatchNormBackward(dx, dgamma, dbeta, dy, x, gamma, mean[:out], variance[:out],
					1e-5, y, e)
			}},
		} {
			of := func(dx, dy, x compute.Matrix) []float32 {
				dgamma, dbeta := b.dirty(out), b.dirty(out)
				n.call(dx, dy, x, dgamma, dbeta)
				return slices.Concat(b.get(dx.Data), b.get(dgamma), b.get(dbeta))
			}
			wide, narrow := b.both(rows, out)
			before := b.read(narrow)
			inPlace := b.matrix(rows, out, numbers)
			want := of(b.nothing(compute.Float32s, rows, out), wide, b.matrix(rows, out, numbers))
			all = append(all, same(n.name+", "+f.name, of(inPlace, narrow, inPlace), want),
				same("the gradient that is read, "+f.name, b.read(narrow), before))
		}
	}
	return all
}

// heads runs attention over rows of float32 and of bfloat16, with one head and with several.
func (b *bench) heads(rows, cols int) (all []result) {
	s := compute.Segments{Indptr: []int64{0}}
	if rows > 0 {
		s = b.segments(rows/2+1, rows, 4)
	}
	t, n := transpose(s, rows), min(rows, s.Len())
	for heads := range cols + 1 {
		if heads == 0 || cols%heads != 0 || heads > 20 {
			continue
		}
		asrc, adst, numbers := b.array(b.normal(cols)), b.array(b.normal(cols)), b.normal(rows*cols)
		dy := b.matrix(s.Len(), cols, b.normal(s.Len()*cols))
		wide, narrow := b.both(rows, cols)
		of := func(z compute.Matrix) []float32 {
			nothing := func(rows, cols int) compute.Matrix {
				return b.nothing(compute.Float32s, rows, cols)
			}
			src, some, alpha, y := nothing(rows, heads), nothing(n, heads),
				nothing(len(s.Indices), heads), nothing(s.Len(), cols)
			b.dev.HeadDots(src, some, z, asrc, adst)
			dst := b.matrix(s.Len(), heads, make([]float32, s.Len()*heads))
			b.dev.Attend(y, alpha, s, src, dst, z, 0.2)
			sum, dsum := nothing(s.Len(), cols), nothing(rows, cols)
			dsumAlpha := nothing(len(s.Indices), heads)
			b.dev.EdgeSum(sum, s, alpha, z)
			b.dev.EdgeSumBackward(dsum, dsumAlpha, t, alpha, z, dy)
			dz, dsrc, ddst := b.matrix(rows, cols, numbers), nothing(rows, heads),
				nothing(s.Len(), heads)
			dalpha, dasrc, dadst := nothing(len(s.Indices), heads), b.dirty(cols), b.dirty(cols)
			b.dev.AttendBackward(dz, dsrc, ddst, dalpha, s, t, alpha, src, dst, z, dy, 0.2)
			b.dev.HeadDotsBackward(dz, dasrc, dadst, dsrc, dsrc.RowsAt(0, n), z, asrc, adst)
			return slices.Concat(b.get(src.Data), b.get(some.Data), b.get(y.Data), b.get(sum.Data),
				b.get(dsum.Data), b.get(dsumAlpha.Data), b.get(dz.Data), b.get(dsrc.Data),
				b.get(ddst.Data), b.get(dasrc), b.get(dadst))
		}
		all = append(all, same(fmt.Sprintf("attention of %d heads", heads), of(narrow), of(wide)))
	}
	return all
}
