//go:build cgo

package parallel

import (
	"testing"

	"halognn/src/comm"
	"halognn/src/compute"
)

// Ranks with a GPU each come to the loss and the gradients of those without, up to round-off.
func TestModesAgreeOnGPUs(t *testing.T) {
	path := cudaLibrary(t)
	onGPU := func(ranks int, rank func(comm.Comm, compute.Device) error) error {
		return onGPUs(path, ranks, func(c comm.Comm, d compute.PeerDevice) error { return rank(c, d) })
	}
	w := newWorld(t, 4)
	for _, name := range []string{"sage", "sage max", "gat", "gcn right", "gin",
		"norm, residual, jumping"} {
		if err := w.modesAgree(sharedModels()[name], []int{1, 2, 4}, onGPU); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
