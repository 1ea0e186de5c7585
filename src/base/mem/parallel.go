package mem

import (
	"errors"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// Parallel calls f(0) to f(n-1), each on a goroutine of its own, and returns when all calls have
// returned. If f panics, Parallel panics with the same value on the calling goroutine, where a
// Guard around the call catches it.
func Parallel(n int, f func(worker int)) {
	var group sync.WaitGroup
	var met atomic.Pointer[any]
	for worker := range n {
		group.Go(func() {
			debug.SetPanicOnFault(true) // only for this goroutine, which ends here
			defer func() {
				if r := Recovered(recover()); r != nil {
					met.Store(&r)
				}
			}()
			f(worker)
		})
	}
	group.Wait()
	if r := met.Load(); r != nil {
		panic(*r)
	}
}

// Recovered returns the value with which a goroutine should panic in place of another goroutine
// that panicked with the value r. The value is a Panic, which keeps the stack of the other
// goroutine. But if r is a value that Guard turns into an error, Recovered returns r itself.
func Recovered(r any) any {
	err, isError := r.(error)
	if _, read := r.(badRead); r == nil || read || isError && errors.Is(err, ErrMemory) {
		return r
	}
	return &Panic{r, debug.Stack()}
}

// Pieces cuts [0,n) into pieces of the given length and calls f for each piece, on all CPUs, in any
// order. What f computes for an index must not depend on the piece or the worker.
func Pieces(n, piece int, f func(worker, lo, hi int)) {
	var next atomic.Int64
	take := func() int { return int(next.Add(int64(piece))) - piece }
	Parallel(min(runtime.GOMAXPROCS(0), (n+piece-1)/piece), func(worker int) {
		for lo := take(); lo < n; lo = take() {
			f(worker, lo, min(lo+piece, n))
		}
	})
}

// Together calls f(0) to f(n-1), each on a goroutine of its own, and waits for all calls. It
// returns the errors of all calls, joined. A panic in a call counts as its error.
func Together(n int, f func(worker int) error) error {
	errs := make([]error, n)
	Parallel(n, func(w int) { errs[w] = Contain(func() error { return f(w) }) })
	return errors.Join(errs...)
}
