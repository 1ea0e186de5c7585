package computetest

import (
	"testing"

	"halognn/src/devices/compute"
)

// wrong is a call with shapes or indices that do not fit.
type wrong struct {
	name string
	call func()
}

// testMisuse checks that a device panics on the calling goroutine if shapes or indices do not fit.
func testMisuse(t *testing.T, dev compute.Device) {
	b := newBench(t, dev, guard)
	for _, f := range families {
		for _, w := range f.misuse(b) {
			t.Run(w.name, func(t *testing.T) { mustPanic(t, w.call) })
		}
	}
	good := compute.Segments{Indptr: []int64{0, 1, 3}, Indices: []int32{0, 2, 1}}
	dev.SegmentMean(b.zeros(2, 4), good, b.zeros(3, 4)) // the device must still work
	b.close()
}

func mustPanic(t *testing.T, call func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	call()
}
