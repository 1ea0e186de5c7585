package compute

import (
	"errors"
	"time"
)

// ErrAlone is wrapped by the error of Link when other ranks did not call it in time. Their errors
// are the more useful ones.
var ErrAlone = errors.New("not all ranks came to be linked")

// PeerDevice is an Accelerator that sends slices from its memory to the devices of other ranks
// without a copy in host memory. This work is queued on a separate CUDA stream, in the order of the
// calls, while kernels run:
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

	// Record makes e pass when the kernels called so far are done, RecordComm when the work queued
	// so far on the comm stream is done. Follow makes later work of the comm stream wait for e,
	// Await kernels that are called later.
	Record(e Event)
	RecordComm(e Event)
	Follow(e Event)
	Await(e Event)

	// AddSlices sets sum[i] to s_0[i] + s_1[i] + ... in this order, on the comm stream, where s_r
	// is the r-th of the slices, each as long as sum, and s_rank is sum itself.
	AddSlices(sum, slices []float32, rank int)

	// FindLinks loads the library of links and returns its version. NewLinkID makes the id that all
	// ranks pass to Link.
	FindLinks() (version string, err error)
	NewLinkID() ([]byte, error)
	// Link opens links. Every rank calls it; it returns when all have, or fails.
	Link(o LinkOptions) (Links, error)
}

// LinkOptions say which ranks are linked.
type LinkOptions struct {
	ID          []byte // made by NewLinkID of one rank
	Rank, Ranks int
	Timeout     time.Duration // how long Link waits for the other ranks

	// Ended is closed when the job fails: the links are cut, so that no rank waits for one that has
	// failed. It may be nil.
	Ended <-chan struct{}
}

// Links join the devices of all ranks, which make the same calls in the same order. After any call
// fails, every later call fails.
type Links interface {
	// Exchange sends send[r] to every other rank r and receives recv[r] from it, on the comm
	// stream. Empty slices are not sent.
	Exchange(send, recv [][]float32) error
	// Sum adds buf over all ranks in place, on the comm stream, in an order that the library
	// chooses.
	Sum(buf []float32) error
	// Wait returns when e passes, or returns the reason why the queued work was cut short.
	// RecordComm recorded e after the calls above.
	Wait(e Event) error
	// Passed reports whether e has passed after all of the work before it. It never waits, not even
	// for a lock, and may be called from any goroutine.
	Passed(e Event) bool
	// Close closes the links in order: every rank calls it. Cut ends the links and their work under
	// way, on this rank only.
	Close() error
	Cut()
}
