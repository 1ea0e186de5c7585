//go:build cgo

package cpu

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"halognn/src/devices/compute"
	"halognn/src/devices/compute/computetest"
	"halognn/tests/race"
)

// engines returns the libraries of matrix products of this machine, and logs the others.
func engines(t testing.TB) []string {
	var have []string
	for _, name := range gemmWords {
		if _, _, err := openEngine(name); err != nil {
			t.Logf("not tested: %v", err)
		} else {
			have = append(have, name)
		}
	}
	return have
}

var precisions = []compute.Precision{compute.PrecisionFloat32, compute.PrecisionBF16,
	compute.PrecisionTF32}

// openOwn opens a device that multiplies bfloat16 by our own kernels, also where float32 is faster;
// or else as an empty GEMM chooses.
func openOwn(t testing.TB, o Options) *Device {
	o.Precision = compute.PrecisionBF16
	d := open(t, o)
	if own := openBF16Kernels(); own != nil {
		d.rounding.free()
		d.rounding = newPairs(own, d.level, o.Threads)
	}
	return d
}

// Every library passes the suite of devices in every precision, and the number of threads changes
// no bit of its products.
func TestEngines(t *testing.T) {
	race.Alone(t)
	names := append(engines(t), "")
	for _, name := range names {
		for _, precision := range precisions {
			if name == "" && precision != compute.PrecisionBF16 {
				continue // of a library alone
			}
			t.Run(name+" "+string(precision), func(t *testing.T) {
				open := func(threads int) func() compute.Device {
					return func() compute.Device {
						if name == "" {
							return openOwn(t, Options{Threads: threads})
						}
						return open(t, Options{Threads: threads, GEMM: name, Precision: precision})
					}
				}
				devices := make(map[string]func() compute.Device)
				for _, threads := range []int{1, 2, 3} {
					devices[fmt.Sprintf("%d threads", threads)] = open(threads)
				}
				computetest.Products(t, devices)
			})
		}
	}
}

// A product of compute.SameTiles rows has the bits of the products of its tiles.
func TestProductTile(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	normal := func(rows, cols int) compute.Matrix {
		m := compute.Matrix{Rows: rows, Cols: cols, Data: make([]float32, rows*cols)}
		for i := range m.Data {
			m.Data[i] = float32(random.NormFloat64())
		}
		return m
	}
	check := func(name string, d *Device) {
		tile := d.Capabilities().ProductTile
		if tile < 1 || tile > compute.SameTiles {
			t.Fatalf("%s: a tile has %d rows", name, tile)
		}
		for _, cols := range []int{47, 256} {
			x, x2 := normal(compute.SameTiles, 100), normal(compute.SameTiles, 100)
			w, w2 := normal(cols, 100), normal(cols, 100)
			if d.Capabilities().Stores == compute.BF16s {
				x = compute.BF16s.MatrixIn(make([]float32, compute.BF16s.Floats(len(x.Data))),
					x.Rows, x.Cols)
				x.Narrow(x2.Data)
			}
			products := map[string]func(y compute.Matrix, lo, hi int){
				"MatMul": func(y compute.Matrix, lo, hi int) {
					d.MatMul(y, x.RowsAt(lo, hi), w, false)
				},
				"Dense": func(y compute.Matrix, lo, hi int) {
					d.Dense(y, compute.Dense{
						X: x.RowsAt(lo, hi), W: w, X2: x2.RowsAt(lo, hi), W2: w2,
					})
				},
			}
			const rows = compute.SameTiles - 1
			for kernel, of := range products {
				product := func(lo, hi int) []float32 {
					y := normal(hi-lo, cols)
					of(y, lo, hi)
					return y.Data
				}
				whole := product(0, rows)
				for lo := 0; lo < rows; lo += tile {
					hi := min(rows, lo+tile)
					if !slices.Equal(product(lo, hi), whole[lo*cols:hi*cols]) {
						t.Errorf("%s, %s: rows %d to %d of %d columns have other bits alone", name,
							kernel, lo, hi-1, cols)
						break
					}
				}
			}
		}
	}
	for _, name := range engines(t) {
		for _, precision := range precisions {
			check(name+" "+string(precision), open(t, Options{Threads: 2, GEMM: name,
				Precision: precision}))
		}
	}
	check("own", openOwn(t, Options{Threads: 2}))
}

// Rows and gradients that are stored in bfloat16 give the numbers that they give in float32, at
// every level.
func TestStored(t *testing.T) {
	race.Alone(t)
	stored := func(name string, of func() compute.Device) {
		t.Run(name, func(t *testing.T) {
			computetest.Stored(t, of)
			computetest.Completed(t, of)
		})
	}
	o := Options{Threads: 2, Precision: compute.PrecisionBF16}
	for _, level := range levels(t) {
		o := o
		o.GEMM, o.SIMD = GEMMGo, level
		stored(level, func() compute.Device { return open(t, o) })
	}
	for _, name := range engines(t) {
		o := o
		if o.GEMM = name; name != GEMMGo {
			stored(name, func() compute.Device { return open(t, o) })
		}
	}
	stored("own", func() compute.Device { return openOwn(t, o) })
}

