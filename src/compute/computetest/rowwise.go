package computetest

import (
	"fmt"
	"math"

	"halognn/src/compute"
)

var rowShapes = []struct {
	name       string
	rows, cols int
}{
	{"no rows", 0, 5}, {"one element", 1, 1}, {"one feature", 700, 1}, {"odd", 17, 37}, {"a chunk", 512, 16},
	{"a chunk and a row", 513, 9}, {"several tiles", 1300, 50}, {"wide", 3, 602},
}

func rowwiseCases() []testCase {
	var all []testCase
	for _, s := range rowShapes {
		all = append(all,
			testCase{"bias/" + s.name, func(b *bench) []result { return biases(b, s.rows, s.cols) }},
			testCase{"layernorm/" + s.name, func(b *bench) []result { return layerNorms(b, s.rows, s.cols) }},
		)
		for _, p := range []float32{0, 0.1, 0.5} {
			all = append(all, testCase{fmt.Sprintf("relu/%s/p=%v", s.name, p), func(b *bench) []result { return relus(b, s.rows, s.cols, p) }})
		}
	}
	return all
}

func biases(b *bench, rows, cols int) []result {
	y, bias := b.normal(rows*cols), b.normal(cols)
	my, db := b.matrix(rows, cols, y), b.dirty(cols)
	b.dev.ColumnSum(db, my)
	b.dev.AddBias(my, b.array(bias))
	return []result{
		grid("AddBias", b.get(my.Data), rows, cols, 1, func(i, j int) (s sum) {
			s.add(float64(y[i*cols+j]))
			s.add(float64(bias[j]))
			return s
		}),
		grid("ColumnSum", b.get(db), 1, cols, rows, func(_, j int) (s sum) {
			for i := range rows {
				s.add(float64(y[i*cols+j]))
			}
			return s
		}),
	}
}

func relus(b *bench, rows, cols int, p float32) []result {
	y, dy := b.normal(rows*cols), b.normal(rows*cols)
	if len(y) > 2 {
		y[0], y[len(y)-1] = 0, float32(math.NaN()) // the NaN must show, unless it is dropped
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

// layerNorms runs LayerNorm, its backward into a matrix of its own, and both in place.
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
