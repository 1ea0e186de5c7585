package parallel

import (
	"errors"
	"fmt"
	"time"

	"halognn/src/cache"
	"halognn/src/compute"
	"halognn/src/exchange"
	"halognn/src/fault"
	"halognn/src/graph"
	"halognn/src/mem"
	"halognn/src/nn"
	"halognn/src/pipeline"
	"halognn/src/sample"
)

// DataOptions say how minibatches are prepared for data-parallel ranks that each see the whole topology.
type DataOptions struct {
	Topology *sample.Topology
	Sample   sample.Spec // the zero Spec for a model that reads no neighbours
	MaxSeeds int         // of one minibatch

	Eval sample.Spec // of minibatches that are not trained; the zero Spec: Sample

	Exchange *exchange.Exchange
	Host     compute.Host
	Device   compute.Device // that minibatches are prepared for; nil for one that reads host memory
	Resident bool           // feature rows lie where compute.Accelerator.Resident knows them
	Needs    nn.Needs       // of the input layer
	Layers   int            // of the model
	Cols     int            // of a feature row

	Labels  []int32 // [N] class of every vertex, or
	Targets []uint8 // [N*Classes] 0 or 1; neither if minibatches are not scored
	Classes int

	Workers int // minibatches that are sampled at the same time

	// Policy decides which remote rows are at hand while minibatches are trained; nil for no cache, or one that does not change. Others
	// neither ask nor tell it, and fetch what is remote. Ahead is how many minibatches it sees in advance, and Depth how many may be
	// between its decision and their training: both as in pipeline.Options.
	Policy       cache.Policy
	Ahead, Depth int
}

// feeder is a policy that is told what later steps read.
type feeder interface{ Feed(remote []graph.VertexID) }

// Data is the data-parallel strategy: every rank samples its own minibatches, fetches the feature rows it lacks, and trains
// on them. A minibatch takes three collectives (counts and ids out, rows back). Its stages may run on several minibatches
// at the same time.
type Data struct {
	o        DataOptions
	samplers chan sample.Sampler // one per worker: a sampler's vertex map serves one minibatch at a time
	buffers  chan bufferSet      // of minibatches that wait for their turn; empty without foresight
	staging  *stagingPool        // nil for a device that reads host memory
}

// bufferSet is what a minibatch needs from its decision to the end of its training, and not while it waits to be decided: with a wide window most
// minibatches wait, and these are their largest arrays.
type bufferSet struct {
	own, mean, all []float32
	rows           exchange.Buffers
}

// NewData makes the samplers; each takes about 4 bytes a vertex.
func NewData(o DataOptions) (*Data, error) {
	d := &Data{o: o, samplers: make(chan sample.Sampler, o.Workers), buffers: make(chan bufferSet, o.Depth+1)}
	d.staging = newStagingPool(&o)
	for range cap(d.buffers) * min(1, o.Ahead) {
		d.buffers <- bufferSet{}
	}
	if o.Sample.Hops() == 0 {
		return d, nil
	}
	for range o.Workers {
		s, err := sample.New(o.Topology, sample.Options{
			Spec: o.Sample, Eval: o.Eval, Workers: 1, MaxSeeds: o.MaxSeeds,
		})
		if err != nil {
			return nil, errors.Join(err, d.Close())
		}
		d.samplers <- s
	}
	return d, nil
}

// Close frees the samplers. No stage may be running.
func (d *Data) Close() error {
	close(d.samplers)
	for s := range d.samplers {
		s.Free()
	}
	close(d.buffers)
	for b := range d.buffers {
		mem.Free(b.own)
		mem.Free(b.mean)
		mem.Free(b.all)
		b.rows.Free()
	}
	if d.staging == nil {
		return nil
	}
	return d.staging.free()
}

// Bytes returns the memory of the samplers, and of the buffer sets that no minibatch has. No stage may be running.
func (d *Data) Bytes() (samplers, buffers int64) {
	for range len(d.samplers) {
		s := <-d.samplers
		samplers += s.Bytes()
		d.samplers <- s
	}
	for range len(d.buffers) {
		b := <-d.buffers
		buffers += int64(cap(b.own)+cap(b.mean)+cap(b.all))*4 + b.rows.Bytes()
		d.buffers <- b
	}
	return samplers, buffers
}

// PinnedBytes returns the host memory in which minibatches wait for a device with memory of its own. No pipeline may be running.
func (d *Data) PinnedBytes() int64 { return d.staging.pinnedBytes() }

