package computetest

import (
	"fmt"
	"slices"
	"testing"

	"halognn/src/devices/compute"
)

// Stored tests a device that stores rows in bfloat16. A kernel that reads such rows must give the
// same bits as for the same numbers in float32.
func Stored(t *testing.T, open func() compute.Device) {
	for _, s := range []struct{ rows, cols, out int }{
		{0, 5, 3}, {1, 1, 1}, {17, 37, 19}, {513, 33, 47}, {40, 130, 140}, {600, 37, 32},
		{4100, 20, 16}, {1030, 24, 16},
	} {
		t.Run(fmt.Sprintf("[%d,%d] to %d", s.rows, s.cols, s.out), func(t *testing.T) {
			b := newBench(t, open(), guard)
			for _, r := range b.stored(s.rows, s.cols, s.out) {
				r.check(t)
			}
			b.close()
		})
	}
	t.Run("misuse", func(t *testing.T) {
		b := newBench(t, open(), guard)
		_, x := b.both(2, 3)
		mustPanic(t, func() { b.dev.AddBias(x, b.array(make([]float32, 3))) })
		mustPanic(t, func() { b.dev.MatMul(x, x, b.zeros(3, 3), false) })
		b.close()
	})
}

// both returns random numbers of bfloat16, as a matrix of float32 and as a matrix of bfloat16.
func (b *bench) both(rows, cols int) (wide, narrow compute.Matrix) {
	numbers := b.normal(rows * cols)
	for i, x := range numbers {
		numbers[i] = compute.PrecisionBF16.Round(x)
	}
	wide = b.matrix(rows, cols, numbers)
	memory := make([]float32, compute.BF16s.Floats(len(numbers)))
	compute.BF16s.MatrixIn(memory, rows, cols).Narrow(numbers)
	return wide, compute.BF16s.MatrixIn(b.array(memory), rows, cols)
}

