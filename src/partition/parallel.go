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

// byPart lists the vertices part by part, in increasing order: those of k are
// members[offsets[k]:offsets[k+1]].
func byPart(part []int32, parts int) (members []int32, offsets []int64) {
	offsets = make([]int64, parts+1)
	for _, k := range part {
		offsets[k+1]++
	}
	for k := range parts {
		offsets[k+1] += offsets[k]
	}
	next := append([]int64{}, offsets[:parts]...)
	members = make([]int32, len(part))
	for v, k := range part {
		members[next[k]] = int32(v)
		next[k]++
	}
	return members, offsets
}
