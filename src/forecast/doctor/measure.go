package doctor

import (
	"time"

	"halognn/src/base/mem"
	"halognn/src/devices/compute"
	"halognn/src/ranks/comm"
)

const (
	tryTime  = 100 * time.Millisecond // how long each rate is measured
	turnTime = 20 * time.Millisecond  // how long a rank that copies alone on its node is measured
	// rows of the matrix for each thread; tiles of the device have 256 or 512 rows
	gemmRows  = 512
	gemmWidth = 256 // columns of the input and output: the hidden width of the default model
	// bytes of the copied buffer; with its copy it exceeds a core's share of any cache, so the copy
	// measures memory
	copyBytes = 32 << 20
	// bytes that a rank sends in an all-to-all, and adds in an allreduce
	trafficBytes = 4 << 20
)

// sustained calls f repeatedly for the given time, and returns the work done per second. The
// argument `work` is the work of one call, in bytes or operations. The first call is a warm-up and
// does not count.
func sustained(within time.Duration, work float64, f func()) float64 {
	f()
	begin, calls := time.Now(), 0.0
	for time.Since(begin) < within {
		f()
		calls++
	}
	return calls * work / time.Since(begin).Seconds()
}

// measureRank fills in the rates of this rank. Collective; if a device fails, every rank returns an
// error.
func measureRank(c, node comm.Comm, o Options, me *Rank) error {
	x := compute.Matrix{Rows: gemmRows * o.Threads, Cols: gemmWidth}
	y := x
	w := compute.Matrix{Rows: gemmWidth, Cols: gemmWidth}
	var failed error
	for _, m := range []*compute.Matrix{&x, &y, &w} {
		var err error
		if m.Data, err = o.Device.Alloc(m.Rows * m.Cols); err != nil {
			failed = err
		}
		defer o.Device.Free(m.Data)
	}
	from, to := mem.Make[byte](copyBytes), mem.Make[byte](copyBytes)
	defer mem.Free(from)
	defer mem.Free(to)
	if err := c.StartBarrier().Wait(); err != nil {
		return err
	}
	if failed == nil {
		flop := 2 * float64(x.Rows) * gemmWidth * gemmWidth
		me.GEMM = sustained(tryTime, flop, func() {
			o.Device.MatMul(y, x, w, false)
			if err := o.Device.Sync(); err != nil {
				failed = err
			}
		})
	}
	copies := func() {
		mem.Parallel(o.Threads, func(i int) {
			lo, hi := copyBytes*i/o.Threads, copyBytes*(i+1)/o.Threads
			copy(to[lo:hi], from[lo:hi])
		})
	}
	for turn := range node.Size() {
		if err := node.StartBarrier().Wait(); err != nil {
			return err
		}
		if turn == node.Rank() {
			me.Alone = sustained(turnTime, 2*copyBytes, copies)
		}
	}
	if err := c.StartBarrier().Wait(); err != nil {
		return err
	}
	me.Together = sustained(tryTime, 2*copyBytes, copies)
	return comm.Agree(c, failed)
}

// Traffic holds the rates between ranks. All are 0 if there is one rank only.
type Traffic struct {
	Barrier float64 `json:"barrier_seconds"`
	// AllToAll is the bytes/s that a rank sends to all others, while they do the same.
	AllToAll float64 `json:"all_to_all_bytes_per_second"`
	// Allreduce is the bytes/s of an allreduce by the transport: the size of the buffer that every
	// rank adds, divided by the time.
	Allreduce float64 `json:"allreduce_bytes_per_second"`
}

// measureTraffic times collectives. Collective.
func measureTraffic(c comm.Comm) (t Traffic, err error) {
	k := c.Size()
	if k == 1 {
		return t, nil
	}
	each := max(1, trafficBytes/k)
	counts := make([]int, k)
	for r := range counts {
		counts[r] = 1
	}
	send, recv := mem.Make[byte](each*k), mem.Make[byte](each*k)
	sum := mem.Make[float32](trafficBytes / 4)
	defer func() { mem.Free(send); mem.Free(recv); mem.Free(sum) }()

	if t.Barrier, err = perCall(c, func() comm.Request { return c.StartBarrier() }); err != nil {
		return t, err
	}
	seconds, err := perCall(c, func() comm.Request {
		return c.StartAlltoallv(send, recv, counts, counts, each)
	})
	if err != nil {
		return t, err
	}
	t.AllToAll = float64(each*(k-1)) / seconds
	seconds, err = perCall(c, func() comm.Request { return c.StartAllreduceSum(sum) })
	if err != nil {
		return t, err
	}
	t.Allreduce = trafficBytes / seconds
	return t, nil
}

// perCall returns the seconds that a collective takes. A try takes as long as its slowest rank, and
// the result is the fastest of several tries. The function start starts the collective. Collective.
func perCall(c comm.Comm, start func() comm.Request) (float64, error) {
	shortest := 0.0
	for begin, try := time.Now(), 0; ; try++ {
		if err := c.StartBarrier().Wait(); err != nil {
			return 0, err
		}
		t := time.Now()
		if err := start().Wait(); err != nil {
			return 0, err
		}
		all, err := comm.Allgather(c, time.Since(t).Seconds(), time.Since(begin).Seconds())
		if err != nil {
			return 0, err
		}
		longest := 0.0
		for i := 0; i < len(all); i += 2 {
			longest = max(longest, all[i])
		}
		// try 0 opens connections, so it does not count
		if try == 1 || try > 1 && longest < shortest {
			shortest = longest
		}
		if try >= 3 && all[1] > tryTime.Seconds() { // all ranks decide by rank 0's clock
			return max(shortest, 1e-9), nil
		}
	}
}
