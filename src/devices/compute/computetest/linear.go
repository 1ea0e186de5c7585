package computetest

import (
	"encoding/binary"
	"fmt"
	"math"

	"halognn/src/devices/compute"
)

// sum adds up terms in float64, and their absolute values.
type sum struct{ value, size float64 }

func (s *sum) add(v float64) {
	s.value += v
	s.size += math.Abs(v)
}

func (s *sum) addTimes(x sum, v float32) {
	s.value += x.value * float64(v)
	s.size += x.size * math.Abs(float64(v))
}

var linearTests = family{
	cases: func() (all []testCase) {
		for _, s := range []struct {
			name    string
			r, f, o int
		}{
			{"no rows", 0, 5, 3}, {"one of everything", 1, 1, 1}, {"one feature", 16, 1, 7},
			{"one output", 33, 20, 1}, {"odd", 17, 37, 19}, {"a chunk", 512, 16, 8},
			{"a chunk and a row", 513, 33, 47}, {"several tiles of rows", 1030, 20, 9},
			{"several tiles of weights", 40, 130, 140},
			{"gradient transposed", 600, 37, 32}, {"weights transposed", 4100, 33, 18},
			{"narrow and wide", 300, 100, 47}, {"both, and waves of chunks", 9000, 5, 16},
		} {
			for _, add := range []bool{false, true} {
				all = append(all, testCase{fmt.Sprintf("product/%s/add=%t", s.name, add),
					func(b *bench) []result { return products(b, s.r, s.f, s.o, add) }})
			}
		}
		for _, s := range rowShapes {
			all = append(all, testCase{"bias/" + s.name,
				func(b *bench) []result { return biases(b, s.rows, s.cols) }})
			all = append(all, testCase{"dot/" + s.name,
				func(b *bench) []result { return dots(b, s.rows, s.cols) }})
			all = append(all, testCase{"transpose/" + s.name,
				func(b *bench) []result { return transposes(b, s.rows, s.cols) }})
		}
		for _, s := range []struct {
			name                    string
			rows, cols, out, degree int
		}{
			{"no rows", 0, 5, 3, 2}, {"no entries", 4, 9, 8, 0}, {"one of everything", 1, 1, 1, 1},
			{"odd", 17, 37, 19, 4}, {"few entries in many columns", 40, 1003, 16, 5},
			{"one row has all", 7, 300, 33, -1}, {"a chunk and a row", 513, 20, 9, 3},
		} {
			all = append(all, testCase{"sparse/" + s.name, func(b *bench) []result {
				return sparseProducts(b, s.rows, s.cols, s.out, s.degree)
			}})
		}
		return all
	},
	misuse: func(b *bench) []wrong {
		return []wrong{
			{"product of unequal depth", func() {
				b.dev.MatMul(b.zeros(2, 3), b.zeros(2, 4), b.zeros(3, 5), false)
			}},
			{"gradient of unequal rows", func() {
				b.dev.MatMulWeights(b.zeros(3, 4), b.zeros(2, 3), b.zeros(1, 4))
			}},
			{"data too short", func() {
				b.dev.MatMulInput(compute.Matrix{Rows: 2, Cols: 4, Data: b.zeros(1, 7).Data},
					b.zeros(2, 3), b.zeros(3, 4), false)
			}},
			{"bias too short", func() { b.dev.AddBias(b.zeros(2, 3), b.zeros(1, 2).Data) }},
			{"two scales", func() {
				b.dev.AddScaled(b.zeros(2, 3), b.zeros(2, 3), b.zeros(2, 3),
					b.zeros(1, 2).Data)
			}},
			{"columns beyond the last",
				func() { b.dev.CopyColumns(b.zeros(2, 3), 2, b.zeros(2, 4), 0, 2, false) }},
			{"columns from beyond the last", func() {
				b.dev.CopyColumns(b.zeros(2, 3), 0, b.zeros(2, 4), 3, 2, false)
			}},
			{"columns of other rows",
				func() { b.dev.CopyColumns(b.zeros(2, 3), 0, b.zeros(3, 3), 0, 1, false) }},
			{"columns that are no rows", func() { b.dev.Transpose(b.zeros(2, 3), b.zeros(2, 3)) }},
			{"a product of unequal shapes", func() {
				b.dev.Dot(b.zeros(1, 1).Data, b.zeros(2, 3), b.zeros(3, 2))
			}},
		}
	},
	calls: func(l *Layer) []Call {
		in, out, w := l.Destinations*l.In, l.Destinations*l.Out, l.In*l.Out
		mx, my, mw := l.matrix(l.Destinations, l.In), l.matrix(l.Destinations, l.Out),
			l.matrix(l.Out, l.In)
		bias, other, turned := l.array(l.Out), l.matrix(l.Destinations, l.Out),
			l.matrix(l.In, l.Out)
		return []Call{
			{"MatMul", func() { l.dev.MatMul(my, mx, mw, false) }, 4 * (in + w + out),
				2 * in * l.Out},
			{"MatMul added", func() { l.dev.MatMul(my, mx, mw, true) }, 4 * (in + w + 2*out),
				2 * in * l.Out},
			{"MatMulInput", func() { l.dev.MatMulInput(mx, my, mw, false) }, 4 * (in + w + out),
				2 * in * l.Out},
			{"MatMulWeights", func() { l.dev.MatMulWeights(mw, my, mx) }, 4 * (in + w + out),
				2 * in * l.Out},
			{"AddBias", func() { l.dev.AddBias(my, bias) }, 4 * (2*out + l.Out), 0},
			{"ColumnSum", func() { l.dev.ColumnSum(bias, my) }, 4 * (out + l.Out), 0},
			{"AddScaled", func() { l.dev.AddScaled(my, my, other, bias[:1]) }, 12 * out, 0},
			{"CopyColumns", func() { l.dev.CopyColumns(my, 1, other, 0, l.Out-1, false) },
				8 * (out - l.Destinations), 0},
			{"CopyColumns added", func() { l.dev.CopyColumns(my, 1, other, 0, l.Out-1, true) },
				12 * (out - l.Destinations), 0},
			{"Transpose", func() { l.dev.Transpose(turned, mw) }, 8 * w, 0},
			{"Dot", func() { l.dev.Dot(bias[:1], my, other) }, 8 * out, 0},
		}
	},
}

