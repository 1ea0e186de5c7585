package computetest

import (
	"fmt"
	"math"
	"strings"

	"halognn/src/devices/compute"
)

var denseTests = family{
	cases: func() (all []testCase) {
		for _, s := range []struct {
			name       string
			r, f, g, o int
		}{
			{"no rows", 0, 5, 2, 3}, {"one of everything", 1, 1, 1, 1}, {"odd", 17, 37, 3, 19},
			{"a chunk and a row", 513, 33, 20, 47}, {"several tiles of weights", 40, 130, 3, 140},
			{"weights transposed, and waves of chunks", 9000, 3, 16, 16},
			{"two of one shape", 40, 13, 13, 9},
			{"two of one shape, chunks and rows", 1100, 9, 9, 20},
			{"two of one shape, whole chunks", 1024, 5, 5, 4},
		} {
			for _, v := range denseVariants {
				all = append(all, testCase{fmt.Sprintf("dense/%s/%s", s.name, v.name),
					func(b *bench) []result { return v.run(b, s.r, s.f, s.g, s.o) }})
			}
		}
		all = append(all, testCase{"dense/sums left to Settle", leftSums})
		for _, s := range rowShapes {
			all = append(all, testCase{"finish/" + s.name,
				func(b *bench) []result { return finishes(b, s.rows, s.cols, epilogues[:2]) }},
				testCase{"elu and finish/" + s.name,
					func(b *bench) []result { return finishes(b, s.rows, s.cols, epilogues[2:]) }})
		}
		return all
	},
	misuse: func(b *bench) []wrong {
		good := compute.Dense{X: b.zeros(2, 3), W: b.zeros(4, 3)}
		with := func(change func(d *compute.Dense)) func() {
			d := good
			change(&d)
			return func() { b.dev.Dense(b.zeros(2, 4), d) }
		}
		return []wrong{
			{"a dense map of unequal depth", with(func(d *compute.Dense) { d.W = b.zeros(4, 2) })},
			{"its bias too short", with(func(d *compute.Dense) { d.Bias = b.zeros(1, 3).Data })},
			{"its second product of other rows",
				with(func(d *compute.Dense) { d.X2, d.W2 = b.zeros(3, 3), b.zeros(4, 3) })},
			{"what is added of another shape",
				with(func(d *compute.Dense) { d.Epilogue.Add = b.zeros(2, 3) })},
			{"dropout without vertices", with(func(d *compute.Dense) {
				d.Epilogue = compute.Epilogue{Activation: compute.ActivateReLU, P: 0.5}
			})},
			{"a bias of another width",
				func() {
					y := b.zeros(2, 4)
					b.dev.Finish(y, y, b.zeros(1, 3).Data, compute.Epilogue{})
				}},
			{"an activation of another shape", func() {
				b.dev.FinishBackward(b.zeros(1, 4).Data, b.zeros(2, 4), b.zeros(2, 3),
					compute.Epilogue{Activation: compute.ActivateReLU})
			}},
			{"gradients of another shape", func() {
				b.dev.DenseBackward(compute.DenseGradients{W: b.zeros(4, 2)}, b.zeros(2, 4),
					b.zeros(2, 4), good)
			}},
		}
	},
	calls: func(l *Layer) []Call {
		r, in, out := l.Destinations, l.In, l.Out
		y, dy, x, w := l.matrix(r, out), l.matrix(r, out), l.matrix(r, in), l.matrix(out, in)
		one := compute.Dense{X: x, W: w, Bias: l.array(out)}
		two := one
		two.X2, two.W2 = l.matrix(r, in), l.matrix(out, in)
		two.Epilogue = compute.Epilogue{Add: l.matrix(r, out), Activation: compute.ActivateReLU,
			P:   0.5,
			Key: compute.NewDropoutKey(1, 2, 3, 4, 5), Vertices: l.Vertices}
		g := compute.DenseGradients{W: l.matrix(out, in), Bias: l.array(out), W2: l.matrix(out, in)}
		return []Call{
			{"Dense", func() { l.dev.Dense(y, one) }, 4 * (r*in + out*in + out + r*out),
				2 * r * in * out},
			{"Dense of two, with an epilogue", func() { l.dev.Dense(y, two) },
				4 * (2*r*in + 2*out*in + out + 2*r*out), 4 * r * in * out},
			{"DenseBackward", func() { l.dev.DenseBackward(g, dy, y, one) },
				4 * (r*in + out*in + out + r*out), 2 * r * in * out},
			{"DenseBackward of two, behind an activation",
				func() { l.dev.DenseBackward(g, dy, y, two) },
				4 * (2*r*in + 2*out*in + out + 3*r*out), 4 * r * in * out},
			{"DenseInput", func() {
				l.dev.DenseInput(x, dy, w, compute.Completion{Own: two.X2.RowsAt(0, r/2),
					Rounded: true})
			}, 4 * (r*in + out*in + r*out + r/2*in), 2 * r * in * out},
			{"Round", func() { l.dev.Round(y, dy) }, 8 * r * out, 0},
			{"Finish", func() { l.dev.Finish(y, y, one.Bias, two.Epilogue) }, 4 * (3*r*out + out),
				0},
			{"FinishBackward", func() { l.dev.FinishBackward(g.Bias, dy, y, two.Epilogue) },
				4 * (3*r*out + out), 0},
			{"FinishBackward of a sum alone",
				func() { l.dev.FinishBackward(g.Bias, dy, y, compute.Epilogue{}) },
				4 * (r*out + out), 0},
		}
	},
}

