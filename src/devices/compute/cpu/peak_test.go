//go:build cgo

package cpu

import (
	"testing"
	"time"

	"halognn/src/devices/compute"
	"halognn/tests/race"
)

// Every loop does at least one multiplication and one addition a round; loops are absent if the
// machine lacks the instructions.
func TestPeakLoops(t *testing.T) {
	race.Alone(t)
	loops := peakLoops()
	if len(loops) == 0 {
		t.Skip("none for this processor")
	}
	for _, l := range loops {
		one, many := l.run(1), l.run(1000)
		if one < 2 || many != 1000*one || l.run(0) != 0 || l.run(-1) != 0 {
			t.Errorf("%s %s: %d operations in one round, %d in 1000", l.ISA, l.Precision, one, many)
		}
	}
	if (peakLoop{number: 99}).run(1) != 0 {
		t.Error("a loop that does not exist runs")
	}
}

// The peak is measured on one thread and on all, and no product beats it.
func TestPeaks(t *testing.T) {
	race.Alone(t)
	d := open(t, Options{Threads: 1})
	defer d.Close()
	peaks := d.Capabilities().Peaks()
	if len(peaks) != len(peakLoops()) {
		t.Fatalf("%d peaks of %d loops", len(peaks), len(peakLoops()))
	}
	best := 0.0
	for _, p := range peaks {
		if !(p.One > 0 && p.All > 0) {
			t.Errorf("measured %+v", p)
		}
		if p.Precision == "float32" {
			best = max(best, p.All)
		}
	}
	const n = 256
	x, y, w := make([]float32, n*n), make([]float32, n*n), make([]float32, n*n)
	matrix := func(data []float32) compute.Matrix {
		return compute.Matrix{Rows: n, Cols: n,
			Data: data}
	}
	fastest := time.Hour
	for range 20 {
		begin := time.Now()
		d.MatMul(matrix(y), matrix(x), matrix(w), false)
		fastest = min(fastest, time.Since(begin))
	}
	if rate := 2 * n * n * n / fastest.Seconds(); best > 0 && rate > 1.3*best { // clocks change
		t.Errorf("a product of %g flop/s, at a peak of %g", rate, best)
	}
}
