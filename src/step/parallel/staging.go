package parallel

import (
	"errors"
	"iter"
	"sync"

	"halognn/src/base/mem"
	"halognn/src/devices/compute"
	"halognn/src/model/nn"
	"halognn/src/rows/exchange"
	"halognn/src/topology/sample"
)

// landing puts the inputs of a minibatch into host memory or device memory.
type landing interface {
	// land makes or sends the inputs of a minibatch, whose hops and labels are set. The argument
	// `input` is the hop of the layer that reads the rows.
	land(m *Minibatch, input *nn.Hop, needs nn.Needs) error
	// receive sets the Batch to the inputs. The training goroutine calls it before any kernel of
	// the minibatch.
	receive(*Minibatch) error
	// release ends what receive began.
	release(*Minibatch) error
	// pinned returns the bytes of pinned memory of all buffers. growths returns how often training
	// minibatches needed more than was pinned at first.
	pinned() int64
	growths() int
	close() error
}

func newLanding(o *Options) landing {
	device := compute.CapabilitiesOf(o.Device).Accelerator
	if device == nil {
		stored := compute.CapabilitiesOf(o.Device).Stores
		if o.Mapped {
			stored = compute.Float32s
		}
		return onHostMemory{o.Host, o.Cols, stored, o.Exchange}
	}
	return &stagingPool{device: device, host: o.Host, resident: o.Resident, exchange: o.Exchange,
		steady: o.Model.Steady(), madeInStep: o.Model.MakesArrays(), depth: o.Depth,
		exact: o.Mapped}
}

// ofLanding is the state that a landing keeps in a minibatch: the inputs of the model.
type ofLanding struct {
	staging             compute.StagingBuffer
	inputs              compute.Inputs // inputs as they were sent
	own, aggregate, all []float32      // memory of the matrices, used by both kinds of landing
	types               [][]float32    // [T] memory of the matrices of each type
	sparse              compute.SparseMaker
}

func (l *ofLanding) bytes() int64 {
	numbers := cap(l.own) + cap(l.aggregate) + cap(l.all)
	for _, rows := range l.types {
		numbers += cap(rows)
	}
	return int64(numbers)*4 + l.sparse.Bytes()
}

func (l *ofLanding) free() {
	mem.Free(l.own)
	mem.Free(l.aggregate)
	mem.Free(l.all)
	for _, rows := range l.types {
		mem.Free(rows)
	}
	l.sparse.Free()
}

// onHostMemory is for a device that reads host memory. Rows are aggregated in place
// (docs/design/08-input-aggregation.md), so the [sources, cols] matrix is made only for a model
// whose aggregation depends on its parameters.
type onHostMemory struct {
	host     compute.Host
	cols     int
	stored   compute.Elements   // the type in which rows are made
	exchange *exchange.Exchange // says what the rows of each type are
}

func (h onHostMemory) land(m *Minibatch, input *nn.Hop, needs nn.Needs) error {
	b := &m.Batch
	rows, needs, err := landSparse(m, input, needs)
	if err != nil {
		return err
	}
	if needs.Types {
		h.landTypes(m)
	} else if needs.Sources && h.exchange.Kinds()[0].Cols > 0 { // if Cols is 0, the step makes them
		b.X = matrixOf(&m.all, h.stored, input.Sources, h.cols)
		h.host.GatherRows(b.X, rows)
	}
	if needs.Own {
		b.Own = matrixOf(&m.own, h.stored, input.Destinations, h.cols)
		h.host.GatherRows(b.Own, rows)
	}
	if how := needs.Aggregate; how != compute.NoReduction {
		b.Aggregate = matrixOf(&m.aggregate, h.stored, input.Destinations, h.cols)
		h.host.SegmentRows(b.Aggregate, how, input.Forward, input.Weights, rows)
	}
	return nil
}

// landSparse makes what a model reads of sparse rows: matrices that the input layer multiplies or,
// if the model begins with another kind of layer, dense rows. It returns the rows and the needs
// that are left for others to handle.
func landSparse(m *Minibatch, input *nn.Hop, needs nn.Needs) (rows compute.Rows, left nn.Needs,
	err error) {
	b := &m.Batch
	rows = m.Fetch.Rows
	switch {
	case !rows.Type.IsSparse():
		return rows, needs, nil
	case !needs.Sums():
		rows, err = m.sparse.Dense(&rows)
		return rows, needs, err
	}
	if needs.Own {
		if b.Sparse.Own, err = m.sparse.Own(&rows, input.Destinations, m.Train); err != nil {
			return rows, needs, err
		}
	}
	if how := needs.Aggregate; how != compute.NoReduction {
		b.Sparse.Aggregate, err = m.sparse.Reduce(&rows, how, input.Forward, input.Weights, m.Train)
	}
	needs.Own, needs.Aggregate = false, compute.NoReduction
	return compute.Rows{}, needs, err
}

