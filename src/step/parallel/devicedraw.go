package parallel

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"halognn/src/base/trace"
	"halognn/src/devices/compute"
	"halognn/src/model/nn"
	"halognn/src/model/task"
	"halognn/src/ranks/comm"
	"halognn/src/step/job"
	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
)

// Where minibatches are drawn: the values of sample.on.
const (
	DrawHost   = "host"
	DrawDevice = "device"
	DrawAuto   = "auto" // on the device if possible
)

// SumsNeedEdges says why the host draws for ranks that ask owners for sums.
const SumsNeedEdges = "exchange.sums: the host would lack the edges by which it asks owners for " +
	"sums"

// HostDraws says why a job's minibatches cannot be drawn on a device, as far as this depends on its
// settings; "" if they can.
func HostDraws(s *job.Spec) string {
	for _, c := range deviceDrawRefuses(s) {
		if c.bad {
			return c.what + ": " + c.why
		}
	}
	return ""
}

// deviceDrawRefuses lists what cannot be combined with minibatches that are drawn on a device.
func deviceDrawRefuses(s *job.Spec) []clash {
	const few = "sample.fanouts of 1 to 64, for at most 16 layers"
	most, hops := 1, s.Sample.Hops()
	for _, f := range s.Sample.Fanouts {
		if f == sample.All || f > compute.MostDrawnFanout {
			most = compute.MostDrawnFanout + 1
		}
	}
	embeds := task.Stored(s.Model.Task).Embeds
	kind := nn.FindKind(s.Model.Kind)
	// By default a config asks for weights, even if the graph has none. Fit drops them then; In is
	// above 0 only after Fit.
	weighted := s.Model.EdgeWeights && s.Model.In > 0
	return []clash{
		{s.Mode.Name != "" && s.Mode.Name != ModeData, "parallel.mode " + s.Mode.Name,
			"ranks draw parts of each other's minibatches, or send them",
			"parallel.mode=" + ModeData},
		{s.Partitioned, "topology.kind partitioned", "no device has the rows of all vertices",
			"topology.kind=replicated"},
		{s.Sample.Estimates(), "sample.kind " + string(s.Sample.Kind),
			"the device draws as many neighbours as the fanout, all equally likely",
			neighbour},
		{kind != nil && !kind.ReadsNeighbours, "model.kind " + s.Model.Kind,
			"it reads no neighbours", "sample.on=" + DrawHost},
		{kind != nil && kind.ByRelation, "model.kind " + s.Model.Kind,
			"its layers read edges relation by relation, and only the host lists them so",
			"sample.on=" + DrawHost},
		{hops > compute.MostDrawnHops || most > compute.MostDrawnFanout,
			fmt.Sprintf("sample.fanouts %v", s.Sample.Fanouts),
			"the device draws at most 64 neighbours of a vertex, in at most 16 hops",
			few},
		{s.Model.Schema.Typed(), "a graph with vertex types",
			"the device draws neighbours of one relation only",
			"sample.on=" + DrawHost},
		{embeds, "the task of links", "only the host leaves out a minibatch's links or lists its " +
			"pairs",
			"sample.on=" + DrawHost},
		{s.Model.LearnsRows(), "model.learned",
			"the host needs the edges to ask for the learned rows that they read",
			"model.learned=0"},
		{s.Sparse, "sparse features", "the host makes the inputs of layers from them",
			"dense features"},
		{s.Model.EdgeIn > 0, "model.edge_features", "the host looks up the rows of edges",
			"model.edge_features=false"},
		{weighted, "model.edge_weights", "edge weights of the dataset are not in device memory",
			"model.edge_weights=false"},
		{s.Sums && !s.TrySums, "exchange.sums on",
			"the host would lack the edges by which it asks owners for sums", "exchange.sums=off"},
	}
}

// DrawnOn says where a strategy draws minibatches, and why.
type DrawnOn struct{ Where, Why string }

