package computetest

import (
	"math"

	"halognn/src/devices/compute"
)

var normTests = family{
	cases: func() (all []testCase) {
		for _, s := range rowShapes {
			all = append(all, testCase{"layernorm/" + s.name,
				func(b *bench) []result { return layerNorms(b, s.rows, s.cols) }},
				testCase{"batchnorm/" + s.name,
					func(b *bench) []result { return batchNorms(b, s.rows, s.cols) }})
			with := func(name string, of makeNorm, epilogues []epilogueCase) {
				all = append(all, testCase{name + "/" + s.name,
					func(b *bench) []result { return followed(b, s.rows, s.cols, of, epilogues) }})
			}
			with("layernorm with epilogue", layerNorm, epilogues)
			with("batchnorm with epilogue", batchNorm, epilogues[:2])
			with("elu behind batchnorm", batchNorm, epilogues[2:])
		}
		return all
	},
	misuse: func(b *bench) []wrong {
		m, v := b.zeros(2, 4), make([]float32, 4)
		return []wrong{{"gains of another width", func() {
			b.dev.LayerNorm(b.zeros(2, 4), m, v[:3], v, v[:2], v[:2], 1, compute.Epilogue{})
		}}, {"moments of another width", func() { b.dev.ColumnMoments(v, v[:3], m) }},
			{"gains of another batch", func() {
				b.dev.BatchNorm(m, m, v[:3], v, v, v, 1, compute.Epilogue{})
			}},
			{"a gradient of another width", func() {
				b.dev.BatchNormBackward(m, v, v[:3], m, m, v, v, v, 1, m, compute.Epilogue{})
			}},
			{"an activation of another width", func() {
				b.dev.BatchNormBackward(m, v, v, m, m, v, v, v, 1, b.zeros(2, 3),
					compute.Epilogue{Activation: compute.ActivateReLU})
			}},
			{"what is added of another width", func() {
				b.dev.LayerNorm(b.zeros(2, 4), m, v, v, v[:2], v[:2], 1,
					compute.Epilogue{Add: b.zeros(2, 3)})
			}}}
	},
	calls: func(l *Layer) []Call {
		rows, elements := l.Destinations, l.Destinations*l.Out
		x, y, dy := l.matrix(rows, l.Out), l.matrix(rows, l.Out), l.matrix(rows, l.Out)
		gamma, beta, dgamma, dbeta := l.array(l.Out), l.array(l.Out), l.array(l.Out), l.array(l.Out)
		mean, rstd := l.array(rows), l.array(rows)
		none := compute.Epilogue{}
		epilogue := compute.Epilogue{Add: l.matrix(rows, l.Out), Activation: compute.ActivateReLU}
		return []Call{
			{"LayerNorm", func() { l.dev.LayerNorm(y, x, gamma, beta, mean, rstd, 1e-5, none) },
				4 * (2*elements + 2*rows), 0},
			{"LayerNorm with epilogue",
				func() { l.dev.LayerNorm(y, x, gamma, beta, mean, rstd, 1e-5, epilogue) },
				4 * (3*elements + 2*rows), 0},
			{"ColumnMoments", func() { l.dev.ColumnMoments(dgamma, dbeta, x) },
				4 * (2*elements + 2*l.Out), 0},
			{"BatchNorm", func() { l.dev.BatchNorm(y, x, gamma, beta, dgamma, dbeta, 1e-5, none) },
				4 * (2*elements + 4*l.Out), 0},
			{"BatchNormBackward", func() {
				l.dev.BatchNormBackward(dy, dgamma, dbeta, dy, x, gamma, beta, beta, 1, y, none)
			}, 4 * (5*elements + 5*l.Out), 0},
			{"BatchNormBackward behind an activation", func() {
				l.dev.BatchNormBackward(dy, dgamma, dbeta, dy, x, gamma, beta, beta, 1, y, epilogue)
			}, 4 * (7*elements + 5*l.Out), 0},
			{"LayerNormBackward", func() {
				l.dev.LayerNormBackward(dy, dgamma, dbeta, dy, x, gamma, mean, rstd, y, none)
			}, 4 * (3*elements + 2*rows), 0},
		}
	},
}

