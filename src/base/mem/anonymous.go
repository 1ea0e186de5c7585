//go:build !race

package mem

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Mappings of at least hugeBytes request transparent huge pages, which reduce the TLB misses of
// random access.
const hugeBytes = 2 << 20

// allocate maps zeroed memory.
func allocate(size int) ([]byte, error) {
	b, err := mapPages(-1, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err == nil && size >= hugeBytes {
		_ = unix.Madvise(b, unix.MADV_HUGEPAGE) // a hint: without it the memory is only slower
	}
	return b, err
}

// release frees memory that allocate returned.
func release(p unsafe.Pointer, size int) error { return unmap(p, uintptr(size)) }
