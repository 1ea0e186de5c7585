// Package computetest has the tests that every compute backend must pass. Run compares kernels with
// float64 arithmetic and with golden files. SameNumbers compares devices whose results must have
// equal bits.
//
//	case ─> inputs, seeded ─> device, every array between sentinels ─> kernel ─> outputs
//	outputs ─┬─ within rounding of float64
//	         └─ equal bits on all devices
//
// The shapes are those for which a kernel is most likely wrong: no rows, one row and column and
// edge, widths that are not a multiple of a vector or a tile, a vertex with very many edges, and
// one row more than a chunk.
package computetest

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"halognn/src/devices/compute"
	"halognn/tests/race"
)

// Run tests a device and a host. It calls open once for each case and closes the device afterwards.
// Under the race detector it tests only the host, because several goroutines call its kernels.
// Kernels of devices are in C, where the race detector finds nothing, or run on one goroutine.
// SameNumbers tests the code by which the threads of a device work together.
func Run(t *testing.T, open func() compute.Device, host compute.Host) {
	t.Run("host", func(t *testing.T) { testHost(t, host) })
	if race.Detector {
		return
	}
	for _, c := range cases() {
		c.test(t, open)
	}
	t.Run("misuse", func(t *testing.T) { testMisuse(t, open()) })
	t.Run("calls", func(t *testing.T) { testCalls(t, open()) })
	t.Run("golden", func(t *testing.T) { testGolden(t, open) })
}

// Products tests matrix products, and the kernels that contain them, because a Precision changes
// their results. It tests them on each device in the map open, whose keys are the devices' names.
// The results of all devices must have equal bits, and must agree with float64 up to rounding.
func Products(t *testing.T, open map[string]func() compute.Device) {
	for _, c := range cases() {
		if kind, _, _ := strings.Cut(c.name, "/"); !slices.Contains([]string{"product", "dense",
			"groups"}, kind) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			for _, r := range c.agree(t, open, guard) {
				r.check(t)
			}
			c.agree(t, open, guard+1)
		})
	}
}

// SameNumbers runs all cases on each device in the map open, whose keys are the devices' names. The
// results of all devices must have equal bits. The argument `skip` lists prefixes; cases whose
// names begin with one of them are left out. Arrays are aligned to 4 bytes only.
func SameNumbers(t *testing.T, open map[string]func() compute.Device, skip ...string) {
	for _, c := range cases() {
		if !slices.ContainsFunc(skip,
			func(name string) bool { return strings.HasPrefix(c.name, name) }) {
			c.agree(t, open, guard+1)
		}
	}
}

// agree fails the test unless the results of all devices have equal bits. All NaN count as equal.
// It returns the results of the first device.
func (c testCase) agree(t *testing.T, open map[string]func() compute.Device,
	guard int) (first []result) {
	names := slices.Sorted(maps.Keys(open))
	for _, name := range names {
		b := newBench(t, open[name](), guard)
		got := c.run(b)
		b.close()
		if first == nil {
			first = got
		}
		for i, r := range got {
			if at := firstDifference(r.got, first[i].got); at >= 0 {
				t.Errorf("%s: %s: element %d is %v on %s and %v on %s", c.name, r.name, at,
					r.got[at], name, first[i].got[at], names[0])
			}
		}
	}
	return first
}

func firstDifference(a, b []float32) int {
	for i := range a {
		if math.Float32bits(a[i]) != math.Float32bits(b[i]) && (a[i] == a[i] || b[i] == b[i]) {
			return i
		}
	}
	return -1
}

// testCase runs a kernel, perhaps with its backward, on one shape.
type testCase struct {
	name string
	run  func(b *bench) []result
}

func (c testCase) test(t *testing.T, open func() compute.Device) {
	t.Run(c.name, func(t *testing.T) {
		b := newBench(t, open(), guard)
		for _, r := range c.run(b) {
			r.check(t)
		}
		b.close()
	})
}

// family has the tests of a family of kernels. As in package compute, each family has a file of its
// own.
type family struct {
	cases  func() []testCase      // cases whose results are compared
	misuse func(b *bench) []wrong // calls that must panic
	calls  func(l *Layer) []Call  // at least one call of every kernel, with its cost
}

var families = []family{
	linearTests, groupTests, denseTests, segmentTests, attentionTests, activationTests, normTests,
	lossTests, optimizerTests,
}

func cases() (all []testCase) {
	for _, f := range families {
		all = append(all, f.cases()...)
	}
	return all
}

// rowShapes are the shapes for tests of kernels that work row by row.
var rowShapes = []struct {
	name       string
	rows, cols int
}{
	{"no rows", 0, 5}, {"one element", 1, 1}, {"one feature", 700, 1}, {"odd", 17, 37},
	{"a chunk", 512, 16}, {"a chunk and a row", 513, 9}, {"several tiles", 1300, 50},
	{"wide", 3, 602},
}

