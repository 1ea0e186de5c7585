package meter

import "halognn/src/compute"

// A metered device has the methods of device and, if it has memory of its own, of memory; all others are the inner device's, which is embedded one
// level below, so that Go takes those two first.
type (
	plain struct {
		*device
		within
	}
	within struct{ compute.Device }

	offboard struct {
		*device
		*memory
		withinOffboard
	}
	withinOffboard struct{ compute.Accelerator }

	linked struct {
		*device
		*memory
		withinLinked
	}
	withinLinked struct{ compute.PeerDevice }
)

// wrap returns a metered device of the kind that d is.
func wrap(d compute.Device, m *Meter) compute.Device {
	counts := &device{d, m}
	switch d := d.(type) {
	case compute.PeerDevice:
		return &linked{counts, &memory{d, m}, withinLinked{d}}
	case compute.Accelerator:
		return &offboard{counts, &memory{d, m}, withinOffboard{d}}
	}
	return &plain{counts, within{d}}
}

// memory hands on and counts what only a device with memory of its own has.
type memory struct {
	inner compute.Accelerator
	m     *Meter
}

// Copy implements compute.Accelerator.
func (o *memory) Copy(dst, src []float32) {
	o.m.kernel(copying, float*2*len(src), 0, func() { o.inner.Copy(dst, src) })
}

// Add implements compute.Accelerator.
func (o *memory) Add(sum, x []float32) {
	o.m.kernel(adding, float*3*len(x), 0, func() { o.inner.Add(sum, x) })
}

// NewStagingBuffer implements compute.Accelerator.
func (o *memory) NewStagingBuffer(host compute.Host, resident bool) compute.StagingBuffer {
	return &inbox{StagingBuffer: o.inner.NewStagingBuffer(host, resident), m: o.m}
}

// inbox counts the kernels that make input rows from what was sent. Their time includes that of a copy that has not ended.
type inbox struct {
	compute.StagingBuffer
	m     *Meter
	bytes int
}

// Send implements compute.StagingBuffer.
func (b *inbox) Send(in *compute.Inputs) error {
	if err := b.StagingBuffer.Send(in); err != nil {
		return err
	}
	b.bytes = 0
	if g, ok := b.StagingBuffer.(compute.Gatherer); !ok || g.Gathers() {
		b.bytes = inputBytes(in)
	}
	return nil
}

// Open implements compute.StagingBuffer.
func (b *inbox) Open() (own, mean, sources compute.Matrix, err error) {
	b.m.kernel(inputRows, b.bytes, 0, func() { own, mean, sources, err = b.StagingBuffer.Open() })
	return own, mean, sources, err
}

// inputBytes is what gathering and aggregating rows moves: each row as it is stored, its reference, and the result.
func inputBytes(in *compute.Inputs) int {
	const reference = 8
	stored, cols := in.Rows.Cols*in.Rows.Type.Size(), float*in.Rows.Cols
	bytes := 0
	if in.Own {
		bytes += in.Destinations * (stored + reference + cols)
	}
	if in.Mean {
		bytes += len(in.Input.Indices)*(stored+reference) + in.Destinations*cols + segmentBytes(in.Input)
	}
	if in.Sources {
		bytes += len(in.Rows.Of) * (stored + reference + cols)
	}
	return bytes
}
