package computetest

import (
	"fmt"
	"math"

	"halognn/src/devices/compute"
)

var optimizerTests = family{
	cases: func() (all []testCase) {
		for _, n := range []int{0, 1, 37, 33000} {
			for _, o := range []struct {
				name      string
				decay     float64
				decoupled bool
			}{{"adam", 0, false}, {"adam with decay", 1e-2, false}, {"adamw", 1e-2, true}} {
				all = append(all, testCase{fmt.Sprintf("%s/%d", o.name, n),
					func(b *bench) []result { return adam(b, n, o.decay, o.decoupled) }})
			}
			for _, momentum := range []float64{0, 0.9} {
				all = append(all, testCase{fmt.Sprintf("sgd/momentum=%v/%d", momentum, n),
					func(b *bench) []result { return sgd(b, n, momentum) }})
			}
		}
		for _, loss := range []float64{2.5, math.NaN(), math.Inf(1), math.Inf(-1)} {
			for _, kind := range []string{"adam", "sgd"} {
				all = append(all, testCase{fmt.Sprintf("%s/within a bound/%v", kind, loss),
					func(b *bench) []result { return bounded(b, kind == "sgd", float32(loss)) }})
			}
		}
		return all
	},
	misuse: func(b *bench) []wrong {
		x := b.zeros(1, 3).Data
		return []wrong{{"moments of another length", func() {
			b.dev.Adam(x, x, x[:2], x, compute.AdamOptions{Step: 1})
		}}}
	},
	calls: func(l *Layer) []Call {
		n := l.Destinations * l.Out / 4
		p, g, m, v := l.array(n), l.array(n), l.array(n), l.array(n)
		return []Call{
			{"Adam", func() {
				l.dev.Adam(p, g, m, v,
					compute.AdamOptions{LR: 1e-3, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, Step: 1})
			}, 4 * 7 * len(p), 0},
			{"SGD", func() {
				l.dev.SGD(p, g, m, compute.SGDOptions{LR: 1e-3, Momentum: 0.9, Step: 2})
			}, 4 * 5 * len(p), 0},
		}
	},
}

// steps is the number of updates in a test. The rounding errors of all of them add up.
const steps = 3

func adam(b *bench, n int, decay float64, decoupled bool) []result {
	p, m, v := b.normal(n), make([]float32, n), make([]float32, n)
	dp, dm, dv := b.array(p), b.array(m), b.array(v)
	p64, m64, v64 := widen(p), widen(m), widen(v)
	moved := make([]float64, n)
	o := compute.AdamOptions{LR: 1e-2, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: decay,
		Decoupled: decoupled}
	for o.Step = 1; o.Step <= steps; o.Step++ {
		g := b.normal(n)
		b.dev.Adam(dp, b.array(g), dm, dv, o)
		bias1, bias2 := 1-math.Pow(o.Beta1, float64(o.Step)), 1-math.Pow(o.Beta2, float64(o.Step))
		for i := range p64 {
			grad := float64(g[i])
			if decoupled {
				p64[i] *= 1 - o.LR*decay
			} else {
				grad += decay * p64[i]
			}
			m64[i] = o.Beta1*m64[i] + (1-o.Beta1)*grad
			v64[i] = o.Beta2*v64[i] + (1-o.Beta2)*grad*grad
			p64[i] -= o.LR * (m64[i] / bias1) / (math.Sqrt(v64[i]/bias2) + o.Eps)
			moved[i] = math.Abs(p64[i]) + 1
		}
	}
	return []result{
		{name: "Adam: parameters", got: b.get(dp), want: p64, size: moved, terms: steps},
		{name: "Adam: first moment", got: b.get(dm), want: m64, size: moved, terms: steps},
		{name: "Adam: second moment", got: b.get(dv), want: v64, size: moved, terms: steps},
	}
}

func sgd(b *bench, n int, momentum float64) []result {
	p := b.normal(n)
	dp, dbuf := b.array(p), b.dirty(n) // the first step must not read the buffer
	p64, buf64 := widen(p), make([]float64, n)
	size := make([]float64, n)
	o := compute.SGDOptions{LR: 0.05, Momentum: momentum, WeightDecay: 1e-2}
	for o.Step = 1; o.Step <= steps; o.Step++ {
		g := b.normal(n)
		b.dev.SGD(dp, b.array(g), dbuf, o)
		for i := range p64 {
			grad := float64(g[i]) + o.WeightDecay*p64[i]
			buf64[i] = momentum*buf64[i] + grad
			p64[i] -= o.LR * buf64[i]
			size[i] = math.Abs(p64[i]) + math.Abs(buf64[i]) + 1
		}
	}
	return []result{
		{name: "SGD: parameters", got: b.get(dp), want: p64, size: size, terms: steps},
		{name: "SGD: momentum", got: b.get(dbuf), want: buf64, size: size, terms: steps},
	}
}

// bounded makes four updates with the same gradient: two with a loss within the bound, one with a
// loss beyond it, and one with a loss within it. The device must skip the third update, and
// therefore also the fourth.
func bounded(b *bench, isSGD bool, loss float32) []result {
	const n, limit = 300, 2
	start, g, skipped := b.normal(n), b.array(b.normal(n)), b.array([]float32{0})
	updated := func(losses ...float32) [3][]float32 {
		p, m, v := b.array(start), b.array(make([]float32, n)), b.array(make([]float32, n))
		for i, l := range losses {
			var within compute.Bound
			if len(losses) > 2 {
				within = compute.Bound{Loss: b.array([]float32{l}), Skipped: skipped, Limit: limit}
			}
			if isSGD {
				b.dev.SGD(p, g, m, compute.SGDOptions{LR: 0.1, Momentum: 0.9, Step: 1 + i,
					Within: within})
			} else {
				b.dev.Adam(p, g, m, v, compute.AdamOptions{LR: 0.1, Beta1: 0.9, Beta2: 0.999,
					Eps: 1e-8, Step: 1 + i, Within: within})
			}
		}
		return [3][]float32{b.get(p), b.get(m), b.get(v)}
	}
	want, got := updated(1, 1), updated(limit, -1, loss, 1)
	var all []result
	for i, name := range []string{"parameters", "first state", "second state"} {
		exact := make([]float64, n)
		all = append(all, result{name: "bound: " + name, got: got[i], want: widen(want[i]),
			size: exact})
	}
	return all
}

func widen(x []float32) []float64 {
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = float64(v)
	}
	return y
}
