package nn

import (
	"fmt"

	"halognn/src/compute"
)

// left is what a loss leaves on the device that computes it.
type left struct {
	compute.Left
	device compute.Accelerator
}

// Leaves reports whether LeaveLoss can take the place of Loss: the device computes the loss alone, and
// nothing else of a minibatch is for the host. It makes room for it.
func (m *Model) Leaves() (bool, error) {
	device := compute.CapabilitiesOf(m.dev).Accelerator
	if device == nil || m.leave == nil || m.MakesArrays() ||
		len(m.Params.Statistics) > 0 || suspectLayers+len(m.stages)+1 > compute.MostSuspects {
		return false, nil
	}
	if m.left.Places != nil {
		return true, nil
	}
	b := m.store.buffer()
	if err := b.reserve(compute.PlacesLen); err != nil {
		return false, fmt.Errorf("places of faults: %w", err)
	}
	m.left.device = device
	m.left.Head, m.left.Extras = m.Params.Grads[:HeaderLen], m.Params.extras[:]
	m.left.Places = b.data[:compute.PlacesLen]
	return true, nil
}

// LeaveLoss is Loss in training for a host that does not wait: this rank's share of the loss and of the
// counts are left in the header of Params.Grads, and the place of the first fault for LeftFault.
func (m *Model) LeaveLoss(b *Batch, logits compute.Matrix) (dlogits compute.Matrix) {
	dlogits = m.dlogits(logits)
	m.left.Suspects = m.suspects(m.left.Suspects[:0])
	m.leave(m.left.device, dlogits, logits, b.Labels, b.GlobalSeeds, &m.left.Left)
	return dlogits
}

// LeftFault is FirstFault of the first minibatch whose loss, left by LeaveLoss, was not finite; ok is
// false if there was none. Waits for the device.
func (m *Model) LeftFault() (f Fault, ok bool) {
	places := m.Params.host(m.left.Places)
	if !compute.FoundAny(places) {
		return Fault{}, false
	}
	find := func(k int) (row, vertex int) { return compute.Found(places, k) }
	if row, _ := find(suspectWeights); row >= 0 {
		of := func(row int) *Param { return m.Params.at(m.Params.first + row*paramAlign) }
		q, grads := of(row), false
		if row, _ := find(suspectGrads); row >= 0 {
			grads = of(row) == q
		}
		return m.Params.weightsFault(*q, grads), true
	}
	return m.faultIn(find), true
}
