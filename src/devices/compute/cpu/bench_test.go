//go:build cgo

package cpu

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"

	"halognn/src/base/mem"
	"halognn/src/devices/compute"
	"halognn/src/devices/compute/computetest"
)

// The benchmarks run a kernel and its bound in turn and report the ratio of their best times:
// absolute times differ between machines and hours.

// versus runs kernel and bound in turn b.N times, or more, so that other programs do not disturb
// the best time of either. It reports both rates, in 1e9 units a second, and their ratio.
func versus(b *testing.B, unit string, kernelWork float64, kernel func(), boundWork float64,
	bound func()) {
	kernel()
	bound()
	bestKernel, bestBound := time.Duration(1<<62), time.Duration(1<<62)
	b.ResetTimer()
	for i := 0; i < max(b.N, 20); i++ {
		begin := time.Now()
		kernel()
		middle := time.Now()
		bound()
		bestKernel = min(bestKernel, middle.Sub(begin))
		bestBound = min(bestBound, time.Since(middle))
	}
	kernelRate, boundRate := kernelWork/bestKernel.Seconds()/1e9, boundWork/bestBound.Seconds()/1e9
	b.ReportMetric(kernelRate, unit)
	b.ReportMetric(boundRate, "bound-"+unit)
	b.ReportMetric(kernelRate/boundRate, "ratio")
	b.ReportMetric(0, "ns/op")
}

func randomMatrix(b *testing.B, rows, cols int) compute.Matrix {
	m := compute.Matrix{Rows: rows, Cols: cols, Data: mem.Make[float32](rows * cols)}
	b.Cleanup(func() { mem.Free(m.Data) })
	for i := range m.Data {
		m.Data[i] = rand.Float32() - 0.5
	}
	return m
}

// BenchmarkGEMM compares the three products of a layer, on one thread, with the processor's peak.
// The goals are ratios of 0.85, and of 0.70 in float32 where an output is 47 wide and in bf16 where
// an input is 100 wide.
func BenchmarkGEMM(b *testing.B) {
	for _, name := range gemmWords {
		if _, _, err := openEngine(name); err != nil {
			b.Logf("not measured: %v", err)
			continue
		}
		benchmarkGEMM(b, Options{Threads: 1, GEMM: name})
	}
	for _, name := range []string{"", GEMMOneDNN} {
		if _, _, err := openEngine(name); err == nil {
			benchmarkGEMM(b, Options{Threads: 1, GEMM: name, Precision: compute.PrecisionBF16})
		}
	}
}

func benchmarkGEMM(b *testing.B, o Options) {
	d := open(b, o)
	defer d.Close()
	precision := d.Capabilities().Precision
	peak, rounds := bestPeak(b, precision), 20000
	for _, s := range []struct{ r, f, o int }{
		{20000, 256, 256}, {20000, 100, 256}, {512, 256, 256}, {1024, 256, 47}} {
		x, y, w := randomMatrix(b, s.r, s.f), randomMatrix(b, s.r, s.o), randomMatrix(b, s.o, s.f)
		for _, k := range []struct {
			name   string
			kernel func()
		}{
			{"forward", func() { d.MatMul(y, x, w, false) }},
			{"input", func() { d.MatMulInput(x, y, w, false) }},
			{"weights", func() { d.MatMulWeights(w, y, x) }},
		} {
			name := cmp.Or(o.GEMM, "auto")
			b.Run(fmt.Sprintf("gemm=%s/%s/shape=%dx%dx%d/%s", name, precision, s.r, s.f, s.o,
				k.name), func(b *testing.B) {
				work := 2 * float64(s.r) * float64(s.f) * float64(s.o)
				bound := float64(peak.run(rounds))
				versus(b, "GFLOP/s", work, k.kernel, bound, func() { peak.run(rounds) })
			})
		}
	}
}

