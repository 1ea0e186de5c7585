//go:build cgo

package cuda

import (
	"errors"
	"math/rand/v2"
	"testing"

	"halognn/src/compute"
	"halognn/src/compute/meter"
	"halognn/src/mem"
)

// measured opens a device for benchmarks. On an emulated device they only run, on arrays that are smaller by shrink: what they tell of it means
// nothing.
func measured(b *testing.B, memory int) (d *Device, shrink int) {
	path := library(b)
	if err := load(path); err != nil {
		b.Fatal(err)
	}
	if shrink = 1; leaks() >= 0 { // which a real library does not count
		shrink, memory = 1000, 16<<20
	}
	d, err := Open(Options{Memory: memory, Library: path})
	if err != nil {
		b.Fatal(err)
	}
	return d, shrink
}

func closed(b *testing.B, d *Device) {
	if err := d.Close(); err != nil {
		b.Error(err)
	}
}

// BenchmarkKernels tells the bytes a kernel has to move per second, and their share of what a copy on the device moves in the same run (of-copy),
// on the shapes of an input layer of 1024 seeds and fanouts 15, 10, 5; of products the flops, and their share of those of the best product
// of cuBLAS alone (of-gemm).
func BenchmarkKernels(b *testing.B) {
	d, shrink := measured(b, 3<<30)
	defer closed(b, d)
	rates, err := meter.MeasureRates(d, 64<<20/shrink)
	if err != nil {
		b.Fatal(err)
	}
	const degree, cols, hidden, classes = 5, 128, 256, 32
	destinations, sources := 100_000/shrink, 400_000/shrink
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
	x, y, dy := matrix(destinations, hidden), matrix(destinations, hidden), matrix(destinations, hidden)
	w, dw := matrix(hidden, cols), matrix(hidden, cols)
	logits, dlogits := matrix(destinations, classes), matrix(destinations, classes)
	mean, rstd, gamma := array(destinations), array(destinations), array(4*hidden)
	forward, backward := randomSegments(destinations, sources, degree)
	in := compute.Inputs{
		Segments: []compute.Segments{forward, backward}, Vertices: [][]int32{make([]int32, destinations)},
		Labels: make([]int32, destinations), Targets: make([]uint8, destinations*classes),
	}
	defer stage(b, d, &in)()
	m, counted := meter.New(d)
	defer func() {
		if err := m.Free(); err != nil {
			b.Error(err)
		}
	}()
	parameters := len(y.Data) / 4
	quarter := func(i int) []float32 { return y.Data[i*parameters : (i+1)*parameters] }
	for _, k := range []struct {
		name string
		call func(d compute.Device)
	}{
		{"Copy", func(d compute.Device) { d.(compute.Accelerator).Copy(dh.Data, h.Data) }},
		{"Add", func(d compute.Device) { d.(compute.Accelerator).Add(dh.Data, h.Data) }},
		{"SegmentMean", func(d compute.Device) { d.SegmentMean(out, forward, h) }},
		{"SegmentSum", func(d compute.Device) { d.SegmentSum(out, forward, nil, h, false) }},
		{"SegmentMeanBackward", func(d compute.Device) { d.SegmentMeanBackward(dh, forward, backward, out, false) }},
		{"AddBias", func(d compute.Device) { d.AddBias(y, gamma[:hidden]) }},
		{"ReLU", func(d compute.Device) { d.ReLU(y, 0, compute.DropoutKey{}, nil) }},
		{"ReLU with dropout", func(d compute.Device) { d.ReLU(y, 0.5, compute.DropoutKey{}, in.Vertices[0]) }},
		{"ReLUBackward", func(d compute.Device) { d.ReLUBackward(dy, y, 0.5) }},
		{"LayerNorm", func(d compute.Device) { d.LayerNorm(y, x, gamma[:hidden], gamma[hidden:2*hidden], mean, rstd, 1e-5) }},
		{"LayerNormBackward", func(d compute.Device) {
			d.LayerNormBackward(dy, gamma[2*hidden:3*hidden], gamma[3*hidden:], dy, x, gamma[:hidden], mean, rstd)
		}},
		{"ColumnSum", func(d compute.Device) { d.ColumnSum(gamma[:hidden], y) }},
		{"SoftmaxCrossEntropy", func(d compute.Device) { d.SoftmaxCrossEntropy(dlogits, logits, in.Labels, 1) }},
		{"SigmoidBCE", func(d compute.Device) { d.SigmoidBCE(dlogits, logits, in.Targets, 1) }},
		{"Adam", func(d compute.Device) {
			d.Adam(quarter(0), quarter(1), quarter(2), quarter(3), compute.AdamOptions{LR: 1e-3, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, Step: 1})
		}},
		{"SGD", func(d compute.Device) {
			d.SGD(quarter(0), quarter(1), quarter(2), compute.SGDOptions{LR: 1e-3, Momentum: 0.9, Step: 2})
		}},
		{"MatMul", func(d compute.Device) { d.MatMul(y, out, w, false) }},
		{"MatMulInput", func(d compute.Device) { d.MatMulInput(out, y, w, false) }},
		{"MatMulWeights", func(d compute.Device) { d.MatMulWeights(dw, y, out) }},
	} {
		before := total(m, rates)
		m.Start()
		k.call(counted) // scratch grows
		if err := m.Stop(); err != nil {
			b.Fatal(err)
		}
		after := total(m, rates)
		bytes, flops := float64(after.Bytes-before.Bytes), float64(after.Flops-before.Flops)
		b.Run(k.name, func(b *testing.B) {
			for range b.N {
				k.call(d)
			}
			if err := d.Sync(); err != nil {
				b.Fatal(err)
			}
			each := b.Elapsed().Seconds() / float64(b.N)
			b.ReportMetric(bytes/each/1e9, "GB/s")
			b.ReportMetric(bytes/each/rates.Copy, "of-copy")
			if flops > 0 {
				b.ReportMetric(flops/each/1e12, "TFLOP/s")
				b.ReportMetric(flops/each/rates.Product, "of-gemm")
			}
		})
	}
}

