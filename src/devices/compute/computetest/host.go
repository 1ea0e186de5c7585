package computetest

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/base/npy"
	"halognn/src/devices/compute"
)

func testHost(t *testing.T, host compute.Host) {
	for _, s := range segmentShapes {
		for _, dtype := range []compute.DType{compute.Float32, compute.Float16, compute.BFloat16,
			compute.Int8} {
			t.Run(fmt.Sprintf("%s/%v", s.name, dtype), func(t *testing.T) {
				// several goroutines may use a Host at once, so several call it here, each with an
				// output of its own
				var all sync.WaitGroup
				for range 3 {
					all.Go(func() {
						testRows(t, host, s.segments, s.sources, s.degree, s.cols, dtype)
					})
				}
				all.Wait()
			})
		}
	}
	t.Run("add into", func(t *testing.T) { testAddInto(t, host) })
	t.Run("sparse adam", func(t *testing.T) { testSparseAdam(t, host) })
	t.Run("bfloat16", func(t *testing.T) { testHalves(t, host) })
	t.Run("misuse", func(t *testing.T) { testHostMisuse(t, host) })
}

// outside makes a host array between sentinels. The function check that it returns checks the
// sentinels.
func outside(t *testing.T, n int) (x []float32, check func()) {
	whole := make([]float32, n+2*guard)
	for i := range whole {
		whole[i] = sentinel
	}
	return whole[guard : guard+n : guard+n], func() {
		for i := range guard {
			if math.Float32bits(whole[i]) != math.Float32bits(sentinel) ||
				math.Float32bits(whole[guard+n+i]) != math.Float32bits(sentinel) {
				t.Errorf("a kernel wrote outside an array of %d elements", n)
			}
		}
	}
}

// scattered returns references to random rows, which are spread over three tables, and the values
// of these rows.
func scattered(b *bench, n, cols int, dtype compute.DType) (compute.Rows, []float64) {
	const tables, tableRows = 3, 40
	rows := compute.Rows{Cols: cols, Type: dtype}
	if dtype == compute.Int8 {
		for range cols {
			rows.Scale = append(rows.Scale, 0.01+b.random.Float32())
		}
	}
	var values [tables][]float64
	for k := range tables {
		var data []byte
		for i := range tableRows * cols {
			switch v := float32(b.random.NormFloat64()); dtype {
			case compute.Int8:
				q := int8(b.random.IntN(255) - 127)
				data = append(data, byte(q))
				values[k] = append(values[k], float64(float32(q)*rows.Scale[i%cols]))
			case compute.Float16:
				h := npy.ToFloat16(v)
				data = binary.LittleEndian.AppendUint16(data, uint16(h))
				values[k] = append(values[k], float64(h.Float32()))
			case compute.BFloat16:
				h := compute.ToBF16(v)
				data = binary.LittleEndian.AppendUint16(data, h)
				values[k] = append(values[k], float64(compute.FromBF16(h)))
			default:
				data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
				values[k] = append(values[k], float64(v))
			}
		}
		rows.Tables = append(rows.Tables, data)
	}
	var want []float64
	for range n {
		k, i := b.random.IntN(tables), b.random.IntN(tableRows)
		rows.Of = append(rows.Of, compute.MakeRowRef(k, i))
		want = append(want, values[k][i*cols:(i+1)*cols]...)
	}
	return rows, want
}

// testInOrder checks that rows with InOrder give the same bits as references to the rows of the
// first table.
func testInOrder(t *testing.T, host compute.Host, segments, degree int, rows compute.Rows) {
	b := newBench(t, nil, guard)
	n := len(rows.Tables[0]) / max(1, rows.RowBytes())
	rows.Of = nil
	for i := range n {
		rows.Of = append(rows.Of, compute.MakeRowRef(0, i))
	}
	s := b.groups(segments, n, degree)
	for how := compute.ReduceMean; how <= compute.ReduceMax; how++ {
		reduce := func(rows compute.Rows) []float32 {
			out := make([]float32, segments*rows.Cols)
			host.SegmentRows(compute.Matrix{Rows: segments, Cols: rows.Cols, Data: out}, how, s,
				nil, rows)
			return out
		}
		want := reduce(rows)
		inOrder := rows
		inOrder.Of, inOrder.InOrder = nil, true
		if got := reduce(inOrder); !slices.Equal(got, want) {
			t.Errorf("SegmentRows, %v: the same rows give other results with Rows.InOrder than "+
				"with Rows.Of", how)
		}
	}
}

