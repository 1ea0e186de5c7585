//go:build cgo

package mem

// #include <sys/mman.h>
import "C"

import "unsafe"

// unmap ends a mapping by munmap of the C library, not by the system call. MPI libraries register
// the memory of messages with the network card, by address. They replace the C library's munmap to
// learn when an address has lost its memory. If the system call were used directly, they would not
// learn it. The next array at the same address would then be sent from, and received into, pages
// that no longer belong to it.
func unmap(p unsafe.Pointer, size uintptr) error {
	if failed, err := C.munmap(p, C.size_t(size)); failed != 0 {
		return err
	}
	return nil
}
