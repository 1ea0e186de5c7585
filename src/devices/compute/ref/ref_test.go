package ref_test

import (
	"testing"

	"halognn/src/devices/compute"
	"halognn/src/devices/compute/computetest"
	"halognn/src/devices/compute/ref"
)

func open() compute.Device { return ref.New() }

func TestBackend(t *testing.T) { computetest.Run(t, open, ref.Host{}) }

func TestRoundedFactors(t *testing.T) {
	for _, p := range []compute.Precision{compute.PrecisionBF16, compute.PrecisionTF32} {
		open := func() compute.Device { return ref.WithPrecision(p) }
		computetest.Products(t, map[string]func() compute.Device{string(p): open})
	}
}

func TestStored(t *testing.T) {
	of := func() compute.Device { return ref.WithPrecision(compute.PrecisionBF16) }
	computetest.Stored(t, of)
	computetest.Completed(t, of)
}

// Two runs on one machine give equal bits.
func TestRepeats(t *testing.T) {
	computetest.SameNumbers(t, map[string]func() compute.Device{"first": open, "second": open})
}