func testRows(t *testing.T, host compute.Host, segments, sources, degree, cols int,
	dtype compute.DType) {
	b := newBench(t, nil, guard)
	rows, want := scattered(b, sources, cols, dtype)
	gathered, intact := outside(t, sources*cols)
	host.GatherRows(compute.Matrix{Rows: sources, Cols: cols, Data: gathered}, rows)
	intact()
	exact("GatherRows", gathered, want).check(t)
	testRounded(t, "GatherRows", gathered, cols,
		func(dst compute.Matrix) { host.GatherRows(dst, rows) })

	s := b.groups(segments, sources, degree)
	weights := b.normal(len(s.Indices))
	for _, r := range []struct {
		how     compute.Reduction
		weights []float32
	}{
		{compute.ReduceMean, nil}, {compute.ReduceSum, nil}, {compute.ReduceSum, weights},
		{compute.ReduceMax, nil},
	} {
		reduced, intact := outside(t, segments*cols)
		host.SegmentRows(compute.Matrix{Rows: segments, Cols: cols, Data: reduced}, r.how, s,
			r.weights, rows)
		intact()
		name := fmt.Sprintf("SegmentRows, %v, %d weights", r.how, len(r.weights))
		grid(name, reduced, segments, cols, sources, func(d, j int) sum {
			return reduction(r.how, s, d, r.weights,
				func(i int32) float64 { return want[int(i)*cols+j] })
		}).check(t)
		testRounded(t, name, reduced, cols, func(dst compute.Matrix) {
			host.SegmentRows(dst, r.how, s, r.weights, rows)
		})
	}

	testGroups(t, host, s, weights, rows)
	testInOrder(t, host, segments, degree, rows)

	rowBytes := cols * dtype.Size()
	ids := make([]int32, sources)
	for i := range ids {
		ids[i] = int32(b.random.IntN(len(rows.Tables[0]) / rowBytes))
	}
	sliced := make([]byte, len(ids)*rowBytes)
	host.SliceRows(sliced, rows.Tables[0], rowBytes, ids)
	for i, id := range ids {
		if string(sliced[i*rowBytes:(i+1)*rowBytes]) !=
			string(rows.Tables[0][int(id)*rowBytes:(int(id)+1)*rowBytes]) {
			t.Fatalf("SliceRows: row %d is not row %d of the table", i, id)
		}
	}
}

// testRounded checks that a call gives the same numbers for a matrix of bfloat16 as for one of
// float32, except that they are rounded.
func testRounded(t *testing.T, name string, want []float32, cols int,
	call func(dst compute.Matrix)) {
	memory, intact := outside(t, compute.BF16s.Floats(len(want)))
	got := compute.BF16s.MatrixIn(memory, len(want)/cols, cols)
	call(got)
	intact()
	for i, x := range want {
		if got.BF16[i] != compute.ToBF16(x) && x == x {
			t.Fatalf("%s: element %d of bfloat16 is %v, want %v", name, i,
				compute.FromBF16(got.BF16[i]), x)
		}
	}
}

// reduction returns the reduction of a column of the rows over segment d.
func reduction(how compute.Reduction, s compute.Segments, d int, weights []float32,
	row func(i int32) float64) (all sum) {
	most := math.Inf(-1)
	for e := s.Indptr[d]; e < s.Indptr[d+1]; e++ {
		x := row(compute.SourceOf(s.Indices[e]))
		switch {
		case how == compute.ReduceMax && !(most != most):
			most = max(most, x)
		case how == compute.ReduceMean:
			all.add(x / float64(s.Indptr[d+1]-s.Indptr[d]))
		case how == compute.ReduceSum && weights != nil:
			all.add(x * float64(weights[e]))
		case how == compute.ReduceSum:
			all.add(x)
		}
	}
	if how == compute.ReduceMax && !math.IsInf(most, -1) {
		all.add(most)
	}
	return all
}

