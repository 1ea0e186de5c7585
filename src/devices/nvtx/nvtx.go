// Package nvtx marks named ranges of time for NVIDIA's profilers. The profilers show the ranges
// beside kernels and copies.
//
//	nsys sets NVTX_INJECTION64_PATH ─> Attach loads that library ─> Start, End call its functions
//
// NVIDIA's NVTX 3 is a set of headers, whose code finds a profiler by this environment variable.
// This package has its own code for the part that ranges need, so that a build needs no CUDA. If
// there is no profiler, it loads nothing, and Start and End do nothing.
package nvtx

import (
	"fmt"
	"os"
)

// Variable is the environment variable with the path of a profiler's library. The profiler's
// launcher sets it.
const Variable = "NVTX_INJECTION64_PATH"

// Range is a range that has started. It is 0 if no profiler is attached. Ranges may overlap in any
// way. A range may end in another goroutine than the one that started it.
type Range uint64

// Attach loads the profiler's library that Variable names, if there is one. Only the first call in
// a process has an effect, because all ranks in a process use the same profiler.
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
