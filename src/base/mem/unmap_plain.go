//go:build !cgo

package mem

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// unmap ends a mapping by the system call. Without cgo there is no MPI library that has to learn of
// it.
func unmap(p unsafe.Pointer, size uintptr) error { return unix.MunmapPtr(p, size) }