// testGroups checks that two ways of reducing rows give the same bits: all rows of a segment at
// once, or first the rows of each group and then the results of the groups.
func testGroups(t *testing.T, host compute.Host, s compute.Segments, weights []float32,
	rows compute.Rows) {
	groups := compute.Segments{Indptr: []int64{0}}
	alone := compute.Segments{Indptr: []int64{0}, Indices: s.Indices}
	for d := range s.Len() {
		lo, hi := s.Indptr[d], s.Indptr[d+1]
		for e := lo; e < hi; e++ {
			if e > lo && s.Indices[e] >= 0 {
				continue
			}
			groups.Indices = append(groups.Indices, ^int32(len(groups.Indices)))
			alone.Indptr = append(alone.Indptr, e)
		}
		groups.Indptr = append(groups.Indptr, int64(len(groups.Indices)))
	}
	// each group begins where the group before it ends, so the first element of Indptr is not
	// needed
	alone.Indptr = append(alone.Indptr[1:], int64(len(s.Indices)))
	if len(groups.Indices) == 0 {
		return
	}
	cols := rows.Cols
	matrix := func(n int) compute.Matrix {
		return compute.Matrix{Rows: n, Cols: cols, Data: make([]float32, n*cols)}
	}
	for _, how := range []compute.Reduction{compute.ReduceSum, compute.ReduceMax} {
		for _, w := range [][]float32{nil, weights} {
			if w != nil && how == compute.ReduceMax {
				continue
			}
			vectors, whole, parts := matrix(alone.Len()), matrix(s.Len()), matrix(s.Len())
			unscaled := rows // the groups are reduced without Scale, as the owners of rows do it
			unscaled.Scale = nil
			host.SegmentRows(vectors, how, alone, w, unscaled)
			host.SegmentRows(whole, how, s, w, rows)
			sums := compute.Rows{Cols: cols, Scale: rows.Scale,
				Tables: [][]byte{mem.Bytes(vectors.Data)}}
			for i := range vectors.Rows {
				sums.Of = append(sums.Of, compute.MakeRowRef(0, i))
			}
			host.SegmentRows(parts, how, groups, nil, sums)
			for i, x := range whole.Data {
				if math.Float32bits(x) != math.Float32bits(parts.Data[i]) {
					t.Fatalf("SegmentRows, %v, %d weights: segment %d, column %d is %v, but the "+
						"groups added by themselves give %v", how, len(w), i/cols, i%cols, x,
						parts.Data[i])
				}
			}
		}
	}
}

func testAddInto(t *testing.T, host compute.Host) {
	b := newBench(t, nil, guard)
	for _, n := range []int{0, 1, 31, 1000} {
		x, y := b.normal(n), b.normal(n)
		got, intact := outside(t, n)
		copy(got, x)
		host.AddInto(got, y)
		intact()
		grid("AddInto", got, 1, n, 1, func(_, i int) (s sum) {
			s.add(float64(x[i]))
			s.add(float64(y[i]))
			return s
		}).check(t)
	}
}

// testSparseAdam makes a step for every second row, each with one to four gradients, and compares
// the bits with a step by plain operations. One row has a gradient of zeros, and its weights must
// not decay.
func testSparseAdam(t *testing.T, host compute.Host) {
	b := newBench(t, nil, guard)
	for _, cols := range []int{1, 5, 16, 64, 100, 129} {
		for _, decay := range []float32{1, 0.9} {
			const rows = 9
			g := rowGradients(b, rows, cols)
			o := compute.SparseAdamOptions{First: 0.1, Second: 0.001, Decay: decay, Step: -0.01,
				Eps: 1e-8}
			var got [3]compute.Matrix
			var want [3][]float32
			for i := range got {
				memory, intact := outside(t, 2*rows*cols)
				defer intact()
				copy(memory, b.normal(len(memory)))
				if i == 2 {
					for k, x := range memory {
						memory[k] = x * x
					}
				}
				got[i] = compute.Matrix{Rows: 2 * rows, Cols: cols, Data: memory}
				want[i] = append(want[i], memory...)
			}
			host.SparseAdam(got[0], got[1], got[2], g.Part(0, 3), o)
			host.SparseAdam(got[0], got[1], got[2], g.Part(3, rows), o)
			sparseAdam(want[0], want[1], want[2], g, o)
			for i, name := range []string{"rows", "first moments", "second moments"} {
				for k, x := range want[i] {
					if math.Float32bits(got[i].Data[k]) != math.Float32bits(x) {
						t.Fatalf("%d columns, decay %v: %s, element %d is %v, want %v", cols, decay,
							name, k, got[i].Data[k], x)
					}
				}
			}
		}
	}
}

