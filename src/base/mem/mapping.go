package mem

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapPages maps size > 0 bytes of a file, or anonymous memory with fd -1. unmapPages unmaps them.
func mapPages(fd, size, protection, flags int) ([]byte, error) {
	p, err := unix.MmapPtr(fd, 0, nil, uintptr(size), protection, flags)
	if err != nil {
		return nil, err
	}
	return unsafe.Slice((*byte)(p), size), nil
}

func unmapPages(b []byte) error {
	return unmap(unsafe.Pointer(unsafe.SliceData(b)), uintptr(len(b)))
}
