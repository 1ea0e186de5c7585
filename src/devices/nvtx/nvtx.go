// Package nvtx tells NVIDIA's profilers what a process does, by named ranges that they show beside
// kernels and copies.
//
//	nsys sets NVTX_INJECTION64_PATH ─> Attach loads that library ─> Start, End call its functions
//
// NVTX 3 consists of headers, whose code finds a profiler by this variable. This package has the
// part that ranges need, so that a build needs no CUDA. Without a profiler it loads nothing, and
// Start and End do nothing.
package nvtx

import (
	"fmt"
	"os"
)

// Variable names the library of a profiler; its launcher sets it.
const Variable = "NVTX_INJECTION64_PATH"

// Range is a range that has started; 0 if no profiler is attached. Ranges may overlap in any way,
// and end in another goroutine.
type Range uint64

// Attach loads the profiler that the environment names, if any. The first call in a process
// decides; the ranks of a process share the profiler.
func Attach() error {
	path := os.Getenv(Variable)
	if path == "" {
		return nil
	}
	if err := attach(path); err != nil {
		return fmt.Errorf("%s: %w", Variable, err)
	}
	return nil
}
