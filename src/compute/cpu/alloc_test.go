//go:build cgo && !race

package cpu

import (
	"testing"

	"halognn/src/compute"
)

// No kernel call allocates once the scratch arrays have grown.
func TestKernelsAllocateNothing(t *testing.T) {
	const rows, in, out = 1200, 40, 24
	d := open(t, Options{Threads: 2})
	defer d.Close()
	h := openHost(t, "")
	array := func(n int) []float32 {
		x, err := d.Alloc(n)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Free(x) })
		return x
	}
	matrix := func(rows, cols int) compute.Matrix {
		return compute.Matrix{Rows: rows, Cols: cols, Data: array(rows * cols)}
	}
	x, y, w, z := matrix(rows, in), matrix(rows, out), matrix(out, in), matrix(rows, out)
	bias, mean, rstd := array(out), array(rows), array(rows)
	labels, targets, vertices := make([]int32, rows), make([]uint8, rows*out), make([]int32, rows)
	s := compute.Segments{Indptr: make([]int64, rows+1), Indices: make([]int32, rows)}
	feature := compute.Rows{Cols: in, Tables: [][]byte{make([]byte, 4*in), nil}, Of: make([]compute.RowRef, rows)}
	for i := range rows {
		s.Indptr[i+1], s.Indices[i] = int64(i+1), int32(i)
	}
	sliced := make([]byte, rows*4*in)
	for _, c := range []struct {
		name string
		call func()
	}{
		{"MatMul", func() { d.MatMul(y, x, w, false) }},
		{"MatMulInput", func() { d.MatMulInput(x, y, w, true) }},
		{"MatMulWeights", func() { d.MatMulWeights(w, y, x) }},
		{"AddBias", func() { d.AddBias(y, bias) }},
		{"ColumnSum", func() { d.ColumnSum(bias, y) }},
		{"SegmentMean", func() { d.SegmentMean(y, s, z) }},
		{"SegmentSum", func() { d.SegmentSum(y, s, mean, z, true) }},
		{"SegmentMeanBackward", func() { d.SegmentMeanBackward(z, s, s, y, true) }},
		{"ReLU", func() { d.ReLU(y, 0, compute.DropoutKey{}, nil) }},
		{"ReLU with dropout", func() { d.ReLU(y, 0.5, compute.NewDropoutKey(1, 2, 3, 4, 5), vertices) }},
		{"ReLUBackward", func() { d.ReLUBackward(y, z, 0.5) }},
		{"LayerNorm", func() { d.LayerNorm(y, z, bias, bias, mean, rstd, 1e-5) }},
		{"LayerNormBackward", func() { d.LayerNormBackward(y, bias, bias, y, z, bias, mean, rstd) }},
		{"SoftmaxCrossEntropy", func() { d.SoftmaxCrossEntropy(y, z, labels, 1) }},
		{"SigmoidBCE", func() { d.SigmoidBCE(y, z, targets, 1) }},
		{"Adam", func() { d.Adam(y.Data, z.Data, y.Data, y.Data, compute.AdamOptions{Step: 1}) }},
		{"SGD", func() { d.SGD(y.Data, z.Data, y.Data, compute.SGDOptions{Step: 1}) }},
		{"GatherRows", func() { h.GatherRows(x, feature) }},
		{"SegmentMeanRows", func() { h.SegmentMeanRows(x, s, feature) }},
		{"SliceRows", func() { h.SliceRows(sliced, feature.Tables[0], 4*in, labels) }},
		{"AddInto", func() { h.AddInto(y.Data, z.Data) }},
	} {
		if n := testing.AllocsPerRun(20, c.call); n != 0 {
			t.Errorf("%s allocates %v times a call", c.name, n)
		}
	}
}
