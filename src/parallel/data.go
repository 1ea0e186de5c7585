package parallel

import (
	"errors"

	"halognn/src/compute"
	"halognn/src/exchange"
	"halognn/src/fault"
	"halognn/src/graph"
	"halognn/src/mem"
	"halognn/src/nn"
	"halognn/src/sample"
	"halognn/src/trace"
)

// dataParallel is the strategy in which every rank samples its own minibatches on the whole
// topology, fetches the feature rows it lacks, and trains on them. Ranks meet in the three
// collectives of a fetch (counts and ids out, rows back) and in the sum of the gradients. With
// another drawing, and exchanges between the layers, it is split parallelism (newSplit).
type dataParallel struct {
	o       Options
	needs   nn.Needs // of the first layer
	first   int      // layer of the model that runs first, and
	layers  int      // how many run
	output  bool     // of them follow the logits
	drawing drawing
	between *shuffler      // nil: ranks exchange nothing between two layers
	columns *columnSums    // nil: this rank has all columns of the rows that the first layer reads
	relay   *relay         // nil: ranks pass no feature rows on
	buffers chan bufferSet // of minibatches that wait for their turn; empty without foresight
	staging *stagingPool   // nil for a device that reads host memory
	inputs  []nn.Input     // by layer, of the minibatch that is trained
}

// bufferSet holds the arrays that a minibatch needs only from its decision to the end of its
// training. They are its largest, and with a wide window most minibatches still wait for their
// decision and do without them.
type bufferSet struct {
	own, aggregate, all []float32
	rows                exchange.Buffers
}

func newData(o Options) (Strategy, error) {
	d, err := makeData(o, o.Model.Needs(), 0, o.Model.Config.Layers)
	if err != nil {
		return nil, err
	}
	d.output = true
	return d, nil
}

// newDataLayer is data parallelism over one layer: every rank runs it for its own vertices.
func newDataLayer(o Options, l int) (Strategy, error) { return makeData(o, o.Model.Needs(), l, 1) }

func makeData(o Options, needs nn.Needs, first, layers int) (*dataParallel, error) {
	d := newDataParallel(o, needs, first, layers)
	draw := d.drawerOptions()
	if o.Partitioned && o.Sample.Hops() > 0 {
		if o.Ahead > 0 {
			return nil, errors.New("a policy that looks ahead needs the frontiers of later " +
				"minibatches, which are known only after rounds between ranks where the topology " +
				"is partitioned")
		}
		if err := d.degreesKnown(); err != nil {
			return nil, err
		}
		remote, err := newRemoteDrawer(o.Comm, o.Rows, o.SeedsElsewhere, draw, d.beginSample,
			d.endSample)
		if err != nil {
			return nil, err
		}
		d.drawing = remote
		return d, nil
	}
	whole, err := NewDrawer(draw)
	if err != nil {
		return nil, err
	}
	d.drawing = alone{whole, d.beginSample, d.endSample}
	return d, nil
}

// newDataParallel makes everything but the drawing.
func newDataParallel(o Options, needs nn.Needs, first, layers int) *dataParallel {
	d := &dataParallel{o: o, needs: needs, first: first, layers: layers}
	d.inputs = make([]nn.Input, layers)
	d.buffers = make(chan bufferSet, o.Depth+1)
	for range cap(d.buffers) * min(1, o.Ahead) {
		d.buffers <- bufferSet{}
	}
	d.staging = newStagingPool(&o)
	return d
}

func (d *dataParallel) drawerOptions() DrawerOptions {
	o := &d.o
	return DrawerOptions{
		Topology: o.Topology,
		Sampling: sample.Options{Spec: o.Sample, Eval: o.Eval, Near: o.Near, Workers: 1,
			MaxSeeds: o.MaxSeeds, Kernel: o.Kernel, ForwardOnly: d.needs.SelfEdges,
			Weights: d.needs.OfData},
		Samplers: o.Workers, Labels: o.Labels, Targets: o.Targets, Classes: o.Classes,
	}
}

