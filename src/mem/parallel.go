package mem

import (
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// Parallel calls f(0) to f(n-1), each on a goroutine of its own, and returns when all have. A fault in a mapped file, which
// a Guard around the call could not see on another goroutine, panics on the calling one, where it can.
func Parallel(n int, f func(worker int)) {
	var group sync.WaitGroup
	var met atomic.Pointer[fault]
	for worker := range n {
		group.Go(func() {
			debug.SetPanicOnFault(true) // of this goroutine, which ends here
			defer func() {
				r := recover()
				if r == nil {
					return
				}
				at, ok := r.(fault)
				if !ok {
					panic(r)
				}
				met.Store(&at)
			}()
			f(worker)
		})
	}
	group.Wait()
	if at := met.Load(); at != nil {
		panic(*at)
	}
}
