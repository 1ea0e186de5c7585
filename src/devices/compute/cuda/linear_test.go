//go:build cgo

package cuda

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"halognn/src/devices/compute"
)

// After a product of rounded factors cuBLAS multiplies float32 in its own arithmetic again, which
// the emulated one checks.
func TestArithmeticIsRestored(t *testing.T) {
	for _, p := range []compute.Precision{compute.PrecisionBF16, compute.PrecisionTF32} {
		d := openRounding(t, p, false)
		x := placed(t, d, 4, 4, slices.Repeat([]float32{1}, 16))
		y := placed(t, d, 4, 4, make([]float32, 16))
		for _, by := range []compute.Precision{
			p, compute.PrecisionFloat32, p, compute.PrecisionFloat32,
		} {
			d.precision = by
			d.MatMul(y, x, x, false)
		}
		if got := d.read(y.Data); got[5] != 4 {
			t.Errorf("%s: %v", p, got)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
	leaksNothing(t)
}

// Products in TF32 take factors as they are stored: nothing is launched but the product, and what
// tensor cores do not read of a factor is at most 2^-10 of it.
func TestFactorsOfTF32(t *testing.T) {
	d := openRounding(t, compute.PrecisionTF32, false)
	const n = 64
	r := rand.New(rand.NewPCG(1, 2))
	a, one := make([]float32, n*n), make([]float32, n*n)
	for i := range a {
		a[i] = float32(r.NormFloat64())
	}
	for i := range n {
		one[i*n+i] = 1
	}
	x, w := placed(t, d, n, n, a), placed(t, d, n, n, one)
	y := placed(t, d, n, n, make([]float32, n*n))
	Launches()
	d.MatMul(y, x, w, false)
	got, rounds := d.read(y.Data), false
	if counted := Launches(); counted != nil && counted["cublas/product"] != 1 ||
		len(slices.DeleteFunc(slices.Collect(maps.Keys(counted)), func(name string) bool {
			return !strings.HasPrefix(name, "gemm/")
		})) > 0 {
		t.Errorf("a product is %v", counted)
	}
	for i, want := range a { // times 1: the factor as it was read
		off := math.Abs(float64(got[i]) - float64(want))
		if off > 0x1p-10*math.Abs(float64(want)) {
			t.Errorf("factor %d is read as %g, want %g", i, got[i], want)
		}
		rounds = rounds || off > 0
	}
	if !rounds {
		t.Error("the factors were multiplied in float32")
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	leaksNothing(t)
}

// Sums over rows of more chunks than a grid may be high: the emulated device lets it be 64 high.
func TestManyChunks(t *testing.T) {
	const rows = 70 * compute.ChunkRows
	d := open(t)
	x := placed(t, d, rows, 1, slices.Repeat([]float32{1}, rows))
	sum, mean := placed(t, d, 1, 1, []float32{0}), placed(t, d, 1, 2, []float32{0, 0}).Data
	d.ColumnSum(sum.Data, x)
	d.ColumnMoments(mean[:1], mean[1:], x)
	if got, of := d.read(sum.Data)[0], d.read(mean); got != rows || of[0] != 1 || of[1] != 0 {
		t.Errorf("the sum of %d ones is %v, their mean and variance %v", rows, got, of)
	}
	d.FinishBackward(sum.Data, x, x, compute.Epilogue{Activation: compute.ActivateReLU})
	if got := d.read(sum.Data)[0]; got != rows {
		t.Errorf("the gradient of a bias is %v, want %d", got, rows)
	}
	// of both norms dgamma is the sum of (x - 0)*1, dbeta that of dy; of scores the sum of ds*z
	ones := placed(t, d, rows, 1, slices.Repeat([]float32{1}, rows))
	dx := placed(t, d, rows, 1, make([]float32, rows))
	both, one, zero := placed(t, d, 1, 2, []float32{0, 0}).Data, ones.Data[:1], dx.Data
	check := func(name string) {
		t.Helper()
		if got := d.read(both); got[0] != rows || got[1] != rows {
			t.Errorf("%s: the gradients are %v, want %d", name, got, rows)
		}
		d.Upload(both, []float32{0, 0})
	}
	d.HeadDotsBackward(dx, both[:1], both[1:], ones, ones, x, one, one)
	check("HeadDotsBackward")
	d.Upload(zero, make([]float32, rows))
	d.LayerNormBackward(ones, both[:1], both[1:], ones, x, one, zero, x.Data, compute.Matrix{},
		compute.Epilogue{})
	check("LayerNormBackward")
	d.Upload(ones.Data, slices.Repeat([]float32{1}, rows))
	d.Upload(zero, make([]float32, rows))
	unit := placed(t, d, 1, 1, []float32{1}).Data
	d.BatchNormBackward(ones, both[:1], both[1:], ones, x, unit, zero[:1], unit, 0,
		compute.Matrix{}, compute.Epilogue{})
	check("BatchNormBackward")
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	leaksNothing(t)
}

// Rows that are stored in bfloat16 are factors as they are, and so are weights: nothing is rounded
// but factors of float32.
func TestStoredRowsAreNotRounded(t *testing.T) {
	d := openRounding(t, compute.PrecisionBF16, false)
	const rows, in, out = 3000, 64, 32
	narrow := func(rows, cols int) compute.Matrix {
		all, err := d.Alloc(compute.BF16s.Floats(rows * cols))
		if err != nil {
			t.Fatal(err)
		}
		return compute.BF16s.MatrixIn(all, rows, cols)
	}
	wide := placed(t, d, out, in, make([]float32, out*in))
	a := compute.Dense{X: narrow(rows, in), W: narrow(out, in),
		Bias:     placed(t, d, 1, out, make([]float32, out)).Data,
		Epilogue: compute.Epilogue{Activation: compute.ActivateReLU, Rounded: true}}
	y, dy := narrow(rows, out), narrow(rows, out)
	g := compute.DenseGradients{W: wide, Bias: placed(t, d, 1, out, make([]float32, out)).Data}
	dx := placed(t, d, rows, in, make([]float32, rows*in))
	counts := func(name string, run func(), want map[string]int) {
		t.Helper()
		run() // scratch is made
		Launches()
		run()
		if got := Launches(); got != nil && !maps.Equal(got, want) {
			t.Errorf("%s launches %v, want %v", name, got, want)
		}
	}
	by := a
	by.W = wide
	counts("forward by weights of float32", func() { d.Dense(y, by) },
		map[string]int{"gemm/round_kernel": 1, "cublas/product": 1, "relu/epilogue_kernel": 1})
	if n := d.rounded.bytes; n != 2*in*out {
		t.Errorf("%d bytes of factors are rounded, want those of the weights", n)
	}
	counts("forward", func() { d.Dense(y, a) },
		map[string]int{"cublas/product": 1, "relu/epilogue_kernel": 1})
	counts("backward", func() { d.DenseBackward(g, dy, y, a) },
		map[string]int{"cublas/product": 1, "relu/bias_backward_kernel": 1})
	counts("the gradient of rows", func() { d.MatMulInput(dx, dy, a.W, false) },
		map[string]int{"cublas/product": 1})
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	leaksNothing(t)
}
