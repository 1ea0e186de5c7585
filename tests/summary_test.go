//go:build e2e

package tests

import (
	"math"
	"testing"
)

// The items of the set-up add up to its total.
func TestSetUpAddsUp(t *testing.T) {
	unlessShort(t)
	t.Parallel()
	summary := trained(t, smallParts.dir(t), 2).Summary
	sum := 0.0
	// items of the command; the others are of the run
	for _, item := range []string{"launch", "open", "verify", "device"} {
		if summary.SetUp[item] <= 0 {
			t.Errorf("setup: %s took %v s", item, summary.SetUp[item])
		}
	}
	for _, seconds := range summary.SetUp {
		sum += seconds
	}
	if math.Abs(sum-summary.SetUpSeconds) > 1e-3 {
		t.Errorf("setup adds up to %g s, setup_seconds is %g", sum, summary.SetUpSeconds)
	}
}
