//go:build cgo

package cuda

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"halognn/src/devices/compute"
)

// The number of launches of products of groups does not grow with the number of groups.
func TestLaunchesOfGroups(t *testing.T) {
	for _, c := range []struct {
		of   compute.Precision
		want int // launches of the product, of the gradient of its input, and of its weights
	}{
		// the places of tiles, tiles of one or two sizes, and what is in no tile
		{compute.PrecisionFloat32, 3 + 3 + 4}, {compute.PrecisionTF32, 3 + 3 + 4},
		{compute.PrecisionBF16, 4 + 4 + 5}, // and the rounding of factors
	} {
		for _, groups := range []int{3, 30} {
			got, counted := launchesOfGroups(t, c.of, groups)
			if !counted {
				t.Skip("the library counts no launches: it is not emulated")
			}
			t.Logf("%s, %d groups of 1300 rows: %d launches", c.of, groups, got)
			if got != c.want {
				t.Errorf("%s: three products of %d groups are %d launches, want %d", c.of, groups,
					got, c.want)
			}
		}
	}
	leaksNothing(t)
}

// launchesOfGroups returns the number of kernels and products that three products of groups launch.
// The result counted is false if the library counts no launches.
func launchesOfGroups(t *testing.T, p compute.Precision, groups int) (launches int, counted bool) {
	const rows, cols = 1300, 8
	d := openRounding(t, p, false)
	random := rand.New(rand.NewPCG(1, 2))
	matrix := func(rows, cols int) compute.Matrix {
		x := make([]float32, rows*cols)
		for i := range x {
			x[i] = float32(random.NormFloat64())
		}
		return placed(t, d, rows, cols, x)
	}
	g := compute.Groups{Stride: cols * cols}
	for i := range groups {
		g.Ends = append(g.Ends, int32(rows*(i+1)))
	}
	x, y := matrix(groups*rows, cols), matrix(groups*rows, cols)
	w := matrix(groups, g.Stride)
	Launches()
	d.GroupMatMul(y, x, w.Data, g)
	d.GroupMatMulInput(y, x, w.Data, g)
	d.GroupMatMulWeights(w.Data, y, x, g)
	d.read(w.Data)
	all := Launches()
	for name, n := range all {
		if strings.Contains(name, "/") { // not a copy
			launches += n
		}
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	return launches, all != nil
}

// A product of rows without columns is zero, and its gradients are empty. cuBLAS would refuse them.
func TestGroupsWithoutColumns(t *testing.T) {
	d := openRounding(t, compute.PrecisionBF16, false)
	const rows, out = 3 * 128, 8
	g := compute.Groups{Ends: []int32{128, 256, rows}}
	y := placed(t, d, rows, out, slices.Repeat([]float32{1}, rows*out))
	d.GroupMatMul(y, compute.Matrix{Rows: rows}, nil, g)
	if got := d.read(y.Data); slices.ContainsFunc(got, func(x float32) bool { return x != 0 }) {
		t.Errorf("a product of no columns is %v", got)
	}
	d.GroupMatMulInput(y, compute.Matrix{Rows: rows}, nil, g)
	if got := d.read(y.Data); slices.ContainsFunc(got, func(x float32) bool { return x != 0 }) {
		t.Errorf("the gradient from no columns is %v", got)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	leaksNothing(t)
}
