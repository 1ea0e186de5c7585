package compute

import (
	"errors"
	"time"
)

// ErrAlone is wrapped by the error of Link about other ranks that have not come: what keeps them is the greater news.
var ErrAlone = errors.New("not all ranks came to be linked")

// Linked is an Offboard device from whose memory slices can go to the devices of other ranks without a stop in host memory. That is queued in
// the order of the calls too, but apart from the kernels and beside them:
//
//	kernels  ... backward of a layer ── Record(a) ── backward of the layer below ...
//	between                                └ Follow(a) ── Links.Exchange ── AddSlices ── Links.Exchange ── RecordBetween(b)
//	host                                                                                                      b.Wait or Links.Wait(b)
//
// Between may be used by one goroutine while another calls kernels.
type Linked interface {
	Offboard

	// ID names the device: the same for two ranks exactly if they share it.
	ID() string

	// Record lets a be reached when the kernels called so far are done; RecordBetween when what was queued between so far is. What is queued
	// between after Follow waits for a.
	Record(a Arrival)
	RecordBetween(a Arrival)
	Follow(a Arrival)

	// AddSlices sets sum[i] to s_0[i] + s_1[i] + ... in this order, between, where s_r is the r-th of the slices, each as long as sum; but
	// for s_rank, which is sum itself.
	AddSlices(sum, slices []float32, rank int)

	// FindLinks loads the library of links and returns its version. NewLinkID makes what all ranks then open links with.
	FindLinks() (version string, err error)
	NewLinkID() ([]byte, error)
	// Link opens links. Every rank calls it; it returns when all have, or fails.
	Link(o LinkOptions) (Links, error)
}

// LinkOptions say who is linked.
type LinkOptions struct {
	ID          []byte // by NewLinkID of one rank
	Rank, Ranks int
	Patience    time.Duration   // how long Link waits for the other ranks
	Ended       <-chan struct{} // closed when the job fails: the links are cut, so that nobody waits for a rank that is gone; may be nil
}

// Links join the devices of all ranks, which make the same calls in the same order. Once a call has failed, all do.
type Links interface {
	// Exchange sends send[r] to every other rank r and receives recv[r] from it, between; what is empty does not travel.
	Exchange(send, recv [][]float32) error
	// Sum adds buf over all ranks in place, between, in an order of the library's choice.
	Sum(buf []float32) error
	// Wait returns when a is reached, to which RecordBetween was given after the calls above, or says why what was queued was cut short.
	Wait(a Arrival) error
	// Close closes the links in order: every rank calls it. Cut ends them on this rank alone, with what is under way.
	Close() error
	Cut()
}
