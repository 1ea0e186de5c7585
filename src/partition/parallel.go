package partition

import (
	"runtime"
	"sync/atomic"

	"halognn/src/mem"
)

// parallel calls do(worker, i) for every i in [0, n) on all CPUs, each i once, in any order.
func parallel(n int, do func(worker, i int)) {
	var next atomic.Int64
	mem.Parallel(min(n, runtime.GOMAXPROCS(0)), func(worker int) {
		for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
			do(worker, i)
		}
	})
}
