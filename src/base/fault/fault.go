//go:build !faults

// Package fault injects faults for tests: named points in the program at which a rank dies, stops,
// slows down or gets an error. Without the build tag "faults" the points are empty and cost
// nothing; with it, the environment variable HALOGNN_FAULTS sets the faults.
//
//	HALOGNN_FAULTS="sample=kill@1:2:3"     rank 1 dies when it samples for epoch 2, step 3
//
// Points lists the points; docs/faults.md names the actions. The package knows nothing of its
// callers.
package fault

// Enabled reports whether the program can inject faults.
const Enabled = false

// The function At is called where a rank reaches a named point in a step of an epoch. The arguments
// epoch and step are -1 if the point belongs to none. It returns the injected error, if there is
// one.
func At(point string, rank, epoch, step int) error { return nil }

// Starved reports whether the next allocation should fail.
func Starved() bool { return false }

// NaN reports whether a NaN should be injected in this step.
func NaN(point string, rank, epoch, step int) bool { return false }
