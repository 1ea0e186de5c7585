//go:build cgo

package cuda

import (
	"math/rand/v2"
	"strings"
	"testing"

	"halognn/src/devices/compute"
)

// The number of launches of products of groups does not grow with the number of groups.
func TestLaunchesOfGroups(t *testing.T) {
	for _, c := range []struct {
		of   compute.Precision
		most int // launches of the product, of the gradient of its input, and of its weights
		cols int
	}{
		// the places of tiles, tiles of one or two sizes, and what is in no tile
		{compute.PrecisionFloat32, 3 + 3 + 4, 8}, {compute.PrecisionTF32, 3 + 3 + 4, 8},
		{compute.PrecisionBF16, 4 + 4 + 5, 8}, // and the rounding of factors
	} {
		for _, groups := range []int{2, 30} {
			d := openRounding(t, c.of, false)
			r := rand.New(rand.NewPCG(1, 2))
			ends, rows := []int32(nil), 0
			for range groups {
				rows += 1300
				ends = append(ends, int32(rows))
			}
			random := func(n int) []float32 {
				x := make([]float32, n)
				for i := range x {
					x[i] = float32(r.NormFloat64())
				}
				return x
			}
			g := compute.Groups{Ends: ends, Stride: c.cols * c.cols}
			x := placed(t, d, rows, c.cols, random(rows*c.cols))
			y := placed(t, d, rows, c.cols, make([]float32, rows*c.cols))
			w := placed(t, d, groups, g.Stride, random(groups*g.Stride))

			Launches()
			d.GroupMatMul(y, x, w.Data, g)
			d.GroupMatMulInput(y, x, w.Data, g)
			d.GroupMatMulWeights(w.Data, y, x, g)
			d.read(w.Data)
			launches := 0
			for name, n := range Launches() {
				if strings.Contains(name, "/") { // a kernel or a product, not a copy
					launches += n
				}
			}
			t.Logf("%s, %d groups of 1300 rows: %d launches", c.of, groups, launches)
			if launches > c.most {
				t.Errorf("%s: three products of %d groups are %d launches, more than %d", c.of,
					groups, launches, c.most)
			}
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	leaksNothing(t)
}