// products runs MatMul and its two gradients. The float64 reference multiplies factors that are
// rounded as on the device. A product of two rounded factors is exact in float32. So the allowed
// error is that of float32 sums, and not the much larger error of rounding factors.
func products(b *bench, r, f, o int, add bool) []result {
	x, w, dy, y0, dx0 := b.factor(r*f), b.factor(o*f), b.factor(r*o), b.normal(r*o), b.normal(r*f)
	if !add { // the old content must not matter
		for i := range y0 {
			y0[i] = float32(math.NaN())
		}
		for i := range dx0 {
			dx0[i] = float32(math.NaN())
		}
	}
	y, dx := b.matrix(r, o, y0), b.matrix(r, f, dx0)
	dw := compute.Matrix{Rows: o, Cols: f, Data: b.dirty(o * f)}
	mx, mw, mdy := b.matrix(r, f, x), b.matrix(o, f, w), b.matrix(r, o, dy)
	b.dev.MatMul(y, mx, mw, add)
	b.dev.MatMulInput(dx, mdy, mw, add)
	b.dev.MatMulWeights(dw, mdy, mx)
	start := func(v float32) sum {
		s := sum{}
		if add {
			s.add(float64(v))
		}
		return s
	}
	b.round(x, w, dy)
	return []result{
		grid("MatMul", b.get(y.Data), r, o, f, func(i, j int) sum {
			s := start(y0[i*o+j])
			for k := range f {
				s.add(float64(x[i*f+k]) * float64(w[j*f+k]))
			}
			return s
		}),
		grid("MatMulInput", b.get(dx.Data), r, f, o, func(i, j int) sum {
			s := start(dx0[i*f+j])
			for k := range o {
				s.add(float64(dy[i*o+k]) * float64(w[k*f+j]))
			}
			return s
		}),
		grid("MatMulWeights", b.get(dw.Data), o, f, r, func(i, j int) sum {
			var s sum
			for k := range r {
				s.add(float64(dy[k*o+i]) * float64(x[k*f+j]))
			}
			return s
		}),
	}
}

// factor returns random numbers for a factor of a product. If the device may cut low bits off
// instead of rounding, the numbers are already rounded.
func (b *bench) factor(n int) []float32 {
	x := b.normal(n)
	if b.cuts() {
		b.round(x)
	}
	return x
}

// cuts reports whether the device may cut low bits off factors instead of rounding them.
func (b *bench) cuts() bool {
	of := compute.CapabilitiesOf(b.dev)
	return of.Accelerator != nil && of.Precision == compute.PrecisionTF32
}

