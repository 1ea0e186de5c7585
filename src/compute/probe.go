package compute

import "time"

// Call is one call of a kernel: what it must move and compute at least. Every operand counts once;
// a row that edges name counts once for each edge, as if nothing were cached.
type Call struct {
	Kernel string
	Bytes  int  // read and written
	Flops  int  // of matrix products
	Update bool // the call ends a training step, as an optimizer's update does
}

// Probe is told of the kernels of a device, by the goroutine that calls them. A device says
//
//	defer d.probe.Start(compute.CheckMatMul(y, x, w, add)).Done()
//
// in every kernel; a nil Probe ignores it.
type Probe struct {
	OnStart func(Call) // before the device queues the kernel, or runs it
	OnDone  func()     // after that
	OnSync  func()     // when all kernels queued so far are done
}

// Start reports a call, whose shapes were checked.
func (p *Probe) Start(c Call) *Probe {
	if p != nil {
		p.OnStart(c)
	}
	return p
}

// Done reports that the call of the last Start was queued, or has run.
func (p *Probe) Done() {
	if p != nil {
		p.OnDone()
	}
}

// Synced reports that all kernels called so far are done.
func (p *Probe) Synced() {
	if p != nil {
		p.OnSync()
	}
}

// Stopwatch notes moments of a device. The training goroutine uses it.
type Stopwatch interface {
	// Mark notes, as mark i, the moment at which the kernels called so far are done. Marks count
	// from 0 without gaps, and are used again.
	Mark(i int) error
	// Between returns the time from mark i to mark j. Both have passed: the device was synced.
	Between(i, j int) (time.Duration, error)
	Free() error
}

// The sizes that costs are made of, in bytes.
const floatBytes = 4

// bytes returns the size of a matrix that is read or written once.
func (m Matrix) bytes() int { return floatBytes * m.Rows * m.Cols }

// bytesWritten returns the size of a result: it is written, and read before if it is added to.
func (m Matrix) bytesWritten(add bool) int {
	if add {
		return 2 * m.bytes()
	}
	return m.bytes()
}
