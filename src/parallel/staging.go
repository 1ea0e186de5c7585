package parallel

import (
	"errors"
	"sync"

	"halognn/src/compute"
	"halognn/src/nn"
)

// stagingPool sends minibatches to a device with its own memory during training:
//
//	preparing   send ──> pinned memory ──> device
//	training    receive ──> Batch.Own, Aggregate, X in device memory ── forward, backward ── release
//
// A minibatch has a staging buffer from its assembly to its release, so there are as many buffers
// as minibatches between the two; a minibatch left by a stopped pass keeps its buffer.
type stagingPool struct {
	device   compute.Accelerator
	host     compute.Host
	resident bool

	mu        sync.Mutex
	idle, all []compute.StagingBuffer
}

// newStagingPool returns nil for a device that reads host memory, to which nothing is sent.
func newStagingPool(o *Options) *stagingPool {
	device := compute.CapabilitiesOf(o.Device).Accelerator
	if device == nil {
		return nil
	}
	return &stagingPool{device: device, host: o.Host, resident: o.Resident}
}

func (p *stagingPool) take() compute.StagingBuffer {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.idle); n > 0 {
		b := p.idle[n-1]
		p.idle = p.idle[:n-1]
		return b
	}
	b := p.device.NewStagingBuffer(p.host, p.resident)
	p.all = append(p.all, b)
	return b
}

func (p *stagingPool) give(b compute.StagingBuffer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = append(p.idle, b)
}

// pinnedBytes returns the pinned memory of all staging buffers.
func (p *stagingPool) pinnedBytes() int64 {
	if p == nil {
		return 0
	}
	bytes := int64(0)
	for _, b := range p.all {
		bytes += b.PinnedBytes()
	}
	return bytes
}

func (p *stagingPool) free() error {
	var errs []error
	for _, b := range p.all {
		errs = append(errs, b.Free())
	}
	return errors.Join(errs...)
}

// send sends a minibatch, whose hops and labels are set, by its staging buffer. input is the hop
// whose rows are read.
func (p *stagingPool) send(m *Minibatch, input *nn.Hop, needs nn.Needs) error {
	if m.staging == nil {
		m.staging = p.take()
	}
	b := &m.Batch
	in := &m.inputs
	*in = compute.Inputs{
		Rows: m.Fetch.Rows, Input: input.Forward, Destinations: input.Destinations,
		Own: needs.Own, Reduce: needs.Aggregate, Sources: needs.Sources, Labels: b.Labels,
		Targets:  b.Targets,
		Segments: in.Segments[:0], Vertices: in.Vertices[:0], Weights: in.Weights[:0],
	}
	for l := range b.Hops {
		h := &b.Hops[l]
		// The input layer's aggregates are among the inputs, and nobody else reads its segments.
		aggregated := l == 0 && needs.Aggregate != compute.NoReduction
		if !aggregated {
			in.Segments = append(in.Segments, h.Forward)
		}
		if m.Train && (l > 0 || needs.Transposed) {
			in.Segments = append(in.Segments, h.Transposed)
		}
		switch {
		case needs.Weights == nn.NoWeights:
		case aggregated:
			in.EdgeWeights = input.Weights
		default:
			in.Weights = append(in.Weights, h.Weights, h.TransposedWeights)
		}
		if m.Train {
			in.Vertices = append(in.Vertices, h.Vertices)
		}
	}
	m.shared.send(in, m.Train)
	return m.staging.Send(in)
}

// receive sets the Batch of a minibatch to its input rows on the device. The training goroutine
// calls it before any kernel of the minibatch.
func (p *stagingPool) receive(m *Minibatch) error {
	if m.staging == nil {
		return nil
	}
	var err error
	m.Batch.Own, m.Batch.Aggregate, m.Batch.X, err = m.staging.Open()
	return err
}

// release ends what receive began.
func (p *stagingPool) release(m *Minibatch) error {
	if m.staging == nil {
		return nil
	}
	b := m.staging
	m.staging = nil
	err := b.Close()
	p.give(b)
	return err
}
