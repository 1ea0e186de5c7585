// Package mem allocates large arrays outside the Go heap: anonymous memory, and files mapped
// read-only.
//
//	Make[int32](n) ──> anonymous mapping ──> []int32     the collector neither scans nor counts it
//	Map(path)      ──> page cache        ──> []byte      one physical copy for all ranks of a node
//
// Every array has one owner, who frees it. Reading or writing a slice of freed memory is a memory
// fault. The garbage collector does not see this memory, so it must hold no Go pointers: elements
// are numbers only. The package uses Linux's mmap. It does not know what the arrays mean.
package mem

import (
	"fmt"
	"math"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"halognn/src/base/fault"
)

// Number lists the element types that arrays outside the Go heap may have: types without Go
// pointers.
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

// Allocated returns the bytes of anonymous memory of Make and Grow that are not freed.
func Allocated() int64 { return live.Load() }

// PeakAllocated returns the largest value that Allocated has had since the process began or, after
// ResetPeak, since that call.
func PeakAllocated() int64 { return peak.Load() }

// ResetPeak sets the peak to the bytes that are allocated now. No other goroutine may allocate
// during the call, because the peak would miss that array.
func ResetPeak() { peak.Store(live.Load()) }

// Make returns n zeroed elements outside the Go heap, or nil for n = 0. It panics if n is negative.
// If the system has no memory left, or n exceeds any address space, it panics with an error that
// wraps ErrMemory; Guard returns this error. It panics because a caller can do nothing useful
// without the array.
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

// pages rounds a number of bytes up to whole pages, the system's unit of memory.
func pages(bytes int) int {
	p := unix.Getpagesize()
	return (bytes + p - 1) / p * p
}

// Free frees an array that Make or Grow returned. The slice s must begin where the array begins and
// have the array's capacity, or be nil.
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

// Grow returns an array of n elements that begins with the elements of s. If s has too little
// capacity, Grow allocates a new array and frees s. Elements after the old length are undefined. A
// new array has room for an eighth more than n, so that a slowly growing buffer is rarely allocated
// again and, in steady state, never.
func Grow[T Number](s []T, n int) []T {
	if n <= cap(s) {
		return s[:n]
	}
	bigger := Make[T](n + n/8)
	copy(bigger, s)
	Free(s)
	return bigger[:n]
}
