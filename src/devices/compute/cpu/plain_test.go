//go:build !cgo

package cpu

import (
	"testing"

	"halognn/src/devices/compute"
	"halognn/src/devices/compute/computetest"
)

// Without cgo the package provides a working backend under the same names.
func TestBackend(t *testing.T) {
	host, err := NewHost("")
	if err != nil {
		t.Fatal(err)
	}
	computetest.Run(t, func() compute.Device {
		d, err := New(Options{Threads: 2})
		if err != nil {
			t.Fatal(err)
		}
		if leave, err := d.Enter(); err != nil || leave() != nil {
			t.Fatal("Enter failed")
		}
		return d
	}, host)
}
