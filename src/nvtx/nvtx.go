// Package nvtx names what a process does to the profilers of NVIDIA, which show it beside kernels and
// copies.
//
//	nsys sets NVTX_INJECTION64_PATH ──> Attach loads that library ──> Start, End call its functions
//
// NVTX 3 is headers alone, whose code finds a profiler by this variable; here is the part of it that
// ranges need, so that a build needs no CUDA. Without a profiler nothing is loaded, and Start and End
// do nothing.
package nvtx

import (
	"fmt"
	"os"
)

// Variable names the library of a profiler; its launcher sets it.
const Variable = "NVTX_INJECTION64_PATH"

// Range is a time under way; 0 if no profiler is attached. Ranges overlap as they like, and one may end
// in another goroutine.
type Range uint64

// Attach loads the profiler that the environment names, if it names one. The first call in a process
// decides; ranks in one process share it.
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