// norm calls LayerNorm or BatchNorm on some rows, and its gradient.
type norm struct {
	name     string
	forward  func(y compute.Matrix, epilogue compute.Epilogue)
	backward func(dx, dy compute.Matrix, dgamma, dbeta []float32, y compute.Matrix,
		epilogue compute.Epilogue)
}

type makeNorm func(b *bench, x compute.Matrix, gamma, beta []float32) norm

const normEps = 1e-2

func layerNorm(b *bench, x compute.Matrix, gamma, beta []float32) norm {
	mean, rstd := b.dirty(x.Rows), b.dirty(x.Rows)
	return norm{"LayerNorm", func(y compute.Matrix, epilogue compute.Epilogue) {
		b.dev.LayerNorm(y, x, gamma, beta, mean, rstd, normEps, epilogue)
	}, func(dx, dy compute.Matrix, dgamma, dbeta []float32, y compute.Matrix,
		epilogue compute.Epilogue) {
		b.dev.LayerNormBackward(dx, dgamma, dbeta, dy, x, gamma, mean, rstd, y, epilogue)
	}}
}

func batchNorm(b *bench, x compute.Matrix, gamma, beta []float32) norm {
	mean, variance := b.dirty(x.Cols), b.dirty(x.Cols)
	b.dev.ColumnMoments(mean, variance, x)
	return norm{"BatchNorm", func(y compute.Matrix, epilogue compute.Epilogue) {
		b.dev.BatchNorm(y, x, gamma, beta, mean, variance, normEps, epilogue)
	}, func(dx, dy compute.Matrix, dgamma, dbeta []float32, y compute.Matrix,
		epilogue compute.Epilogue) {
		b.dev.BatchNormBackward(dx, dgamma, dbeta, dy, x, gamma, mean, variance, normEps, y,
			epilogue)
	}}
}

// followed checks that a norm with an epilogue gives the same bits as the separate kernels, called
// one after the other.
func followed(b *bench, rows, cols int, of makeNorm, epilogues []epilogueCase) (all []result) {
	x, dy := b.matrix(rows, cols, b.normal(rows*cols)), b.normal(rows*cols)
	n := of(b, x, b.array(b.normal(cols)), b.array(b.normal(cols)))
	matrix := func() compute.Matrix { return b.matrix(rows, cols, nans(rows*cols)) }
	for _, f := range epilogues {
		epilogue, none := f.epilogue(b, rows, cols), compute.Epilogue{}
		y, parts := matrix(), matrix()
		n.forward(y, epilogue)
		n.forward(parts, none)
		epilogue.Apply(b.dev, parts)
		dx, dxParts := matrix(), matrix()
		mdy, dyParts := b.matrix(rows, cols, dy), b.matrix(rows, cols, dy)
		dgamma, dgammaParts, dbeta, dbetaParts := b.dirty(cols), b.dirty(cols), b.dirty(cols),
			b.dirty(cols)
		n.backward(dx, mdy, dgamma, dbeta, y, epilogue)
		epilogue.Backward(b.dev, dyParts, y)
		n.backward(dxParts, dyParts, dgammaParts, dbetaParts, y, none)
		name := n.name + " and " + f.name
		all = append(all,
			same(name, b.get(y.Data), b.get(parts.Data)),
			same(name+", the gradient between", b.get(mdy.Data), b.get(dyParts.Data)),
			same(name+", dx", b.get(dx.Data), b.get(dxParts.Data)),
			same(name+", dgamma", b.get(dgamma), b.get(dgammaParts)),
			same(name+", dbeta", b.get(dbeta), b.get(dbetaParts)))
	}
	return all
}