// BenchmarkDense compares the kernels of a layer of GraphSAGE, on one thread, with the processor's
// peak.
func BenchmarkDense(b *testing.B) {
	for _, precision := range []compute.Precision{compute.PrecisionFloat32, compute.PrecisionBF16} {
		b.Run(string(precision), func(b *testing.B) { benchmarkDense(b, precision) })
	}
}

func benchmarkDense(b *testing.B, precision compute.Precision) {
	const rows, width = 20000, 256
	d := open(b, Options{Threads: 1, Precision: precision})
	defer d.Close()
	stores := d.Capabilities().Stores
	stored := func() compute.Matrix {
		m := stores.MatrixIn(mem.Make[float32](stores.Floats(rows*width)), rows, width)
		m.Narrow(randomMatrix(b, rows, width).Data)
		return m
	}
	a := compute.Dense{X: stored(), W: randomMatrix(b, width, width), X2: stored(),
		W2: randomMatrix(b, width, width), Bias: make([]float32, width)}
	a.Epilogue = compute.Epilogue{Activation: compute.ActivateReLU, P: 0.5,
		Vertices: make([]int32, rows), Rounded: precision == compute.PrecisionBF16}
	y, dy := stored(), randomMatrix(b, rows, width)
	g := compute.DenseGradients{W: randomMatrix(b, width, width), Bias: make([]float32, width),
		W2: randomMatrix(b, width, width)}
	peak, rounds := bestPeak(b, precision), 20000
	for _, k := range []struct {
		name string
		call func()
	}{{"Dense", func() { d.Dense(y, a) }},
		{"DenseBackward", func() { d.DenseBackward(g, dy, y, a) }}} {
		b.Run(k.name, func(b *testing.B) {
			versus(b, "GFLOP/s", 4*rows*width*width, k.call, float64(peak.run(rounds)),
				func() { peak.run(rounds) })
		})
	}
}

// bestPeak returns the fastest loop of multiply-adds of this machine, as compute.BestPeak does.
func bestPeak(b *testing.B, precision compute.Precision) (best peakLoop) {
	rate := 0.0
	for _, p := range peakLoops() {
		if p.Precision != precision && p.Precision != compute.PrecisionFloat32 {
			continue
		}
		for range 5 {
			begin := time.Now()
			if r := float64(p.run(20000)) / time.Since(begin).Seconds(); r > rate {
				rate, best = r, p
			}
		}
	}
	if best.ISA == "" {
		b.Skip("no loop of multiply-adds for this processor")
	}
	return best
}

// BenchmarkThreads compares two threads with one on the same kernels, which shows the cost of the
// pool. The bound is half the time.
func BenchmarkThreads(b *testing.B) {
	one, two := open(b, Options{Threads: 1}), open(b, Options{Threads: 2})
	defer one.Close()
	defer two.Close()
	for _, s := range []struct{ r, f, o int }{{20000, 100, 256}, {1024, 256, 47}} {
		x, y, w := randomMatrix(b, s.r, s.f), randomMatrix(b, s.r, s.o), randomMatrix(b, s.o, s.f)
		bias := randomMatrix(b, 1, s.o)
		step := func(d *Device) func() {
			return func() {
				d.MatMul(y, x, w, false)
				d.AddBias(y, bias.Data)
				d.ReLU(y, 0, compute.DropoutKey{}, nil)
				d.MatMulWeights(w, y, x)
				d.ColumnSum(bias.Data, y)
				d.MatMulInput(x, y, w, false)
			}
		}
		b.Run(fmt.Sprintf("shape=%dx%dx%d", s.r, s.f, s.o), func(b *testing.B) {
			work := 6 * float64(s.r) * float64(s.f) * float64(s.o)
			versus(b, "GFLOP/s", work, step(two), 2*work, step(one))
		})
	}
}

// The benchmarks read rows of a table of 200 MB, far larger than any cache, in random order.
const (
	benchTable = 200 << 20
	benchReads = 100_000
	benchEdges = 10 // reads for each row that SegmentMean writes
)