// result is one output array with its float64 reference. Element i may differ from want[i] by the
// rounding error of a sum. The field `terms` is the number of operations of this sum, and size[i]
// the sum of the absolute values of its terms.
type result struct {
	name       string
	got        []float32
	want, size []float64
	terms      int
	expect     func() (want, size []float64) // if set, computes want and size
}

func (r result) check(t *testing.T) {
	t.Helper()
	if race.Detector {
		// the race detector changes no number, and loops of float64 take 20 times as long with it
		return
	}
	if r.expect != nil {
		r.want, r.size = r.expect()
	}
	if len(r.got) != len(r.want) {
		t.Fatalf("%s: %d elements, want %d", r.name, len(r.got), len(r.want))
	}
	wrong := 0
	for i, want := range r.want {
		got := float64(r.got[i])
		if math.IsNaN(got) && math.IsNaN(want) ||
			math.Abs(got-want) <= rounding(r.terms)*r.size[i] {
			continue
		}
		if wrong++; wrong == 1 {
			t.Errorf("%s: element %d is %v, want %v within %g", r.name, i, got, want,
				rounding(r.terms)*r.size[i])
		}
	}
	if wrong > 1 {
		t.Errorf("%s: %d of %d elements are wrong", r.name, wrong, len(r.want))
	}
}

// rounding returns the relative error allowed after a number of float32 operations. The relative
// error of one operation is at most 2^-24. If the signs of errors are random, their sum grows as
// the square root of their number. The factor 8 is twice four standard deviations.
func rounding(terms int) float64 { return 0x1p-24 * (4 + 8*math.Sqrt(float64(terms))) }

// sentinel is a float32 in memory that a kernel must not write. No computation results in these
// bits.
var sentinel = math.Float32frombits(0x7fa55aa5)

// guard is the number of sentinels before and after an array, except in tests of unaligned arrays.
const guard = 32

// bench is a device under test. It makes arrays between sentinels, and checks and frees them.
type bench struct {
	t      testing.TB
	dev    compute.Device
	arrays [][]float32 // arrays with their sentinels
	random *rand.Rand
	guard  int // number of sentinels before and after an array
}

func newBench(t testing.TB, dev compute.Device, guard int) *bench {
	return &bench{t: t, dev: dev, guard: guard, random: rand.New(rand.NewPCG(1, 2))}
}

// array copies data to the device, between sentinels.
func (b *bench) array(data []float32) []float32 {
	b.t.Helper()
	whole, err := b.dev.Alloc(len(data) + 2*b.guard)
	if err != nil {
		b.t.Fatal(err)
	}
	b.dev.Upload(whole, slices.Concat(slices.Repeat([]float32{sentinel}, b.guard), data,
		slices.Repeat([]float32{sentinel}, b.guard)))
	b.arrays = append(b.arrays, whole)
	return whole[b.guard : b.guard+len(data) : b.guard+len(data)]
}

func (b *bench) dirty(n int) []float32 { return b.array(nans(n)) }

func nans(n int) []float32 { return slices.Repeat([]float32{float32(math.NaN())}, n) }

// zeros returns a matrix of zeros, for a call that must panic.
func (b *bench) zeros(rows, cols int) compute.Matrix {
	return b.matrix(rows, cols, make([]float32, rows*cols))
}

func (b *bench) matrix(rows, cols int, data []float32) compute.Matrix {
	return compute.Matrix{Rows: rows, Cols: cols, Data: b.array(data)}
}

// get copies an array from the device to the host. Before that it calls Settle, which completes
// gradients.
func (b *bench) get(x []float32) []float32 {
	b.t.Helper()
	b.dev.Settle()
	if err := b.dev.Sync(); err != nil {
		b.t.Fatal(err)
	}
	host := make([]float32, len(x))
	b.dev.Download(host, x)
	return host
}

// close checks all sentinels and closes the device.
func (b *bench) close() {
	b.t.Helper()
	for _, whole := range b.arrays {
		host := b.get(whole)
		for _, edge := range [][]float32{host[:b.guard], host[len(host)-b.guard:]} {
			for _, v := range edge {
				if math.Float32bits(v) != math.Float32bits(sentinel) {
					b.t.Errorf("a kernel wrote outside an array of %d elements",
						len(host)-2*b.guard)
				}
			}
		}
		b.dev.Free(whole)
	}
	if err := b.dev.Close(); err != nil {
		b.t.Error(err)
	}
}

func (b *bench) normal(n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(b.random.NormFloat64())
	}
	return x
}

func exact(name string, got []float32, want []float64) result {
	return result{name: name, got: got, want: want, size: make([]float64, len(want))}
}
