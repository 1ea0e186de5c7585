package mem

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapPages maps size > 0 bytes of the file with descriptor fd or, if fd is -1, anonymous memory.
// unmapPages ends such a mapping.
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
