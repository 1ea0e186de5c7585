package compute

import "time"

// Call is the cost of one call of a kernel: lower bounds of the bytes moved and of the operations.
// Every operand counts once, but a row to which edges refer counts once for each edge, as if
// nothing were cached.
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
// in every kernel. A nil Probe does nothing. If a kernel calls other kernels, only the outer kernel
// is reported.
type Probe struct {
	OnStart func(Call) // before the device queues or runs the kernel
	OnDone  func()     // after the kernel is queued or has run
	OnSync  func()     // when all kernels queued so far are done

	open int // number of calls that have started and are not done
}

// Start reports a call of a kernel. Its arguments must have been checked.
func (p *Probe) Start(c Call) *Probe {
	if p != nil {
		if p.open == 0 {
			p.OnStart(c)
		}
		p.open++
	}
	return p
}

// Done reports that the kernel of the last Start was queued, or has run.
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
	// Mark records, as mark i, the time at which the kernels called so far are done. Marks are
	// numbered from 0 without gaps, and may be reused.
	Mark(i int) error
	// Between returns the time from mark i to mark j. Both must have passed, so Device.Sync must
	// have been called before.
	Between(i, j int) (time.Duration, error)
	Free() error
}

// floatBytes is the bytes of a float32.
const floatBytes = 4

// bytes returns the bytes that move if the matrix is read or written once.
func (m Matrix) bytes() int { return m.Elements().Size() * m.Rows * m.Cols }

// bytesWritten returns the bytes that move if the matrix is a result. It is written and, if add is
// set, also read before.
func (m Matrix) bytesWritten(add bool) int {
	if add {
		return 2 * m.bytes()
	}
	return m.bytes()
}
