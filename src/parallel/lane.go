package parallel

import (
	"halognn/src/compute"
	"halognn/src/mem"
)

// lane moves slices between the devices of all ranks, one errand after the other: sums of
// gradients and rows between layers alike. Every rank gives it the same errands in the same order,
// so no queue of a device waits for a peer whose queue has the two the other way round. It is a
// goroutine, because queueing may block and training must not.
//
//	training  layer 2 ─┬─ shuffle ─┬─ layer 1 ─┬─ shuffle ─┬─ ...
//	lane               └ bucket 2 ─┴ rows 2 ───┴ bucket 1 ─┴ rows 1 ...   one queue of the device
type lane struct {
	device      compute.PeerDevice
	over        sliceTransport
	rank, ranks int // of the job
	errands     chan errand
	ended       chan struct{}
}

// errand queues work on the comm stream; told gets its error, and does not block.
type errand struct {
	queue func() error
	told  chan<- error
}

// sliceTransport moves slices between the devices of all ranks: compute.Links, or messages.
type sliceTransport interface {
	Exchange(send, recv [][]float32) error
	Wait(a compute.Event) error
	Close() error // called by every rank
	Cut()         // called by one rank alone
}

// newLane makes a lane over a sliceTransport, which stays the caller's. Room is the number of
// errands that may wait without holding up who gives them.
func newLane(device compute.PeerDevice, over sliceTransport, rank, ranks, room int) *lane {
	a := &lane{device: device, over: over, rank: rank, ranks: ranks,
		errands: make(chan errand, room), ended: make(chan struct{})}
	go a.run()
	return a
}

// run does the errands in order. After an error it does no more: all that follow have its error.
func (a *lane) run() {
	var fault error
	for e := range a.errands {
		if fault == nil {
			fault = mem.Contain(e.queue)
		}
		e.told <- fault
	}
	close(a.ended)
}

// end returns when the errands given so far have been done. None may follow.
func (a *lane) end() {
	close(a.errands)
	<-a.ended
}
