package compute

import (
	"errors"
	"time"
)

// ErrAlone is wrapped by the error that Link returns if other ranks did not call Link in time. The
// cause is in the errors of those ranks.
var ErrAlone = errors.New("not all ranks joined in linking their GPUs")

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

	// ID returns a name of the device. Two ranks get the same ID if and only if they share a
	// device.
	ID() string

	// Record makes the event e pass when the kernels called so far are done. RecordComm makes it
	// pass when the work queued so far on the comm stream is done. After Follow, work that is
	// queued on the comm stream waits for e. After Await, kernels that are called wait for e.
	Record(e Event)
	RecordComm(e Event)
	Follow(e Event)
	Await(e Event)

	// AddSlices sets sum[i] to s_0[i] + s_1[i] + ... in this order, on the comm stream. Here s_r is
	// the slice of rank r, an array as long as sum. The slice of this rank is in sum, and those of
	// the other ranks are in the array slices, beginning at r times the length of sum.
	AddSlices(sum, slices []float32, rank int)

	// FindLinks loads the library for links (NCCL) and returns its version. NewLinkID makes the id
	// that all ranks pass to Link.
	FindLinks() (version string, err error)
	NewLinkID() ([]byte, error)
	// Link opens links between all ranks. Every rank must call it. It returns when all ranks have
	// called it, or fails.
	Link(o LinkOptions) (Links, error)
}

// LinkOptions say which ranks are linked, and how.
type LinkOptions struct {
	ID          []byte // id that NewLinkID of one rank has made
	Rank, Ranks int
	Timeout     time.Duration // how long Link waits for the other ranks

	// The links are cut when Ended is closed, which means that the job has failed. So no rank waits
	// for a rank that has failed. Ended may be nil.
	Ended <-chan struct{}
}

// Links join the devices of all ranks. All ranks must make the same calls in the same order. If a
// call fails, all later calls fail too.
type Links interface {
	// Exchange sends send[r] to every other rank r, and receives recv[r] from it, on the comm
	// stream. Empty slices are not sent.
	Exchange(send, recv [][]float32) error
	// Sum replaces buf by its sum over all ranks, on the comm stream. The library chooses the order
	// of the sum.
	Sum(buf []float32) error
	// Wait returns when e passes. If the links were cut before the queued work was done, it returns
	// the reason. The caller must have called RecordComm with e after the calls of Exchange and
	// Sum.
	Wait(e Event) error
	// Passed reports whether e has passed and all work before it has succeeded. It never waits, not
	// even for a lock. Any goroutine may call it.
	Passed(e Event) bool
	// Close waits until the work of the links is done and closes them. Every rank must call it. Cut
	// closes the links at once and ends work that is not done, on this rank only.
	Close() error
	Cut()
}
