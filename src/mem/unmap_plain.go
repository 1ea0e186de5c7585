//go:build !cgo

package mem

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// unmap gives a mapping back. Without cgo there is no C library, and no MPI that would have to
// know.
func unmap(p unsafe.Pointer, size uintptr) error { return unix.MunmapPtr(p, size) }
