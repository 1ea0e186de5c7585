package comm

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"halognn/src/base/mem"
)

// World is a job whose ranks are goroutines of this process, for tests, debuggers and laptops
// without MPI. It checks more than MPI does. If operations or counts of two ranks do not match, or
// if a rank returns while others wait for it, the job ends with an error that names both ranks.
type World struct {
	// NodeSize is the number of consecutive ranks that pretend to share a node; 0 means all ranks.
	// Set it before the first Node.
	NodeSize int

	// Copy copies the bytes of a message between two ranks; nil means the built-in copy. If Copy
	// handles device memory, buffers of messages may be there, as with a CUDA-aware MPI. Set it
	// before the first message.
	Copy func(dst, src []byte) error

	// Grace is how long Run waits for ranks to return after the job has failed; 0 means for ever.
	// Set it before Run.
	Grace time.Duration

	root  *group
	ended chan struct{} // closed when the job fails

	mu     sync.Mutex // must be locked after a group's mutex, never before it
	cause  error      // why the job failed; nil if it has not
	wake   error      // error that Wait returns after a failure: ErrAborted and the cause
	groups []*group   // communicators not yet freed
	serial int        // number of the next communicator
}

// NewWorld returns a world of n ranks. It panics if n < 1.
func NewWorld(n int) *World {
	if n < 1 {
		panic(fmt.Sprintf("comm: a world has %d ranks; it needs at least 1", n))
	}
	w := &World{ended: make(chan struct{})}
	ranks := make([]int, n)
	for r := range ranks {
		ranks[r] = r
	}
	w.root = w.newGroup(ranks)
	return w
}

// Rank returns rank r's handle of the communicator of all ranks.
func (w *World) Rank(r int) Comm { return &member{group: w.root, rank: r} }

// Abort ends the job: every wait of every rank returns an error that wraps ErrAborted and cause.
// Only the first call has an effect.
func (w *World) Abort(cause error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cause == nil {
		w.cause, w.wake = cause, fmt.Errorf("%w: %w", ErrAborted, cause)
		close(w.ended)
	}
}

// failure returns the error that Wait returns once the job has failed; nil before that.
func (w *World) failure() error {
	select {
	case <-w.ended:
	default:
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.wake
}

// RunWorld runs f on n ranks, each a goroutine, and returns when all have returned (see World.Run).
func RunWorld(n int, f func(Comm) error) error { return NewWorld(n).Run(f) }

// Run runs f once per rank, each in a goroutine of its own, and returns when all have returned. The
// first rank that calls Abort, returns an error, panics or exits ends the job for all; Run returns
// its error with the rank named. After a failure Run waits at most Grace for the other ranks. These
// may be busy with work that does not wait for a request, and so do not notice the failure.
func (w *World) Run(f func(Comm) error) error {
	var ranks sync.WaitGroup
	for r := range w.root.ranks {
		ranks.Add(1)
		go RunRank(func() error { return f(w.Rank(r)) }, func(err error) {
			if err != nil {
				w.Rank(r).Abort(err)
			}
			w.leave(r)
			ranks.Done()
		})
	}
	returned := make(chan struct{})
	go func() { ranks.Wait(); close(returned) }()
	select {
	case <-returned:
	case <-w.late(returned):
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cause
}

// late returns a channel that is closed when the time Grace has passed since the job failed. If all
// ranks return earlier, it is never closed.
func (w *World) late(returned <-chan struct{}) <-chan struct{} {
	if w.Grace == 0 {
		return nil
	}
	over := make(chan struct{})
	go func() {
		select {
		case <-returned:
		case <-w.ended:
			time.Sleep(w.Grace)
			close(over)
		}
	}()
	return over
}

// RunRank calls f and passes its error to done, even if f panics or ends its goroutine.
func RunRank(f func() error, done func(error)) {
	err := errors.New("the goroutine exited before it was done (was t.FailNow called in it?)")
	defer func() { done(err) }()
	err = mem.Contain(f)
}

// leave records that world rank r has returned, and ends the job if others wait for it.
func (w *World) leave(r int) {
	w.mu.Lock()
	groups := append([]*group(nil), w.groups...) // no communicator made after this can include r
	w.mu.Unlock()
	for _, g := range groups {
		g.leave(r)
	}
}

func (w *World) newGroup(ranks []int) *group {
	n := len(ranks)
	g := &group{world: w, ranks: ranks, next: make([]uint64, n), left: make([]bool, n),
		freed: make([]bool, n)}
	g.idle.L = &g.mu
	w.mu.Lock()
	defer w.mu.Unlock()
	g.id = w.serial
	w.serial++
	w.groups = append(w.groups, g)
	return g
}

func (w *World) drop(g *group) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.groups {
		if w.groups[i] == g {
			w.groups = append(w.groups[:i], w.groups[i+1:]...)
			return
		}
	}
}
