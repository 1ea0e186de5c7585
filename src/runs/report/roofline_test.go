package report

import (
	"slices"
	"strings"
	"testing"

	"halognn/src/base/chart"
)

// A product of 1e12 flops and 1e10 bytes in 10 s stands at 100 flops a byte and 100 Gflop/s, half
// of the roof; a copy has no place on the plot, and one in the table.
func TestRoofline(t *testing.T) {
	r := fixture(t, "base")[0]
	r.Kernels = values{"steps": 10.0, "copy_bytes_per_second": 1e10,
		"product_flops_per_second": 2e11,
		"kernels": []any{
			map[string]any{"name": "Copy", "calls": 20.0, "seconds": 2.0, "bytes": 1e10,
				"flops": 0.0},
			map[string]any{"name": "Dense", "calls": 30.0, "seconds": 10.0, "bytes": 1e10,
				"flops": 1e12},
		}}
	c := roofline(r).Drawing.(*chart.Curves)
	if len(c.Curves) != 2 || c.Curves[0].Names[0] != "Dense" || c.Curves[0].X[0] != 100 ||
		c.Curves[0].Y[0] != 100 || c.Curves[0].Points[0] != "50 %" {
		t.Errorf("kernels at %+v", c.Curves)
	}
	if roof := c.Curves[1]; !slices.Equal(roof.X, []float64{10, 20, 200}) ||
		!slices.Equal(roof.Y, []float64{100, 200, 200}) {
		t.Errorf("roof %+v", roof)
	}
	want := [][]string{
		{"Dense", "30", "1 000", "83.33 %", "1", "100", "50.00 %"},
		{"Copy", "20", "200", "16.67 %", "5", "–", "50.00 %"},
	}
	for i, row := range kernels(r).rows {
		got := strings.ReplaceAll(strings.Join(row, "|"), "\u202f", " ")
		if got != strings.Join(want[i], "|") {
			t.Errorf("row %d: %q, want %q", i, got, want[i])
		}
	}
	if none := fixture(t, "base")[0]; !roofline(none).Empty() || len(kernels(none).rows) != 0 {
		t.Error("a run that was not metered has kernels")
	}
}
