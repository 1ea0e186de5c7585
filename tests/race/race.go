// Package race says which tests the race detector runs: it sees what goroutines share, at ten times
// the time of what one goroutine computes.
package race

import "testing"

// Alone skips a test under the race detector: it computes on one goroutine or starts processes, or
// what its goroutines share is shared in a test beside it too.
func Alone(t testing.TB) {
	t.Helper()
	if Detector {
		t.Skip("nothing new for the race detector")
	}
}
