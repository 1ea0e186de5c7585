package computetest

import (
	"fmt"
	"slices"
	"testing"

	"halognn/src/devices/compute"
)

// Pairs tests a device with PairKernels. They must give the same bits as other kernels on each half
// of a pair. A product of pairs must be the sum of the products of the halves.
func Pairs(t *testing.T, open func() compute.Device) {
	for _, s := range []struct{ rows, cols, out int }{
		{0, 5, 3}, {1, 1, 1}, {17, 37, 19}, {513, 34, 46}, {600, 32, 32}, {1300, 20, 16},
	} {
		t.Run(fmt.Sprintf("[%d,%d] to %d", s.rows, s.cols, s.out), func(t *testing.T) {
			b := newBench(t, open(), guard)
			for _, r := range slices.Concat(b.joins(s.rows, s.cols),
				b.joinedSegments(s.rows, s.cols), b.joinedProducts(s.rows, s.cols, s.out)) {
				r.check(t)
			}
			b.close()
		})
	}
	t.Run("misuse", func(t *testing.T) {
		b := newBench(t, open(), guard)
		k := b.dev.Capabilities().Pairs
		s := compute.Segments{Indptr: []int64{0, 1}, Indices: []int32{0}}
		join := func(a, of compute.Matrix) {
			k.Join(compute.Joining{Pair: b.zeros(2, 5), A: a, B: of})
		}
		mustPanic(t, func() { join(b.zeros(2, 3), b.zeros(2, 3)) })
		mustPanic(t, func() { join(b.zeros(2, 3), b.zeros(2, 2)) })
		mustPanic(t, func() { k.Part(b.zeros(2, 3), b.zeros(2, 3), b.zeros(3, 6)) })
		mean := compute.ReduceMean
		none := compute.Matrix{}
		mustPanic(t, func() { k.SegmentJoined(b.zeros(1, 3), none, mean, s, nil, b.zeros(1, 3)) })
		mustPanic(t, func() { k.SegmentJoined(b.zeros(1, 6), none, mean, s, nil, b.zeros(0, 3)) })
		mustPanic(t, func() {
			k.SegmentJoinedBackward(b.zeros(1, 3), mean, s, s, nil, none, b.zeros(2, 6),
				compute.Completion{})
		})
		mustPanic(t, func() {
			k.SegmentJoinedBackward(b.zeros(1, 3), mean, s, s, nil, none, b.zeros(1, 6),
				compute.Completion{Own: b.zeros(1, 3)})
		})
		b.close()
	})
}

// types returns the types in which the device stores rows.
func (b *bench) types() []compute.Elements {
	if b.dev.Capabilities().Stores == compute.BF16s {
		return []compute.Elements{compute.Float32s, compute.BF16s}
	}
	return []compute.Elements{compute.Float32s}
}

// joined returns the numbers of a pair: the rows of a and b side by side.
func joined(rows, cols int, a, b []float32) (pair []float32) {
	for r := range rows {
		pair = slices.Concat(pair, a[r*cols:(r+1)*cols], b[r*cols:(r+1)*cols])
	}
	return pair
}