// DrawsOn returns where this strategy draws the minibatches that it trains and, if they are drawn
// alike, those that it evaluates. It returns the zero value if it does not train on a device with
// its own memory. The result is the same on all ranks.
func (s *Strategy) DrawsOn() DrawnOn { return s.drawsOn }

// onCard is the state that a minibatch has only if the device has drawn it. If the host has drawn
// it, drawn is nil.
type onCard struct {
	drawing compute.Drawing // kept for the next minibatch of the slot
	drawn   *compute.Drawn  // nil if the host drew this minibatch
}

// missing returns the vertices of the input frontier whose rows are not on the device.
func (c *onCard) missing() []graph.VertexID { return sample.VerticesOf(c.drawn.Missing) }

// hop returns the edges of layer l.
func (c *onCard) hop(l int) (h nn.Hop) {
	b, of := &c.drawn.Blocks[l], len(c.drawn.Blocks)-1-l
	h.Sources, h.Destinations = c.drawn.Vertices[of+1], c.drawn.Vertices[of]
	h.Edges = len(b.Forward.Indices)
	h.Forward, h.Transposed = b.Forward, b.Transposed
	h.Weights, h.TransposedWeights = b.Weights, b.TransposedWeights
	return h
}

// deviceDraws is the Draw of a rank whose device has the whole topology. It draws minibatches on
// the device, bit for bit as the host would; the host draws those without seeds
// (docs/design/36-drawn-on-the-card.md).
type deviceDraws struct {
	alone
	spec   sample.Spec
	drawer compute.Drawer
	// Minibatches that are not trained are drawn on the device too: they are drawn like those of
	// training, and pass through the same slots, which have the memory.
	evaluates bool

	mu    sync.Mutex
	all   []compute.Drawing // one for each minibatch of the pipe
	spare []compute.Drawing // drawings that no minibatch has taken yet
}

func (d *deviceDraws) stages() []Stage {
	return []Stage{local(trace.Sample, "sample", func(m *Minibatch) error {
		if len(m.Seeds) == 0 || !m.Train && !(d.evaluates && d.lend(m)) {
			return d.alone.prepare(m)
		}
		return d.prepare(m)
	})}
}

func (d *deviceDraws) prepare(m *Minibatch) error {
	if err := d.begin(m); err != nil {
		return err
	}
	m.Scored, m.card.drawn = m.Seeds, nil
	if !d.lend(m) {
		return errors.New("more minibatches are under way than the device has drawings for; " +
			"this is a bug in halognn")
	}
	if err := m.card.drawing.Start(sample.IDs(m.Seeds), d.spec.DrawKeys(m.Key)); err != nil {
		return err
	}
	x, err := m.card.drawing.Wait()
	if err != nil {
		return err
	}
	if x.Faulty { // draw on the host, whose sampler reports what is wrong
		if err = d.Draw(m); err == nil {
			err = errors.New("the GPU found a fault in the topology, but the host does not; " +
				"this is a bug in halognn, or an error of the GPU's memory")
		}
		return err
	}
	m.card.drawn = x
	d.o.copyLabels(m)
	m.Digest, m.Edges = 0, x.Digest
	return nil
}

