// Package timing has measurements that are useful even while other programs use the machine: a
// thread's own CPU time, and medians. It also measures the machine's limit for random reads, to
// which benchmarks compare their rates.
package timing

import (
	"math/bits"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"halognn/src/base/mem"
	"halognn/src/base/random"
)

// Thread returns the CPU time that the calling thread has used. Unlike the time of day it excludes
// other programs. The goroutine must be locked to its thread.
func Thread() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		panic(err)
	}
	return time.Duration(t.Nano())
}

// Median returns the middle number of x, or the mean of the two middle numbers. Without numbers it
// returns 0.
func Median(x []float64) float64 {
	if len(x) == 0 {
		return 0
	}
	x = slices.Sorted(slices.Values(x))
	return (x[(len(x)-1)/2] + x[len(x)/2]) / 2
}

// ReadRate returns how many independent random reads of an array the machine makes in a second. It
// computes the positions of the reads from the seed start instead of reading them from a list, so
// that only the reads of the array itself miss the processor's cache. The processor overlaps these
// reads as far as it can, so the result is the machine's limit.
func ReadRate[T mem.Number](array []T, reads, start int) float64 {
	n, s, sum := uint64(len(array)), random.Mix(uint64(start)), T(0)
	begin := Thread()
	for range reads {
		s += random.Golden
		hi, _ := bits.Mul64((s^s>>32)*0xBF58476D1CE4E5B9, n)
		sum += array[hi]
	}
	rate := float64(reads) / (Thread() - begin).Seconds()
	runtime.KeepAlive(sum) // otherwise the compiler could drop the reads
	return rate
}