// rowGradients returns gradients of the rows 0, 2, 4, ... The gradients of row 2 add up to zeros.
func rowGradients(b *bench, rows, cols int) compute.RowGradients {
	g := compute.RowGradients{Indptr: []int32{0}}
	for i := range rows {
		g.Rows = append(g.Rows, int32(2*i))
		for n := range 1 + i%4 {
			g.Indices = append(g.Indices, int32((3*i+n)%rows))
		}
		g.Indptr = append(g.Indptr, int32(len(g.Indices)))
	}
	g.Gradients = compute.Matrix{Rows: rows, Cols: cols, Data: b.normal(rows * cols)}
	for k := range cols {
		g.Gradients.Data[4*cols+k] = -g.Gradients.Data[3*cols+k]
	}
	return g
}

// sparseAdam computes what SparseAdam must compute, one element at a time.
func sparseAdam(p, m, v []float32, of compute.RowGradients, o compute.SparseAdamOptions) {
	cols := of.Gradients.Cols
	for i, row := range of.Rows {
		sum := func(j int) (x float32) {
			for n, k := range of.Indices[of.Indptr[i]:of.Indptr[i+1]] {
				if g := of.Gradients.Data[int(k)*cols+j]; n == 0 {
					x = g
				} else {
					x += g
				}
			}
			return x
		}
		decay := float32(1)
		for j := range cols {
			if sum(j) != 0 {
				decay = o.Decay
			}
		}
		for j := range cols {
			g, k := sum(j), int(row)*cols+j
			m[k] += float32((g - m[k]) * o.First)
			v[k] += float32((float32(g*g) - v[k]) * o.Second)
			p[k] = float32(p[k]*decay) +
				float32(o.Step*(m[k]/(float32(math.Sqrt(float64(v[k])))+o.Eps)))
		}
	}
}

// testHalves tests rounding to bfloat16: normal numbers, numbers between two bfloat16, the largest
// finite number, infinities and NaNs.
func testHalves(t *testing.T, host compute.Host) {
	b := newBench(t, nil, guard)
	special := []uint32{0, 1 << 31, 0x3f808000, 0x3f818000, 0x3f808001, 0x3f807fff, 0x7f7fffff,
		0xff7fffff, 0x7f800000, 0xff800000, 0x7f800001, 0xffc00000, 1}
	for _, n := range []int{0, 1, 31, 1000} {
		x := b.normal(n)
		for i := range min(n-1, len(special)) {
			x[i] = math.Float32frombits(special[i])
		}
		half := make([]uint16, n+1)
		half[n] = 7
		host.ToBF16(half[:n], x)
		got, intact := outside(t, n)
		host.FromBF16(got, half[:n])
		intact()
		if half[n] != 7 {
			t.Errorf("ToBF16 wrote beyond %d numbers", n)
		}
		for i, x := range x {
			want := compute.PrecisionBF16.Round(x)
			if got[i] != want && (got[i] == got[i] || want == want) {
				t.Errorf("%d: %x becomes %x, want %x", n, math.Float32bits(x),
					math.Float32bits(got[i]), math.Float32bits(want))
			}
		}
	}
}

