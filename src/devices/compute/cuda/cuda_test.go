//go:build cgo

package cuda

// These tests run the suite of all devices on this one, and compare its bits with those of the
// reference.

import (
	"runtime"
	"slices"
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

func library(t testing.TB) string { return computetest.CUDALibrary(t, "../../../..") }

func open(t testing.TB) *Device { return openIn(t, false) }

// openIn opens a device; apart makes every array a separate allocation.
func openIn(t testing.TB, apart bool) *Device {
	t.Helper()
	d, err := Open(Options{Memory: arenaBytes, Library: library(t), Apart: apart})
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

// Two products together give the numbers of products made one by one. All are integers, whose sums
// are exact in any order.
func TestTwoProducts(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	for _, s := range []struct{ rows, in, out int }{{515, 384, 343}, {2*512 + 3, 1, 1}} {
		d, err := Open(Options{Memory: 3 * arenaBytes, Library: library(t)})
		if err != nil {
			t.Fatal(err)
		}
		matrix := func(rows, cols, seed int) compute.Matrix {
			host := make([]float32, rows*cols)
			for i := range host {
				host[i] = float32((i*seed+i/11)%7 - 3)
			}
			data, err := d.Alloc(len(host))
			if err != nil {
				t.Fatal(err)
			}
			d.Upload(data, host)
			return compute.Matrix{Rows: rows, Cols: cols, Data: data}
		}
		a := compute.Dense{X: matrix(s.rows, s.in, 3), X2: matrix(s.rows, s.in, 5),
			W: matrix(s.out, s.in, 1), W2: matrix(s.out, s.in, 2), Bias: matrix(1, s.out, 1).Data}
		gradients := func() compute.DenseGradients {
			return compute.DenseGradients{W: matrix(s.out, s.in, 1), W2: matrix(s.out, s.in, 1),
				Bias: matrix(1, s.out, 1).Data}
		}
		got, want, dy := gradients(), gradients(), matrix(s.rows, s.out, 4)
		d.DenseBackward(got, dy, compute.Matrix{}, a)
		compute.DenseBackwardInParts(d, want, dy, compute.Matrix{}, a)
		d.Settle()
		for name, pair := range map[string][2][]float32{"first": {got.W.Data, want.W.Data},
			"second": {got.W2.Data, want.W2.Data}, "bias": {got.Bias, want.Bias}} {
			two, one := make([]float32, len(pair[0])), make([]float32, len(pair[0]))
			d.Download(two, pair[0])
			d.Download(one, pair[1])
			if !slices.Equal(two, one) {
				t.Errorf("%v: the %s gradient is not that of a product alone", s, name)
			}
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
	leaksNothing(t)
}

func openRounding(t testing.TB, p compute.Precision, apart bool) *Device {
	t.Helper()
	d, err := Open(Options{Memory: arenaBytes, Library: library(t), Apart: apart, Precision: p})
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
			computetest.Products(t, map[string]func() compute.Device{"as late as it may": at(0, false),
				"at random": at(5, false), "arrays apart": at(0, true)})
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
				Precision: p})
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

// Two runs give equal bits, under any schedule of queued work, and most kernels give the bits of
// the reference.
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
	computetest.SameNumbers(t,
		map[string]func() compute.Device{"as late as it may": at(0), "at random": at(5)})
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
