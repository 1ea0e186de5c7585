//go:build cgo

package mem

// #include <sys/mman.h>
import "C"

import "unsafe"

// unmap ends a mapping by munmap of the C library, not by the system call. MPI libraries keep the
// memory of messages registered with the network card, by address, and patch the C library's munmap
// to learn when an address has lost its memory. A bare system call would bypass them: the next
// array at the same address would be sent from, and received into, pages that are no longer its
// own.
func unmap(p unsafe.Pointer, size uintptr) error {
	if failed, err := C.munmap(p, C.size_t(size)); failed != 0 {
		return err
	}
	return nil
}
