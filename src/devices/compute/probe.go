package compute

import "time"

// Call is the cost of one call of a kernel: lower bounds of the bytes that it moves and of its
// operations. Every operand counts once. But if edges refer to rows, a row counts once for each
// edge, as if nothing were cached.
type Call struct {
	Kernel string
	Bytes  int  // number of bytes read and written
	Flops  int  // number of operations of matrix products
	Update bool // whether the call ends a training step, as the update of an optimizer does
}

// A Probe is informed of each call of a kernel of a device, on the goroutine that makes the call. A
// device calls
//
//	defer d.probe.Start(compute.CheckMatMul(y, x, w, add)).Done()
//
// in every kernel. The methods of a nil Probe do nothing. If a kernel calls other kernels, only the
// outer kernel is reported.
type Probe struct {
	OnStart func(Call) // called before the device queues or runs the kernel
	OnDone  func()     // called after the kernel was queued or has run
	OnSync  func()     // called when all kernels queued so far are done

	open int // number of calls for which Start was called but not Done
}

// Start reports a call of a kernel. The arguments of the kernel must have been checked before.
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

// Stopwatch measures times on a device. Only the training goroutine uses it.
type Stopwatch interface {
	// Mark records the time at which the kernels called so far are done, under the number i. These
	// numbers begin at 0 and have no gaps. A number may be used again.
	Mark(i int) error
	// Between returns the time from mark i to mark j. The device must have reached both marks, so
	// call Device.Sync before Between.
	Between(i, j int) (time.Duration, error)
	Free() error
}

// floatBytes is the bytes of a float32.
const floatBytes = 4

// bytes returns the bytes that are moved if the matrix is read or written once.
func (m Matrix) bytes() int { return m.Elements().Size() * m.Rows * m.Cols }

// bytesWritten returns the bytes that are moved if the matrix is a result. It is written and, if
// add is true, also read.
func (m Matrix) bytesWritten(add bool) int {
	if add {
		return 2 * m.bytes()
	}
	return m.bytes()
}
