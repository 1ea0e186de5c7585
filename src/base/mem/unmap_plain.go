//go:build !cgo

package mem

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// unmap ends a mapping. Without cgo there is no C library, and no MPI that must be told.
func unmap(p unsafe.Pointer, size uintptr) error { return unix.MunmapPtr(p, size) }
