package nn

import (
	"fmt"

	"halognn/src/devices/compute"
)

// queuedLoss is a loss that is computed on the device and stays there, so that the host need not
// wait.
type queuedLoss struct {
	compute.QueuedLoss
	device compute.Accelerator
}

// QueuesLoss reports whether QueueLoss can be used instead of Loss. The device must be able to
// compute the loss without the host, and to find faults in all layers, which it can for at most 18
// layers. The host must not need any other result of a minibatch. QueuesLoss also makes room for
// the result of QueueLoss.
func (m *Model) QueuesLoss() (bool, error) {
	device := compute.CapabilitiesOf(m.dev).Accelerator
	if device == nil || m.queues == nil || m.MakesArrays() ||
		len(m.Params.Statistics) > 0 || suspectLayers+len(m.stages)+1 > compute.MostSuspects {
		return false, nil
	}
	if m.queued.Places != nil {
		return true, nil
	}
	b := m.store.buffer()
	if err := b.reserve(compute.PlacesLen); err != nil {
		return false, fmt.Errorf("allocating the places of faults: %w", err)
	}
	m.queued.device = device
	m.queued.Head, m.queued.Extras = m.Params.Grads[:HeaderLen], m.Params.extras[:]
	m.queued.Places, m.queued.Skipped = b.data[:compute.PlacesLen], m.Params.skipped()
	return true, nil
}

// QueueLoss does what Loss does in training, but the host does not wait for the result. The device
// writes this rank's share of the loss and of the counts into the header of Params.Grads. If a
// number is not finite, the device stores where it is, for QueuedFault.
func (m *Model) QueueLoss(b *Batch, logits compute.Matrix) (dlogits compute.Matrix) {
	dlogits = m.dlogits(logits)
	m.queued.Suspects = m.suspects(m.queued.Suspects[:0])
	m.queues(m.queued.device, dlogits, logits, b.Labels, b.GlobalSeeds, &m.queued.QueuedLoss)
	return dlogits
}

// QueuedFault returns the fault of the first minibatch whose queued loss was not finite. If the
// loss was finite in all minibatches before the first skipped update, ok is false. Waits for the
// device.
func (m *Model) QueuedFault() (f Fault, ok bool) {
	places := m.Params.host(m.queued.Places)
	if !compute.AnyPlace(places) {
		return Fault{}, false
	}
	find := func(k int) (row, vertex int) { return compute.Place(places, k) }
	if row, _ := find(suspectWeights); row >= 0 {
		of := func(row int) *Param { return m.Params.parameterAt(m.Params.first + row*paramAlign) }
		q, grads := of(row), false
		if row, _ := find(suspectGrads); row >= 0 {
			grads = of(row) == q
		}
		return m.Params.weightsFault(*q, grads), true
	}
	return m.faultIn(find), true
}
