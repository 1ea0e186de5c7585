package parallel

import (
	"errors"

	"halognn/src/compute"
	"halognn/src/nn"
)

// mirror holds the gradients of a device with memory of its own in pinned host memory, where ranks add them: a bucket comes down when
// backward of its layer is done on the device, beside the layers below, and its sum goes up before the optimiser reads it.
//
//	device   backward 2 ─ backward 1 ─ backward 0 ─                          ─ update
//	copies              └ down 2     └ down 1     └ down 0    up 2, up 1, up 0 ┘
//	ranks                      └ sum 2 ──   └ sum 1 ──  └ sum 0 ──┘
type mirror struct {
	device   compute.Offboard
	params   *nn.Params
	host     []float32 // as Params.Grads
	held     []float32 // on the device: sum over this step's earlier minibatches of this rank; nil if none was ever held
	arrivals []compute.Arrival
	alone    bool  // there is no other rank
	coming   []int // layers whose bucket is on its way down, oldest first
}

func newMirror(device compute.Offboard, p *nn.Params, layers int, alone bool) (*mirror, error) {
	m := &mirror{device: device, params: p, alone: alone}
	if alone {
		return m, nil
	}
	var err error
	if m.host, err = device.AllocHost(p.Len()); err != nil {
		return nil, err
	}
	for range layers {
		a, err := device.NewArrival()
		if err != nil {
			return nil, errors.Join(err, m.free())
		}
		m.arrivals = append(m.arrivals, a)
	}
	return m, nil
}

// hold keeps the gradients on the device, added to those held before if first is not set.
func (m *mirror) hold(first bool) error {
	if m.held == nil {
		var err error
		if m.held, err = m.device.Alloc(m.params.Len()); err != nil {
			return err
		}
	}
	if first {
		m.device.Copy(m.held, m.params.Grads)
	} else {
		m.device.Add(m.held, m.params.Grads)
	}
	return nil
}

// start takes layer l's bucket down, with what is held.
func (m *mirror) start(l int, holding bool) {
	lo, hi := m.params.Bucket(l)
	if holding {
		m.device.Add(m.params.Grads[lo:hi], m.held[lo:hi])
	}
	if m.alone {
		return
	}
	m.device.StartDownload(m.host[lo:hi], m.params.Grads[lo:hi], m.arrivals[l])
	m.coming = append(m.coming, l)
}

// arrived waits for the oldest bucket on its way down and returns it.
func (m *mirror) arrived() ([]float32, error) {
	l := m.coming[0]
	m.coming = m.coming[:copy(m.coming, m.coming[1:])]
	lo, hi := m.params.Bucket(l)
	return m.host[lo:hi], m.arrivals[l].Wait()
}

// back takes all sums up.
func (m *mirror) back() {
	if !m.alone {
		m.device.StartUpload(m.params.Grads, m.host)
	}
}

func (m *mirror) free() error {
	var errs []error
	for _, a := range m.arrivals {
		errs = append(errs, a.Free())
	}
	m.device.Free(m.held)
	m.device.FreeHost(m.host)
	return errors.Join(errs...)
}