// joins runs Join for matrices of all types. It runs Join and Part for more pairs than one launch
// takes.
func (b *bench) joins(rows, cols int) (all []result) {
	k := b.dev.Capabilities().Pairs
	first, second := b.normal(rows*cols), b.normal(rows*cols)
	wide, narrow := b.both(rows, cols)
	x := b.matrix(rows, cols, first)
	for _, of := range b.types() {
		got, again := b.nothing(of, rows, 2*cols), b.nothing(of, rows, 2*cols)
		// more pairs than one launch takes, of different shapes
		var joinings []compute.Joining
		for i := range 11 {
			none := b.nothing(compute.Float32s, 0, i)
			joinings = append(joinings, compute.Joining{Pair: b.nothing(of, 0, 2*i), A: none,
				B: none})
		}
		joinings[3] = compute.Joining{Pair: got, A: x, B: b.matrix(rows, cols, second)}
		joinings[9] = compute.Joining{Pair: again, A: b.matrix(rows, cols, second), B: x}
		k.Join(joinings...)
		want, turned := joined(rows, cols, first, second), joined(rows, cols, second, first)
		for i := range want {
			if of == compute.BF16s {
				want[i] = compute.PrecisionBF16.Round(want[i])
				turned[i] = compute.PrecisionBF16.Round(turned[i])
			}
		}
		all = append(all, same(fmt.Sprintf("Join in %v", of), b.read(got), want),
			same(fmt.Sprintf("second Join in %v", of), b.read(again), turned))
		if of == compute.BF16s {
			k.Join(compute.Joining{Pair: got, A: x, B: wide},
				compute.Joining{Pair: again, A: x, B: narrow})
			all = append(all, same("Join of rounded rows", b.read(again), b.read(got)))
		}
	}
	const times = 6
	var parts [times][2]compute.Matrix
	for i := range parts {
		for h := range parts[i] {
			parts[i][h] = b.nothing(compute.Float32s, rows, cols)
		}
		k.Part(parts[i][0], parts[i][1],
			b.matrix(rows, 2*cols, joined(rows, cols, first, second)))
	}
	b.dev.Settle()
	for i := range parts {
		all = append(all, same("first half", b.get(parts[i][0].Data), first),
			same("second half", b.get(parts[i][1].Data), second))
	}
	return all
}

// joinedSegments runs reductions of each kind, and their gradients.
func (b *bench) joinedSegments(rows, cols int) (all []result) {
	k := b.dev.Capabilities().Pairs
	s := compute.Segments{Indptr: []int64{0}}
	if rows > 0 {
		s = b.segments(rows/2+1, rows, 4)
	}
	t, n := transpose(s, rows), s.Len()
	weights, turned := b.normal(len(s.Indices)), b.normal(len(s.Indices))
	wide, narrow := b.both(rows, cols)
	own, dout := b.normal(n*cols), b.normal(n*cols)
	mown, mdout := b.matrix(n, cols, own), b.matrix(n, cols, dout)
	dpair := b.matrix(n, 2*cols, joined(n, cols, own, dout))
	for _, c := range []struct {
		name            string
		how             compute.Reduction
		weights, turned []float32
	}{
		{"mean", compute.ReduceMean, nil, nil}, {"sum", compute.ReduceSum, nil, nil},
		{"weighted sum", compute.ReduceSum, weights, turned},
		{"maximum", compute.ReduceMax, nil, nil},
	} {
		var arg compute.Matrix
		if c.how == compute.ReduceMax {
			arg = b.nothing(compute.Float32s, n, cols)
		}
		for _, of := range b.types() {
			h := wide
			if of == compute.BF16s {
				h = narrow
			}
			got, want := b.nothing(of, n, 2*cols), b.nothing(of, n, cols)
			k.SegmentJoined(got, arg, c.how, s, c.weights, h)
			switch c.how {
			case compute.ReduceMean:
				b.dev.SegmentMean(want, s, h)
			case compute.ReduceMax:
				b.dev.SegmentMax(want, compute.Matrix{}, s, h)
			default:
				b.dev.SegmentSum(want, s, c.weights, h, false)
			}
			all = append(all, same(fmt.Sprintf("%s in %v", c.name, of), b.read(got),
				joined(n, cols, b.get(wide.Data), b.read(want))))
		}
		ends := []compute.Completion{{}, {Rounded: true}}
		for i, back := range b.backs(rows, cols) {
			back.Rounded = i%2 == 1
			ends = append(ends, back)
		}
		for _, plain := range ends {
			end := plain
			end.Own = mown
			const spare = 3 // rows that no edge refers to
			want := b.nothing(compute.Float32s, rows+spare, cols)
			switch c.how {
			case compute.ReduceMean:
				b.dev.SegmentMeanBackward(want, s, t, mdout, end)
			case compute.ReduceMax:
				b.dev.SegmentMaxBackward(want, t, arg, mdout, end)
			default:
				zeros := b.matrix(rows+spare, cols, make([]float32, (rows+spare)*cols))
				b.dev.SegmentSumCompleted(zeros.RowsAt(0, rows), t, c.turned, mdout, end)
				want = zeros
			}
			for _, of := range b.types() {
				if of == compute.BF16s && !end.Rounded {
					continue
				}
				got := b.nothing(of, rows+spare, cols)
				k.SegmentJoinedBackward(got, c.how, s, t, c.turned, arg, dpair, plain)
				if of == compute.BF16s {
					b.dev.Round(want, want)
				}
				all = append(all, same(fmt.Sprintf("gradient of %s, rounded %t, back through %v, "+
					"in %v", c.name, end.Rounded, end.Back.Activation, of), b.read(got),
					b.get(want.Data)))
			}
		}
	}
	return all
}