// copyRows is the bound of the row kernels: the same rows copied one by one.
func copyRows(dst, table []byte, rowBytes int, ids []int32) {
	for i, id := range ids {
		copy(dst[i*rowBytes:(i+1)*rowBytes], table[int(id)*rowBytes:(int(id)+1)*rowBytes])
	}
}

type rowBench struct {
	table []byte
	ids   []int32
	rows  compute.Rows
	dst   compute.Matrix
}

func newRowBench(b *testing.B, cols int, dtype compute.DType) rowBench {
	rowBytes := cols * dtype.Size()
	r := rowBench{table: mem.Make[byte](benchTable / rowBytes * rowBytes),
		dst: randomMatrix(b, benchReads, cols)}
	b.Cleanup(func() { mem.Free(r.table) })
	for i := range r.table {
		r.table[i] = byte(i) & 0x3b // no exponent of infinity or NaN
	}
	r.rows = compute.Rows{Cols: cols, Type: dtype, Tables: [][]byte{r.table}}
	if dtype == compute.Int8 {
		r.rows.Scale = randomMatrix(b, 1, cols).Data
	}
	for range benchReads {
		id := rand.IntN(len(r.table) / rowBytes)
		r.ids = append(r.ids, int32(id))
		r.rows.Of = append(r.rows.Of, compute.MakeRowRef(0, id))
	}
	return r
}

var benchWidths = []int{64, 100, 128, 256, 602}

// BenchmarkGather compares GatherRows with the copy; bytes are those read and written. The goal is
// a ratio of 0.7.
func BenchmarkGather(b *testing.B) {
	h := openHost(b, "")
	for _, dtype := range []compute.DType{compute.Float32, compute.Float16, compute.Int8} {
		for _, cols := range benchWidths {
			r := newRowBench(b, cols, dtype)
			rowBytes := cols * dtype.Size()
			copied := mem.Make[byte](benchReads * rowBytes)
			defer mem.Free(copied)
			b.Run(fmt.Sprintf("type=%v/width=%d", dtype, cols), func(b *testing.B) {
				versus(b, "GB/s", float64(benchReads*(rowBytes+4*cols)),
					func() { h.GatherRows(r.dst, r.rows) }, float64(2*benchReads*rowBytes),
					func() { copyRows(copied, r.table, rowBytes, r.ids) })
			})
		}
	}
}

// BenchmarkSegmentMean compares the segment means with the copy of all rows they read; bytes are
// those read and written. The goal is a ratio of 0.7.
func BenchmarkSegmentMean(b *testing.B) {
	h := openHost(b, "")
	d := open(b, Options{Threads: 1})
	defer d.Close()
	for _, cols := range benchWidths {
		r := newRowBench(b, cols, compute.Float32)
		rowBytes := 4 * cols
		copied := mem.Make[byte](benchReads * rowBytes)
		defer mem.Free(copied)
		s, viaRefs := compute.Segments{Indptr: []int64{0}, Indices: r.ids}, compute.Segments{}
		for e := range r.ids {
			viaRefs.Indices = append(viaRefs.Indices, int32(e))
			if (e+1)%benchEdges == 0 {
				s.Indptr = append(s.Indptr, int64(e+1))
			}
		}
		viaRefs.Indptr = s.Indptr
		out := r.dst.RowsAt(0, s.Len())
		floats := randomMatrix(b, len(r.table)/rowBytes, cols)
		bound := func() { copyRows(copied, r.table, rowBytes, r.ids) }
		means, copies := float64((benchReads+s.Len())*rowBytes), float64(2*benchReads*rowBytes)
		b.Run(fmt.Sprintf("from=matrix/width=%d", cols), func(b *testing.B) {
			versus(b, "GB/s", means, func() { d.SegmentMean(out, s, floats) }, copies, bound)
		})
		b.Run(fmt.Sprintf("from=rows/width=%d", cols), func(b *testing.B) {
			versus(b, "GB/s", means,
				func() { h.SegmentRows(out, compute.ReduceMean, viaRefs, nil, r.rows) }, copies,
				bound)
		})
	}
}

