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

// Reserve returns n elements of addresses without memory, to count what arrays would take. They
// must not be touched. Unreserve frees them.
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

// Unreserve frees addresses of Reserve, as Free frees an array.
func Unreserve[T Number](s []T) {
	if cap(s) > 0 {
		_ = unmap(unsafe.Pointer(unsafe.SliceData(s)),
			uintptr(pages(cap(s)*int(unsafe.Sizeof(*new(T))))))
	}
}

// Limits are a process's limits in bytes; math.MaxInt64 means no limit.
type Limits struct {
	Addresses int64 // limit of the address space (ulimit -v), mapped files and idle stacks included
	Data      int64 // limit of private memory that may be written (ulimit -d)
}

// limits asks the kernel at the first call, because the Go runtime does not know the limits.
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

// ProcessHeadroom returns how much more memory the limits allow this process.
func ProcessHeadroom() (Limits, error) {
	l := limits()
	if l.Addresses == math.MaxInt64 && l.Data == math.MaxInt64 {
		return l, nil
	}
	text, err := os.ReadFile("/proc/self/statm") // pages: all, resident, shared, text, 0, data
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

// LeftByArrays is the memory that large arrays leave, of each limit, for the Go heap and the stacks
// of threads, because Go and the C library end the process if they get no memory. It is several of
// the steps of 64 MB by which both grow.
const (
	LeftByArrays = 192 << 20
	smallArray   = 1 << 20
)

// leavesAddresses reports whether the limits of this process leave enough beside an array of size
// bytes.
func leavesAddresses(size int) bool {
	if size < smallArray {
		return true
	}
	l, err := ProcessHeadroom()
	return err != nil || min(l.Addresses, l.Data)-LeftByArrays >= int64(size)
}
