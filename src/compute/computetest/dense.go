package computetest

import (
	"fmt"
	"math"

	"halognn/src/compute"
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
		} {
			for _, v := range denseVariants {
				all = append(all, testCase{fmt.Sprintf("dense/%s/%s", s.name, v.name),
					func(b *bench) []result { return v.run(b, s.r, s.f, s.g, s.o) }})
			}
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
				with(func(d *compute.Dense) { d.Then.Add = b.zeros(2, 3) })},
			{"dropout without vertices", with(func(d *compute.Dense) {
				d.Then = compute.Epilogue{Activation: compute.ActivateReLU, P: 0.5}
			})},
			{"gradients of another shape", func() {
				b.dev.DenseBackward(compute.DenseGradients{W: b.zeros(4, 2)}, b.zeros(2, 4), b.zeros(2, 4), good)
			}},
		}
	},
	calls: func(l *Layer) []Call {
		r, in, out := l.Destinations, l.In, l.Out
		y, dy, x, w := l.matrix(r, out), l.matrix(r, out), l.matrix(r, in), l.matrix(out, in)
		one := compute.Dense{X: x, W: w, Bias: l.array(out)}
		two := one
		two.X2, two.W2 = l.matrix(r, in), l.matrix(out, in)
		two.Then = compute.Epilogue{Add: l.matrix(r, out), Activation: compute.ActivateReLU, P: 0.5,
			Key: compute.NewDropoutKey(1, 2, 3, 4, 5), Vertices: l.Vertices}
		g := compute.DenseGradients{W: l.matrix(out, in), Bias: l.array(out), W2: l.matrix(out, in)}
		return []Call{
			{"Dense", func() { l.dev.Dense(y, one) }, 4 * (r*in + out*in + out + r*out),
				2 * r * in * out},
			{"Dense of two, with all that may follow", func() { l.dev.Dense(y, two) },
				4 * (2*r*in + 2*out*in + out + 2*r*out), 4 * r * in * out},
			{"DenseBackward", func() { l.dev.DenseBackward(g, dy, y, one) },
				4 * (r*in + out*in + out + r*out), 2 * r * in * out},
			{"DenseBackward of two, behind an activation",
				func() { l.dev.DenseBackward(g, dy, y, two) },
				4 * (2*r*in + 2*out*in + out + 3*r*out), 4 * r * in * out},
		}
	},
}

// denseVariant is what a dense map has beside its first product.
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

// run compares a dense map with float64, and its bits and those of its gradients with the kernels
// that it stands for.
func (v *denseVariant) run(b *bench, r, f, g, o int) []result {
	x, w, bias := b.normal(r*f), b.normal(o*f), b.normal(o)
	x2, w2, add, dy := b.normal(r*g), b.normal(o*g), b.normal(r*o), b.normal(r*o)
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
		d.Then.Add = b.matrix(r, o, add)
		terms++
	}
	d.Then.Activation, d.Then.P, d.Then.Key = v.activation, v.p, compute.NewDropoutKey(7, 1, 2, 3, 1)
	for i := range r {
		d.Then.Vertices = append(d.Then.Vertices, int32(i*9973))
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

	b.round(x, w, x2, w2)
	scale := float64(compute.DropoutScale(v.p))
	return []result{
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
			if v.p > 0 && d.Then.Key.Row(d.Then.Vertices[i]).Bits(j) < compute.DropoutThreshold(v.p) {
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
		same("Dense and its parts", b.get(y.Data), b.get(parts.Data)),
		same("the gradient and that of its parts", b.get(mdy.Data), b.get(dyParts.Data)),
		same("the weights' gradient", b.get(got.W.Data), b.get(want.W.Data)),
		same("the bias's gradient", b.get(got.Bias), b.get(want.Bias)),
		same("the second weights' gradient", b.get(got.W2.Data), b.get(want.W2.Data)),
	}
}

// same is a result that must have the bits of another, where neither is NaN.
func same(name string, got, want []float32) result {
	wide := make([]float64, len(want))
	for i, v := range want {
		wide[i] = float64(v)
	}
	return exact(name, got, wide)
}