// The device's name says in which precision it multiplies, and how.
func TestNameOfPrecision(t *testing.T) {
	for _, c := range []struct {
		gemm, want string
		precision  compute.Precision
	}{{GEMMGo, "gonum, bf16 products in float32 (slow)", compute.PrecisionBF16},
		{GEMMOneDNN, "bf16 products", compute.PrecisionBF16},
		{GEMMOneDNN, ", tf32 products in float32 (slow)", compute.PrecisionTF32}} {
		if !slices.Contains(engines(t), c.gemm) {
			continue
		}
		d := open(t, Options{Threads: 1, GEMM: c.gemm, Precision: c.precision})
		if !strings.Contains(d.Name(), c.want) || d.Capabilities().Precision != c.precision {
			t.Errorf("%s: %q of precision %s", c.gemm, d.Name(), d.Capabilities().Precision)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
	cpuinfo, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		t.Fatal(err)
	}
	has := func(word string) bool { return strings.Contains(string(cpuinfo), word) }
	if has("avx512_bf16") && !has("amx_bf16") &&
		os.Getenv("HALOGNN_GEMM")+os.Getenv("HALOGNN_SIMD") == "" {
		want := "bf16 products by AVX512-BF16"
		if has("GenuineIntel") { // whose instructions are slower than float32's
			want = "bf16 products in float32"
		}
		d := open(t, Options{Threads: 1, Precision: compute.PrecisionBF16})
		if name := d.Name(); !strings.Contains(name, want+", ") && !strings.HasSuffix(name, want) {
			t.Errorf("%q, want %s", name, want)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := New(Options{Threads: 1, Precision: "fp8"}); err == nil ||
		!strings.Contains(err.Error(), "fp8") {
		t.Errorf("an unknown precision gives %v", err)
	}
}

// products calls the three products on some shapes, whose row counts differ from call to call.
func products(d *Device, rows []int) {
	const f, o = 100, 47
	matrix := func(r, c int) compute.Matrix {
		m := compute.Matrix{Rows: r, Cols: c, Data: make([]float32, r*c)}
		for i := range m.Data {
			m.Data[i] = rand.Float32()
		}
		return m
	}
	w := matrix(o, f)
	for i, r := range rows {
		x, y := matrix(r, f), matrix(r, o)
		d.MatMul(y, x, w, i%2 == 0)
		d.MatMulInput(x, y, w, i%2 == 1)
		d.MatMulWeights(w, y, x)
	}
}

// A library computes on the calling threads and starts none. The test runs in a process with OpenMP
// teams of 16, so that a team is visible among the few threads that Go itself starts.
func TestEnginesStartNoThreads(t *testing.T) {
	race.Alone(t)
	const team = 16
	if os.Getenv("OMP_NUM_THREADS") != strconv.Itoa(team) {
		again := exec.Command(os.Args[0], "-test.run=^TestEnginesStartNoThreads$", "-test.v")
		again.Env = append(os.Environ(), fmt.Sprintf("OMP_NUM_THREADS=%d", team))
		if out, err := again.CombinedOutput(); err != nil {
			t.Errorf("%v:\n%s", err, out)
		}
		return
	}
	count := func() int {
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			t.Skip(err)
		}
		return len(tasks)
	}
	for _, name := range engines(t) {
		for _, precision := range precisions {
			before := count()
			d := open(t, Options{Threads: 2, GEMM: name, Precision: precision})
			products(d, []int{3000, 1, 4000, 517, 20000})
			if after := count(); after > before+team/2 {
				t.Errorf("%s %s: %d threads before the products, %d after", name, precision, before,
					after)
			}
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// oneDNN generates its code once: in steady state it generates none for any number of rows.
// Generated code needs executable memory, so the process must have the same executable pages before
// and after.
func TestSteadyStateGeneratesNoCode(t *testing.T) {
	race.Alone(t)
	if _, err := loadOneDNN(); err != nil {
		t.Skip(err)
	}
	executable := func() (pages []string) {
		maps, err := os.ReadFile("/proc/self/maps")
		if err != nil {
			t.Skip(err)
		}
		for line := range strings.Lines(string(maps)) {
			if fields := strings.Fields(line); strings.Contains(fields[1], "x") {
				pages = append(pages, fields[0])
			}
		}
		return pages
	}
	for _, precision := range precisions {
		d := open(t, Options{Threads: 2, GEMM: GEMMOneDNN, Precision: precision})
		// with and without a sum; few rows have kernels of their own
		products(d, []int{3000, 3000, 2, 2})
		before := executable()
		products(d, []int{1, 1, 3, 17, 17, 33, 33, 511, 512, 513, 1023, 4001, 8191, 8192, 10007})
		if after := executable(); strings.Join(after, " ") != strings.Join(before, " ") {
			t.Errorf("%s: executable memory before: %v, after: %v", precision, before, after)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestChoiceOfEngine(t *testing.T) {
	for _, c := range []struct{ option, variable, want string }{
		{"go", "", "gonum"}, {"", "go", "gonum"}, {"openblas", "go", "OpenBLAS"},
		{"auto", "openblas", ""},
	} {
		if c.want == "OpenBLAS" && !slices.Contains(engines(t), GEMMOpenBLAS) {
			continue
		}
		t.Setenv("HALOGNN_GEMM", c.variable)
		d := open(t, Options{Threads: 1, GEMM: c.option})
		if !strings.Contains(d.Name(), c.want) {
			t.Errorf("compute.gemm %q and HALOGNN_GEMM=%q give %q", c.option, c.variable, d.Name())
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := New(Options{Threads: 1, GEMM: "mkl"}); err == nil ||
		!strings.Contains(err.Error(), `"mkl"`) {
		t.Errorf("an unknown library gives %v", err)
	}
}
