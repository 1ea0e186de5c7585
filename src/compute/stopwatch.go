package compute

import "time"

// Timed is a Device whose kernels run beside the host and that can tell how long they took.
type Timed interface {
	Device
	NewStopwatch() Stopwatch
}

// Stopwatch notes moments of a device. The training goroutine uses it.
type Stopwatch interface {
	// Mark notes, as mark i, the moment at which the kernels called so far are done. Marks count from 0 without gaps, and are used again.
	Mark(i int) error
	// Between returns the time from mark i to mark j. Both have passed: the device was synced.
	Between(i, j int) (time.Duration, error)
	Free() error
}

// Gatherer is an StagingBuffer that tells whether the device, rather than the host, makes the input rows of what it was sent last.
type Gatherer interface {
	StagingBuffer
	Gathers() bool
}
