//go:build cgo

package cuda

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"halognn/src/base/mem"
	"halognn/src/devices/compute"
	"halognn/src/devices/compute/computetest"
	"halognn/src/devices/compute/meter"
)

// measured opens a device for benchmarks. On an emulated device they only run, on arrays smaller by
// the factor shrink, and their figures mean nothing.
func measured(b *testing.B, o Options) (d *Device, shrink int) {
	path := library(b)
	if err := load(path); err != nil {
		b.Fatal(err)
	}
	if shrink = 1; leaks() >= 0 { // only the emulated library counts leaks
		shrink, o.Memory = 1000, 16<<20
	}
	o.Library = path
	d, err := Open(o)
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

// BenchmarkKernels reports the bytes a second of each kernel, and their ratio to the rate of a copy
// on the device in the same run (of-copy), on the shapes of an input layer of 1024 seeds and
// fanouts 15, 10, 5. For products it reports the flops a second, and their ratio to the best
// product of cuBLAS alone (of-gemm).
func BenchmarkKernels(b *testing.B) {
	d, shrink := measured(b, Options{Memory: 4 << 30})
	b.Cleanup(func() { closed(b, d) })
	rates, err := meter.MeasureRates(d, 64<<20/shrink)
	if err != nil {
		b.Fatal(err)
	}
	l := computetest.NewLayer(b, d,
		computetest.Sizes{Destinations: 100_000 / shrink, Sources: 400_000 / shrink, Degree: 5,
			In: 128, Out: 256, Classes: 32})
	defer stage(b, d, l.Inputs())()
	n := 50_000_000 / shrink
	x, err := d.Alloc(2 * n)
	if err != nil {
		b.Fatal(err)
	}
	defer d.Free(x)
	for _, c := range append(l.Calls(),
		computetest.Call{Name: "Copy", Run: func() { d.Copy(x[:n], x[n:]) }, Bytes: 2 * 4 * n},
		computetest.Call{Name: "Add", Run: func() { d.Add(x[:n], x[n:]) }, Bytes: 3 * 4 * n},
	) {
		b.Run(c.Name, func(b *testing.B) {
			each := timed(b, d, c.Run)
			b.ReportMetric(float64(c.Bytes)/each/1e9, "GB/s")
			b.ReportMetric(float64(c.Bytes)/each/rates.Copy, "of-copy")
			if c.Flops > 0 {
				b.ReportMetric(float64(c.Flops)/each/1e12, "TFLOP/s")
				b.ReportMetric(float64(c.Flops)/each/rates.Product, "of-gemm")
			}
		})
	}
}

// BenchmarkProducts reports the flops a second of products in every precision, rounding of the
// factors included, on the shapes of an input layer and a hidden one. The name has the rows, the
// columns in and the columns out: profiling/lab/gpu_products.py has PyTorch make the same. The
// factors are random, because products of zeros take less power and run faster.
func BenchmarkProducts(b *testing.B) {
	for _, p := range []compute.Precision{compute.PrecisionFloat32, compute.PrecisionTF32,
		compute.PrecisionBF16} {
		for _, s := range []struct{ rows, in, out int }{{150_000, 100, 256}, {150_000, 256, 256}} {
			d, shrink := measured(b, Options{Memory: 3 << 30, Precision: p})
			s.rows /= shrink
			random := rand.New(rand.NewPCG(1, 2))
			drawn := func(rows, cols int) compute.Matrix {
				host := make([]float32, rows*cols)
				for i := range host {
					host[i] = random.Float32() - 0.5
				}
				data, err := d.Alloc(len(host))
				if err != nil {
					b.Fatal(err)
				}
				d.Upload(data, host)
				return compute.Matrix{Rows: rows, Cols: cols, Data: data}
			}
			x, y, w := drawn(s.rows, s.in), drawn(s.rows, s.out), drawn(s.out, s.in)
			to, back, dw := drawn(s.rows, s.out), drawn(s.rows, s.in), drawn(s.out, s.in)
			for _, c := range []struct {
				name string
				run  func()
			}{
				{"MatMul", func() { d.MatMul(to, x, w, false) }},
				{"MatMulInput", func() { d.MatMulInput(back, y, w, false) }},
				{"MatMulWeights", func() { d.MatMulWeights(dw, y, x) }},
			} {
				name := fmt.Sprintf("%s/%s/%dx%dx%d", p, c.name, s.rows, s.in, s.out)
				b.Run(name, func(b *testing.B) {
					each := timed(b, d, c.run)
					b.ReportMetric(2*float64(s.rows*s.in*s.out)/each/1e12, "TFLOP/s")
				})
			}
			closed(b, d)
		}
	}
}

// timed returns the seconds of a call, once scratch has grown.
func timed(b *testing.B, d *Device, call func()) float64 {
	call()
	if err := d.Sync(); err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	for range b.N {
		call()
	}
	if err := d.Sync(); err != nil {
		b.Fatal(err)
	}
	return b.Elapsed().Seconds() / float64(b.N)
}

// BenchmarkGather reports the rate at which resident rows are gathered, as stored, and the rate of
// a copy.
func BenchmarkGather(b *testing.B) {
	for _, dtype := range []compute.DType{compute.Float32, compute.Float16, compute.Int8} {
		d, shrink := measured(b, Options{Memory: 2 << 30})
		const cols = 128
		stored, rows, rowBytes := 1_000_000/shrink, 400_000/shrink, cols*dtype.Size()
		rates, err := meter.MeasureRates(d, 64<<20/shrink)
		if err != nil {
			b.Fatal(err)
		}
		if err := d.Resident([][]byte{make([]byte, stored*rowBytes)}, []int{stored}, nil,
			rowBytes); err != nil {
			b.Fatal(err)
		}
		in := &compute.Inputs{Rows: compute.Rows{Cols: cols, Type: dtype,
			Tables: make([][]byte, 1)}, Sources: true}
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

// BenchmarkLink reports the rate of copies between pinned memory and the device, the path of
// gradients and of rows that are not resident.
func BenchmarkLink(b *testing.B) {
	d, shrink := measured(b, Options{Memory: 1 << 30})
	defer closed(b, d)
	n := 64 << 20 / shrink
	host, x, free := ends(b, d, n)
	defer free()
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

// BenchmarkRows reports the rates at which rows that are not resident reach the device: copied by
// the host and read in place by a kernel, each with all that the host does for it; and, of the
// kernel alone, the rate and its ratio to that of a copy from pinned memory (of-link).
func BenchmarkRows(b *testing.B) {
	d, shrink := measured(b, Options{Memory: 2 << 30})
	defer closed(b, d)
	const rowBytes = 512
	stored, rows := 1_000_000/shrink, 400_000/shrink
	table := mem.Make[byte](stored * rowBytes)
	defer mem.Free(table)
	for i := range table { // pages that nobody has written are all the same one
		table[i] = byte(i)
	}
	in := compute.Rows{Cols: rowBytes / 4, Tables: [][]byte{table}}
	random := rand.New(rand.NewPCG(1, 2))
	for range rows {
		in.Of = append(in.Of, compute.MakeRowRef(0, random.IntN(stored)))
	}
	if err := d.Resident(in.Tables, []int{0}, nil, rowBytes); err != nil {
		b.Fatal(err)
	}
	if _, kept := d.MapRows(len(table), true); kept != nil {
		b.Fatal(kept)
	}
	defer func() {
		if err := d.UnmapRows(); err != nil {
			b.Error(err)
		}
	}()
	b.Run("Rates", func(b *testing.B) {
		minibatches := []compute.Rows{in} // the first one grows buffers and is not counted
		for range min(b.N, 20) {
			minibatches = append(minibatches, in)
		}
		copied, mapped, err := d.RowRates(minibatches)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(copied/1e9, "GB/s-copied")
		b.ReportMetric(mapped/1e9, "GB/s-mapped")
	})
	box := d.NewStagingBuffer(hostOf(b), true).(*stagingBuffer)
	box.apart = true
	if err := box.Send(&compute.Inputs{Rows: in, Sources: true}); err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := box.Free(); err != nil {
			b.Error(err)
		}
	}()
	link := upRate(b, d, rows*rowBytes/4)
	b.Run("Fetch", func(b *testing.B) {
		if err := d.idle(); err != nil {
			b.Fatal(err)
		}
		b.ResetTimer()
		for range b.N {
			box.fetch()
		}
		if err := d.idle(); err != nil {
			b.Fatal(err)
		}
		rate := float64(rows*rowBytes) * float64(b.N) / b.Elapsed().Seconds()
		b.ReportMetric(rate/1e9, "GB/s")
		b.ReportMetric(rate/link, "of-link")
	})
}

// ends returns n elements of pinned memory and n of the device's, between which to copy.
func ends(b *testing.B, d *Device, n int) (host, device []float32, free func()) {
	host, err := d.AllocHost(n)
	if err != nil {
		b.Fatal(err)
	}
	device, err = d.Alloc(n)
	if err != nil {
		b.Fatal(err)
	}
	return host, device, func() {
		d.Free(device)
		d.FreeHost(host)
	}
}

// upRate returns the bytes a second of copies of n elements from pinned memory to the device.
func upRate(b *testing.B, d *Device, n int) float64 {
	const copies = 20
	host, x, free := ends(b, d, n)
	defer free()
	begin := time.Time{}
	for i := range 1 + copies {
		if i == 1 { // the first is not counted
			begin = time.Now()
		}
		d.StartUpload(x, host)
		if err := d.Sync(); err != nil {
			b.Fatal(err)
		}
	}
	return float64(4*n*copies) / time.Since(begin).Seconds()
}

// stage copies host arrays to the device, as a minibatch's staging buffer does.
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