// epilogues has epilogues of all kinds. The one that computes exponentials comes last.
var epilogues = []epilogueCase{
	{name: "nothing"},
	{name: "ReLU", add: true, activation: compute.ActivateReLU, p: 0.5},
	{name: "ELU", activation: compute.ActivateELU, p: 0.1},
}

// epilogueCase describes an epilogue. It does not have the rows that the epilogue adds, because
// their shape depends on the case.
type epilogueCase struct {
	name       string
	add        bool
	activation compute.Activation
	p          float32
}

// epilogue returns the epilogue for rows of the given shape.
func (f *epilogueCase) epilogue(b *bench, rows, cols int) compute.Epilogue {
	e := compute.Epilogue{Activation: f.activation, P: f.p,
		Key: compute.NewDropoutKey(7, 1, 2, 3, 1)}
	if f.add {
		e.Add = b.matrix(rows, cols, b.normal(rows*cols))
	}
	for i := range rows {
		e.Vertices = append(e.Vertices, int32(i*9973))
	}
	return e
}

// finishes checks that Finish and FinishBackward give the same bits as the single kernels that they
// replace.
func finishes(b *bench, rows, cols int, epilogues []epilogueCase) (all []result) {
	x, dy, bias := b.normal(rows*cols), b.normal(rows*cols), b.array(b.normal(cols))
	for _, f := range epilogues {
		epilogue := f.epilogue(b, rows, cols)
		y, parts := b.matrix(rows, cols, x), b.matrix(rows, cols, x)
		b.dev.Finish(y, y, bias, epilogue)
		compute.FinishInParts(b.dev, parts, b.matrix(rows, cols, x), bias, epilogue)
		mdy, dyParts, db, dbParts := b.matrix(rows, cols, dy), b.matrix(rows, cols, dy),
			b.dirty(cols), b.dirty(cols)
		b.dev.FinishBackward(db, mdy, y, epilogue)
		compute.FinishBackwardInParts(b.dev, dbParts, dyParts, y, epilogue)
		all = append(all,
			same(f.name+": Finish and its parts", b.get(y.Data), b.get(parts.Data)),
			same(f.name+": the gradient and that of its parts", b.get(mdy.Data),
				b.get(dyParts.Data)),
			same(f.name+": the bias's gradient", b.get(db), b.get(dbParts)))
	}
	return all
}

// leftSums leaves gradients of different shapes to Settle, more than a device can compute in one
// launch. It compares them with gradients that are computed one by one.
func leftSums(b *bench) (all []result) {
	shapes := []struct{ r, f, o int }{
		{600, 5, 7}, {512, 3, 4}, {17, 2, 9}, {1300, 4, 3}, {1025, 1, 1}, {514, 6, 2},
	}
	maps, dys := make([]compute.Dense, len(shapes)), make([]compute.Matrix, len(shapes))
	for i, s := range shapes {
		maps[i] = compute.Dense{X: b.matrix(s.r, s.f, b.normal(s.r*s.f)),
			W: b.matrix(s.o, s.f, b.normal(s.o*s.f))}
		if i%2 == 0 {
			maps[i].Bias = b.array(b.normal(s.o))
		}
		dys[i] = b.matrix(s.r, s.o, b.normal(s.r*s.o))
	}
	sums := func(settle bool) (sums [][]float32) {
		for i, s := range shapes {
			g := compute.DenseGradients{Bias: b.dirty(len(maps[i].Bias)),
				W: compute.Matrix{Rows: s.o, Cols: s.f, Data: b.dirty(s.o * s.f)}}
			total := b.dirty(1)
			b.dev.DenseBackward(g, dys[i], compute.Matrix{}, maps[i])
			b.dev.Dot(total, dys[i], dys[i])
			if settle {
				b.dev.Settle()
			}
			sums = append(sums, g.W.Data, g.Bias, total)
		}
		return sums
	}
	left, apart := sums(false), sums(true)
	for i := range left {
		all = append(all, same(fmt.Sprintf("sum %d", i), b.get(left[i]), b.get(apart[i])))
	}
	return all
}

// denseVariant says what a dense map has beside its first product.
type denseVariant struct {
	name              string
	bias, second, add bool
	activation        compute.Activation
	p                 float32
}

var denseVariants = []denseVariant{
	{name: "a product"},
	{name: "all and ReLU", bias: true, second: true, add: true, activation: compute.ActivateReLU},
	{name: "two, bias, ReLU, dropout", bias: true, second: true, activation: compute.ActivateReLU,
		p: 0.5},
	{name: "one, add, ELU, dropout", add: true, activation: compute.ActivateELU, p: 0.1},
	{name: "one, bias, ELU", bias: true, activation: compute.ActivateELU},
}

