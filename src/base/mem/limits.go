package mem

import (
	"math"
	"os"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Reserve returns a slice of n elements that has addresses but no memory. Plans use Reserve to
// count the bytes that arrays would take. Its elements must not be read or written. Unreserve frees
// the addresses.
func Reserve[T Number](n int) ([]T, error) {
	elem := int(unsafe.Sizeof(*new(T)))
	if n == 0 {
		return nil, nil
	}
	if n < 0 || n > (1<<62)/elem {
		return nil, exhausted(math.MaxInt, unix.ENOMEM)
	}
	size := pages(n * elem)
	b, err := mapPages(-1, size, unix.PROT_NONE,
		unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_NORESERVE)
	if err != nil {
		return nil, exhausted(size, err)
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), n), nil
}

// Unreserve frees a slice that Reserve returned.
func Unreserve[T Number](s []T) {
	if cap(s) > 0 {
		_ = unmap(unsafe.Pointer(unsafe.SliceData(s)),
			uintptr(pages(cap(s)*int(unsafe.Sizeof(*new(T))))))
	}
}

// Limits are the memory limits of a process in bytes. math.MaxInt64 means that there is no limit.
type Limits struct {
	Addresses int64 // limit of the address space (ulimit -v), mapped files and idle stacks included
	Data      int64 // limit of private memory that may be written (ulimit -d)
}

// limits asks the kernel for the limits, at the first call only. The Go runtime has no function for
// this.
var limits = sync.OnceValue(func() Limits {
	of := func(resource int) int64 {
		var l unix.Rlimit
		if unix.Getrlimit(resource, &l) != nil || l.Cur > math.MaxInt64 {
			return math.MaxInt64
		}
		return int64(l.Cur)
	}
	return Limits{of(unix.RLIMIT_AS), of(unix.RLIMIT_DATA)}
})

// ProcessLimits returns the limits of this process.
func ProcessLimits() Limits { return limits() }

// ProcessHeadroom returns how many more bytes each limit allows this process.
func ProcessHeadroom() (Limits, error) {
	l := limits()
	if l.Addresses == math.MaxInt64 && l.Data == math.MaxInt64 {
		return l, nil
	}
	// The file has the numbers of pages in this order: all, resident, shared, text, 0, data.
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return l, err
	}
	page := int64(unix.Getpagesize())
	for i, field := range strings.Fields(string(text)) {
		n, _ := strconv.ParseInt(field, 10, 64)
		switch {
		case i == 0 && l.Addresses != math.MaxInt64:
			l.Addresses = max(0, l.Addresses-n*page)
		case i == 5 && l.Data != math.MaxInt64:
			l.Data = max(0, l.Data-n*page)
		}
	}
	return l, nil
}

// Large arrays leave LeftByArrays bytes of each limit for the Go heap and the stacks of threads,
// because Go and the C library end the process if they get no memory. Heap and stacks grow in steps
// of 64 MB, so that this is enough for three steps. An array of less than smallArray bytes is
// allocated without this check.
const (
	LeftByArrays = 192 << 20
	smallArray   = 1 << 20
)

// leavesAddresses reports whether the limits of this process leave enough for Go and the C library
// if an array of size bytes is allocated.
func leavesAddresses(size int) bool {
	if size < smallArray {
		return true
	}
	l, err := ProcessHeadroom()
	return err != nil || min(l.Addresses, l.Data)-LeftByArrays >= int64(size)
}
