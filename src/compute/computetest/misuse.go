package computetest

import (
	"testing"

	"halognn/src/compute"
)

// testMisuse holds a device to panicking, on the calling goroutine, at shapes and indices that do not fit.
func testMisuse(t *testing.T, open func() compute.Device) {
	dev := open()
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	array := func(n int) []float32 {
		x, err := dev.Alloc(n)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { dev.Free(x) })
		return x
	}
	matrix := func(rows, cols int) compute.Matrix {
		return compute.Matrix{Rows: rows, Cols: cols, Data: array(rows * cols)}
	}
	segments := compute.Segments{Indptr: []int64{0, 1, 3}, Indices: []int32{0, 3, 1}}
	falling := compute.Segments{Indptr: []int64{0, 2, 1}, Indices: []int32{0, 0}}
	for _, c := range []struct {
		name string
		call func()
	}{
		{"product of unequal depth", func() { dev.MatMul(matrix(2, 3), matrix(2, 4), matrix(3, 5), false) }},
		{"gradient of unequal rows", func() { dev.MatMulWeights(matrix(3, 4), matrix(2, 3), matrix(1, 4)) }},
		{"data too short", func() {
			dev.MatMulInput(compute.Matrix{Rows: 2, Cols: 4, Data: array(7)}, matrix(2, 3), matrix(3, 4), false)
		}},
		{"bias too short", func() { dev.AddBias(matrix(2, 3), array(2)) }},
		{"index beyond the rows", func() { dev.SegmentMean(matrix(2, 4), segments, matrix(3, 4)) }},
		{"index beyond the rows that are summed", func() { dev.SegmentSum(matrix(2, 4), segments, nil, matrix(3, 4), false) }},
		{"a weight too few", func() { dev.SegmentSum(matrix(2, 4), segments, make([]float32, 2), matrix(4, 4), false) }},
		{"index beyond the gradient", func() { dev.SegmentMeanBackward(matrix(2, 4), segments, segments, matrix(2, 4), false) }},
		{"falling indptr", func() { dev.SegmentMean(matrix(2, 4), falling, matrix(3, 4)) }},
		{"segments and rows differ", func() { dev.SegmentMean(matrix(3, 4), segments, matrix(4, 4)) }},
		{"dropout of everything", func() { dev.ReLU(matrix(1, 4), 1, compute.DropoutKey{}, []int32{1}) }},
		{"a vertex too few", func() { dev.ReLU(matrix(2, 4), 0.5, compute.DropoutKey{}, []int32{1}) }},
		{"label beyond the classes", func() { dev.SoftmaxCrossEntropy(compute.Matrix{}, matrix(1, 4), []int32{4}, 1) }},
		{"moments of another length", func() { dev.Adam(array(3), array(3), array(2), array(3), compute.AdamOptions{Step: 1}) }},
	} {
		t.Run(c.name, func(t *testing.T) { mustPanic(t, c.call) })
	}
	out := matrix(2, 4)
	good := compute.Segments{Indptr: []int64{0, 1, 3}, Indices: []int32{0, 2, 1}}
	dev.SegmentMean(out, good, matrix(3, 4)) // the device still works
}

func mustPanic(t *testing.T, call func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	call()
}
