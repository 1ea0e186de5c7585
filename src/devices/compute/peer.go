package compute

import (
	"errors"
	"time"
)

// ErrAlone is wrapped by the error that Link returns if other ranks did not call Link in time. The
// errors of those ranks say more about the cause.
var ErrAlone = errors.New("not all ranks came to be linked")

// PeerDevice is an Accelerator that can send slices of its memory to the devices of other ranks,
// without a copy in host memory. This work is queued on a separate CUDA stream, the comm stream, in
// the order of the calls, while kernels run:
//
//	kernels  backward of a layer, Record(a), backward of the layer below ...
//	comm     Follow(a), Links.Exchange, AddSlices, Links.Exchange, RecordComm(b)
//	host     b.Wait or Links.Wait(b)
//
// One goroutine may use the comm stream while another calls kernels.
type PeerDevice interface {
	Accelerator

	// ID names the device: two ranks get the same ID if and only if they share the device.
	ID() string

	// Record makes the event e pass when the kernels called so far are done. RecordComm makes it
	// pass when the work queued so far on the comm stream is done. Follow makes later work of the
	// comm stream wait for e. Await makes kernels that are called later wait for e.
	Record(e Event)
	RecordComm(e Event)
	Follow(e Event)
	Await(e Event)

	// AddSlices sets sum[i] to s_0[i] + s_1[i] + ... in this order, on the comm stream. Here s_r is
	// the r-th slice in slices, each as long as sum, except that s_rank is sum itself.
	AddSlices(sum, slices []float32, rank int)

	// FindLinks loads the library for links (NCCL) and returns its version. NewLinkID makes the id
	// that all ranks pass to Link.
	FindLinks() (version string, err error)
	NewLinkID() ([]byte, error)
	// Link opens links between all ranks. Every rank must call it. It returns when all ranks have
	// called it, or fails.
	Link(o LinkOptions) (Links, error)
}

// LinkOptions say which ranks are linked.
type LinkOptions struct {
	ID          []byte // made by NewLinkID of one rank
	Rank, Ranks int
	Timeout     time.Duration // how long Link waits for the other ranks

	// Ended is closed when the job fails. Then the links are cut, so that no rank waits for a rank
	// that has failed. It may be nil.
	Ended <-chan struct{}
}

// Links join the devices of all ranks. All ranks must make the same calls in the same order. After
// a call has failed, every later call fails.
type Links interface {
	// Exchange sends send[r] to every other rank r, and receives recv[r] from it, on the comm
	// stream. Empty slices are not sent.
	Exchange(send, recv [][]float32) error
	// Sum replaces buf by its sum over all ranks, on the comm stream. The library chooses the order
	// of the sum.
	Sum(buf []float32) error
	// Wait returns when e passes. If the queued work was cut short, it returns the reason.
	// RecordComm must have recorded e after the calls of Exchange and Sum.
	Wait(e Event) error
	// Passed reports whether e has passed and all work before it has succeeded. It never waits, not
	// even for a lock. Any goroutine may call it.
	Passed(e Event) bool
	// Close closes the links after their work is done. Every rank must call it. Cut ends the links
	// and the work under way, on this rank only.
	Close() error
	Cut()
}
