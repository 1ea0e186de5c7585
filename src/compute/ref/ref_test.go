package ref_test

import (
	"testing"

	"halognn/src/compute"
	"halognn/src/compute/computetest"
	"halognn/src/compute/ref"
)

func open() compute.Device { return ref.New() }

func TestBackend(t *testing.T) { computetest.Run(t, open, ref.Host{}) }

func TestBF16(t *testing.T) {
	open := func() compute.Device { return ref.WithPrecision(compute.PrecisionBF16) }
	computetest.Products(t, map[string]func() compute.Device{"reference": open})
}

// Two runs on one machine give equal bits.
func TestRepeats(t *testing.T) {
	computetest.SameNumbers(t, map[string]func() compute.Device{"first": open, "second": open})
}
