package meter

import "halognn/src/compute"

// offboard is device for one that has memory of its own. What it does not count it takes from deeper, which lies one level below
// device's own Device, so that Go prefers the latter wherever both have a method.
type offboard struct {
	device
	deep
}

type (
	deep   struct{ deeper }
	deeper struct{ compute.Offboard }
)

// Copy implements compute.Offboard.
func (o *offboard) Copy(dst, src []float32) {
	o.m.kernel(copying, float*2*len(src), 0, func() { o.Offboard.Copy(dst, src) })
}

// Add implements compute.Offboard.
func (o *offboard) Add(sum, x []float32) {
	o.m.kernel(adding, float*3*len(x), 0, func() { o.Offboard.Add(sum, x) })
}

// NewInbox implements compute.Offboard.
func (o *offboard) NewInbox(host compute.Host, resident bool) compute.Inbox {
	return &inbox{Inbox: o.Offboard.NewInbox(host, resident), m: o.m}
}

// inbox counts the kernels that make input rows from what was sent. Their time includes that of a copy that has not ended.
type inbox struct {
	compute.Inbox
	m     *Meter
	bytes int
}

// Send implements compute.Inbox.
func (b *inbox) Send(in *compute.Inputs) error {
	if err := b.Inbox.Send(in); err != nil {
		return err
	}
	b.bytes = 0
	if g, ok := b.Inbox.(compute.Gatherer); !ok || g.Gathers() {
		b.bytes = inputBytes(in)
	}
	return nil
}

// Open implements compute.Inbox.
func (b *inbox) Open() (own, mean, sources compute.Matrix, err error) {
	b.m.kernel(inputRows, b.bytes, 0, func() { own, mean, sources, err = b.Inbox.Open() })
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