// round rounds factors of products to the precision of the device.
func (b *bench) round(factors ...[]float32) {
	p := b.dev.Capabilities().Precision
	for _, x := range factors {
		for i, v := range x {
			x[i] = p.Round(v)
		}
	}
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

func dots(b *bench, rows, cols int) []result {
	x, y, scale := b.normal(rows*cols), b.normal(rows*cols), b.normal(1)
	mx, my, total := b.matrix(rows, cols, x), b.matrix(rows, cols, y), b.dirty(1)
	b.dev.Dot(total, mx, my)
	// queued calls above may still have to read the matrix my, which is changed below
	b.dev.Settle()
	apart := b.matrix(rows, cols, b.normal(rows*cols))
	b.dev.AddScaled(apart, my, mx, b.array(scale))
	b.dev.AddScaled(my, my, mx, b.array(scale))
	const at, from = 1, 2 // numbers of the first copied column, in a wider matrix and in x
	put0, put := b.normal(rows*(cols+2)), []compute.Matrix{}
	for _, add := range []bool{false, true} {
		m := b.matrix(rows, cols+2, put0)
		b.dev.CopyColumns(m, at, mx, min(from, cols), max(0, cols-from), add)
		put = append(put, m)
	}
	copied := func(add float64) func(i, j int) sum {
		return func(i, j int) (s sum) {
			k := j - at + from
			if inside := j >= at && k < cols; !inside || add > 0 {
				s.add(float64(put0[i*(cols+2)+j]))
			}
			if j >= at && k < cols {
				s.add(float64(x[i*cols+k]))
			}
			return s
		}
	}
	added := func(i, j int) (s sum) {
		s.add(float64(y[i*cols+j]))
		s.add(float64(x[i*cols+j]))
		s.add(float64(scale[0]) * float64(x[i*cols+j]))
		return s
	}
	return []result{
		grid("Dot", b.get(total), 1, 1, rows*cols, func(int, int) (s sum) {
			for i := range x {
				s.add(float64(x[i]) * float64(y[i]))
			}
			return s
		}),
		grid("CopyColumns", b.get(put[0].Data), rows, cols+2, 1, copied(0)),
		grid("CopyColumns, added", b.get(put[1].Data), rows, cols+2, 2, copied(1)),
		grid("AddScaled", b.get(my.Data), rows, cols, 3, added),
		grid("AddScaled of another matrix", b.get(apart.Data), rows, cols, 3, added),
	}
}

func transposes(b *bench, rows, cols int) []result {
	x := b.normal(rows * cols)
	turned := b.matrix(cols, rows, nans(rows*cols))
	b.dev.Transpose(turned, b.matrix(rows, cols, x))
	return []result{grid("Transpose", b.get(turned.Data), cols, rows, 1, func(i, j int) (s sum) {
		s.add(float64(x[j*cols+i]))
		return s
	})}
}

// sparseProducts runs the product of sparse rows with weights, and the gradient of the weights.
func sparseProducts(b *bench, rows, cols, out, degree int) []result {
	stored := compute.Rows{Cols: cols, Type: compute.Sparse, Tables: make([][]byte, 1),
		Of: make([]compute.RowRef, rows), Lengths: make([]int32, rows)}
	x, s := make([]sum, rows*cols), b.segments(rows, cols, degree)
	for r := range rows {
		stored.Of[r] = compute.MakeRowRef(0, int(s.Indptr[r]))
		// a sparse row may list a column twice; the values are then added
		for _, c := range s.Indices[s.Indptr[r]:s.Indptr[r+1]] {
			v := float32(b.random.NormFloat64())
			x[r*cols+int(c)].add(float64(v))
			stored.Lengths[r]++
			stored.Tables[0] = binary.LittleEndian.AppendUint32(stored.Tables[0], uint32(c))
			stored.Tables[0] = binary.LittleEndian.AppendUint32(stored.Tables[0],
				math.Float32bits(v))
		}
	}
	var maker compute.SparseMaker
	defer maker.Free()
	m, err := maker.Own(&stored, rows, true)
	if err != nil {
		b.t.Fatal(err)
	}
	w, dy := b.normal(out*cols), b.normal(rows*out)
	wide, y := b.matrix(cols, out, nans(cols*out)), b.matrix(rows, out, nans(rows*out))
	b.dev.Transpose(wide, b.matrix(out, cols, w))
	b.dev.SegmentSum(y, m.Entries, m.Values, wide, false)
	dwide, dw := b.matrix(cols, out, nans(cols*out)), b.matrix(out, cols, nans(out*cols))
	b.dev.SegmentSum(dwide, m.Transposed, m.TransposedValues, b.matrix(rows, out, dy), false)
	b.dev.Transpose(dw, dwide)
	return []result{
		grid("sparse product", b.get(y.Data), rows, out, cols, func(r, o int) (s sum) {
			for c := range cols {
				s.addTimes(x[r*cols+c], w[o*cols+c])
			}
			return s
		}),
		grid("sparse gradient", b.get(dw.Data), out, cols, rows, func(o, c int) (s sum) {
			for r := range rows {
				s.addTimes(x[r*cols+c], dy[r*out+o])
			}
			return s
		}),
	}
}

// grid returns the result for a matrix whose element (i,j) should be at(i,j). Each element is a sum
// of the given number of terms.
func grid(name string, got []float32, rows, cols, terms int, at func(i, j int) sum) result {
	r := result{name: name, got: got, terms: terms}
	r.expect = func() (want, size []float64) {
		for i := range rows {
			for j := range cols {
				s := at(i, j)
				want, size = append(want, s.value), append(size, s.size)
			}
		}
		return want, size
	}
	return r
}