// take gives a minibatch that is decided a set of buffers. The pipeline has at most Depth+1 of them; one that was not consumed, because its
// run stopped, still has its own.
func (d *Data) take(m *Minibatch) {
	if m.lent || d.o.Ahead == 0 {
		return
	}
	select {
	case b := <-d.buffers:
		d.swap(m, &b)
		m.lent = true
	default:
	}
}

// Release takes the buffers of a minibatch back when it has been consumed. Nothing of m.Batch may be read any more.
func (d *Data) Release(m *Minibatch) error {
	err := d.done(m)
	if !m.lent {
		return err
	}
	var b bufferSet
	d.swap(m, &b)
	m.lent = false
	d.buffers <- b
	return err
}

func (d *Data) swap(m *Minibatch, b *bufferSet) {
	m.own, b.own = b.own, m.own
	m.mean, b.mean = b.mean, m.mean
	m.all, b.all = b.all, m.all
	m.Fetch.Lend(&b.rows)
}

// Stages returns the way of a minibatch, in order. The names are those that phases are counted under.
func (d *Data) Stages() []pipeline.Stage[Minibatch] {
	x := d.o.Exchange
	if d.o.Policy != nil {
		return d.decided()
	}
	return []pipeline.Stage[Minibatch]{
		{Name: "sample", Local: d.sample},
		{Name: "plan", Local: func(m *Minibatch) error { return x.Plan(&m.Fetch, m.Sampled.Frontier) }},
		{
			Name:   "counts",
			Start:  func(m *Minibatch) (pipeline.Request, error) { return x.StartCounts(&m.Fetch), nil },
			Finish: func(m *Minibatch) error { return x.FinishCounts(&m.Fetch) },
		},
		{Name: "ids", Start: func(m *Minibatch) (pipeline.Request, error) { return x.StartIDs(&m.Fetch), nil }},
		{Name: "slice", Local: func(m *Minibatch) error { return x.SliceRows(&m.Fetch) }},
		{Name: "rows", Start: d.startRows},
		{Name: "assemble", Local: d.assemble},
	}
}

// decided are the stages with a cache that changes.
func (d *Data) decided() []pipeline.Stage[Minibatch] {
	x := d.o.Exchange
	return []pipeline.Stage[Minibatch]{
		{Name: "sample", Local: d.sample},
		{Name: "plan", Local: func(m *Minibatch) error { return x.Locate(&m.Fetch, m.Sampled.Frontier) }},
		{
			Name: "counts",
			Arrive: func(m *Minibatch) error {
				begin := time.Now()
				if f, sees := d.o.Policy.(feeder); sees && m.Train {
					f.Feed(m.Fetch.Distant)
				}
				m.Feeding = time.Since(begin)
				return nil
			},
			Start: func(m *Minibatch) (pipeline.Request, error) {
				d.decide(m)
				return x.StartCounts(&m.Fetch), nil
			},
			Finish: func(m *Minibatch) error { return x.FinishCounts(&m.Fetch) },
		},
		{Name: "ids", Start: func(m *Minibatch) (pipeline.Request, error) { return x.StartIDs(&m.Fetch), nil }},
		{Name: "slice", Local: func(m *Minibatch) error { return x.SliceRows(&m.Fetch) }},
		{
			Name:   "rows",
			Start:  d.startRows,
			Finish: d.keep,
		},
	}
}

// decide asks the policy what is at hand.
func (d *Data) decide(m *Minibatch) {
	d.take(m)
	m.Scoring = 0
	begin := time.Now()
	if m.Train {
		d.o.Policy.Step(m.Fetch.Distant, &m.Decision)
		m.Scoring = time.Since(begin)
		d.o.Exchange.Decide(&m.Fetch, m.Decision.Slot, m.Decision.Early)
	} else {
		m.Decision.Clear()
		d.o.Exchange.Decide(&m.Fetch, nil, nil)
	}
	m.Deciding = time.Since(begin) - m.Scoring
}

// keep reads the rows of a minibatch and then copies those that stay.
func (d *Data) keep(m *Minibatch) error {
	begin := time.Now()
	if err := d.assemble(m); err != nil {
		return err
	}
	for _, i := range m.Decision.Insert {
		d.o.Exchange.Keep(&m.Fetch, i.From(), i.Slot())
	}
	m.Gathering = time.Since(begin)
	return nil
}

func (d *Data) startRows(m *Minibatch) (pipeline.Request, error) {
	if err := d.point(fault.Exchange, m); err != nil {
		return nil, err
	}
	return d.o.Exchange.StartRows(&m.Fetch), nil
}

// point is where tests let a training minibatch go wrong.
func (d *Data) point(name string, m *Minibatch) error {
	if !m.Train {
		return nil
	}
	return fault.At(name, d.o.Exchange.Rank(), m.Key.Epoch, m.Key.Step)
}

