//go:build cgo

package cpu

import "testing"

// Loops of multiply-adds: two multiplications and additions a round at least, and nothing where
// the machine lacks the instructions.
func TestPeakLoops(t *testing.T) {
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