func testHostMisuse(t *testing.T, host compute.Host) {
	table := make([]byte, 3*16)
	rows := func(of ...compute.RowRef) compute.Rows {
		return compute.Rows{Cols: 4, Tables: [][]byte{table}, Of: of}
	}
	dst := compute.Matrix{Rows: 1, Cols: 4, Data: make([]float32, 4)}
	one := func(i int32) compute.Segments {
		return compute.Segments{Indptr: []int64{0, 1}, Indices: []int32{i}}
	}
	two, rate := compute.Matrix{Rows: 2, Cols: 4, Data: make([]float32, 8)},
		compute.SparseAdamOptions{Decay: 1}
	gradient := func(row, index, end int32) compute.RowGradients {
		return compute.RowGradients{Rows: []int32{row}, Indptr: []int32{0, end},
			Indices: []int32{index}, Gradients: two}
	}
	for _, c := range []struct {
		name string
		call func()
	}{
		{"row beyond the table", func() { host.GatherRows(dst, rows(compute.MakeRowRef(0, 3))) }},
		{"no such table", func() { host.GatherRows(dst, rows(compute.MakeRowRef(1, 0))) }},
		{"fewer rows than asked for", func() { host.GatherRows(dst, rows()) }},
		{"fewer rows than asked for, though there is room", func() {
			host.GatherRows(dst,
				compute.Rows{Cols: 4, Tables: [][]byte{table}, Of: make([]compute.RowRef, 0, 1)})
		}},
		{"wrong width", func() {
			host.GatherRows(compute.Matrix{Rows: 1, Cols: 5,
				Data: make([]float32, 5)}, rows(0))
		}},
		{"index beyond the rows", func() {
			host.SegmentRows(dst, compute.ReduceMean, one(1), nil, rows(0))
		}},
		{"index beyond the table", func() {
			host.SegmentRows(dst, compute.ReduceMean, one(3), nil,
				compute.Rows{Cols: 4, Tables: [][]byte{table}, InOrder: true})
		}},
		{"rows in order without a table", func() {
			host.SegmentRows(dst, compute.ReduceMean, one(0), nil,
				compute.Rows{Cols: 4, InOrder: true})
		}},
		{"gathered rows in order", func() {
			host.GatherRows(dst, compute.Rows{Cols: 4, Tables: [][]byte{table}, InOrder: true})
		}},
		{"no reduction",
			func() { host.SegmentRows(dst, compute.NoReduction, one(0), nil, rows(0)) }},
		{"a mean of weights", func() {
			host.SegmentRows(dst, compute.ReduceMean, one(0), make([]float32, 1), rows(0))
		}},
		{"a weight too many", func() {
			host.SegmentRows(dst, compute.ReduceSum, one(0), make([]float32, 2), rows(0))
		}},
		{"id beyond the table", func() { host.SliceRows(make([]byte, 16), table, 16, []int32{3}) }},
		{"negative id", func() { host.SliceRows(make([]byte, 16), table, 16, []int32{-1}) }},
		{"sum of unequal lengths", func() { host.AddInto(make([]float32, 3), make([]float32, 2)) }},
		{"moments of other rows",
			func() { host.SparseAdam(dst, two, dst, gradient(0, 0, 1), rate) }},
		{"a row that is not there",
			func() { host.SparseAdam(dst, dst, dst, gradient(1, 0, 1), rate) }},
		{"a negative row", func() { host.SparseAdam(dst, dst, dst, gradient(-1, 0, 1), rate) }},
		{"a gradient that is not there",
			func() { host.SparseAdam(dst, dst, dst, gradient(0, 2, 1), rate) }},
		{"a row without gradients",
			func() { host.SparseAdam(dst, dst, dst, gradient(0, 0, 0), rate) }},
		{"more gradients than are listed",
			func() { host.SparseAdam(dst, dst, dst, gradient(0, 0, 2), rate) }},
		{"rounded to another length",
			func() { host.ToBF16(make([]uint16, 3), make([]float32, 2)) }},
		{"widened to another length",
			func() { host.FromBF16(make([]float32, 2), make([]uint16, 3)) }},
	} {
		t.Run(c.name, func(t *testing.T) { mustPanic(t, c.call) })
	}
}