func (d *Data) sample(m *Minibatch) error {
	if err := d.point(fault.Sample, m); err != nil {
		return err
	}
	if d.o.Sample.Hops() == 0 {
		d.seedsOnly(m)
		return nil
	}
	s := <-d.samplers
	defer func() { d.samplers <- s }()
	draw := s.Sample
	if !m.Train {
		draw = s.SampleEval
	}
	if err := draw(&m.Sampled, m.Seeds, m.Key); err != nil {
		return fmt.Errorf("sampling: %w", err)
	}
	m.Digest, m.Edges = m.Sampled.Digest(), m.Sampled.EdgesDigest(m.Key)
	return nil
}

// seedsOnly is sampling for a model without neighbours: the frontier is the seeds.
func (d *Data) seedsOnly(m *Minibatch) {
	s := &m.Sampled
	s.Frontier, s.Original = mem.Grow(s.Frontier, len(m.Seeds)), mem.Grow(s.Original, len(m.Seeds))
	copy(s.Frontier, m.Seeds)
	for i, v := range m.Seeds {
		s.Original[i] = d.o.Topology.Original[v]
	}
	s.Seeds = s.Frontier
	m.Digest, m.Edges = s.Digest(), 0
}

// assemble builds what the model reads. Rows are aggregated straight from where they lie (docs/design/08-input-aggregation.md), so the [sources, cols]
// matrix is made only for a model whose aggregation depends on its parameters.
func (d *Data) assemble(m *Minibatch) error {
	b := &m.Batch
	b.Train, b.GlobalSeeds = m.Train, m.GlobalSeeds
	d.hops(m)
	input, rows := b.Hops[0], m.Fetch.Rows
	b.X, b.Own, b.Mean = compute.Matrix{}, compute.Matrix{}, compute.Matrix{}
	if d.staging != nil {
		d.copyLabels(m)
		return d.send(m)
	}
	if d.o.Needs.Sources {
		b.X = matrixOf(&m.all, input.Sources, d.o.Cols)
		d.o.Host.GatherRows(b.X, rows)
	}
	if d.o.Needs.Own {
		b.Own = matrixOf(&m.own, input.Destinations, d.o.Cols)
		d.o.Host.GatherRows(b.Own, rows)
	}
	if d.o.Needs.Mean {
		b.Mean = matrixOf(&m.mean, input.Destinations, d.o.Cols)
		d.o.Host.SegmentMeanRows(b.Mean, input.Forward, rows)
	}
	d.copyLabels(m)
	return nil
}

// hops describes the topology to the model. Without neighbours every layer works on the seeds.
func (d *Data) hops(m *Minibatch) {
	b := &m.Batch
	if len(b.Hops) != d.o.Layers {
		b.Hops = make([]nn.Hop, d.o.Layers)
	}
	k := m.Key
	for l := range b.Hops {
		hop := nn.Hop{Sources: len(m.Seeds), Destinations: len(m.Seeds), Vertices: m.Sampled.Original[:len(m.Seeds)]}
		if d.o.Sample.Hops() > 0 {
			blk, t := &m.Sampled.Blocks[l], &m.Sampled.Transposes[l]
			hop.Sources, hop.Destinations = blk.NumSrc, blk.NumDst
			hop.Forward = compute.Segments{Indptr: blk.Indptr, Indices: blk.Indices}
			hop.Transposed = compute.Segments{Indptr: t.Indptr, Indices: t.Indices}
			hop.Vertices = m.Sampled.Original[:blk.NumDst]
		}
		hop.Dropout = compute.NewDropoutKey(k.Seed, k.Epoch, k.Step, k.Stream, l)
		b.Hops[l] = hop
	}
}

// copyLabels copies the labels of the seeds.
func (d *Data) copyLabels(m *Minibatch) {
	switch {
	case d.o.Labels != nil:
		m.labels = mem.Grow(m.labels, len(m.Seeds))
		for i, v := range m.Seeds {
			m.labels[i] = d.o.Labels[v]
		}
		m.Batch.Labels = m.labels
	case d.o.Targets != nil:
		c := d.o.Classes
		m.targets = mem.Grow(m.targets, len(m.Seeds)*c)
		for i, v := range m.Seeds {
			copy(m.targets[i*c:(i+1)*c], d.o.Targets[int(v)*c:])
		}
		m.Batch.Targets = m.targets
	}
}

// SetSeeds copies seeds into the minibatch.
func (m *Minibatch) SetSeeds(seeds []graph.VertexID) {
	m.Seeds = mem.Grow(m.Seeds, len(seeds))
	copy(m.Seeds, seeds)
}