// joinedProducts multiplies a pair of rows by a pair of weights, both in the types in which the
// device stores them.
func (b *bench) joinedProducts(rows, cols, out int) []result {
	k, of := b.dev.Capabilities().Pairs, b.dev.Capabilities().Stores
	x, x2, w, w2 := b.factor(rows*cols), b.factor(rows*cols), b.factor(out*cols), b.factor(out*cols)
	dy := b.factor(rows * out)
	pair, weights := b.nothing(of, rows, 2*cols), b.nothing(of, out, 2*cols)
	k.Join(compute.Joining{Pair: pair, A: b.matrix(rows, cols, x), B: b.matrix(rows, cols, x2)},
		compute.Joining{Pair: weights, A: b.matrix(out, cols, w), B: b.matrix(out, cols, w2)})
	y, dx := b.nothing(compute.Float32s, rows, out), b.nothing(compute.Float32s, rows, 2*cols)
	b.dev.MatMul(y, pair, weights, false)
	b.dev.MatMulInput(dx, b.matrix(rows, out, dy), weights, false)
	b.round(x, x2, w, w2, dy)
	all, both := joined(rows, cols, x, x2), joined(out, cols, w, w2)
	return []result{
		grid("product of pairs", b.get(y.Data), rows, out, 2*cols, func(i, j int) (s sum) {
			for k := range 2 * cols {
				s.add(float64(all[i*2*cols+k]) * float64(both[j*2*cols+k]))
			}
			return s
		}),
		grid("gradient of a pair", b.get(dx.Data), rows, 2*cols, out, func(i, j int) (s sum) {
			for k := range out {
				s.add(float64(dy[i*out+k]) * float64(both[k*2*cols+j]))
			}
			return s
		}),
	}
}

// pairCalls returns a call of each kernel of PairKernels.
func (l *Layer) pairCalls(k compute.PairKernels) []Call {
	in, back, edges := l.Destinations*l.In, l.Sources*l.In, l.Destinations*l.Degree
	forward, transposed := 8*(l.Destinations+1)+4*edges, 8*(l.Sources+1)+4*edges
	a, b, pair := l.matrix(l.Destinations, l.In), l.matrix(l.Destinations, l.In),
		l.matrix(l.Destinations, 2*l.In)
	h, dh, none := l.matrix(l.Sources, l.In), l.matrix(l.Sources, l.In), compute.Matrix{}
	joining := []compute.Joining{{Pair: pair, A: a, B: b}}
	return []Call{
		{"Join", func() { k.Join(joining...) }, 4 * 4 * in, 0},
		{"Part", func() { k.Part(a, b, pair) }, 4 * 4 * in, 0},
		{"SegmentJoined", func() {
			k.SegmentJoined(pair, none, compute.ReduceMean, l.Forward, nil, h)
		}, 4*(edges*l.In+3*in) + forward, 0},
		{"SegmentJoinedBackward", func() {
			k.SegmentJoinedBackward(dh, compute.ReduceMean, l.Forward, l.Transposed, nil, none,
				pair, compute.Completion{})
		}, 4*(edges*l.In+in+back) + 16*edges + transposed, 0},
	}
}
