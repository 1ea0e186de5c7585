// Package memtest limits the time and memory of a call in a test, such as the call of a reader for
// a file with arbitrary content. It also frees the arrays of a test.
package memtest

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"halognn/src/base/mem"
)

// timeout is how long a call may take. Calls read a few KB, but the machine may be busy with other
// work.
const timeout = 30 * time.Second

// Bounded checks that a call ends within timeout, that it allocates at most the given number of
// bytes on the Go heap in all, and that it frees all memory outside the heap. If the call does not
// end in time, Bounded prints the stacks of all goroutines and ends the process.
func Bounded(t testing.TB, heap uint64, call func()) {
	t.Helper()
	hang := time.AfterFunc(timeout,
		func() { panic(fmt.Sprintf("still running after %v", timeout)) })
	defer hang.Stop()
	var before, after runtime.MemStats
	held := mem.Allocated()
	runtime.ReadMemStats(&before)
	call()
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > heap {
		t.Errorf("%d bytes of the heap were taken; at most %d are expected", took, heap)
	}
	if left := mem.Allocated() - held; left != 0 {
		t.Errorf("%d bytes outside the heap are not given back", left)
	}
}

// Must returns a function that returns the array x, which lies outside the heap, and frees it when
// the test ends. An error ends the test.
func Must[T mem.Number](t testing.TB) func(x []T, err error) []T {
	return func(x []T, err error) []T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { mem.Free(x) })
		return x
	}
}
