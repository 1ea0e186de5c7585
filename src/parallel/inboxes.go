package parallel

import (
	"errors"
	"sync"

	"halognn/src/compute"
)

// inboxes send minibatches to a device with memory of its own, beside training:
//
//	preparing   assemble: Send ──> pinned memory ──> device
//	training    Receive ──> Batch.Own, Mean, X in device memory ── forward, backward ── Release
//
// A minibatch has an inbox from its assembly to its release, so there are as many as minibatches between the two; one that a stopped
// pass left keeps its own.
type inboxes struct {
	device   compute.Offboard
	host     compute.Host
	resident bool

	mu        sync.Mutex
	idle, all []compute.Inbox
}

// newInboxes returns nil for a device that reads host memory.
func newInboxes(o *DataOptions) *inboxes {
	device, ok := o.Device.(compute.Offboard)
	if !ok {
		return nil
	}
	return &inboxes{device: device, host: o.Host, resident: o.Resident}
}

func (i *inboxes) take() compute.Inbox {
	i.mu.Lock()
	defer i.mu.Unlock()
	if n := len(i.idle); n > 0 {
		b := i.idle[n-1]
		i.idle = i.idle[:n-1]
		return b
	}
	b := i.device.NewInbox(i.host, i.resident)
	i.all = append(i.all, b)
	return b
}

func (i *inboxes) give(b compute.Inbox) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.idle = append(i.idle, b)
}

// pinnedBytes is the host memory of all.
func (i *inboxes) pinnedBytes() int64 {
	if i == nil {
		return 0
	}
	bytes := int64(0)
	for _, b := range i.all {
		bytes += b.PinnedBytes()
	}
	return bytes
}

func (i *inboxes) free() error {
	var errs []error
	for _, b := range i.all {
		errs = append(errs, b.Free())
	}
	return errors.Join(errs...)
}

// send hands a minibatch, whose hops and labels are known, to its inbox.
func (d *Data) send(m *Minibatch) error {
	if m.inbox == nil {
		m.inbox = d.inboxes.take()
	}
	b := &m.Batch
	in := &m.inputs
	*in = compute.Inputs{
		Rows: m.Fetch.Rows, Input: b.Hops[0].Forward, Destinations: b.Hops[0].Destinations,
		Own: d.o.Needs.Own, Mean: d.o.Needs.Mean, Sources: d.o.Needs.Sources, Labels: b.Labels, Targets: b.Targets,
		Segments: in.Segments[:0], Vertices: in.Vertices[:0],
	}
	for l := range b.Hops {
		h := &b.Hops[l]
		if l > 0 || !d.o.Needs.Mean { // with Mean the input layer's means are among the inputs, and nobody else reads its segments
			in.Segments = append(in.Segments, h.Forward)
		}
		if m.Train && l > 0 {
			in.Segments = append(in.Segments, h.Transposed)
		}
		if m.Train {
			in.Vertices = append(in.Vertices, h.Vertices)
		}
	}
	return m.inbox.Send(in)
}

// Receive puts the input rows of a minibatch, which a device with memory of its own has been sent, into its Batch. The training goroutine
// calls it first of all; on other devices it does nothing.
func (d *Data) Receive(m *Minibatch) error {
	if m.inbox == nil {
		return nil
	}
	var err error
	m.Batch.Own, m.Batch.Mean, m.Batch.X, err = m.inbox.Open()
	return err
}

// done ends what Receive began.
func (d *Data) done(m *Minibatch) error {
	if m.inbox == nil {
		return nil
	}
	b := m.inbox
	m.inbox = nil
	err := b.Close()
	d.inboxes.give(b)
	return err
}
