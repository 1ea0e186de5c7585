//go:build cgo

package cpu

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"halognn/src/base/mem"
)

// pool runs tiles of a kernel on the calling goroutine and on workers, each a goroutine locked to
// an OS thread.
//
//	run ──signal──> worker 1 ─┐
//	    ──signal──> worker 2 ─┤ each takes the next tile until none is left;
//	    ── takes tiles itself ┘ the last to finish signals run
//
// Which thread computes a tile depends on timing; the division into tiles does not.
type pool struct {
	workers []*waiter
	closing atomic.Bool
	ended   sync.WaitGroup
	spin    time.Duration
	spun    atomic.Int64 // nanoseconds that all threads have spun so far

	work  func(tile int) // computes a tile of the current run; set before the workers are signalled
	tiles int64
	next  atomic.Int64
	busy  atomic.Int32        // number of workers that have not finished the current run
	met   atomic.Pointer[any] // value of the first panic in a tile of the current run
	done  waiter
}

// spinFor is how long an idle thread spins before it sleeps. The gap between two kernels of a layer
// is shorter than this, and waking a sleeping thread takes about this long.
const spinFor = 20 * time.Microsecond

// newPool starts threads-1 workers; the goroutine that calls run is the remaining thread. Each
// worker first calls start on its thread, with its number from 1 on.
func newPool(threads int, start func(thread int) error) (*pool, error) {
	p := &pool{done: newWaiter()}
	// If there are more threads than CPUs, a spinning thread would delay the thread for which it
	// waits.
	if threads <= min(runtime.GOMAXPROCS(0), runtime.NumCPU()) {
		p.spin = spinFor
	}
	failed := make(chan error, threads)
	for thread := 1; thread < threads; thread++ {
		w := newWaiter()
		p.workers = append(p.workers, &w)
		p.ended.Go(func() {
			runtime.LockOSThread() // never unlocked: the pinned thread ends with the goroutine
			err := start(thread)
			failed <- err
			if err == nil {
				p.serve(&w)
			}
		})
	}
	var first error
	for range p.workers {
		if err := <-failed; err != nil && first == nil {
			first = err
		}
	}
	if first != nil {
		p.close()
		return nil, first
	}
	return p, nil
}

func (p *pool) serve(w *waiter) {
	for {
		p.spun.Add(int64(w.wait(p.spin)))
		if p.closing.Load() {
			return
		}
		p.takeTiles()
		if p.busy.Add(-1) == 0 {
			p.done.signal()
		}
	}
}

// takeTiles computes tiles until none is left. If a tile panics, it stores the panic for run, and
// no thread takes another tile.
func (p *pool) takeTiles() {
	defer func() {
		if r := mem.Recovered(recover()); r != nil {
			met := r // r itself would be allocated in each call, so this is a copy
			p.met.CompareAndSwap(nil, &met)
			p.next.Store(p.tiles)
		}
	}()
	for t := p.next.Add(1) - 1; t < p.tiles; t = p.next.Add(1) - 1 {
		p.work(int(t))
	}
}

// run calls the function `work` for every tile and returns when all calls have returned. If work
// panics, run panics with the same value on the calling goroutine, where a Guard around the call
// catches it. Such panics happen because tiles may allocate scratch memory.
func (p *pool) run(tiles int, work func(tile int)) {
	helpers := min(len(p.workers), tiles-1)
	if helpers <= 0 {
		for t := range tiles {
			work(t)
		}
		return
	}
	p.work, p.tiles = work, int64(tiles)
	p.next.Store(0)
	p.busy.Store(int32(helpers))
	for _, w := range p.workers[:helpers] {
		w.signal()
	}
	p.takeTiles()
	p.spun.Add(int64(p.done.wait(p.spin)))
	if r := p.met.Swap(nil); r != nil {
		panic(*r)
	}
}

func (p *pool) close() {
	p.closing.Store(true)
	for _, w := range p.workers {
		w.signal()
	}
	p.ended.Wait()
	p.workers = nil
}

// waiter lets one goroutine wait for a signal of another goroutine. It first spins and then sleeps.
// A signal must be received before the next one is sent.
type waiter struct {
	state atomic.Int32
	wake  chan struct{}
	_     [48]byte // makes a waiter fill one cache line
}

const (
	idle int32 = iota
	signalled
	asleep
)

func newWaiter() waiter { return waiter{wake: make(chan struct{}, 1)} }

func (w *waiter) signal() {
	if w.state.Swap(signalled) == asleep {
		w.wake <- struct{}{}
	}
}

// wait waits for a signal and returns how long it spun.
func (w *waiter) wait(spin time.Duration) (spun time.Duration) {
	if spin > 0 {
		for begin := time.Now(); spun < spin; spun = time.Since(begin) {
			for range 64 {
				if w.state.Load() == signalled {
					w.state.Store(idle)
					return spun
				}
			}
		}
	}
	if w.state.CompareAndSwap(idle, asleep) {
		<-w.wake
	}
	w.state.Store(idle)
	return spun
}