// degreesKnown returns an error if edges are weighed by degrees that this rank cannot know.
func (d *dataParallel) degreesKnown() error {
	if d.needs.Weights == nn.WeightsSymmetric && d.o.Partitioned && d.o.Topology.Rows == nil {
		return errors.New("the model weighs edges by the degrees of all vertices, whose row " +
			"pointers this rank does not hold")
	}
	return nil
}

// Close implements Strategy.
func (d *dataParallel) Close() error {
	err := errors.Join(d.drawing.close(), d.between.close())
	close(d.buffers)
	for b := range d.buffers {
		mem.Free(b.own)
		mem.Free(b.aggregate)
		mem.Free(b.all)
		b.rows.Free()
	}
	if d.staging == nil {
		return err
	}
	return errors.Join(err, d.staging.free())
}

// Memory implements Strategy.
func (d *dataParallel) Memory() (allocated, pinned trace.Memory) {
	idle := int64(0)
	for range len(d.buffers) {
		b := <-d.buffers
		idle += int64(cap(b.own)+cap(b.aggregate)+cap(b.all))*4 + b.rows.Bytes()
		d.buffers <- b
	}
	moving, pinnedMoving := d.between.bytes()
	allocated = trace.Memory{
		{Name: trace.MemSamplers, Bytes: d.drawing.Bytes()},
		{Name: trace.MemMinibatches, Bytes: idle},
		{Name: trace.MemActivations, Bytes: moving},
	}
	return allocated, trace.Memory{
		{Name: trace.MemMinibatches, Bytes: d.staging.pinnedBytes()},
		{Name: trace.MemActivations, Bytes: pinnedMoving},
	}
}

// Counters implements Strategy.
func (d *dataParallel) Counters(m *Minibatch) (trace.Counters, error) {
	c := m.Fetch.Counters
	c.Evictions, c.Replacements = int64(m.Decision.Evictions), int64(m.Decision.Replacements)
	c.Sampling = m.draws.Sampling
	c.Rounds += c.Sampling.Rounds
	c.Edges, c.Loaded = int64(m.Sampled.NumEdges()), c.Frontier
	return c, c.Check(len(d.relay.planned(m)))
}

// Stages implements Strategy.
func (d *dataParallel) Stages() []Stage {
	x := d.o.Exchange
	stages := d.drawing.stages()
	if d.o.Policy == nil {
		stages = append(stages, local(trace.Plan, "plan", d.planned(x.Plan)))
	} else {
		stages = append(stages,
			local(trace.Plan, "plan", d.planned(x.Locate)),
			ordered(trace.Score, "decide", d.arrive(), d.decide),
			local(trace.Plan, "request", d.request))
	}
	stages = append(stages,
		collective(trace.Exchange, "counts",
			func(m *Minibatch) (request, error) { return x.StartCounts(&m.Fetch), nil },
			func(m *Minibatch) error { return x.FinishCounts(&m.Fetch) }),
		collective(trace.Exchange, "ids",
			func(m *Minibatch) (request, error) { return x.StartIDs(&m.Fetch), nil }, nil),
		local(trace.Slice, "slice", d.slice),
		collective(trace.Exchange, "rows", d.startRows, nil))
	stages = append(stages, d.relay.stages()...)
	if d.o.Policy == nil {
		return append(stages, local(trace.Gather, "assemble", d.assemble))
	}
	return append(stages, ordered(trace.Gather, "assemble", nil, d.assembleAndKeep))
}

// planned is the stage that finds the rows of a minibatch and, with their parts, the order in which
// they are added.
func (d *dataParallel) planned(
	find func(*exchange.Plan, []graph.VertexID) error,
) func(*Minibatch) error {
	return func(m *Minibatch) error {
		if err := find(&m.Fetch, d.relay.planned(m)); err != nil {
			return err
		}
		if err := d.relay.plan(m); err != nil {
			return err
		}
		m.edges.Group(&m.Sampled, d.needs, m.Fetch.Parts, d.o.Exchange.Parts())
		return nil
	}
}

// beginSample is what happens to a minibatch first.
func (d *dataParallel) beginSample(m *Minibatch) error { return d.point(fault.Sample, m) }

// endSample makes what the model needs beside the blocks, which are there.
func (d *dataParallel) endSample(m *Minibatch) {
	m.edges.Build(&m.Sampled, d.needs, m.Train, d.o.Topology)
}

