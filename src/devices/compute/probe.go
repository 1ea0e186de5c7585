package compute

import "time"

// Call is the cost of one call of a kernel: lower bounds of the bytes moved and of the operations.
// Every operand counts once; a row that edges refer to counts once for each edge, as if nothing
// were cached.
type Call struct {
	Kernel string
	Bytes  int  // number of bytes read and written
	Flops  int  // number of operations of matrix products
	Update bool // the call ends a training step, as an optimizer's update does
}

// Probe receives the kernel calls of a device, on the goroutine that makes them. A device calls
//
//	defer d.probe.Start(compute.CheckMatMul(y, x, w, add)).Done()
//
// in every kernel; a nil Probe ignores it. If a kernel calls other kernels, only the first is
// reported.
type Probe struct {
	OnStart func(Call) // before the device queues or runs the kernel
	OnDone  func()     // after the kernel is queued or has run
	OnSync  func()     // when all kernels queued so far are done

	open int // number of calls that have started and are not done
}

// Start reports a call, whose shapes were checked.
func (p *Probe) Start(c Call) *Probe {
	if p != nil {
		if p.open == 0 {
			p.OnStart(c)
		}
		p.open++
	}
	return p
}

// Done reports that the call of the last Start was queued, or has run.
func (p *Probe) Done() {
	if p != nil {
		if p.open--; p.open == 0 {
			p.OnDone()
		}
	}
}

// Synced reports that all kernels called so far are done.
func (p *Probe) Synced() {
	if p != nil {
		p.OnSync()
	}
}

// Stopwatch records times on a device. The training goroutine uses it.
type Stopwatch interface {
	// Mark notes, as mark i, the moment at which the kernels called so far are done. Marks are
	// numbered from 0 without gaps, and may be reused.
	Mark(i int) error
	// Between returns the time from mark i to mark j. Both have passed: the device was synced.
	Between(i, j int) (time.Duration, error)
	Free() error
}

// floatBytes is the size of an element, for costs.
const floatBytes = 4

// bytes returns the size of a matrix that is read or written once.
func (m Matrix) bytes() int { return m.Elements().Size() * m.Rows * m.Cols }

// bytesWritten returns the size of a result: it is written, and read before if it is added to.
func (m Matrix) bytesWritten(add bool) int {
	if add {
		return 2 * m.bytes()
	}
	return m.bytes()
}
