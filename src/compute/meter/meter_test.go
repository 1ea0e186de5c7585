package meter

import (
	"errors"
	"testing"
	"time"

	"halognn/src/compute"
	"halognn/src/compute/computetest"
	"halognn/src/compute/ref"
)

// A metered device computes what the device computes.
func TestMeteredDevicePassesTheSuite(t *testing.T) {
	computetest.Run(t, func() compute.Device {
		m, d := New(ref.New())
		m.Start()
		return d
	}, ref.Host{})
}

func matrix(rows, cols int) compute.Matrix {
	return compute.Matrix{Rows: rows, Cols: cols, Data: make([]float32, rows*cols)}
}

// What kernels have to move and to compute follows from their shapes.
func TestCosts(t *testing.T) {
	const rows, in, out = 7, 3, 5
	x, y, w := matrix(rows, in), matrix(rows, out), matrix(out, in)
	s := compute.Segments{Indptr: []int64{0, 2, 2, 3}, Indices: []int32{6, 0, 1}} // 3 destinations, 3 edges
	back := compute.Segments{Indptr: []int64{0, 1, 2, 2, 2, 2, 2, 3}, Indices: []int32{0, 2, 0}}
	mean, labels := matrix(3, in), make([]int32, rows)
	column, scale := make([]float32, out), make([]float32, rows)
	for _, c := range []struct {
		name         string
		call         func(d compute.Device)
		bytes, flops int64
	}{
		{"MatMul", func(d compute.Device) { d.MatMul(y, x, w, false) }, 4 * (21 + 15 + 35), 2 * 7 * 3 * 5},
		{"MatMul", func(d compute.Device) { d.MatMul(y, x, w, true) }, 4 * (21 + 15 + 70), 2 * 7 * 3 * 5},
		{"MatMulInput", func(d compute.Device) { d.MatMulInput(x, y, w, false) }, 4 * (21 + 15 + 35), 2 * 7 * 3 * 5},
		{"MatMulWeights", func(d compute.Device) { d.MatMulWeights(w, y, x) }, 4 * (21 + 15 + 35), 2 * 7 * 3 * 5},
		{"AddBias", func(d compute.Device) { d.AddBias(y, column) }, 4 * (70 + 5), 0},
		{"ColumnSum", func(d compute.Device) { d.ColumnSum(column, y) }, 4 * (35 + 5), 0},
		{"SegmentMean", func(d compute.Device) { d.SegmentMean(mean, s, x) }, 4*(9+9) + 8*4 + 4*3, 0},
		{"SegmentSum", func(d compute.Device) { d.SegmentSum(mean, s, scale[:3], x, true) }, 4*(9+18+3) + 8*4 + 4*3, 0},
		{"SegmentMeanBackward", func(d compute.Device) { d.SegmentMeanBackward(x, s, back, mean, false) }, 4*(9+21) + 8*8 + 4*3 + 16*3, 0},
		{"ReLU", func(d compute.Device) { d.ReLU(y, 0, compute.DropoutKey{}, nil) }, 8 * 35, 0},
		{"ReLUBackward", func(d compute.Device) { d.ReLUBackward(y, y, 0) }, 12 * 35, 0},
		{"LayerNorm", func(d compute.Device) { d.LayerNorm(y, y, column, column, scale, scale, 1) }, 4 * (70 + 14), 0},
		{"SoftmaxCrossEntropy", func(d compute.Device) { d.SoftmaxCrossEntropy(compute.Matrix{}, y, labels, 1) }, 4 * (35 + 7), 0},
		{"SigmoidBCE", func(d compute.Device) { d.SigmoidBCE(y, y, make([]uint8, 35), 1) }, 8*35 + 35, 0},
		{"Adam", func(d compute.Device) { d.Adam(column, column, column, column, compute.AdamOptions{Step: 1}) }, 28 * 5, 0},
		{"SGD", func(d compute.Device) { d.SGD(column, column, column, compute.SGDOptions{Step: 1}) }, 20 * 5, 0},
	} {
		m, d := New(ref.New())
		c.call(d) // off
		m.Start()
		c.call(d)
		if err := m.Stop(); err != nil {
			t.Fatal(err)
		}
		c.call(d) // off again
		k := m.Report(Rates{Copy: 1, Product: 1}).Kernels
		if len(k) != 1 || k[0].Name != c.name || k[0].Calls != 1 || k[0].Bytes != c.bytes || k[0].Flops != c.flops {
			t.Errorf("%s: counted %+v, want %d bytes, %d flops", c.name, k, c.bytes, c.flops)
		}
	}
}

// timed is a device whose kernels each take 2 ms by its own clock, which only says so when it was synced.
type timed struct {
	compute.Device
	clock fakeClock
}

func (d *timed) NewStopwatch() compute.Stopwatch { return &d.clock }

type fakeClock struct {
	marked int
	broken error
	freed  bool
}

func (d *fakeClock) Mark(i int) error {
	if i > d.marked {
		return errors.New("marks have a gap")
	}
	d.marked = max(d.marked, i+1)
	return d.broken
}
func (d *fakeClock) Between(i, j int) (time.Duration, error) {
	if i%2 != 0 || j != i+1 || j >= d.marked {
		return 0, errors.New("these are not the marks of a kernel")
	}
	return 2 * time.Millisecond, nil
}
func (d *fakeClock) Free() error { d.freed = true; return nil }

func TestStopwatchIsRead(t *testing.T) {
	device := &timed{Device: ref.New()}
	clock := &device.clock
	m, d := New(device)
	y, g := matrix(2, 2), make([]float32, 2)
	step := func() {
		d.AddBias(y, g)
		d.AddBias(y, g)
		d.SGD(g, g, g, compute.SGDOptions{Step: 1})
	}
	m.Start()
	for range 2 {
		step()
		if err := d.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	if clock.marked != 6 {
		t.Errorf("%d marks; those of a step serve for the next", clock.marked)
	}
	step() // without a sync
	if err := m.Stop(); err != nil {
		t.Fatal(err)
	}
	r := m.Report(Rates{Copy: 8 * 4, Product: 1})
	if near := func(a, b float64) bool { return a > 0.999*b && a < 1.001*b }; r.Steps != 3 || !near(r.Busy, 9*2e-3) ||
		len(r.Kernels) != 2 || !near(r.Kernels[0].Seconds, 6*2e-3) || r.Kernels[0].Name != "AddBias" || !near(r.Kernels[0].Floor, 6*40./32) {
		t.Errorf("reported %+v", r)
	}
	if r.Idle != max(0, 1-r.Busy/r.Seconds) {
		t.Errorf("idle %g of %g s with %g busy", r.Idle, r.Seconds, r.Busy)
	}
	clock.broken = errors.New("broken")
	m.Start()
	step()
	if err := m.Stop(); !errors.Is(err, clock.broken) {
		t.Errorf("a mark that fails gives %v", err)
	}
	if err := m.Free(); err != nil || !clock.freed {
		t.Errorf("freed %t: %v", clock.freed, err)
	}
}

func TestMeasureRates(t *testing.T) {
	r, err := MeasureRates(ref.New(), 1<<14)
	if err != nil || !(r.Copy > 1e6 && r.Copy < 1e14 && r.Product > 1e6 && r.Product < 1e16) {
		t.Errorf("measured %+v, %v", r, err)
	}
	if _, err := MeasureRates(ref.New(), 3); err == nil {
		t.Error("rates were measured on nothing")
	}
}
