package mem

import (
	"errors"
	"testing"
)

// Addresses are reserved without memory, more of them than any machine has.
func TestReserve(t *testing.T) {
	before := Allocated()
	x, err := Reserve[float32](1 << 42)
	if err != nil || len(x) != 1<<42 {
		t.Fatalf("%d elements: %v", len(x), err)
	}
	Unreserve(x)
	if after := Allocated(); after != before {
		t.Errorf("%d bytes count as memory", after-before)
	}
	for _, n := range []int{1 << 46, 1 << 61, -1} {
		if _, err := Reserve[float32](n); !errors.Is(err, ErrMemory) {
			t.Errorf("%d elements: %v", n, err)
		}
	}
	if x, err := Reserve[float32](0); x != nil || err != nil {
		t.Errorf("no elements: %v, %v", x, err)
	}
	Unreserve[float32](nil)
}

// Threads that may be started are, and end.
func TestStartableThreads(t *testing.T) {
	for _, n := range []int{0, 1, 8} {
		if got := StartableThreads(n); got != n {
			t.Errorf("%d of %d threads may be started", got, n)
		}
	}
}

func TestRunningThreads(t *testing.T) {
	if n := RunningThreads(); n < 1 {
		t.Errorf("%d threads run", n)
	}
}
