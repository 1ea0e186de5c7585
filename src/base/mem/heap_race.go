//go:build race

package mem

import "unsafe"

// The race detector does not see mapped memory, so builds with it take these arrays from the Go
// heap.

// allocate makes zeroed memory, aligned as the widest Number needs.
func allocate(size int) ([]byte, error) {
	words := make([]uint64, size/8)
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), size), nil
}

// release leaves the memory to the collector.
func release(unsafe.Pointer, int) error { return nil }