// point is where tests inject a fault into a training minibatch.
func (d *dataParallel) point(name string, m *Minibatch) error {
	if !m.Train {
		return nil
	}
	return fault.At(name, d.o.Comm.Rank(), m.Key.Epoch, m.Key.Step)
}

// arrive is what a policy hears early, where deciding is the first stage that is not local.
func (d *dataParallel) arrive() func(*Minibatch) error {
	if d.o.Partitioned {
		return nil
	}
	return d.feed
}

// feed tells a policy that looks ahead what a later minibatch reads.
func (d *dataParallel) feed(m *Minibatch) error {
	if m.Train {
		d.o.Policy.Feed(m.Fetch.RemoteIDs)
	}
	return nil
}

// decide asks the policy which remote rows are in the buffer. The answer depends on the minibatches
// before.
func (d *dataParallel) decide(m *Minibatch) error {
	if m.Train {
		d.o.Policy.Step(m.Fetch.RemoteIDs, &m.Decision)
	} else {
		m.Decision.Clear()
	}
	return nil
}

// request lists the rows to fetch and their owners, after the decision.
func (d *dataParallel) request(m *Minibatch) error {
	d.lend(m)
	d.o.Exchange.Decide(&m.Fetch, m.Decision.Slot, m.Decision.Early)
	return nil
}

// slice copies the rows that others ask for.
func (d *dataParallel) slice(m *Minibatch) error {
	if d.between != nil {
		if err := d.between.drawer.count(m); err != nil {
			return err
		}
	}
	return d.o.Exchange.SliceRows(&m.Fetch)
}

func (d *dataParallel) startRows(m *Minibatch) (request, error) {
	if err := d.point(fault.Exchange, m); err != nil {
		return nil, err
	}
	return d.o.Exchange.StartRows(&m.Fetch), nil
}

// assembleAndKeep reads the rows of a minibatch and then copies those to be cached into the buffer,
// in the order of the decisions, so that the next minibatch finds its rows there.
func (d *dataParallel) assembleAndKeep(m *Minibatch) error {
	if err := d.assemble(m); err != nil {
		return err
	}
	for _, i := range m.Decision.Insert {
		d.o.Exchange.Keep(&m.Fetch, i.From(), i.Slot())
	}
	return nil
}

// assemble builds the inputs of the model. Rows are aggregated in place
// (docs/design/08-input-aggregation.md), so the [sources, cols] matrix is made only for a model
// whose aggregation depends on its parameters.
func (d *dataParallel) assemble(m *Minibatch) error {
	b := &m.Batch
	b.Train, b.GlobalSeeds = m.Train, m.GlobalSeeds
	d.hops(m)
	input, rows := &b.Hops[0], m.Fetch.Rows
	if d.columns != nil {
		input = &m.pushed.hop
	}
	b.X, b.Own, b.Aggregate = compute.Matrix{}, compute.Matrix{}, compute.Matrix{}
	if d.staging != nil {
		return d.staging.send(m, input, d.needs)
	}
	if d.needs.Sources {
		b.X = matrixOf(&m.all, input.Sources, d.o.Cols)
		d.o.Host.GatherRows(b.X, rows)
	}
	if d.needs.Own {
		b.Own = matrixOf(&m.own, input.Destinations, d.o.Cols)
		d.o.Host.GatherRows(b.Own, rows)
	}
	if how := d.needs.Aggregate; how != compute.NoReduction {
		b.Aggregate = matrixOf(&m.aggregate, input.Destinations, d.o.Cols)
		d.o.Host.SegmentRows(b.Aggregate, how, input.Forward, input.Weights, rows)
	}
	return nil
}

// hops describes the topology to the model. Without neighbours every layer works on the seeds.
func (d *dataParallel) hops(m *Minibatch) {
	b := &m.Batch
	if len(b.Hops) != d.layers {
		b.Hops = make([]nn.Hop, d.layers)
	}
	k := m.Key
	for l := range b.Hops {
		n := len(m.Scored)
		hop := nn.Hop{Sources: n, Destinations: n, Vertices: m.Sampled.Original[:n]}
		if len(m.Sampled.Blocks) > 0 {
			hop = m.edges.Hop(&m.Sampled, l, d.needs, m.Train)
			hop.Vertices = m.Sampled.Original[:hop.Destinations]
			hop.Room = m.shared.others(l + 1)
		}
		hop.Dropout = compute.NewDropoutKey(k.Seed, k.Epoch, k.Step, k.Stream, l)
		b.Hops[l] = hop
	}
}

