// Package ref implements compute.Device in plain Go, with one goroutine and loops that are easy to
// read. It is the reference for the other backends, and the backend of builds without a C compiler.
//
//	y[r,o] = sum over f of x[r,f] * w[o,f]             one accumulator each, terms in order
//	db[o]  = (rows 0..511) + (rows 512..1023) + ...    sums over rows by chunks of compute.ChunkRows
//
// All arithmetic is float32, except inside the losses. If factors are rounded, a product runs the
// same loop over rounded copies. On one machine equal calls give equal bits.
package ref

import (
	"fmt"

	"halognn/src/base/mem"
	"halognn/src/devices/compute"
)

var (
	_ compute.Device = (*Device)(nil)
	_ compute.Host   = Host{}
)

// Device implements compute.Device.
type Device struct {
	compute.HostMemory

	// Partial sums of one chunk, in ColumnSum, LayerNormBackward and MatMulWeights.
	partial []float32
	probe   *compute.Probe

	precision compute.Precision
	rounded   [2][]float32 // rounded copies of the factors of a product
	widened   [2][]float32 // float32 copies of the bfloat16 matrices that a kernel reads
	complete  []float32    // float32 copy of the bfloat16 matrix that a kernel computes
}

// New returns a device.
func New() *Device { return WithPrecision(compute.PrecisionFloat32) }

// WithPrecision returns a device that rounds factors of products to the given precision.
func WithPrecision(p compute.Precision) *Device { return &Device{precision: p} }

// Name implements compute.Device.
func (d *Device) Name() string {
	if d.precision == compute.PrecisionFloat32 {
		return "plain Go"
	}
	return fmt.Sprintf("plain Go, %s products", d.precision)
}

// Capabilities implements compute.Device.
func (d *Device) Capabilities() compute.Capabilities {
	return compute.Capabilities{Precision: d.precision, Stores: d.precision.Stored()}
}

// Watch implements compute.Device.
func (d *Device) Watch(p *compute.Probe) { d.probe = p }

// Close implements compute.Device.
func (d *Device) Close() error {
	for _, scratch := range []*[]float32{&d.partial, &d.rounded[0], &d.rounded[1],
		&d.widened[0], &d.widened[1], &d.complete} {
		mem.Free(*scratch)
		*scratch = nil
	}
	return nil
}

// scratch returns an array of n zeros. It is valid until the next call.
func (d *Device) scratch(n int) []float32 {
	d.partial = mem.Grow(d.partial, n)
	clear(d.partial)
	return d.partial
}

// wide returns the matrix m as float32: m itself or a copy. Among the arguments of the kernel, m
// has the index i.
func (d *Device) wide(i int, m compute.Matrix) compute.Matrix {
	if m.BF16 == nil {
		return m
	}
	d.widened[i] = mem.Grow(d.widened[i], m.Rows*m.Cols)
	m.Widen(d.widened[i])
	return compute.Matrix{Rows: m.Rows, Cols: m.Cols, Data: d.widened[i]}
}

func chunks(rows int, f func(lo, hi int)) {
	for lo := 0; lo < rows; lo += compute.ChunkRows {
		f(lo, min(lo+compute.ChunkRows, rows))
	}
}

func addInto(sum, x []float32) {
	for i, v := range x {
		sum[i] += v
	}
}
