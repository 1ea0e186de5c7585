//go:build cgo

package cuda

import (
	"errors"
	"math/rand/v2"
	"os"
	"testing"

	"halognn/src/compute"
)

// BenchmarkKernels tells the bytes a kernel has to move per second beside those of a plain copy on the device in the same run (MB/s, "of
// copy"), on the shapes of an input layer of 1024 seeds and fanouts 15, 10, 5. An emulated device is not measured.
func BenchmarkKernels(b *testing.B) {
	path := os.Getenv("HALOGNN_CUDA_LIB")
	if path == "" {
		b.Skip("HALOGNN_CUDA_LIB names no library: an emulated device is not measured")
	}
	d, err := Open(Options{Memory: 1 << 30, Library: path})
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	const destinations, sources, degree, cols, hidden = 100_000, 400_000, 5, 128, 256
	array := func(n int) []float32 {
		x, err := d.Alloc(n)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { d.Free(x) })
		return x
	}
	matrix := func(rows, cols int) compute.Matrix {
		return compute.Matrix{Rows: rows, Cols: cols, Data: array(rows * cols)}
	}
	h, out, dh := matrix(sources, cols), matrix(destinations, cols), matrix(sources, cols)
	y, w, dw := matrix(destinations, hidden), matrix(hidden, cols), matrix(hidden, cols)
	forward, backward := randomSegments(destinations, sources, degree)
	vertices := make([]int32, destinations)
	staged := stage(b, d, forward, backward, vertices)
	defer staged()
	rate := copyRate(b, d, h.Data, dh.Data)
	edges := len(forward.Indices)
	for _, k := range []struct {
		name  string
		bytes int
		flops int
		call  func()
	}{
		{"SegmentMean", 4*cols*(edges+destinations) + 4*edges + 8*destinations, 0, func() { d.SegmentMean(out, forward, h) }},
		{"SegmentMeanBackward", 4*cols*(edges+sources) + 20*edges + 8*sources, 0, func() { d.SegmentMeanBackward(dh, forward, backward, out, false) }},
		{"AddBias", 8 * len(y.Data), 0, func() { d.AddBias(y, w.Data[:hidden]) }},
		{"ReLU with dropout", 8 * len(y.Data), 0, func() { d.ReLU(y, 0.5, compute.DropoutKey{}, vertices) }},
		{"ColumnSum", 4 * len(y.Data), 0, func() { d.ColumnSum(w.Data[:hidden], y) }},
		{"Adam", 28 * len(y.Data) / 4, 0, func() {
			n := len(y.Data) / 4
			d.Adam(y.Data[:n], y.Data[n:2*n], y.Data[2*n:3*n], y.Data[3*n:4*n], compute.AdamOptions{LR: 1e-3, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, Step: 1})
		}},
		{"MatMul", 0, 2 * destinations * cols * hidden, func() { d.MatMul(y, out, w, false) }},
		{"MatMulWeights", 0, 2 * destinations * cols * hidden, func() { d.MatMulWeights(dw, y, out) }},
	} {
		b.Run(k.name, func(b *testing.B) {
			k.call() // scratch grows
			if err := d.Sync(); err != nil {
				b.Fatal(err)
			}
			b.ResetTimer()
			for range b.N {
				k.call()
			}
			if err := d.Sync(); err != nil {
				b.Fatal(err)
			}
			each := b.Elapsed().Seconds() / float64(b.N)
			if k.bytes > 0 {
				b.ReportMetric(float64(k.bytes)/each/1e9, "GB/s")
				b.ReportMetric(float64(k.bytes)/each/rate, "of-copy")
			} else {
				b.ReportMetric(float64(k.flops)/each/1e12, "TFLOP/s")
			}
		})
	}
}

