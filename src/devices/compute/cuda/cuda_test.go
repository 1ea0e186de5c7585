//go:build cgo

package cuda

// These tests run the suite of all devices on this one, and compare its bits with those of the
// reference.

import (
	"runtime"
	"strings"
	"testing"

	"halognn/src/devices/compute"
	"halognn/src/devices/compute/computetest"
	"halognn/src/devices/compute/cpu"
	"halognn/src/devices/compute/ref"
	"halognn/tests/race"
)

// arenaBytes is enough for the largest case of the suite, and quickly filled with NaN for each.
const arenaBytes = 8 << 20

// large lets the suite's small shapes reach kernels whose threads take several segments, on any
// device.
const large = 2

func library(t testing.TB) string { return computetest.CUDALibrary(t, "../../../..") }

func open(t testing.TB) *Device { return openIn(t, false) }

// openIn opens a device; apart makes every array a separate allocation.
func openIn(t testing.TB, apart bool) *Device {
	t.Helper()
	d, err := Open(Options{Memory: arenaBytes, Library: library(t), Apart: apart, Large: large})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func hostOf(t testing.TB) compute.Host {
	h, err := cpu.NewHost("")
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestBackend(t *testing.T) {
	library(t)
	computetest.Run(t, func() compute.Device { return openIn(t, true) }, hostOf(t))
	leaksNothing(t)
}

func openRounding(t testing.TB, p compute.Precision, apart bool) *Device {
	t.Helper()
	d, err := Open(Options{Memory: arenaBytes, Library: library(t), Apart: apart, Large: large,
		Precision: p})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestRoundedFactors(t *testing.T) {
	race.Alone(t)
	library(t)
	defer schedule(0)
	for _, p := range []compute.Precision{compute.PrecisionBF16, compute.PrecisionTF32} {
		at := func(seed uint64, apart bool) func() compute.Device {
			return func() compute.Device {
				d := openRounding(t, p, apart)
				if !strings.Contains(d.Name(), string(p)+" products") {
					t.Errorf("%s: the device is called %q", p, d.Name())
				}
				schedule(seed)
				return d
			}
		}
		t.Run(string(p), func(t *testing.T) {
			computetest.Products(t, map[string]func() compute.Device{
				"as late as it may": at(0, false),
				"at random":         at(5, false),
				"arrays apart":      at(0, true),
			})
		})
	}
	leaksNothing(t)
	if _, err := Open(Options{Memory: arenaBytes, Library: library(t),
		Precision: "fp8"}); err == nil ||
		!strings.Contains(err.Error(), "fp8") {
		t.Errorf("an unknown precision gives %v", err)
	}
}

// Kernels that complete rows, and those that read rows of bfloat16, give the bits of their parts.
func TestStored(t *testing.T) {
	race.Alone(t)
	library(t)
	defer schedule(0)
	for _, p := range []compute.Precision{compute.PrecisionBF16, compute.PrecisionTF32} {
		at := func() compute.Device {
			d, err := Open(Options{Memory: 4 * arenaBytes, Library: library(t), Apart: true,
				Large: large, Precision: p})
			if err != nil {
				t.Fatal(err)
			}
			schedule(5)
			return d
		}
		t.Run(string(p), func(t *testing.T) {
			computetest.Completed(t, at)
			if p.Stored() == compute.BF16s {
				computetest.Stored(t, at)
			}
		})
	}
	leaksNothing(t)
}

// Pairs have the bits of their halves, and their product is the sum of two.
func TestPairs(t *testing.T) {
	race.Alone(t)
	library(t)
	defer schedule(0)
	for _, p := range []compute.Precision{compute.PrecisionFloat32, compute.PrecisionBF16,
		compute.PrecisionTF32} {
		t.Run(string(p), func(t *testing.T) {
			computetest.Pairs(t, func() compute.Device {
				d, err := Open(Options{Memory: 4 * arenaBytes, Library: library(t), Apart: true,
					Large: large, Precision: p})
				if err != nil {
					t.Fatal(err)
				}
				schedule(5)
				return d
			})
		})
	}
	leaksNothing(t)
}

// Two runs give equal bits, under any schedule of queued work and with any number of segments a
// thread, and most kernels give the bits of the reference.
func TestRepeats(t *testing.T) {
	race.Alone(t)
	library(t)
	defer schedule(0)
	at := func(seed uint64) func() compute.Device {
		return func() compute.Device {
			d := open(t)
			schedule(seed)
			return d
		}
	}
	segments := func(large int) func() compute.Device {
		return func() compute.Device {
			d, err := Open(Options{Memory: arenaBytes, Library: library(t), Large: large})
			if err != nil {
				t.Fatal(err)
			}
			schedule(0)
			return d
		}
	}
	computetest.SameNumbers(t,
		map[string]func() compute.Device{"as late as it may": at(0), "at random": at(5),
			"a segment a thread": segments(1 << 40), "several a thread": segments(1)})
	if runtime.GOARCH == "amd64" { // elsewhere Go fuses multiplications and additions
		computetest.SameNumbers(t,
			map[string]func() compute.Device{"cuda": at(0),
				"reference": func() compute.Device { return ref.New() }},
			"product", "groups", "dense", "layernorm", "softmax", "sigmoid", "attention", "heads",
			"pairs", "elu")
	}
	leaksNothing(t)
}

func leaksNothing(t *testing.T) {
	t.Helper()
	if n := leaks(); n > 0 {
		t.Errorf("%d allocations, streams and events were not freed", n)
	}
}
