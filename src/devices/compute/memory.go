package compute

import (
	"fmt"

	"halognn/src/base/mem"
)

// HostMemory implements some methods of a Device. It is for devices whose memory is host memory
// outside the Go heap, and whose kernels are complete when they return.
type HostMemory struct{}

// Alloc implements Device.
func (HostMemory) Alloc(n int) ([]float32, error) {
	if n < 0 {
		return nil, fmt.Errorf("compute: Alloc of %d elements; there must be 0 or more", n)
	}
	return mem.Make[float32](n), nil
}

// Free implements Device.
func (HostMemory) Free(x []float32) { mem.Free(x) }

// Upload implements Device.
func (HostMemory) Upload(dst, src []float32) {
	CheckLengths("Upload", len(dst), len(src))
	copy(dst, src)
}

// Download implements Device.
func (HostMemory) Download(dst, src []float32) {
	CheckLengths("Download", len(dst), len(src))
	copy(dst, src)
}

// Settle implements Device.
func (HostMemory) Settle() {}

// Sync implements Device.
func (HostMemory) Sync() error { return nil }
