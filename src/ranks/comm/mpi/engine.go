//go:build cgo && mpi

package mpi

/*
#include "engine.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"halognn/src/base/mem"
	"halognn/src/ranks/comm"
)

// maxCount is the largest count and displacement given to MPI. Tests lower it, to the same value on
// all ranks.
var maxCount = math.MaxInt32

// freeTimeout is how long a rank that has finished waits for the others to free a communicator.
var freeTimeout = 10 * time.Second

// engine makes all MPI calls. Methods below the dashed line may be called only by its own
// goroutine.
type engine struct {
	mu    sync.Mutex
	queue []*operation // operations passed to the engine and not started yet, in order
	all   []*operation // all operations, by number
	spare []*operation

	aborting atomic.Int64 // exit code + 1 if Abort was called; otherwise 0
	// the error for which this rank ends the job; nil if there is none
	failed   atomic.Pointer[error]
	stopping atomic.Bool

	unwaited atomic.Int64 // number of requests on which Wait has not been called yet

	rank     int          // rank in the world
	taken    []*operation // the queue whose operations are being started; it is swapped with queue
	underway int          // number of operations started and not completed
	pacer    pacer
	news     []C.hgnn_done // the operations that the last poll found completed
	unfreed  error         // the reason why communicators could not be freed
}

func newEngine() *engine { return &engine{} }

// take returns an empty operation, which may be a recycled one.
func (e *engine) take() *operation {
	e.mu.Lock()
	defer e.mu.Unlock()
	if last := len(e.spare) - 1; last >= 0 {
		op := e.spare[last]
		e.spare = e.spare[:last]
		return op
	}
	op := &operation{engine: e, number: len(e.all), done: make(chan struct{}, 1)}
	e.all = append(e.all, op)
	return op
}

// give recycles an operation whose buffers MPI no longer uses.
func (e *engine) give(op *operation) {
	op.reset()
	e.mu.Lock()
	e.spare = append(e.spare, op)
	e.mu.Unlock()
}

// hand passes an operation to the engine, and returns its request.
func (e *engine) hand(op *operation) *operation {
	if op.kind != free {
		e.unwaited.Add(1)
	}
	e.mu.Lock()
	e.queue = append(e.queue, op)
	e.mu.Unlock()
	C.hgnn_wake()
	return op
}

func (e *engine) stop() {
	e.stopping.Store(true)
	C.hgnn_wake()
}

// The method fail makes serve return err, even if operations are under way. Later calls have no
// effect.
func (e *engine) fail(err error) {
	e.failed.CompareAndSwap(nil, &err)
	C.hgnn_wake()
}

func (e *engine) abort(code int) {
	e.aborting.CompareAndSwap(0, int64(code)+1)
	C.hgnn_wake()
}

// ---- the engine's goroutine, on the main thread

// serve starts the operations that are passed to the engine, and ends those that MPI has completed.
// It returns when stop or fail is called.
func (e *engine) serve() error {
	for {
		if err := e.failed.Load(); err != nil {
			return *err
		}
		if e.stopping.Load() {
			return nil
		}
		if err := e.turn(); err != nil {
			return err
		}
	}
}

// linger does what serve does for the time d, after serve has returned an error. So other
// goroutines of this rank may get what they wait for and end in order.
func (e *engine) linger(d time.Duration) {
	var over atomic.Bool
	time.AfterFunc(d, func() {
		over.Store(true)
		C.hgnn_wake()
	})
	for !over.Load() {
		if e.turn() != nil {
			return
		}
	}
}

// turn starts the operations that have been passed to the engine, sleeps until operations complete,
// and ends these. If an operation panics, for example because there is no memory for the rows that
// it receives, the panic becomes the operation's error. Otherwise the goroutine that waits for the
// operation would never learn of it.
func (e *engine) turn() error {
	if code := e.aborting.Load(); code != 0 {
		C.hgnn_abort(C.int(code - 1))
	}
	e.mu.Lock()
	e.queue, e.taken = e.taken[:0], e.queue
	e.mu.Unlock()
	for i, op := range e.taken {
		e.taken[i] = nil
		e.underway++
		if err := mem.Contain(op.startCalls); err != nil {
			e.complete(op, err)
		}
	}
	for _, p := range e.pacer.takePieces() {
		err := mem.Contain(func() error { return e.pacer.sendPiece(p) })
		if err != nil && !p.op.completed {
			e.complete(p.op, err)
		}
	}
	news := C.hgnn_poll()
	if news.code != 0 {
		return fault("MPI_Testsome", news.code)
	}
	e.mu.Lock()
	all := e.all
	e.mu.Unlock()
	// The list is copied, because ending an operation may start others, and these would overwrite
	// the list on the C side.
	e.news = append(e.news[:0], unsafe.Slice(news.done, news.n)...)
	for _, d := range e.news {
		var op *operation
		if slot, paced := slotOf(d.owner); paced {
			op = e.pacer.taken(slot)
		} else {
			op = all[d.owner]
		}
		e.ended(op, d.code)
	}
	return nil
}

// ended counts one MPI call of an operation as completed. With the last one, the operation ends.
func (e *engine) ended(op *operation, code C.int) {
	op.parts--
	switch {
	case op.completed: // the operation failed before this MPI call completed
	case code != 0:
		e.complete(op, fault(op.name(), code))
	case op.parts == 0:
		e.complete(op, mem.Contain(op.finish))
	}
}

// complete ends an operation, whose Wait returns err. After an error some of its MPI calls may
// never complete. The operation is then not reused, which does no harm because the job ends.
func (e *engine) complete(op *operation, err error) {
	e.underway--
	op.completed, op.err = true, err
	// this operation is a part of another one, and only that has a request that somebody waits for
	if op.kind == firsts {
		if of := op.of; err == nil {
			e.give(op)
			e.ended(of, 0)
		} else if !of.completed {
			e.complete(of, err)
		}
		return
	}
	if op.kind == free { // no goroutine waits for a free
		e.unfreed = errors.Join(e.unfreed, err)
		if err == nil {
			e.give(op)
		}
		return
	}
	op.done <- struct{}{}
}

// drain waits until f has returned on every rank, and completes the freeing of communicators. It
// returns an error if Wait was not called for a request, or if another rank has not freed a
// communicator that this rank has freed. At the end it calls a barrier of all ranks, because
// launchers fail badly if one rank finalises MPI while another aborts.
func (e *engine) drain(world *communicator) error {
	if n := e.unwaited.Load(); n > 0 {
		return fmt.Errorf("%d requests have not been waited for; this is a bug in halognn", n)
	}
	if err := e.meet(world); err != nil {
		return err
	}
	e.stopping.Store(false)
	deadline := time.AfterFunc(freeTimeout, e.stop)
	defer deadline.Stop()
	for e.underway > 0 {
		if e.stopping.Load() {
			return fmt.Errorf("%w: a communicator was freed here, but not on every rank",
				comm.ErrMismatch)
		}
		if err := e.turn(); err != nil {
			return err
		}
	}
	if e.unfreed != nil {
		return e.unfreed
	}
	return e.meet(world)
}

// meet waits until the engines of all ranks have called it.
func (e *engine) meet(world *communicator) error {
	all := e.hand(world.operation(barrier))
	for !all.completed {
		if err := e.turn(); err != nil {
			return err
		}
	}
	return all.Wait()
}
