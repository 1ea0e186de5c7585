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
		{atLeast(0), 0, true}, {atLeast(0), -1e-300, false},
		{atLeast(0), inf, false}, {atLeast(0), nan, false},
		{moreThan(0), 0, false}, {moreThan(0), 1e-300, true}, {moreThan(0), nan, false},
		{atLeast(0).upTo(1), 1, true}, {atLeast(0).upTo(1), 1.01, false},
		{atLeast(0).upTo(1), nan, false},
		{atLeast(0).lessThan(1), 1, false}, {atLeast(0).lessThan(1), 0.99, true},
		{atLeast(0).lessThan(1), nan, false},
	} {
		if got := c.in.has(c.x); got != c.inside {
			t.Errorf("%g is %v: %t, want %t", c.x, c.in, got, c.inside)
		}
	}
}