// layerNorms runs LayerNorm and its backward. Each runs twice: into another matrix, and in place.
func layerNorms(b *bench, rows, cols int) []result {
	const eps = 1e-2
	x, dy, gamma, beta := b.normal(rows*cols), b.normal(rows*cols), b.normal(cols), b.normal(cols)
	if rows > 1 {
		for j := range cols {
			x[j] = 3 // a row of equal numbers, whose variance is 0
		}
	}
	mx, mdy, g := b.matrix(rows, cols, x), b.matrix(rows, cols, dy), b.array(gamma)
	y, dx := compute.Matrix{Rows: rows, Cols: cols, Data: b.dirty(rows * cols)},
		compute.Matrix{Rows: rows, Cols: cols, Data: b.dirty(rows * cols)}
	mean, rstd, dgamma, dbeta := b.dirty(rows), b.dirty(rows), b.dirty(cols), b.dirty(cols)
	b.dev.LayerNorm(y, mx, g, b.array(beta), mean, rstd, eps, compute.Epilogue{})
	b.dev.LayerNormBackward(dx, dgamma, dbeta, mdy, mx, g, mean, rstd, y, compute.Epilogue{})
	separate := b.get(dx.Data)
	b.dev.LayerNormBackward(mdy, dgamma, dbeta, mdy, mx, g, mean, rstd, y, compute.Epilogue{})
	inPlace := b.get(mdy.Data)
	b.dev.LayerNorm(mx, mx, g, b.array(beta), mean, rstd, eps, compute.Epilogue{})

	want := layerNorm64(x, dy, gamma, beta, rows, cols, eps)
	want.y.got, want.dx.got, want.dgamma.got, want.dbeta.got = b.get(y.Data), separate,
		b.get(dgamma), b.get(dbeta)
	again, back := want.y, want.dx
	again.name, again.got = "LayerNorm in place", b.get(mx.Data)
	back.name, back.got = "LayerNormBackward in place", inPlace
	return []result{want.y, want.dx, want.dgamma, want.dbeta, again, back}
}

type layerNormResults struct{ y, dx, dgamma, dbeta result }

// layerNorm64 computes in float64 y = (x-mean)/sqrt(variance+eps)*gamma+beta and its derivatives.
func layerNorm64(x, dy, gamma, beta []float32, rows, cols int, eps float64) layerNormResults {
	n, c := rows*cols, float64(cols)
	newResult := func(name string, n, terms int) result {
		return result{name: name, want: make([]float64, n), size: make([]float64, n), terms: terms}
	}
	w := layerNormResults{newResult("LayerNorm", n, cols),
		newResult("LayerNormBackward: dx", n, cols),
		newResult("LayerNormBackward: dgamma", cols, rows+cols),
		newResult("LayerNormBackward: dbeta", cols, rows)}
	for r := range rows {
		row, grad := x[r*cols:(r+1)*cols], dy[r*cols:(r+1)*cols]
		var mean, variance, meanG, meanGN, sizeG, sizeX float64
		for _, v := range row {
			mean += float64(v) / c
			sizeX += math.Abs(float64(v)) / c
		}
		for _, v := range row {
			variance += (float64(v) - mean) * (float64(v) - mean) / c
		}
		rstd := 1 / math.Sqrt(variance+eps)
		for j, v := range row {
			g, nrm := float64(grad[j])*float64(gamma[j]), (float64(v)-mean)*rstd
			meanG += g / c
			meanGN += g * nrm / c
			sizeG += math.Abs(g) / c
		}
		for j, v := range row {
			g, d, nrm := float64(grad[j])*float64(gamma[j]), float64(grad[j]),
				(float64(v)-mean)*rstd
			sizeN := (math.Abs(float64(v)) + sizeX) * rstd
			w.y.want[r*cols+j] = nrm*float64(gamma[j]) + float64(beta[j])
			w.y.size[r*cols+j] = sizeN*math.Abs(float64(gamma[j])) + math.Abs(float64(beta[j]))
			w.dx.want[r*cols+j] = rstd * (g - meanG - nrm*meanGN)
			w.dx.size[r*cols+j] = rstd * (math.Abs(g) + sizeG + sizeN*sizeN*sizeG)
			w.dgamma.want[j] += d * nrm
			w.dgamma.size[j] += math.Abs(d) * sizeN
			w.dbeta.want[j] += d
			w.dbeta.size[j] += math.Abs(d)
		}
	}
	return w
}

