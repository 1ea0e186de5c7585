package computetest

import (
	"fmt"
	"math"

	"halognn/src/devices/compute"
)

var activationTests = family{
	cases: func() (all []testCase) {
		for _, s := range rowShapes {
			for _, p := range []float32{0, 0.1, 0.5} {
				all = append(all, testCase{fmt.Sprintf("relu/%s/p=%v", s.name, p),
					func(b *bench) []result { return relus(b, s.rows, s.cols, p) }})
				all = append(all, testCase{fmt.Sprintf("elu/%s/p=%v", s.name, p),
					func(b *bench) []result { return elus(b, s.rows, s.cols, p) }})
			}
		}
		return all
	},
	misuse: func(b *bench) []wrong {
		return []wrong{
			{"dropout of everything", func() {
				b.dev.ReLU(b.zeros(1, 4), 1, compute.DropoutKey{}, []int32{1})
			}},
			{"a vertex too few", func() {
				b.dev.ReLU(b.zeros(2, 4), 0.5, compute.DropoutKey{}, []int32{1})
			}},
			{"a vertex too few for ELU", func() {
				b.dev.ELU(b.zeros(2, 4), 0.5, compute.DropoutKey{}, []int32{1})
			}},
			{"a vertex too few for its gradient", func() {
				b.dev.ELUBackward(b.zeros(2, 4), b.zeros(2, 4), 0.5, compute.DropoutKey{},
					[]int32{1})
			}},
		}
	},
	calls: func(l *Layer) []Call {
		key := compute.NewDropoutKey(1, 2, 3, 4, 5)
		y, dy := l.matrix(l.Destinations, l.Out), l.matrix(l.Destinations, l.Out)
		return []Call{
			{"ReLU", func() { l.dev.ReLU(y, 0, key, nil) }, 8 * l.Destinations * l.Out, 0},
			{"ReLU with dropout", func() { l.dev.ReLU(y, 0.5, key, l.Vertices) },
				8 * l.Destinations * l.Out, 0},
			{"ReLUBackward", func() { l.dev.ReLUBackward(dy, y, 0.5) }, 12 * l.Destinations * l.Out,
				0},
			{"ELU", func() { l.dev.ELU(y, 0, key, nil) }, 8 * l.Destinations * l.Out, 0},
			{"ELU with dropout", func() { l.dev.ELU(y, 0.5, key, l.Vertices) },
				8 * l.Destinations * l.Out, 0},
			{"ELUBackward", func() { l.dev.ELUBackward(dy, y, 0.5, key, l.Vertices) },
				12 * l.Destinations * l.Out, 0},
		}
	},
}

func relus(b *bench, rows, cols int, p float32) []result {
	y, dy := b.normal(rows*cols), b.normal(rows*cols)
	if len(y) > 2 {
		y[0], y[len(y)-1] = 0, float32(math.NaN()) // the NaN must propagate, unless it is dropped
	}
	vertices := make([]int32, rows)
	for i := range vertices {
		vertices[i] = int32(i * 9973)
	}
	key := compute.NewDropoutKey(7, 1, 2, 3, 1)
	my, mdy := b.matrix(rows, cols, y), b.matrix(rows, cols, dy)
	b.dev.ReLU(my, p, key, vertices)
	out := b.get(my.Data)
	b.dev.ReLUBackward(mdy, my, p)

	scale := float64(1)
	if p > 0 {
		scale = float64(compute.DropoutScale(p))
	}
	kept := func(i, j int) bool {
		return p == 0 || key.Row(vertices[i]).Bits(j) >= compute.DropoutThreshold(p)
	}
	return []result{
		grid("ReLU", out, rows, cols, 1, func(i, j int) (s sum) {
			if kept(i, j) {
				s.add(math.Max(float64(y[i*cols+j]), 0) * scale)
			}
			return s
		}),
		grid("ReLUBackward", b.get(mdy.Data), rows, cols, 1, func(i, j int) (s sum) {
			if kept(i, j) && y[i*cols+j] > 0 {
				s.add(float64(dy[i*cols+j]) * scale)
			}
			return s
		}),
	}
}

func elus(b *bench, rows, cols int, p float32) []result {
	y, dy := b.normal(rows*cols), b.normal(rows*cols)
	for i := range y {
		y[i] *= 8 // some become so large that exp(y) is negligible beside 1
	}
	if len(y) > 3 { // the last number becomes a NaN as a GPU's arithmetic makes it
		y[0], y[1], y[2] = 0, -200, float32(math.NaN())
		y[len(y)-1] = math.Float32frombits(0x7fffffff)
	}
	vertices := make([]int32, rows)
	for i := range vertices {
		vertices[i] = int32(i * 9973)
	}
	key := compute.NewDropoutKey(7, 1, 2, 3, 1)
	my, mdy := b.matrix(rows, cols, y), b.matrix(rows, cols, dy)
	b.dev.ELU(my, p, key, vertices)
	out := b.get(my.Data)
	b.dev.ELUBackward(mdy, my, p, key, vertices)

	scale := float64(compute.DropoutScale(p))
	kept := func(i, j int) bool {
		return p == 0 || key.Row(vertices[i]).Bits(j) >= compute.DropoutThreshold(p)
	}
	return []result{
		grid("ELU", out, rows, cols, 4, func(i, j int) (s sum) {
			v := float64(y[i*cols+j])
			switch {
			case !kept(i, j):
			case v > 0:
				s.add(v * scale)
			default:
				s.add(math.Exp(v) * scale)
				s.add(-scale)
			}
			return s
		}),
		grid("ELUBackward", b.get(mdy.Data), rows, cols, 8, func(i, j int) (s sum) {
			g, v := float64(dy[i*cols+j])*scale, float64(y[i*cols+j])
			switch {
			case !kept(i, j):
			case v > 0:
				s.add(g)
			default: // the error is relative to the output, which may be close to -scale
				s.add(g * math.Exp(v))
				s.size += math.Abs(g)
			}
			return s
		}),
	}
}