// BenchmarkSegmentBytes compares the means of int8 rows with the copy of these rows; bytes are
// those read and written. The goal is a ratio of 0.7.
func BenchmarkSegmentBytes(b *testing.B) {
	h := openHost(b, "")
	for _, cols := range benchWidths {
		r := newRowBench(b, cols, compute.Int8)
		copied := mem.Make[byte](benchReads * cols)
		defer mem.Free(copied)
		s := compute.Segments{Indptr: []int64{0}}
		for e := range r.ids {
			s.Indices = append(s.Indices, int32(e))
			if (e+1)%benchEdges == 0 {
				s.Indptr = append(s.Indptr, int64(e+1))
			}
		}
		out := r.dst.RowsAt(0, s.Len())
		b.Run(fmt.Sprintf("width=%d", cols), func(b *testing.B) {
			versus(b, "GB/s", float64((benchReads+4*s.Len())*cols),
				func() { h.SegmentRows(out, compute.ReduceMean, s, nil, r.rows) },
				float64(2*benchReads*cols), func() { copyRows(copied, r.table, cols, r.ids) })
		})
	}
}

// BenchmarkAttention compares the kernels over edges with the copy of the rows that the edges refer
// to, those of weights of edges with the copy of as many numbers as an edge has heads; bytes are
// those read and written. The goal is a ratio of 0.7.
func BenchmarkAttention(b *testing.B) {
	d := open(b, Options{Threads: 1})
	defer d.Close()
	const slope = 0.2
	for _, w := range []struct{ heads, width int }{
		{1, 64}, {8, 8}, {4, 25}, {4, 32}, {2, 128}, {8, 32},
	} {
		cols := w.heads * w.width
		r := newRowBench(b, cols, compute.Float32)
		rowBytes, scoreBytes := 4*cols, 4*w.heads
		copied := mem.Make[byte](benchReads * rowBytes)
		defer mem.Free(copied)
		s := compute.Segments{Indptr: []int64{0}, Indices: r.ids}
		t := compute.Segments{Indptr: []int64{0}, Indices: r.ids}
		// A block's sources and destinations, whose numbers of heads take a few megabytes.
		near, back := compute.Segments{}, compute.Segments{}
		for e := range r.ids {
			back.Edges = append(back.Edges, int32(e))
			near.Indices = append(near.Indices, r.ids[e]%(benchReads/2))
			back.Indices = append(back.Indices, r.ids[e]%(benchReads/benchEdges))
			if (e+1)%benchEdges == 0 {
				s.Indptr = append(s.Indptr, int64(e+1))
			}
			if (e+1)%2 == 0 { // a source of a sampled block has few edges
				t.Indptr = append(t.Indptr, int64(e+1))
			}
		}
		near.Indptr, back.Indptr = s.Indptr, t.Indptr
		rand.Shuffle(len(back.Edges), func(i, j int) {
			back.Edges[i], back.Edges[j] = back.Edges[j], back.Edges[i]
		})
		t.Edges = back.Edges // by source they lie anywhere
		rows := randomMatrix(b, len(r.table)/rowBytes, cols)
		alpha, dalpha := randomMatrix(b, benchReads, w.heads), randomMatrix(b, benchReads, w.heads)
		y, z, dz := r.dst.RowsAt(0, s.Len()), randomMatrix(b, t.Len(), cols),
			randomMatrix(b, t.Len(), cols)
		dy, drows, a := randomMatrix(b, s.Len(), cols), randomMatrix(b, rows.Rows, cols),
			randomMatrix(b, 2, cols)
		src, dst := randomMatrix(b, t.Len(), w.heads), randomMatrix(b, s.Len(), w.heads)
		dsrc, ddst := randomMatrix(b, t.Len(), w.heads), randomMatrix(b, s.Len(), w.heads)
		scores := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(src.Data))), 4*len(src.Data))
		numbers, vector := benchReads*scoreBytes, compute.Vectors{Data: a.Data[:cols]}
		for _, k := range []struct {
			name  string
			bytes int
			run   func()
			row   int // bytes of a row of the bound, which are copied from table
			table []byte
			ids   []int32
		}{
			{"sum", (benchReads+s.Len())*rowBytes + numbers,
				func() { d.EdgeSum(y, s, alpha, rows) }, rowBytes, r.table, r.ids},
			{"sum-backward", (benchReads+2*t.Len())*rowBytes + 2*numbers,
				func() { d.EdgeSumBackward(dz, dalpha, t, alpha, z, rows) }, rowBytes, r.table,
				r.ids},
			{"head-dots", (t.Len() + s.Len()) * (rowBytes + scoreBytes),
				func() { d.HeadDots(src, dst, z, a.Data[:cols], a.Data[cols:]) }, rowBytes, r.table,
				r.ids},
			{"pairs", (benchReads+s.Len())*rowBytes + numbers,
				func() { d.EdgeDotSoftmax(alpha, s, rows, y, vector, slope) }, rowBytes, r.table,
				r.ids},
			{"pairs-backward", 2*(benchReads+s.Len())*rowBytes + 3*t.Len()*rowBytes + 4*numbers,
				func() {
					d.EdgeDotSoftmaxBackward(drows, dy, a.Data[cols:], dalpha, s, back, alpha, rows,
						y, vector, slope)
				}, rowBytes, r.table, r.ids},
			{"softmax", 2 * numbers, func() { d.EdgeSoftmax(alpha, near, src, dst, slope) },
				scoreBytes, scores, near.Indices},
			{"softmax-backward", 5 * numbers,
				func() {
					d.EdgeSoftmaxBackward(dsrc, ddst, dalpha, near, back, alpha, src, dst,
						slope)
				}, scoreBytes, scores, near.Indices},
		} {
			b.Run(fmt.Sprintf("%s/heads=%dx%d", k.name, w.heads, w.width), func(b *testing.B) {
				versus(b, "GB/s", float64(k.bytes), k.run, float64(2*benchReads*k.row),
					func() { copyRows(copied, k.table, k.row, k.ids) })
			})
		}
	}
}