// landTypes makes one table for each vertex type. It has the rows of the type or, if the model
// reads means, the means of these rows for each relation.
func (h onHostMemory) landTypes(m *Minibatch) {
	for t, rows := range rowsOfTypes(m, h.exchange) {
		if t == len(m.types) {
			m.types = append(m.types, nil)
		}
		x := matrixOf(&m.types[t], h.stored, rows.Len(), rows.Cols)
		rows.Make(h.host, x)
		m.Batch.Types = append(m.Batch.Types, x)
	}
}

// rowsOfTypes yields what is read of the rows of each type.
func rowsOfTypes(m *Minibatch, x *exchange.Exchange) iter.Seq2[int, compute.TypeRows] {
	return func(yield func(int, compute.TypeRows) bool) {
		at := 0
		for t, end := range m.edges.Types() {
			rows := compute.TypeRows{Rows: x.RowsOf(&m.Fetch, t)}
			if rows.Means, rows.Averaged = m.edges.Means(t); !rows.Averaged {
				rows.Of = rows.Of[at:end]
			}
			if at = end; !yield(t, rows) {
				return
			}
		}
	}
}

func (onHostMemory) receive(*Minibatch) error { return nil }
func (onHostMemory) release(*Minibatch) error { return nil }
func (onHostMemory) pinned() int64            { return 0 }
func (onHostMemory) growths() int             { return 0 }
func (onHostMemory) close() error             { return nil }

// stagingPool sends minibatches to a device with its own memory during training:
//
//	preparing  land ──> pinned memory ──> device
//	training   receive ─> Batch.Own, Aggregate, X in device memory ─ forward, backward ─ release
//
// A minibatch has a staging buffer from its assembly to its release, so the number of buffers is
// the number of minibatches between the two. If a pass stops, an unconsumed minibatch keeps its
// buffer.
type stagingPool struct {
	device     compute.Accelerator
	host       compute.Host
	resident   bool
	exchange   *exchange.Exchange // says what the rows of each type are
	steady     []compute.Segments // segments that kernels read in every minibatch
	madeInStep bool               // whether kernels read arrays that are made in the step
	depth      int                // number of minibatches that wait while another is trained
	exact      bool               // whether the rows are mapped: Reading.Mapped
	limits     *sample.Limits     // limits of training minibatches; nil if unknown
	alone      bool               // whether no rows come from other ranks

	most int // most bytes that a buffer pins beyond what the first minibatch needs

	mu        sync.Mutex
	begun     bool // whether buffers are made
	bounded   bool // whether the buffers have room for the largest minibatch
	grown     int
	idle, all []compute.StagingBuffer
}

// mostPinned is the most bytes that the ranks of a node together pin in advance, for minibatches
// that are larger than the first.
const mostPinned = 1 << 30

// limitsOf returns the limits of the minibatches. It returns nil if these do not bound all sizes of
// the inputs, as with rows of relations, entries of sparse rows, or sums that owners make.
func limitsOf(o *Options) *sample.Limits {
	t := o.Topology
	if o.MaxSeeds == 0 || t == nil || !t.Columns.Plain() || o.Exchange.MakesSums() ||
		o.Exchange.Kinds()[0].Type.IsSparse() {
		return nil
	}
	l, ok := o.Sample.Limits(o.MaxSeeds, len(t.Original), o.Edges)
	if !ok {
		return nil
	}
	return &l
}

// growth returns by how much the inputs of other minibatches can exceed those of m.
func (p *stagingPool) growth(m *Minibatch) (g compute.Growth) {
	if p.limits == nil || !m.Train {
		return g
	}
	if l, x := p.limits, m.card.drawn; x != nil {
		return compute.Growth{Labels: float64(l.Vertices[0]) / float64(len(m.Seeds)),
			Missing: x.MostMissing, Alone: p.alone}
	}
	blocks, seeds, ok := p.limits.Growth(&m.Sampled)
	if !ok || len(blocks) != len(m.Batch.Hops) {
		return g
	}
	g = compute.Growth{Destinations: seeds, Sources: seeds, Labels: seeds, Alone: p.alone}
	for l, b := range blocks {
		g.Hops = append(g.Hops, b.Most())
		if l == 0 {
			g.Destinations, g.Sources = b.Destinations, b.Sources
		}
	}
	return g
}

