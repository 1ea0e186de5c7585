//go:build !cgo

package cpu

import (
	"fmt"

	"halognn/src/devices/compute/ref"
)

// Device is the plain Go device, because this build has no C.
type Device struct{ *ref.Device }

// Host is the plain Go host, because this build has no C.
type Host struct{ ref.Host }

// New opens a device with one thread. It ignores Options.Threads.
func New(o Options) (*Device, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	return &Device{ref.WithPrecision(o.Precision)}, nil
}

// NewHost returns the kernels that prepare minibatches.
func NewHost(simd string) (*Host, error) {
	return &Host{}, nil
}

// DrawsLeast returns false, because there is no kernel for DrawLeast.
func (h *Host) DrawsLeast(fanout int64) bool { return false }

// DrawLeast draws nothing and returns 0, so the caller must draw for all destinations.
func (h *Host) DrawLeast(drawn []int32, positions, begin, degree []int64, fanout int,
	indices []int32, n *Numbers) int {
	return 0
}

// BLAS describes the library of matrix products.
func BLAS() string { return "none (built without cgo): gonum's own" }

// GEMM names the library of matrix products.
func GEMM() string { return "plain Go (built without cgo)" }

// SIMD returns the level of the kernels.
func SIMD() (string, error) { return "none (built without cgo): plain Go", nil }

// Name implements compute.Device.
func (d *Device) Name() string {
	return fmt.Sprintf("cpu: %s, 1 thread (built without cgo)", d.Device.Name())
}

// Enter does nothing, because the only thread is not pinned.
func (d *Device) Enter() (leave func() error, err error) { return func() error { return nil }, nil }
