// Package meter watches a device at work: how often each kernel was called, how long it ran, what it had to move and to compute, and how
// long no kernel ran. Beside what the device copies and multiplies at best that is a step's roofline (Williams et al., CACM 2009).
//
//	training ──> New(device) ──> device
//	             │ mark  kernel  mark          a device with a Stopwatch: by its own clock, on its own stream
//	             │ clock kernel  clock         any other: kernels are done when they return
//	             v
//	             Meter: name, calls, seconds, bytes, flops   ── Report(Rates) ──> share of the roofline, idle share
//
// A kernel's bytes are what it must read and write at least: every operand once, and a row that edges name once for each edge, as if nothing
// were cached. Flops are those of matrix products. Two marks around every kernel cost the device a few microseconds, so a metered run is
// slower, which is why it is asked for.
package meter

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"halognn/src/compute"
)

// Kernel is what the calls of one kernel came to.
type Kernel struct {
	Name    string  `json:"name"`
	Calls   int64   `json:"calls"`
	Seconds float64 `json:"seconds"`
	Bytes   int64   `json:"bytes"`
	Flops   int64   `json:"flops"`
	Floor   float64 `json:"floor_seconds"` // the least time for bytes and flops, whichever takes longer; in a Report
}

// kind numbers the kernels.
type kind int

const (
	inputRows kind = iota
	matMul
	matMulInput
	matMulWeights
	addBias
	columnSum
	segmentMean
	segmentSum
	segmentMeanBackward
	relu
	reluBackward
	layerNorm
	layerNormBackward
	softmaxCrossEntropy
	sigmoidBCE
	adam
	sgd
	copying
	adding
	kinds
)

var names = [kinds]string{
	"input rows", "MatMul", "MatMulInput", "MatMulWeights", "AddBias", "ColumnSum", "SegmentMean", "SegmentSum", "SegmentMeanBackward", "ReLU", "ReLUBackward",
	"LayerNorm", "LayerNormBackward", "SoftmaxCrossEntropy", "SigmoidBCE", "Adam", "SGD", "Copy", "Add",
}

// Meter counts while it is on. The training goroutine uses it.
type Meter struct {
	inner   compute.Device
	watch   compute.Stopwatch // nil for a device whose kernels are done when they return
	on      bool
	began   time.Time
	seconds float64 // that it was on
	kernels [kinds]Kernel
	running []kind // kernel i ran from mark 2i to mark 2i+1
	err     error
}

// New returns a meter, off, and the device to use in the place of d. That one is a compute.Device, compute.Accelerator or compute.PeerDevice
// as d is, and nothing else.
func New(d compute.Device) (*Meter, compute.Device) {
	m := &Meter{inner: d}
	for k := range m.kernels {
		m.kernels[k].Name = names[k]
	}
	if t, ok := d.(compute.Timed); ok {
		m.watch = t.NewStopwatch()
	}
	return m, wrap(d, m)
}

// Start begins, or goes on with, counting.
func (m *Meter) Start() { m.on, m.began = true, time.Now() }

// Stop waits for the device and ends counting.
func (m *Meter) Stop() error {
	if !m.on {
		return nil
	}
	err := m.inner.Sync()
	m.seconds += time.Since(m.began).Seconds()
	m.on = false
	m.collect()
	return errors.Join(err, m.err)
}

// Free gives back what New took.
func (m *Meter) Free() error {
	if m.watch == nil {
		return nil
	}
	return m.watch.Free()
}

// kernel runs a kernel.
func (m *Meter) kernel(k kind, bytes, flops int, call func()) {
	if !m.on {
		call()
		return
	}
	of := &m.kernels[k]
	of.Calls++
	of.Bytes += int64(bytes)
	of.Flops += int64(flops)
	if m.watch == nil {
		begin := time.Now()
		call()
		of.Seconds += time.Since(begin).Seconds()
		return
	}
	at := 2 * len(m.running)
	m.fail(m.watch.Mark(at))
	call()
	m.fail(m.watch.Mark(at + 1))
	m.running = append(m.running, k)
}

// collect reads the times of the kernels so far, which are done.
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

// Report is the account of a metered run.
type Report struct {
	Device string `json:"device"`
	Steps  int64  `json:"steps"` // updates
	Rates
	Seconds float64 `json:"seconds"`       // that were watched
	Busy    float64 `json:"busy_seconds"`  // in which kernels ran
	Idle    float64 `json:"idle_share"`    // of the seconds, in which none did
	Floor   float64 `json:"floor_seconds"` // sum of the kernels' floors

	Kernels []Kernel `json:"kernels"` // that were called, longest first
}

// Report sets what was counted beside the device's rates.
func (m *Meter) Report(r Rates) Report {
	out := Report{Device: m.inner.Name(), Steps: m.kernels[adam].Calls + m.kernels[sgd].Calls, Rates: r, Seconds: m.seconds}
	for _, k := range m.kernels {
		if k.Calls == 0 {
			continue
		}
		k.Floor = max(float64(k.Bytes)/r.Copy, float64(k.Flops)/r.Product)
		out.Busy += k.Seconds
		out.Floor += k.Floor
		out.Kernels = append(out.Kernels, k)
	}
	if m.seconds > 0 {
		out.Idle = max(0, 1-out.Busy/m.seconds)
	}
	slices.SortStableFunc(out.Kernels, func(a, b Kernel) int { return cmp.Compare(b.Seconds, a.Seconds) })
	return out
}