// batchNorms runs ColumnMoments, BatchNorm with other moments than these, and BatchNormBackward. It
// compares each result with float64 arithmetic on the same inputs. It also runs the last two in
// place.
func batchNorms(b *bench, rows, cols int) []result {
	const eps = 1e-2
	x, dy, gamma, beta := b.normal(rows*cols), b.normal(rows*cols), b.normal(cols), b.normal(cols)
	for r := range rows {
		x[r*cols] = 3 // a column of equal numbers, whose variance is 0
	}
	of := func() compute.Matrix {
		return compute.Matrix{Rows: rows, Cols: cols, Data: b.dirty(rows * cols)}
	}
	mx, mdy, g, y, dx := b.matrix(rows, cols, x), b.matrix(rows, cols, dy), b.array(gamma), of(),
		of()
	mean, variance, dgamma, dbeta := b.dirty(cols), b.dirty(cols), b.dirty(cols), b.dirty(cols)
	b.dev.ColumnMoments(mean, variance, mx)
	b.dev.BatchNorm(y, mx, g, b.array(beta), mean, variance, eps, compute.Epilogue{})
	b.dev.BatchNormBackward(dx, dgamma, dbeta, mdy, mx, g, mean, variance, eps, y,
		compute.Epilogue{})
	separate := b.get(dx.Data)
	b.dev.BatchNormBackward(mdy, dgamma, dbeta, mdy, mx, g, mean, variance, eps, y,
		compute.Epilogue{})
	inPlace := b.get(mdy.Data)
	b.dev.BatchNorm(mx, mx, g, b.array(beta), mean, variance, eps, compute.Epilogue{})
	m, v, dg, db := b.get(mean), b.get(variance), b.get(dgamma), b.get(dbeta)

	root := func(j int) float64 { return 1 / math.Sqrt(float64(v[j])+eps) }
	normal := func(i, j int) float64 { return (float64(x[i*cols+j]) - float64(m[j])) * root(j) }
	forward := func(i, j int) (s sum) {
		s.add(float64(x[i*cols+j]) * root(j) * float64(gamma[j]))
		s.add(-float64(m[j]) * root(j) * float64(gamma[j]))
		s.add(float64(beta[j]))
		return s
	}
	backward := func(i, j int) (s sum) {
		scale, n := float64(gamma[j])*root(j), float64(rows)
		s.add(scale * float64(dy[i*cols+j]))
		s.add(-scale * float64(db[j]) / n)
		s.add(-scale * normal(i, j) * float64(dg[j]) / n)
		return s
	}
	over := func(value func(i, j int) float64) func(_, j int) sum {
		return func(_, j int) (s sum) {
			for i := range rows {
				s.add(value(i, j))
			}
			return s
		}
	}
	n := float64(max(1, rows))
	return []result{
		grid("ColumnMoments: mean", m, 1, cols, rows+1,
			over(func(i, j int) float64 { return float64(x[i*cols+j]) / n })),
		grid("ColumnMoments: variance", v, 1, cols, rows+4, over(func(i, j int) float64 {
			d := float64(x[i*cols+j]) - float64(m[j])
			return d * d / n
		})),
		grid("BatchNorm", b.get(y.Data), rows, cols, 6, forward),
		grid("BatchNorm in place", b.get(mx.Data), rows, cols, 6, forward),
		grid("BatchNormBackward: dgamma", dg, 1, cols, rows+8, over(func(i, j int) float64 {
			return float64(dy[i*cols+j]) * normal(i, j)
		})),
		grid("BatchNormBackward: dbeta", db, 1, cols, rows,
			over(func(i, j int) float64 { return float64(dy[i*cols+j]) })),
		grid("BatchNormBackward: dx", separate, rows, cols, 12, backward),
		grid("BatchNormBackward in place", inPlace, rows, cols, 12, backward),
	}
}