// stored calls each kernel twice, with rows of float32 and with rows of bfloat16.
func (b *bench) stored(rows, cols, out int) (all []result) {
	x, narrow := b.both(rows, cols)
	x2, narrow2 := b.both(rows, cols)
	w, w2, dy := b.matrix(out, cols, b.normal(out*cols)), b.matrix(out, cols, b.normal(out*cols)),
		b.normal(rows*out)
	turned := b.matrix(cols, out, b.normal(out*cols))
	numbers := b.normal(rows * cols)
	bias, scale := b.array(b.normal(out)), b.array(b.normal(1))
	s := compute.Segments{Indptr: []int64{0}}
	if rows > 0 {
		s = b.segments(rows+3, rows, 4)
	}
	weights := b.normal(len(s.Indices))
	groups := compute.Groups{Ends: []int32{int32(rows / 4), int32(rows / 2), int32(rows)},
		Stride: out * cols}
	perGroup := b.array(b.normal(len(groups.Ends) * out * cols))
	same := func(name string, call func(x, x2 compute.Matrix) []float32) {
		all = append(all, same(name, call(narrow, narrow2), call(x, x2)))
	}
	of := func(r, c int) compute.Matrix { return b.matrix(r, c, nans(r*c)) }
	same("MatMul", func(x, _ compute.Matrix) []float32 {
		y := of(rows, out)
		b.dev.MatMul(y, x, w, false)
		return b.get(y.Data)
	})
	same("MatMulWeights", func(x, _ compute.Matrix) []float32 {
		dw := of(out, cols)
		b.dev.MatMulWeights(dw, b.matrix(rows, out, dy), x)
		return b.get(dw.Data)
	})
	dense := func(x, x2 compute.Matrix) compute.Dense {
		return compute.Dense{X: x, W: w, Bias: bias, X2: x2, W2: w2,
			Epilogue: compute.Epilogue{Activation: compute.ActivateReLU}}
	}
	same("Dense", func(x, x2 compute.Matrix) []float32 {
		y, added := of(rows, out), of(rows, cols)
		b.dev.Dense(y, dense(x, x2))
		b.dev.Dense(added, compute.Dense{X: y, W: turned, Epilogue: compute.Epilogue{Add: x}})
		return slices.Concat(b.get(y.Data), b.get(added.Data))
	})
	same("DenseBackward", func(x, x2 compute.Matrix) []float32 {
		g := compute.DenseGradients{W: of(out, cols), Bias: b.dirty(out), W2: of(out, cols)}
		b.dev.DenseBackward(g, b.matrix(rows, out, dy), b.matrix(rows, out, dy), dense(x, x2))
		return slices.Concat(b.get(g.W.Data), b.get(g.W2.Data), b.get(g.Bias))
	})
	same("GroupMatMul", func(x, _ compute.Matrix) []float32 {
		y := of(rows, out)
		b.dev.GroupMatMul(y, x, perGroup, groups)
		return b.get(y.Data)
	})
	same("GroupMatMulWeights", func(x, _ compute.Matrix) []float32 {
		dw := b.dirty(len(perGroup))
		b.dev.GroupMatMulWeights(dw, b.matrix(rows, out, dy), x, groups)
		return b.get(dw)
	})
	same("AddScaled", func(x, x2 compute.Matrix) []float32 {
		y := of(rows, cols)
		b.dev.AddScaled(y, x, x2, scale)
		b.dev.AddScaled(y, y, x, scale)
		return b.get(y.Data)
	})
	same("CopyColumns", func(x, _ compute.Matrix) []float32 {
		y, n := of(rows, cols), cols/2
		b.dev.CopyColumns(y, 0, x, 0, n, false)
		b.dev.CopyColumns(y, n, x, 0, cols-n, false)
		b.dev.CopyColumns(y, 0, x, n, cols-n, true)
		return b.get(y.Data)
	})
	same("Dot", func(x, _ compute.Matrix) []float32 {
		total := b.dirty(1)
		b.dev.Dot(total, x2, x)
		return b.get(total)
	})
	same("MatMulInput", func(x, _ compute.Matrix) []float32 {
		y := of(rows, out)
		b.dev.MatMulInput(y, x, turned, false)
		return b.get(y.Data)
	})
	same("GroupMatMulInput", func(x, _ compute.Matrix) []float32 {
		y, dw := of(rows, out), b.dirty(len(perGroup))
		b.dev.GroupMatMulInput(y, x, perGroup, groups)
		b.dev.GroupMatMulWeights(dw, x, b.matrix(rows, out, dy), groups)
		return slices.Concat(b.get(y.Data), b.get(dw))
	})
	same("SegmentMean", func(x, _ compute.Matrix) []float32 {
		y := of(s.Len(), cols)
		b.dev.SegmentMean(y, s, x)
		return b.get(y.Data)
	})
	same("SegmentSum", func(x, _ compute.Matrix) []float32 {
		y := of(s.Len(), cols)
		b.dev.SegmentSum(y, s, nil, x, false)
		b.dev.SegmentSum(y, s, weights, x, true)
		return b.get(y.Data)
	})
	same("SegmentSumCompleted", func(x, x2 compute.Matrix) []float32 {
		y := of(s.Len(), cols)
		b.dev.SegmentSumCompleted(y, s, weights, x, compute.Completion{Own: x2, Scale: scale})
		return b.get(y.Data)
	})
	same("DenseInput", func(x, x2 compute.Matrix) []float32 {
		y, back := of(rows, out), of(rows, cols)
		b.dev.DenseInput(y, x, turned, compute.Completion{})
		b.dev.DenseInput(back, y, w, compute.Completion{Own: x2.RowsAt(0, rows/2)})
		return slices.Concat(b.get(y.Data), b.get(back.Data))
	})
	same("SegmentMax", func(x, _ compute.Matrix) []float32 {
		y, arg := of(s.Len(), cols), of(s.Len(), cols)
		b.dev.SegmentMax(y, arg, s, x)
		return b.get(y.Data)
	})
	rounded := func(name string, rows int, call func(y compute.Matrix)) {
		y, memory := of(rows, cols), b.dirty(compute.BF16s.Floats(rows*cols))
		call(y)
		narrow := compute.BF16s.MatrixIn(memory, rows, cols)
		call(narrow)
		want, got := b.get(y.Data), make([]float32, rows*cols)
		compute.BF16s.MatrixIn(b.get(memory), rows, cols).Widen(got)
		for i, v := range want {
			want[i] = compute.PrecisionBF16.Round(v)
		}
		all = append(all, exact(name+", stored", got, widened(want)))
	}
	for _, f := range epilogues {
		e := f.epilogue(b, rows, cols)
		e.Rounded = true
		gamma, beta := b.array(b.normal(cols)), b.array(b.normal(cols))
		mean, variance := b.dirty(max(rows, cols)), b.dirty(max(rows, cols))
		rounded("Dense, "+f.name, rows, func(y compute.Matrix) {
			b.dev.Dense(y, compute.Dense{X: b.matrix(rows, out, dy), W: turned, Epilogue: e})
		})
		rounded("Finish, "+f.name, rows, func(y compute.Matrix) { b.dev.Finish(y, x, beta, e) })
		rounded("LayerNorm, "+f.name, rows, func(y compute.Matrix) {
			b.dev.LayerNorm(y, x, gamma, beta, mean[:rows], variance[:rows], 1e-5, e)
		})
		b.dev.ColumnMoments(mean[:cols], variance[:cols], x)
		rounded("BatchNorm, "+f.name, rows, func(y compute.Matrix) {
			b.dev.BatchNorm(y, x, gamma, beta, mean[:cols], variance[:cols], 1e-5, e)
		})
		same("gradient of "+f.name, func(y, _ compute.Matrix) []float32 {
			dx := b.matrix(rows, cols, numbers)
			e.Backward(b.dev, dx, y)
			return b.get(dx.Data)
		})
	}
	rounded("AddScaled", rows, func(y compute.Matrix) { b.dev.AddScaled(y, x, narrow2, scale) })
	rounded("SegmentMean", s.Len(), func(y compute.Matrix) { b.dev.SegmentMean(y, s, x) })
	rounded("SegmentSum", s.Len(), func(y compute.Matrix) {
		b.dev.SegmentSum(y, s, weights, narrow, false)
	})
	rounded("SegmentSumCompleted", s.Len(), func(y compute.Matrix) {
		b.dev.SegmentSumCompleted(y, s, nil, x,
			compute.Completion{Own: narrow2, Scale: scale, Rounded: true})
	})
	rounded("SegmentMax", s.Len(), func(y compute.Matrix) {
		b.dev.SegmentMax(y, of(s.Len(), cols), s, b.matrix(rows, cols, numbers))
	})
	return all
}
