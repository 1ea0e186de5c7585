package parallel

import (
	"halognn/src/base/mem"
	"halognn/src/devices/compute"
)

// linkQueue moves slices between the devices of all ranks, one errand after the other: sums of
// gradients and rows between layers alike. Every rank gives it the same errands in the same order;
// otherwise two devices could wait for each other for ever. It is a goroutine, because queueing may
// block and training must not.
//
//	training  layer 2 ─┬─ shuffle ─┬─ layer 1 ─┬─ shuffle ─┬─ ...
//	queue              └ bucket 2 ─┴ rows 2 ───┴ bucket 1 ─┴ rows 1 ...   one queue of the device
type linkQueue struct {
	device      compute.PeerDevice
	over        sliceTransport
	rank, ranks int // rank in the job, and number of ranks
	errands     chan errand
	ended       chan struct{}
}

// errand is work for a linkQueue: the function `enqueue` queues kernels on the comm stream. Then
// the linkQueue sends the error of enqueue, or nil, to the channel told. The channel must have room
// for this error, because the queue would otherwise stand still.
type errand struct {
	enqueue func() error
	told    chan<- error
}

// sliceTransport moves slices between the devices of all ranks, by compute.Links or by messages.
type sliceTransport interface {
	Exchange(send, recv [][]float32) error
	Wait(a compute.Event) error
	Passed(a compute.Event) bool
	Close() error // called by every rank
	Cut()         // called by one rank alone
}

// newLinkQueue makes a linkQueue over a sliceTransport, which the caller still owns. The queue has
// room for `waiting` errands. Callers block while it is full.
func newLinkQueue(device compute.PeerDevice, over sliceTransport,
	rank, ranks, waiting int) *linkQueue {
	q := &linkQueue{device: device, over: over, rank: rank, ranks: ranks,
		errands: make(chan errand, waiting), ended: make(chan struct{})}
	go q.run()
	return q
}

// run does the errands in order. After an error it does no more errands, and reports this error for
// all that follow.
func (q *linkQueue) run() {
	var fault error
	for e := range q.errands {
		if fault == nil {
			fault = mem.Contain(e.enqueue)
		}
		e.told <- fault
	}
	close(q.ended)
}

// end returns when the errands given so far have been done. No errand may follow.
func (q *linkQueue) end() {
	close(q.errands)
	<-q.ended
}