// begin makes the buffers for all minibatches that are under way at the same time, before the first
// minibatch is trained. If the sizes of later minibatches are bounded already (g), each buffer gets
// room for the largest minibatch. Otherwise it gets room for the first one. The first minibatch
// with bounds then enlarges the buffers that are idle at that time.
func (p *stagingPool) begin(in *compute.Inputs, g compute.Growth) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := g.Labels > 0
	if p.bounded || p.begun && !known {
		return nil
	}
	for len(p.all) < p.depth+1 {
		b := p.device.NewStagingBuffer(p.host, p.resident)
		p.all, p.idle = append(p.all, b), append(p.idle, b)
	}
	for _, b := range p.idle {
		before := b.PinnedBytes()
		if err := b.Reserve(in, g, p.most); err != nil {
			return err
		}
		if p.begun && b.PinnedBytes() != before {
			p.grown++
		}
	}
	p.begun, p.bounded = true, known
	return nil
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

func (p *stagingPool) pinned() int64 {
	bytes := int64(0)
	for _, b := range p.all {
		bytes += b.PinnedBytes()
	}
	return bytes
}

func (p *stagingPool) growths() int { return p.grown }

func (p *stagingPool) close() error {
	var errs []error
	for _, b := range p.all {
		errs = append(errs, b.Free())
	}
	return errors.Join(errs...)
}

// land sends a minibatch through its staging buffer.
func (p *stagingPool) land(m *Minibatch, input *nn.Hop, needs nn.Needs) error {
	b := &m.Batch
	rows, left, err := landSparse(m, input, needs)
	if err != nil {
		return err
	}
	in := &m.inputs
	*in = compute.Inputs{
		Rows: rows, Input: input.Forward, Destinations: min(input.Destinations, len(rows.Of)),
		Own: left.Own, Reduce: left.Aggregate, Sources: left.Sources, Joined: left.Joined,
		Exact:    p.exact,
		Labels:   b.Labels,
		Types:    in.Types[:0],
		Segments: append(in.Segments[:0], p.steady...), Vertices: in.Vertices[:0],
		Weights: in.Weights[:0], HopEnds: in.HopEnds[:0], MadeInStep: p.madeInStep,
	}
	if needs.Types { // rows are read type by type, not all together
		in.Rows, in.Destinations, in.Sources = compute.Rows{}, 0, false
		for _, rows := range rowsOfTypes(m, p.exchange) {
			in.Types = append(in.Types, rows)
		}
	}
	for _, x := range []*compute.SparseMatrix{b.Sparse.Own, b.Sparse.Aggregate} {
		if x == nil {
			continue
		}
		in.Segments, in.Weights = append(in.Segments, x.Entries), append(in.Weights, x.Values)
		if m.Train {
			in.Segments = append(in.Segments, x.Transposed)
			in.Weights = append(in.Weights, x.TransposedValues)
		}
	}
	if x := m.card.drawn; x != nil {
		in.Drawing, in.Drawn, in.Destinations = m.card.drawing, x, input.Destinations
		if needs.Aggregate != compute.NoReduction {
			in.EdgeWeights = input.Weights
		}
		return p.send(m, in)
	}
	hopEnds := func() {
		in.HopEnds = append(in.HopEnds,
			compute.HopEnd{Segments: len(in.Segments), Weights: len(in.Weights),
				Vertices: len(in.Vertices)})
	}
	hopEnds()
	for l := range b.Hops {
		h := &b.Hops[l]
		// The input layer's aggregates are among the inputs, and nothing else reads its segments.
		aggregated := l == 0 && needs.Aggregate != compute.NoReduction
		if !aggregated {
			in.Segments = append(in.Segments, h.Forward)
		}
		if m.Train && (l > 0 || needs.Transposed) {
			in.Segments = append(in.Segments, h.Transposed)
		}
		if needs.Relations != nn.NoRelations {
			in.Segments = append(in.Segments, h.Targets, h.Pairs, h.RowsOf, h.PairsOf)
			in.Vertices = append(in.Vertices, h.Ends, h.OwnEnds, h.PairEnds)
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
		hopEnds()
	}
	m.shared.send(in, m.Train)
	return p.send(m, in)
}

// send sends the inputs of a minibatch.
func (p *stagingPool) send(m *Minibatch, in *compute.Inputs) error {
	growth := p.growth(m)
	if err := p.begin(in, growth); err != nil {
		return err
	}
	if m.staging == nil {
		m.staging = p.take()
	}
	before := m.staging.PinnedBytes()
	if before == 0 { // a buffer beyond those that begin has made
		if err := m.staging.Reserve(in, growth, p.most); err != nil {
			return err
		}
	}
	err := m.staging.Send(in)
	if m.Train && m.staging.PinnedBytes() != before {
		p.mu.Lock()
		p.grown++
		p.mu.Unlock()
	}
	return err
}

func (p *stagingPool) receive(m *Minibatch) error {
	if m.staging == nil {
		return nil
	}
	var err error
	m.Batch.Own, m.Batch.Aggregate, m.Batch.X, err = m.staging.Open()
	m.Batch.Types = append(m.Batch.Types[:0], m.staging.Types()...)
	return err
}

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
