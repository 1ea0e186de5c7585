//go:build !cgo

package mem

// StartableThreads returns n, because without cgo it cannot find out what the limits allow.
func StartableThreads(n int) int { return n }
