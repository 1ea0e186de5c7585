// Package mem allocates large arrays outside the Go heap: anonymous memory, and files mapped
// read-only.
//
//	Make[int32](n) ──> anonymous mapping ──> []int32     the collector neither scans nor counts it
//	Map(path)      ──> page cache        ──> []byte      one physical copy for all ranks of a node
//
// An array has one owner, who frees it; touching a slice of freed memory faults. Memory that the
// collector does not see must hold no Go pointers, so elements are numbers only. It uses Linux's
// mmap; the package does not know what the arrays mean.
package mem

import (
	"fmt"
	"math"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"halognn/src/base/fault"
)

// Number lists the element types that may lie outside the heap: types without Go pointers.
type Number interface {
	~int8 | ~int16 | ~int32 | ~int64 | ~int | ~uint8 | ~uint16 | ~uint32 | ~uint64 |
		~float32 | ~float64
}

// Bytes returns the memory of s as bytes, without copying, for files and messages.
func Bytes[T Number](s []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))),
		len(s)*int(unsafe.Sizeof(*new(T))))
}

var live, peak atomic.Int64

// Allocated returns the bytes of anonymous memory that Make and Grow have allocated and Free has
// not freed.
func Allocated() int64 { return live.Load() }

// PeakAllocated returns the largest value Allocated has had, or has had since ResetPeak.
func PeakAllocated() int64 { return peak.Load() }

// ResetPeak forgets what has been freed, so that the peak counts from now on. Nothing else may
// allocate meanwhile: such an array would be lost to the peak.
func ResetPeak() { peak.Store(live.Load()) }

// Make returns n zeroed elements outside the Go heap; nil for n = 0. It panics if n is negative. If
// the system has no memory left, or n exceeds any address space, it panics with an error that wraps
// ErrMemory and that Guard returns: nothing useful can be done without the array.
func Make[T Number](n int) []T {
	if n == 0 {
		return nil
	}
	b := makeBytes(n, int(unsafe.Sizeof(*new(T))))
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), n)
}

func makeBytes(n, elem int) []byte {
	if n < 0 {
		panic(fmt.Sprintf("mem: cannot make %d elements", n))
	}
	if n > (1<<62)/elem {
		panic(exhausted(math.MaxInt, unix.ENOMEM))
	}
	size := pages(n * elem)
	b, err := []byte(nil), error(unix.ENOMEM)
	if !fault.Starved() && leavesAddresses(size) {
		b, err = allocate(size)
	}
	if err != nil {
		panic(exhausted(size, err))
	}
	now := live.Add(int64(size))
	for old := peak.Load(); now > old && !peak.CompareAndSwap(old, now); old = peak.Load() {
	}
	return b[:n*elem]
}

// pages rounds up to whole pages, the system's unit of memory.
func pages(bytes int) int {
	p := unix.Getpagesize()
	return (bytes + p - 1) / p * p
}

// Free frees an array of Make or Grow. The slice must start where the array starts and have its
// full capacity; nil is allowed.
func Free[T Number](s []T) {
	if cap(s) == 0 {
		return
	}
	size := pages(cap(s) * int(unsafe.Sizeof(*new(T))))
	if err := release(unsafe.Pointer(unsafe.SliceData(s)), size); err != nil {
		panic(fmt.Sprintf("mem: freeing %d bytes that Make did not hand out: %v", size, err))
	}
	live.Add(int64(-size))
}

// Grow returns an array of n elements that begins with the elements of s, which it frees if it has
// to move; elements beyond the old length are undefined. It reserves an eighth more than n, so that
// a slowly growing buffer moves rarely and, in steady state, never.
func Grow[T Number](s []T, n int) []T {
	if n <= cap(s) {
		return s[:n]
	}
	bigger := Make[T](n + n/8)
	copy(bigger, s)
	Free(s)
	return bigger[:n]
}
