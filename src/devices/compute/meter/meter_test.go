package meter

import (
	"errors"
	"testing"
	"time"

	"halognn/src/devices/compute"
	"halognn/src/devices/compute/ref"
)

func matrix(rows, cols int) compute.Matrix {
	return compute.Matrix{Rows: rows, Cols: cols, Data: make([]float32, rows*cols)}
}

// A meter counts only calls made while it is on.
func TestCounts(t *testing.T) {
	d := ref.New()
	m := New(d)
	x, y, w := matrix(7, 3), matrix(7, 5), matrix(5, 3)
	calls := func() {
		d.MatMul(y, x, w, false)
		d.AddBias(y, w.Data[:5])
		d.MatMul(y, x, w, true)
		d.SGD(w.Data, w.Data, w.Data, compute.SGDOptions{Step: 1})
	}
	calls() // off
	for range 2 {
		m.Start()
		calls()
		if err := m.Stop(); err != nil {
			t.Fatal(err)
		}
		calls() // off again
	}
	r := m.Report(Rates{Copy: 1, Product: 1})
	want := map[string]Kernel{
		"MatMul":  {Calls: 4, Bytes: 2 * 4 * (2*21 + 2*15 + 35 + 70), Flops: 4 * 2 * 7 * 3 * 5},
		"AddBias": {Calls: 2, Bytes: 2 * 4 * (70 + 5)},
		"SGD":     {Calls: 2, Bytes: 2 * 4 * 5 * 15},
	}
	if len(r.Kernels) != len(want) || r.Steps != 2 {
		t.Errorf("counted %+v in %d steps", r.Kernels, r.Steps)
	}
	for _, k := range r.Kernels {
		w := want[k.Name]
		if k.Calls != w.Calls || k.Bytes != w.Bytes || k.Flops != w.Flops || !(k.Seconds > 0) {
			t.Errorf("counted %+v, want %+v", k, w)
		}
	}
	if err := m.Free(); err != nil {
		t.Error(err)
	}
}

// timed is a device whose kernels each take 2 ms by its own clock, which may be read only after a
// sync.
type timed struct {
	compute.Device
	clock  fakeClock
	synced func()
}

func (d *timed) Capabilities() compute.Capabilities {
	return compute.Capabilities{NewStopwatch: func() compute.Stopwatch { return &d.clock }}
}

func (d *timed) Sync() error { d.synced(); return nil }

func (d *timed) Watch(p *compute.Probe) {
	d.synced = p.Synced
	d.Device.Watch(p)
}

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
	m, d := New(device), device
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
	if near := func(a, b float64) bool { return a > 0.999*b && a < 1.001*b }; r.Steps != 3 ||
		!near(r.Busy, 9*2e-3) ||
		len(r.Kernels) != 2 || !near(r.Kernels[0].Seconds, 6*2e-3) ||
		r.Kernels[0].Name != "AddBias" || !near(r.Kernels[0].Floor, 6*40./32) {
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

// peaked is a device with the capability Peaks.
type peaked struct{ *ref.Device }

func (p peaked) Capabilities() compute.Capabilities {
	c := p.Device.Capabilities()
	c.Peaks = func() []compute.Peak {
		return []compute.Peak{
			{Precision: compute.PrecisionFloat32, All: 1},
			{Precision: compute.PrecisionFloat32, All: 2},
			{Precision: compute.PrecisionBF16, All: 3},
		}
	}
	return c
}

// Products are compared with the best peak of the device's own precision.
func TestPeakOfPrecision(t *testing.T) {
	for precision, want := range map[compute.Precision]float64{
		compute.PrecisionFloat32: 2, compute.PrecisionBF16: 3} {
		r, err := MeasureRates(peaked{ref.WithPrecision(precision)}, 1<<14)
		if err != nil || r.Product != want || len(r.Peaks) != 3 {
			t.Errorf("%s: measured %+v, %v, want products at %g", precision, r, err, want)
		}
	}
}