// total adds up all kernels.
func total(m *meter.Meter, r meter.Rates) (sum meter.Kernel) {
	for _, k := range m.Report(r).Kernels {
		sum.Bytes += k.Bytes
		sum.Flops += k.Flops
	}
	return sum
}

// BenchmarkGather tells the rate at which resident rows are gathered, in float32 and float16, beside that of a copy.
func BenchmarkGather(b *testing.B) {
	for _, dtype := range []compute.DType{compute.Float32, compute.Float16} {
		d, shrink := measured(b, 2<<30)
		const cols = 128
		stored, rows, rowBytes := 1_000_000/shrink, 400_000/shrink, cols*dtype.Size()
		rates, err := meter.MeasureRates(d, 64<<20/shrink)
		if err != nil {
			b.Fatal(err)
		}
		if err := d.Resident([][]byte{make([]byte, stored*rowBytes)}, []int{stored}, nil, rowBytes); err != nil {
			b.Fatal(err)
		}
		in := &compute.Inputs{Rows: compute.Rows{Cols: cols, Type: dtype, Tables: make([][]byte, 1)}, Sources: true}
		random := rand.New(rand.NewPCG(1, 2))
		for range rows {
			in.Rows.Of = append(in.Rows.Of, compute.MakeRowRef(0, random.IntN(stored)))
		}
		box := d.NewStagingBuffer(hostOf(b), true)
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
			b.ReportMetric(moved/rates.Copy, "of-copy")
		})
		if err := errors.Join(box.Free(), d.Close()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkLink tells the rate of copies between pinned memory and the device: what rows that are not resident, and gradients, pass through.
func BenchmarkLink(b *testing.B) {
	d, shrink := measured(b, 1<<30)
	defer closed(b, d)
	n := 64 << 20 / shrink
	host, err := d.AllocHost(n)
	if err != nil {
		b.Fatal(err)
	}
	defer d.FreeHost(host)
	x, err := d.Alloc(n)
	if err != nil {
		b.Fatal(err)
	}
	defer d.Free(x)
	event, err := d.NewEvent()
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := event.Free(); err != nil {
			b.Error(err)
		}
	}()
	for _, k := range []struct {
		name string
		call func() error
	}{
		{"Up", func() error { d.StartUpload(x, host); return d.Sync() }},
		{"Down", func() error { d.StartDownload(host, x, event); return event.Wait() }},
	} {
		b.Run(k.name, func(b *testing.B) {
			for range b.N {
				if err := k.call(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(4*n)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GB/s")
		})
	}
}

// BenchmarkRows tells the rates at which rows that are not resident come up: in copies that the host makes, and read by a kernel where they lie.
func BenchmarkRows(b *testing.B) {
	d, shrink := measured(b, 2<<30)
	defer closed(b, d)
	const rowBytes = 512
	stored, rows := 1_000_000/shrink, 400_000/shrink
	table := mem.Make[byte](stored * rowBytes)
	defer mem.Free(table)
	in := compute.Rows{Cols: rowBytes / 4, Tables: [][]byte{table}}
	random := rand.New(rand.NewPCG(1, 2))
	for range rows {
		in.Of = append(in.Of, compute.MakeRowRef(0, random.IntN(stored)))
	}
	if err := d.Resident(in.Tables, []int{0}, nil, rowBytes); err != nil {
		b.Fatal(err)
	}
	if _, kept := d.MapRows(len(table)); kept != nil {
		b.Fatal(kept)
	}
	minibatches := []compute.Rows{in} // the first one makes room, and is not counted
	for range min(b.N, 20) {
		minibatches = append(minibatches, in)
	}
	copied, mapped, err := d.RowRates(minibatches)
	if err := errors.Join(err, d.UnmapRows()); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(copied/1e9, "GB/s-copied")
	b.ReportMetric(mapped/1e9, "GB/s-mapped")
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

// stage puts host arrays on the device, as a minibatch's staging buffer does.
func stage(b *testing.B, d *Device, in *compute.Inputs) (end func()) {
	box := d.NewStagingBuffer(hostOf(b), false)
	if err := box.Send(in); err != nil {
		b.Fatal(err)
	}
	if _, _, _, err := box.Open(); err != nil {
		b.Fatal(err)
	}
	return func() {
		if err := errors.Join(box.Close(), box.Free()); err != nil {
			b.Error(err)
		}
	}
}