// lend gives a decided minibatch a set of buffers. At most Depth+1 minibatches of the pipeline have
// one; a minibatch left unconsumed by a stopped run keeps its set.
func (d *dataParallel) lend(m *Minibatch) {
	if m.lent || d.o.Ahead == 0 {
		return
	}
	select {
	case b := <-d.buffers:
		m.swap(&b)
		m.lent = true
	default:
	}
}

// Release implements Strategy.
func (d *dataParallel) Release(m *Minibatch) error {
	err := d.staging.release(m)
	if !m.lent {
		return err
	}
	var b bufferSet
	m.swap(&b)
	m.lent = false
	d.buffers <- b
	return err
}

// swap exchanges the buffers of a minibatch.
func (m *Minibatch) swap(b *bufferSet) {
	m.own, b.own = b.own, m.own
	m.aggregate, b.aggregate = b.aggregate, m.aggregate
	m.all, b.all = b.all, m.all
	m.Fetch.Lend(&b.rows)
}

// Forward implements Strategy.
func (d *dataParallel) Forward(m *Minibatch) (compute.Matrix, error) {
	if err := d.staging.receive(m); err != nil {
		return compute.Matrix{}, err
	}
	return d.forward(m, nil)
}

// forward runs the layers one by one, from the input rows to the output of the last. phases may be
// nil.
func (d *dataParallel) forward(m *Minibatch, phases Phases) (x compute.Matrix, err error) {
	for i := range d.layers {
		if i > 0 && d.between != nil {
			if x, err = d.between.forward(m, i, x, phases); err != nil {
				return x, err
			}
		}
		in := &d.inputs[i]
		*in = m.Batch.Input(i, x)
		if i == 0 && d.columns != nil {
			if err = d.columns.forward(m, in, phases); err != nil {
				return x, err
			}
		}
		if x, err = d.o.Model.ForwardLayer(d.first+i, in); err != nil {
			return x, err
		}
	}
	if d.output {
		x = d.o.Model.Output(x)
	}
	return x, nil
}

// Step implements Strategy.
func (d *dataParallel) Step(m *Minibatch, last bool, phases Phases) (Trained, error) {
	model, sums := d.o.Model, d.o.Gradients
	if sums == nil {
		return Trained{}, errUntrained
	}
	if err := d.staging.receive(m); err != nil {
		return Trained{}, err
	}
	spoil(m, d.o.Device, d.o.Comm.Rank())
	phases.Begin(trace.Forward)
	logits, err := d.forward(m, phases)
	if err != nil {
		return Trained{}, err
	}
	share, grad := model.Loss(&m.Batch, logits)
	var t Trained
	if !nn.Finite([]float32{float32(share.Loss)}) {
		f := model.FirstFault()
		t.Fault = &f
	}
	phases.End(trace.Forward)
	phases.Begin(trace.Backward)
	grad = model.OutputBackward(grad)
	for l := d.layers - 1; l >= 0; l-- {
		grad = model.BackwardLayer(l, &d.inputs[l], grad)
		if l == 0 && d.columns != nil {
			if err = d.columns.backward(m, grad, phases); err != nil {
				return t, err
			}
		}
		if last {
			sums.Start(l)
		}
		if l > 0 && d.between != nil {
			if grad, err = d.between.backward(m, l, grad, phases); err != nil {
				return t, err
			}
		}
	}
	if !last {
		sums.Hold()
	}
	// A GPU may still be computing. Sync does not wait for the sums of gradients.
	if err := d.o.Device.Sync(); err != nil {
		return t, err
	}
	phases.End(trace.Backward)
	if last {
		t.Stats, err = sumUp(m, d.o.Comm.Rank(), model, sums, phases)
	}
	return t, err
}
