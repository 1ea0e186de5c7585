// Package meter measures the kernels of a device: the calls, time, bytes and operations of each
// kernel, and the time in which no kernel runs. Compared with the peak rates of the device for
// copies and products, this gives the roofline of a step (Williams et al., CACM 2009).
//
//	training ──> device ── Probe: mark  kernel  mark     a device with a stopwatch: its own clock,
//	                                                     on its own stream
//	                              clock kernel  clock    any other: kernels are done on return
//	                         │
//	                         v
//	             Meter: name, calls, seconds, bytes, flops ─ Report(Rates) ─> share of the roofline,
//	                                                                          idle share
//
// Bytes and flops are the numbers in compute.Call. The two marks around every kernel take a few
// microseconds on the device. So a metered run is slower, and metering is off by default.
package meter

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"halognn/src/devices/compute"
)

// Kernel holds the totals of one kernel's calls.
type Kernel struct {
	Name    string  `json:"name"`
	Calls   int64   `json:"calls"`
	Seconds float64 `json:"seconds"`
	Bytes   int64   `json:"bytes"`
	Flops   int64   `json:"flops"`

	// Floor is the least time for bytes and flops, whichever takes longer; in a Report.
	Floor float64 `json:"floor_seconds"`
}

// Meter measures kernels between calls of Start and Stop. Only the training goroutine uses it.
type Meter struct {
	device  compute.Device
	probe   compute.Probe
	watch   compute.Stopwatch // nil if kernels are done when their call returns
	on      bool
	began   time.Time
	seconds float64 // total time for which the meter was on
	updates int64

	kernels []Kernel       // in the order in which they were first called
	index   map[string]int // index of each kernel in kernels, by name
	// [calls since the last Sync] index in kernels of each call; call i ran from mark 2i to mark
	// 2i+1
	running []int
	started time.Time // time at which the last kernel started; used only if there is no stopwatch
	err     error
}

// New returns a meter of the device d. The meter is off until Start is called.
func New(d compute.Device) *Meter {
	m := &Meter{device: d, index: map[string]int{}}
	m.probe = compute.Probe{OnStart: m.start, OnDone: m.done, OnSync: m.collect}
	if stopwatch := d.Capabilities().NewStopwatch; stopwatch != nil {
		m.watch = stopwatch()
	}
	return m
}

// Start begins or resumes counting.
func (m *Meter) Start() {
	m.on, m.began = true, time.Now()
	m.device.Watch(&m.probe)
}

// Stop waits for the device and ends counting.
func (m *Meter) Stop() error {
	if !m.on {
		return nil
	}
	err := m.device.Sync()
	m.seconds += time.Since(m.began).Seconds()
	m.on = false
	m.device.Watch(nil)
	m.collect()
	return errors.Join(err, m.err)
}

// Free frees the stopwatch.
func (m *Meter) Free() error {
	if m.watch == nil {
		return nil
	}
	return m.watch.Free()
}

// start records the beginning of a kernel call.
func (m *Meter) start(c compute.Call) {
	k, known := m.index[c.Kernel]
	if !known {
		k = len(m.kernels)
		m.index[c.Kernel] = k
		m.kernels = append(m.kernels, Kernel{Name: c.Kernel})
	}
	of := &m.kernels[k]
	of.Calls++
	of.Bytes += int64(c.Bytes)
	of.Flops += int64(c.Flops)
	if c.Update {
		m.updates++
	}
	m.running = append(m.running, k)
	if m.watch == nil {
		m.started = time.Now()
	} else {
		m.fail(m.watch.Mark(2*len(m.running) - 2))
	}
}

// done records the end of the last kernel call.
func (m *Meter) done() {
	if m.watch != nil {
		m.fail(m.watch.Mark(2*len(m.running) - 1))
		return
	}
	m.kernels[m.running[0]].Seconds += time.Since(m.started).Seconds()
	m.running = m.running[:0]
}

// collect reads the times of all kernels since its last call. All these kernels must be done.
func (m *Meter) collect() {
	for i, k := range m.running {
		if m.err == nil {
			took, err := m.watch.Between(2*i, 2*i+1)
			m.fail(err)
			m.kernels[k].Seconds += took.Seconds()
		}
	}
	m.running = m.running[:0]
}

func (m *Meter) fail(err error) {
	if m.err == nil {
		m.err = err
	}
}

// Report is the result of a metered run.
type Report struct {
	Device string `json:"device"`
	Steps  int64  `json:"steps"` // updates
	Rates
	Seconds float64 `json:"seconds"`       // during which the meter was on
	Busy    float64 `json:"busy_seconds"`  // seconds in which kernels ran
	Idle    float64 `json:"idle_share"`    // share of the seconds in which none did
	Floor   float64 `json:"floor_seconds"` // sum of the kernels' floors

	Kernels []Kernel `json:"kernels"` // that were called, longest first
}

// Report returns the result of the measurement, compared with the device's peak rates.
func (m *Meter) Report(r Rates) Report {
	out := Report{Device: m.device.Name(), Steps: m.updates, Rates: r, Seconds: m.seconds}
	for _, k := range m.kernels {
		k.Floor = max(float64(k.Bytes)/r.Copy, float64(k.Flops)/r.Product)
		out.Busy += k.Seconds
		out.Floor += k.Floor
		out.Kernels = append(out.Kernels, k)
	}
	if m.seconds > 0 {
		out.Idle = max(0, 1-out.Busy/m.seconds)
	}
	slices.SortStableFunc(out.Kernels,
		func(a, b Kernel) int { return cmp.Compare(b.Seconds, a.Seconds) })
	return out
}
