//go:build cgo && !race

package cpu

import (
	"testing"

	"halognn/src/devices/compute"
	"halognn/src/devices/compute/computetest"
)

// No kernel call allocates once the scratch arrays have grown.
func TestKernelsAllocateNothing(t *testing.T) {
	for _, precision := range precisions {
		d := open(t, Options{Threads: 2, Precision: precision})
		t.Cleanup(func() {
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		})
		computetest.AllocateNothing(t, computetest.NewLayer(t, d, computetest.Sizes{
			Destinations: 1200, Sources: 1500, Degree: 2, In: 40, Out: 24, Classes: 9}))
	}
}

// Calls of the host's kernels allocate nothing either.
func TestHostAllocatesNothing(t *testing.T) {
	const rows, cols = 1200, 40
	h := openHost(t, "")
	dst := compute.Matrix{Rows: rows, Cols: cols, Data: make([]float32, rows*cols)}
	s := compute.Segments{Indptr: make([]int64, rows+1), Indices: make([]int32, rows)}
	feature := compute.Rows{Cols: cols, Tables: [][]byte{make([]byte, 4*cols), nil},
		Of: make([]compute.RowRef, rows)}
	for i := range rows {
		s.Indptr[i+1], s.Indices[i] = int64(i+1), int32(i)
	}
	half := make([]uint16, rows*cols)
	ids, sliced := make([]int32, rows), make([]byte, rows*4*cols)
	m, v := dst, dst
	m.Data, v.Data = make([]float32, rows*cols), make([]float32, rows*cols)
	ptr := make([]int32, rows+1)
	for i := range ptr {
		ptr[i] = int32(i)
	}
	for _, c := range []struct {
		name string
		call func()
	}{
		{"GatherRows", func() { h.GatherRows(dst, feature) }},
		{"SegmentRows",
			func() { h.SegmentRows(dst, compute.ReduceSum, s, dst.Data[:rows], feature) }},
		{"SliceRows", func() { h.SliceRows(sliced, feature.Tables[0], 4*cols, ids) }},
		{"AddInto", func() { h.AddInto(dst.Data, dst.Data) }},
		{"ToBF16", func() { h.ToBF16(half, dst.Data) }},
		{"SparseAdam", func() {
			h.SparseAdam(dst, m, v, compute.RowGradients{Rows: s.Indices, Indptr: ptr,
				Indices: s.Indices, Gradients: dst}, compute.SparseAdamOptions{Decay: 1})
		}},
		{"FromBF16", func() { h.FromBF16(dst.Data, half) }},
	} {
		if n := computetest.Allocations(c.call); n != 0 {
			t.Errorf("%s allocates %v times a call", c.name, n)
		}
	}
}
