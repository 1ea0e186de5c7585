package computetest

import (
	"embed"
	"math"
	"os"
	"path/filepath"
	"testing"

	"halognn/src/base/npy"
	"halognn/src/devices/compute"
)

// The golden files were computed with PyTorch autograd in float64; inputs are exact in float32. A
// run of PyTorch in float32 differs from them by less than 1e-7 of the largest element of an array.
// A program that sums in another order should differ by less than ten times that.
//
//go:embed testdata/*.npz
var goldenFiles embed.FS

const goldenTolerance = 1e-6

// golden is one golden file.
type golden struct {
	t   *testing.T
	zip *npy.Zip
}

func openGolden(t *testing.T, name string) golden {
	data, err := goldenFiles.ReadFile("testdata/" + name + ".npz")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), name+".npz")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	zip, err := npy.OpenZip(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = zip.Close() })
	return golden{t, zip}
}

// array returns an array of the file, and its number of rows.
func (g golden) array(name string) ([]float64, int) {
	x, shape, err := npy.ZipRead[float64](g.zip, name)
	if err != nil {
		g.t.Fatal(err)
	}
	return x, shape[0]
}

func (g golden) input(name string) ([]float32, int) {
	x, rows := g.array(name)
	y := make([]float32, len(x))
	for i, v := range x {
		y[i] = float32(v)
	}
	return y, rows
}

// near compares an array with one of the file. The tolerance is relative to the largest element of
// the array in the file.
func (g golden) near(name string, got []float32) {
	want, _ := g.array(name)
	var largest, worst float64
	for i, w := range want {
		largest = math.Max(largest, math.Abs(w))
		if d := math.Abs(float64(got[i]) - w); !(d <= worst) {
			worst = d
		}
	}
	if !(worst <= goldenTolerance*largest) {
		g.t.Errorf("%s is off by %g of %g", name, worst, largest)
	}
}

func testGolden(t *testing.T, open func() compute.Device) {
	for _, name := range []string{"softmax_ce", "softmax_ce_extreme"} {
		t.Run(name,
			func(t *testing.T) { goldenSoftmax(openGolden(t, name), newBench(t, open(), guard)) })
	}
	for _, name := range []string{"sigmoid_bce", "sigmoid_bce_extreme"} {
		t.Run(name,
			func(t *testing.T) { goldenSigmoid(openGolden(t, name), newBench(t, open(), guard)) })
	}
	t.Run("layernorm", func(t *testing.T) {
		goldenLayerNorm(openGolden(t, "layernorm"),
			newBench(t, open(), guard))
	})
}

func goldenSoftmax(g golden, b *bench) {
	z, rows := g.input("logits")
	values, _ := g.array("labels")
	labels := make([]int32, rows)
	for i, v := range values {
		labels[i] = int32(v)
	}
	cols := len(z) / rows
	dz := b.gradient(rows, cols, true)
	loss, _ := b.dev.SoftmaxCrossEntropy(dz, b.matrix(rows, cols, z), labels, 1/float32(rows))
	g.near("loss", []float32{float32(loss)})
	g.near("dlogits", b.get(dz.Data))
	b.close()
}

func goldenSigmoid(g golden, b *bench) {
	z, rows := g.input("logits")
	values, _ := g.array("labels")
	targets := make([]uint8, len(values))
	for i, v := range values {
		targets[i] = uint8(v)
	}
	cols := len(z) / rows
	dz := b.gradient(rows, cols, true)
	loss, _ := b.dev.SigmoidBCE(dz, b.matrix(rows, cols, z), targets, 1/float32(len(z)))
	g.near("loss", []float32{float32(loss)})
	g.near("dlogits", b.get(dz.Data))
	b.close()
}

func goldenLayerNorm(g golden, b *bench) {
	x, rows := g.input("X")
	dy, _ := g.input("dY")
	gamma, cols := g.input("gamma")
	beta, _ := g.input("beta")
	eps, _ := g.input("eps")
	mx, dGamma := b.matrix(rows, cols, x), b.array(gamma)
	y, dx := b.gradient(rows, cols, true), b.gradient(rows, cols, true)
	mean, rstd, dgamma, dbeta := b.dirty(rows), b.dirty(rows), b.dirty(cols), b.dirty(cols)
	b.dev.LayerNorm(y, mx, dGamma, b.array(beta), mean, rstd, eps[0], compute.Epilogue{})
	b.dev.LayerNormBackward(dx, dgamma, dbeta, b.matrix(rows, cols, dy), mx, dGamma, mean, rstd, y,
		compute.Epilogue{})
	g.near("Y", b.get(y.Data))
	g.near("dX", b.get(dx.Data))
	g.near("dgamma", b.get(dgamma))
	g.near("dbeta", b.get(dbeta))
	b.close()
}