// BenchmarkKernels reports every kernel's bytes and flops a second, on one thread: at the sizes of
// a layer, and at one or two rows, where the time is the overhead of a call (checks, tiles, the
// call of C).
func BenchmarkKernels(b *testing.B) {
	d := open(b, Options{Threads: 1})
	b.Cleanup(func() {
		if err := d.Close(); err != nil {
			b.Error(err)
		}
	})
	for _, s := range []struct {
		name string
		computetest.Sizes
	}{
		{"layer", computetest.Sizes{Destinations: 20000, Sources: 80000, Degree: 5, In: 128,
			Out: 256, Classes: 32}},
		{"call",
			computetest.Sizes{Destinations: 2, Sources: 2, Degree: 1, In: 4, Out: 8, Classes: 4}},
	} {
		b.Run(s.name, func(b *testing.B) {
			for _, c := range computetest.NewLayer(b, d, s.Sizes).Calls() {
				b.Run(c.Name, func(b *testing.B) {
					for range b.N {
						c.Run()
					}
					each := b.Elapsed().Seconds() / float64(b.N)
					b.ReportMetric(float64(c.Bytes)/each/1e9, "GB/s")
					if c.Flops > 0 {
						b.ReportMetric(float64(c.Flops)/each/1e9, "GFLOP/s")
					}
				})
			}
		})
	}
}