// run compares a dense map with float64. It also compares the bits of the map and of its gradients
// with those of the kernels that it replaces.
func (v *denseVariant) run(b *bench, r, f, g, o int) []result {
	x, w, bias := b.factor(r*f), b.factor(o*f), b.normal(o)
	x2, w2, add, dy := b.factor(r*g), b.factor(o*g), b.normal(r*o), b.normal(r*o)
	d := compute.Dense{X: b.matrix(r, f, x), W: b.matrix(o, f, w)}
	terms := f
	if v.bias {
		d.Bias = b.array(bias)
		terms++
	}
	if v.second {
		d.X2, d.W2 = b.matrix(r, g, x2), b.matrix(o, g, w2)
		terms += g
	}
	if v.add {
		d.Epilogue.Add = b.matrix(r, o, add)
		terms++
	}
	d.Epilogue.Activation, d.Epilogue.P = v.activation, v.p
	d.Epilogue.Key = compute.NewDropoutKey(7, 1, 2, 3, 1)
	for i := range r {
		d.Epilogue.Vertices = append(d.Epilogue.Vertices, int32(i*9973))
	}
	y, parts := b.matrix(r, o, nans(r*o)), b.matrix(r, o, nans(r*o))
	b.dev.Dense(y, d)
	compute.DenseInParts(b.dev, parts, d)

	grads := func() compute.DenseGradients {
		return compute.DenseGradients{W: b.matrix(o, f, nans(o*f)), Bias: b.dirty(o),
			W2: b.matrix(o, g, nans(o*g))}
	}
	got, want := grads(), grads()
	mdy, dyParts := b.matrix(r, o, dy), b.matrix(r, o, dy)
	b.dev.DenseBackward(got, mdy, y, d)
	compute.DenseBackwardInParts(b.dev, want, dyParts, y, d)

	// The gradients of weights are also compared with float64 arithmetic on the backpropagated dy,
	// which is the same for the map and for single kernels.
	back := b.get(dyParts.Data)
	gradient := func(name string, got compute.Matrix, x []float32, cols int) result {
		return grid(name, b.get(got.Data), o, cols, r, func(i, j int) (s sum) {
			for k := range r {
				s.add(float64(back[k*o+i]) * float64(x[k*cols+j]))
			}
			// The device may cut low bits off dy, which changes dy by up to 2^-10 of its size. The
			// relative error of a sum is then as large, for any number of terms.
			if b.cuts() {
				s.size *= 1 + 0x1p-10/rounding(r)
			}
			return s
		})
	}
	b.round(x, w, x2, w2, back)
	scale := float64(compute.DropoutScale(v.p))
	results := []result{
		grid("Dense", b.get(y.Data), r, o, terms+4, func(i, j int) (s sum) {
			for k := range f {
				s.add(float64(x[i*f+k]) * float64(w[j*f+k]))
			}
			if v.bias {
				s.add(float64(bias[j]))
			}
			for k := 0; v.second && k < g; k++ {
				s.add(float64(x2[i*g+k]) * float64(w2[j*g+k]))
			}
			if v.add {
				s.add(float64(add[i*o+j]))
			}
			key := d.Epilogue.Key.Row(d.Epilogue.Vertices[i])
			if v.p > 0 && key.Bits(j) < compute.DropoutThreshold(v.p) {
				return sum{}
			}
			switch {
			case v.activation == compute.ActivateELU && s.value < 0:
				s = sum{math.Expm1(s.value), s.size + 1}
			case v.activation == compute.ActivateReLU:
				s.value = max(s.value, 0)
			}
			return sum{s.value * scale, s.size * scale}
		}),
		same("the gradient and that of its parts", b.get(mdy.Data), b.get(dyParts.Data)),
		same("the bias's gradient", b.get(got.Bias), b.get(want.Bias)),
		gradient("the weights' gradient beside float64", got.W, x, f),
	}
	if v.second {
		results = append(results,
			gradient("the second weights' gradient beside float64", got.W2, x2, g))
	}
	name := b.dev.Name()
	if strings.HasPrefix(name, "cuda") && !strings.Contains(name, "emulated") {
		return results // cuBLAS may choose another kernel for two products in one call
	}
	return append(results,
		same("Dense and its parts", b.get(y.Data), b.get(parts.Data)),
		same("the weights' gradient", b.get(got.W.Data), b.get(want.W.Data)),
		same("the second weights' gradient", b.get(got.W2.Data), b.get(want.W2.Data)))
}

// same returns a result whose numbers, unless they are NaN, must be exactly those of want.
func same(name string, got, want []float32) result {
	return exact(name, got, widened(want))
}

func widened(x []float32) []float64 {
	wide := make([]float64, len(x))
	for i, v := range x {
		wide[i] = float64(v)
	}
	return wide
}
