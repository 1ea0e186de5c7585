package computetest

import (
	"math"

	"halognn/src/compute"
)

var normTests = family{
	cases: func() (all []testCase) {
		for _, s := range rowShapes {
			all = append(all, testCase{"layernorm/" + s.name,
				func(b *bench) []result { return layerNorms(b, s.rows, s.cols) }})
		}
		return all
	},
	misuse: func(b *bench) []wrong {
		m, v := b.zeros(2, 4), make([]float32, 4)
		return []wrong{{"gains of another width", func() {
			b.dev.LayerNorm(b.zeros(2, 4), m, v[:3], v, v[:2], v[:2], 1)
		}}}
	},
	calls: func(l *Layer) []Call {
		rows, elements := l.Destinations, l.Destinations*l.Out
		x, y, dy := l.matrix(rows, l.Out), l.matrix(rows, l.Out), l.matrix(rows, l.Out)
		gamma, beta, dgamma, dbeta := l.array(l.Out), l.array(l.Out), l.array(l.Out), l.array(l.Out)
		mean, rstd := l.array(rows), l.array(rows)
		return []Call{
			{"LayerNorm", func() { l.dev.LayerNorm(y, x, gamma, beta, mean, rstd, 1e-5) },
				4 * (2*elements + 2*rows), 0},
			{"LayerNormBackward", func() {
				l.dev.LayerNormBackward(dy, dgamma, dbeta, dy, x, gamma, mean, rstd)
			}, 4 * (3*elements + 2*rows), 0},
		}
	},
}

// layerNorms runs LayerNorm and its backward, each into another matrix and in place.
func layerNorms(b *bench, rows, cols int) []result {
	const eps = 1e-2
	x, dy, gamma, beta := b.normal(rows*cols), b.normal(rows*cols), b.normal(cols), b.normal(cols)
	if rows > 1 {
		for j := range cols {
			x[j] = 3 // a constant row: variance 0
		}
	}
	mx, mdy, g := b.matrix(rows, cols, x), b.matrix(rows, cols, dy), b.array(gamma)
	y, dx := compute.Matrix{Rows: rows, Cols: cols, Data: b.dirty(rows * cols)}, compute.Matrix{Rows: rows, Cols: cols, Data: b.dirty(rows * cols)}
	mean, rstd, dgamma, dbeta := b.dirty(rows), b.dirty(rows), b.dirty(cols), b.dirty(cols)
	b.dev.LayerNorm(y, mx, g, b.array(beta), mean, rstd, eps)
	b.dev.LayerNormBackward(dx, dgamma, dbeta, mdy, mx, g, mean, rstd)
	separate := b.get(dx.Data)
	b.dev.LayerNormBackward(mdy, dgamma, dbeta, mdy, mx, g, mean, rstd)
	inPlace := b.get(mdy.Data)
	b.dev.LayerNorm(mx, mx, g, b.array(beta), mean, rstd, eps)

	want := layerNorm64(x, dy, gamma, beta, rows, cols, eps)
	want.y.got, want.dx.got, want.dgamma.got, want.dbeta.got = b.get(y.Data), separate, b.get(dgamma), b.get(dbeta)
	again, back := want.y, want.dx
	again.name, again.got = "LayerNorm in place", b.get(mx.Data)
	back.name, back.got = "LayerNormBackward in place", inPlace
	return []result{want.y, want.dx, want.dgamma, want.dbeta, again, back}
}

type layerNormResults struct{ y, dx, dgamma, dbeta result }

// layerNorm64 is the definition: y = (x-mean)/sqrt(var+eps)*gamma+beta and its derivatives.
func layerNorm64(x, dy, gamma, beta []float32, rows, cols int, eps float64) layerNormResults {
	n, c := rows*cols, float64(cols)
	newResult := func(name string, n, terms int) result {
		return result{name: name, want: make([]float64, n), size: make([]float64, n), terms: terms}
	}
	w := layerNormResults{newResult("LayerNorm", n, cols), newResult("LayerNormBackward: dx", n, cols),
		newResult("LayerNormBackward: dgamma", cols, rows+cols), newResult("LayerNormBackward: dbeta", cols, rows)}
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
			g, d, nrm := float64(grad[j])*float64(gamma[j]), float64(grad[j]), (float64(v)-mean)*rstd
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