// lend gives a minibatch without a drawing one, which has the memory for its draws. The minibatch
// keeps the drawing. It returns false if none is left.
func (d *deviceDraws) lend(m *Minibatch) bool {
	if m.card.drawing != nil {
		return true
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	last := len(d.spare) - 1
	if last < 0 {
		return false
	}
	m.card.drawing, d.spare = d.spare[last], d.spare[:last]
	return true
}

// pinned returns the pinned memory of all drawings. No drawing may be under way.
func (d *deviceDraws) pinned() (bytes int64) {
	for _, drawing := range d.all {
		bytes += drawing.PinnedBytes()
	}
	return bytes
}

// close also frees the device memory of all drawings. The minibatches that use them must be freed
// before.
func (d *deviceDraws) close() error { return errors.Join(d.free(), d.alone.close()) }

// free frees the drawings and the topology.
func (d *deviceDraws) free() error {
	var errs []error
	for _, drawing := range d.all {
		errs = append(errs, drawing.Free())
	}
	return errors.Join(append(errs, d.drawer.Free())...)
}

// drawOnDevice sets up drawing minibatches on the device if the options ask for it and all ranks
// can, and sets DrawsOn. The drawer `whole` draws those that the device does not. Collective.
func (s *Strategy) drawOnDevice(whole alone) (Draw, error) {
	o := &s.o
	device := compute.CapabilitiesOf(o.Device).Accelerator
	if o.Gradients == nil || o.On != DrawDevice && o.On != DrawAuto {
		return whole, nil
	}
	if device == nil {
		s.drawsOn = DrawnOn{DrawHost, "compute.device has no memory of its own"}
		if o.On == DrawDevice { // the config has been checked for this before
			return whole, comm.AgreedOn(o.Comm,
				fmt.Errorf("sample.on=device is not possible: %s", s.drawsOn.Why))
		}
		return whole, nil
	}
	d, why, err := s.openDeviceDraws(device, whole)
	if err = comm.Agree(o.Comm, err); err == nil {
		var whys []string
		if whys, err = comm.AllgatherStrings(o.Comm, why); err == nil {
			for r := len(whys) - 1; r >= 0; r-- {
				if whys[r] != "" {
					why = whys[r]
				}
			}
		}
	}
	if err == nil && why == "" {
		s.drawsOn = DrawnOn{DrawDevice, "sample.on is " + o.On}
		return d, nil
	}
	if d != nil {
		err = errors.Join(err, d.free())
	}
	if err == nil && o.On == DrawDevice {
		err = comm.AgreedOn(o.Comm, fmt.Errorf("sample.on=device is not possible: %s; choose "+
			"sample.on=auto or host", why))
	}
	s.drawsOn = DrawnOn{DrawHost, why}
	return whole, err
}

// drawOnHost sets DrawsOn to the host if drawOnDevice has not set it.
func (s *Strategy) drawOnHost() {
	o := &s.o
	if s.drawsOn.Where != "" || o.Gradients == nil ||
		compute.CapabilitiesOf(o.Device).Accelerator == nil {
		return
	}
	s.drawsOn = DrawnOn{DrawHost, o.HostDraws}
	if o.On != DrawAuto || o.HostDraws == "" {
		s.drawsOn.Why = "sample.on is " + DrawHost
	}
}

// openDeviceDraws brings the topology to the device. The result why is the reason why the host
// draws instead, or "".
func (s *Strategy) openDeviceDraws(device compute.Accelerator, whole alone) (d *deviceDraws,
	why string, err error) {
	o, t := &s.o, s.o.Topology
	switch {
	case o.HostDraws != "":
		return nil, o.HostDraws, nil
	case o.Exchange.MakesSums():
		return nil, SumsNeedEdges, nil
	}
	if needs := s.needs; needs.Relations != nn.NoRelations || needs.Types || needs.EdgeRows ||
		needs.OfData {
		return nil, "the layers of the model need data of edges, which a GPU does not draw", nil
	}
	if o.MaxSeeds == 0 {
		return nil, "the largest size of a minibatch is not known", nil
	}
	draws := DrawBounds(o.Sample, s.needs, o.MaxSeeds, len(t.Original), o.Edges)
	draws.Indptr, draws.Indices, draws.Original = t.Graph.Indptr, sample.IDs(t.Graph.Indices),
		t.Original
	draws.Parts, draws.Resident = o.Parts, o.Resident
	slots := o.Depth + 1 + o.Ahead
	left := int64(device.FreeBytes()) -
		compute.TopologyBytes(len(t.Original), int64(len(t.Graph.Indices)))
	if why = LargeDraws(&draws, slots, left); why != "" {
		return nil, why, nil
	}
	if d, err = reserveDraws(device, draws, slots); errors.Is(err, compute.ErrMemory) {
		return nil, err.Error(), nil
	} else if err != nil {
		return nil, "", err
	}
	d.alone, d.spec = whole, o.Sample
	d.evaluates = o.Eval.Hops() == 0 && o.Ahead == 0
	return d, "", nil
}

// LargeTopology says why a topology of this many bytes is too large for a device with this much
// free memory, or returns "" if it fits.
func LargeTopology(bytes, free int64) string {
	if bytes <= free/2 {
		return ""
	}
	return fmt.Sprintf("the topology takes %d MB of device memory, more than half of the %d MB "+
		"that the model leaves", bytes>>20, free>>20)
}

// LargeDraws says why a device cannot draw the given number of minibatches, or returns "" if it
// can. The argument `free` is the memory that is free on the device, without the topology.
func LargeDraws(o *compute.DrawOptions, minibatches int, free int64) string {
	for h, hop := range o.Hops {
		if hop.Destinations+hop.Edges > compute.MostDrawnHop {
			return fmt.Sprintf("hop %d of a minibatch may have %d edges, but on a GPU edges and "+
				"destinations of a hop are at most 2^28; lower sample.batch or sample.fanouts",
				h+1, hop.Edges)
		}
	}
	if room := DrawnBytes(o, minibatches); room > free/2 {
		return fmt.Sprintf("%d minibatches under way take %d MB, more than half of the %d MB of "+
			"device memory that model, rows and topology leave; lower sample.batch, "+
			"sample.fanouts, pipeline.depth or compute.gpu_rows", minibatches, room>>20,
			max(0, free>>20))
	}
	return ""
}

// reserveDraws allocates the memory of all minibatches under way at the start, before steps use up
// the memory that is left. So no later minibatch fails for lack of memory. None pins memory later
// either, which would make the device wait.
func reserveDraws(device compute.Accelerator, draws compute.DrawOptions, slots int) (*deviceDraws,
	error) {
	drawer, err := device.NewDrawer(draws)
	if err != nil {
		return nil, err
	}
	d := &deviceDraws{drawer: drawer}
	for range slots {
		drawing, err := drawer.NewDrawing()
		if err != nil {
			return nil, errors.Join(err, d.free())
		}
		d.all = append(d.all, drawing)
	}
	d.spare = slices.Clone(d.all)
	return d, nil
}

// DrawBounds returns the bounds of minibatches that are sampled by kind neighbour or labor, for a
// model, with at most the given number of seeds, on a graph of the given size.
func DrawBounds(s sample.Spec, needs nn.Needs, seeds, vertices int,
	edges int64) compute.DrawOptions {
	limits, _ := s.Limits(seeds, vertices, edges)
	o := compute.DrawOptions{Seeds: limits.Vertices[0], SelfEdges: needs.SelfEdges,
		Weights: drawnWeights[needs.Weights], Grouped: needs.Aggregate != compute.NoReduction}
	for h, fanout := range s.Fanouts {
		o.Hops = append(o.Hops, compute.DrawnHops{Fanout: fanout, Destinations: limits.Vertices[h],
			Edges: limits.Edges[h], Sources: limits.Vertices[h+1],
			Transposed: h+1 < len(s.Fanouts) || needs.Transposed})
	}
	return o
}

// DrawnBytes estimates the device memory of the given number of minibatches under way, without the
// topology.
func DrawnBytes(o *compute.DrawOptions, minibatches int) int64 {
	// Drawings also share memory of 16 to 20 bytes an edge, about as much as two drawings have.
	const shared = 2
	return int64(minibatches+shared) * compute.DrawingBytes(o)
}

// drawnWeights maps the edge weights that a model needs to those that a device makes.
var drawnWeights = map[nn.Weighting]compute.DrawnWeights{nn.NoWeights: compute.DrawnUnweighted,
	nn.WeightsPlain: compute.DrawnPlain, nn.WeightsMean: compute.DrawnMean,
	nn.WeightsSymmetric: compute.DrawnSymmetric}
