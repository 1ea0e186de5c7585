//go:build cgo

package mem

// #include <sys/mman.h>
import "C"

import "unsafe"

// unmap gives a mapping back through munmap of the C library, and not by the system call. MPI
// libraries keep memory that they have sent from registered with the network card, by its address.
// They learn from the C library's munmap, which they patch, that an address has lost its memory. A
// bare system call would pass them by: the next array at the same address would be sent and
// received in pages that are no longer its own.
func unmap(p unsafe.Pointer, size uintptr) error {
	if failed, err := C.munmap(p, C.size_t(size)); failed != 0 {
		return err
	}
	return nil
}
