package compute

import (
	"errors"
	"time"
)

// ErrAlone is wrapped by the error of Link when other ranks did not come. Why they did not come is
// the more useful error.
var ErrAlone = errors.New("not all ranks came to be linked")

// PeerDevice is an Accelerator that sends slices from its memory to the devices of other ranks
// without a copy in host memory. Such work is queued on a stream of its own, in the order of the
// calls, beside the kernels:
//
//	kernels  ... backward of a layer ── Record(a) ── backward of the layer below ...
//	comm                                  └ Follow(a) ── Links.Exchange ── AddSlices ── Links.Exchange ── RecordComm(b)
//	host                                                                                                  b.Wait or Links.Wait(b)
//
// One goroutine may use the comm stream while another calls kernels.
type PeerDevice interface {
	Accelerator

	// ID names the device: two ranks see the same ID exactly if they share it.
	ID() string

	// Record lets e pass when the kernels called so far are done, RecordComm when the work queued
	// on the comm stream so far is done. Follow makes later work of the comm stream wait for e.
	Record(e Event)
	RecordComm(e Event)
	Follow(e Event)

	// AddSlices sets sum[i] to s_0[i] + s_1[i] + ... in this order, on the comm stream, where s_r
	// is the r-th of the slices, each as long as sum, and s_rank is sum itself.
	AddSlices(sum, slices []float32, rank int)

	// FindLinks loads the library of links and returns its version. NewLinkID makes the id with
	// which all ranks then call Link.
	FindLinks() (version string, err error)
	NewLinkID() ([]byte, error)
	// Link opens links. Every rank calls it; it returns when all have, or fails.
	Link(o LinkOptions) (Links, error)
}

// LinkOptions say which ranks are linked.
type LinkOptions struct {
	ID          []byte // by NewLinkID of one rank
	Rank, Ranks int
	Patience    time.Duration // how long Link waits for the other ranks

	// Ended is closed when the job fails: the links are cut, so that no rank waits for one that is
	// gone. It may be nil.
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
	// Wait returns when e passes, which RecordComm recorded after the calls above, or says why the
	// queued work was cut short.
	Wait(e Event) error
	// Close closes the links in order: every rank calls it. Cut ends them on this rank alone, with
	// the work under way.
	Close() error
	Cut()
}
