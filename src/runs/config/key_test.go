package config

import (
	"math"
	"testing"
)

// An interval has its bounds unless they are open, and never what is no number.
func TestIntervals(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	for _, c := range []struct {
		in     interval
		x      float64
		inside bool
	}{
		{from(0), 0, true}, {from(0), -1e-300, false}, {from(0), inf, false}, {from(0), nan, false},
		{above(0), 0, false}, {above(0), 1e-300, true}, {above(0), nan, false},
		{from(0).upTo(1), 1, true}, {from(0).upTo(1), 1.01, false}, {from(0).upTo(1), nan, false},
		{from(0).below(1), 1, false}, {from(0).below(1), 0.99, true}, {from(0).below(1), nan,
			false},
	} {
		if got := c.in.has(c.x); got != c.inside {
			t.Errorf("%g is %v: %t, want %t", c.x, c.in, got, c.inside)
		}
	}
}
