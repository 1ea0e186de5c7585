//go:build cgo

package cuda

import (
	"errors"
	"math/rand/v2"
	"testing"

	"halognn/src/compute"
	"halognn/src/compute/computetest"
	"halognn/src/compute/meter"
	"halognn/src/mem"
)

// measured opens a device for benchmarks. On an emulated device they only run, on arrays smaller by
// the factor shrink, and their figures mean nothing.
func measured(b *testing.B, memory int) (d *Device, shrink int) {
	path := library(b)
	if err := load(path); err != nil {
		b.Fatal(err)
	}
	if shrink = 1; leaks() >= 0 { // only the emulated library counts leaks
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

// BenchmarkKernels reports the bytes a second of each kernel, and their ratio to the rate of a copy
// on the device in the same run (of-copy), on the shapes of an input layer of 1024 seeds and
// fanouts 15, 10, 5. For products it reports the flops a second, and their ratio to the best
// product of cuBLAS alone (of-gemm).
func BenchmarkKernels(b *testing.B) {
	d, shrink := measured(b, 3<<30)
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
			c.Run() // scratch grows
			if err := d.Sync(); err != nil {
				b.Fatal(err)
			}
			b.ResetTimer()
			for range b.N {
				c.Run()
			}
			if err := d.Sync(); err != nil {
				b.Fatal(err)
			}
			each := b.Elapsed().Seconds() / float64(b.N)
			b.ReportMetric(float64(c.Bytes)/each/1e9, "GB/s")
			b.ReportMetric(float64(c.Bytes)/each/rates.Copy, "of-copy")
			if c.Flops > 0 {
				b.ReportMetric(float64(c.Flops)/each/1e12, "TFLOP/s")
				b.ReportMetric(float64(c.Flops)/each/rates.Product, "of-gemm")
			}
		})
	}
}

// BenchmarkGather reports the rate at which resident rows are gathered, in float32 and float16, and
// the rate of a copy.
func BenchmarkGather(b *testing.B) {
	for _, dtype := range []compute.DType{compute.Float32, compute.Float16} {
		d, shrink := measured(b, 2<<30)
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

// BenchmarkRows reports the rates at which rows that are not resident reach the device: copied by
// the host, and read in place by a kernel.
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
	if _, kept := d.MapRows(len(table), true); kept != nil {
		b.Fatal(kept)
	}
	minibatches := []compute.Rows{in} // the first one grows buffers and is not counted
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
