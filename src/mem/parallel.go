package mem

import (
	"errors"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// Parallel calls f(0) to f(n-1), each on a goroutine of its own, and returns when all have. It
// re-raises a panic of f on the calling goroutine, where a Guard around the call sees it.
func Parallel(n int, f func(worker int)) {
	var group sync.WaitGroup
	var met atomic.Pointer[any]
	for worker := range n {
		group.Go(func() {
			debug.SetPanicOnFault(true) // of this goroutine, which ends here
			defer func() {
				r := recover()
				if r == nil {
					return
				}
				err, isError := r.(error)
				if _, read := r.(badRead); !read && !(isError && errors.Is(err, ErrMemory)) {
					r = &Panic{r, debug.Stack()} // the stack would be lost
				}
				met.Store(&r)
			}()
			f(worker)
		})
	}
	group.Wait()
	if r := met.Load(); r != nil {
		panic(*r)
	}
}