// BenchmarkGather tells the rate at which resident rows are gathered, in float32 and float16, beside that of a copy.
func BenchmarkGather(b *testing.B) {
	path := os.Getenv("HALOGNN_CUDA_LIB")
	if path == "" {
		b.Skip("HALOGNN_CUDA_LIB names no library: an emulated device is not measured")
	}
	const stored, rows, cols = 1_000_000, 400_000, 128
	for _, dtype := range []compute.DType{compute.Float32, compute.Float16} {
		d, err := Open(Options{Memory: 2 << 30, Library: path})
		if err != nil {
			b.Fatal(err)
		}
		rowBytes := cols * dtype.Size()
		if err := d.Resident([][]byte{make([]byte, stored*rowBytes)}, []int{stored}, rowBytes); err != nil {
			b.Fatal(err)
		}
		x, err := d.Alloc(2 * rows * cols)
		if err != nil {
			b.Fatal(err)
		}
		rate := copyRate(b, d, x[:rows*cols], x[rows*cols:])
		in := &compute.Inputs{Rows: compute.Rows{Cols: cols, Type: dtype, Tables: make([][]byte, 1)}, Sources: true}
		random := rand.New(rand.NewPCG(1, 2))
		for range rows {
			in.Rows.Of = append(in.Rows.Of, compute.MakeRowRef(0, random.IntN(stored)))
		}
		box := d.NewInbox(hostOf(b), true)
		if err := box.Send(in); err != nil {
			b.Fatal(err)
		}
		b.Run(dtype.String(), func(b *testing.B) {
			for range b.N {
				if _, _, _, err := box.Open(); err != nil {
					b.Fatal(err)
				}
				if err := box.Close(); err != nil {
					b.Fatal(err)
				}
			}
			if err := d.Sync(); err != nil {
				b.Fatal(err)
			}
			moved := float64(rows*(rowBytes+4*cols+8)) * float64(b.N) / b.Elapsed().Seconds()
			b.ReportMetric(moved/1e9, "GB/s")
			b.ReportMetric(moved/rate, "of-copy")
		})
		if err := errors.Join(box.Free(), d.Close()); err != nil {
			b.Fatal(err)
		}
	}
}

// copyRate returns the bytes per second, read and written, of a copy on the device.
func copyRate(b *testing.B, d *Device, dst, src []float32) (rate float64) {
	b.Run("Copy", func(b *testing.B) {
		for range b.N {
			d.Copy(dst, src)
		}
		if err := d.Sync(); err != nil {
			b.Fatal(err)
		}
		rate = float64(8*len(src)) * float64(b.N) / b.Elapsed().Seconds()
		b.ReportMetric(rate/1e9, "GB/s")
	})
	return rate
}

func randomSegments(destinations, sources, degree int) (forward, backward compute.Segments) {
	random := rand.New(rand.NewPCG(1, 2))
	forward.Indptr = []int64{0}
	lists := make([][]int32, sources)
	for t := range destinations {
		for range degree {
			s := int32(random.IntN(sources))
			forward.Indices = append(forward.Indices, s)
			lists[s] = append(lists[s], int32(t))
		}
		forward.Indptr = append(forward.Indptr, int64(len(forward.Indices)))
	}
	backward.Indptr = []int64{0}
	for _, l := range lists {
		backward.Indices = append(backward.Indices, l...)
		backward.Indptr = append(backward.Indptr, int64(len(backward.Indices)))
	}
	return forward, backward
}

// stage puts host arrays on the device, as a minibatch's inbox does.
func stage(b *testing.B, d *Device, forward, backward compute.Segments, vertices []int32) (end func()) {
	box := d.NewInbox(hostOf(b), false)
	if err := box.Send(&compute.Inputs{Segments: []compute.Segments{forward, backward}, Vertices: [][]int32{vertices}}); err != nil {
		b.Fatal(err)
	}
	if _, _, _, err := box.Open(); err != nil {
		b.Fatal(err)
	}
	return func() {
		if err := box.Close(); err != nil {
			b.Error(err)
		}
		if err := box.Free(); err != nil {
			b.Error(err)
		}
	}
}
