package plan

import (
	"fmt"

	"halognn/src/base/mem"
	"halognn/src/data/shard"
	"halognn/src/devices/compute"
	"halognn/src/model/nn"
	"halognn/src/rows/cache"
	"halognn/src/rows/exchange"
	"halognn/src/rows/policy"
	"halognn/src/step/parallel"
	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
)

// trial prepares minibatches as a rank of the job does, on a device that only counts bytes. So it
// measures the memory that the minibatches take.
type trial struct {
	*parallel.Trial
	device  *sender // counts what goes to a GPU; nil if the CPUs train
	related bool    // layers tell the relations of edges apart
	// Whether the numbers of a shape determine what a minibatch takes. If so, a minibatch that is
	// no larger than a prepared one need not be prepared.
	plain bool
	self  bool // layers read an edge from each vertex to itself
	// Numbers of the largest shape for which there is room so far. The key true is for trained
	// minibatches, the key false for all others.
	room    map[bool][]int
	closers mem.Closers
}

// trialOf says which minibatches a trial runs.
type trialOf struct {
	rank  int
	train bool
	layer int // the layer that runs, in inference layer by layer; -1 if all layers run
}

// newTrial opens a trial, which the caller must close. After an error it is closed already.
func (p *planner) newTrial(of trialOf) (t *trial, err error) {
	j := p.job
	needs := j.Model.Needs()
	t = &trial{related: needs.Relations != nn.NoRelations, self: needs.SelfEdges,
		room: map[bool][]int{}}
	// Late rows that a node fetches have buffers of their own, whose sizes depend on earlier
	// minibatches.
	apart := j.Model.LearnsRows() && j.FetchesAsNodes()
	t.plain = !t.related && j.GPU == nil && j.OwnersSums() == nil && !needs.EdgeRows && !apart
	defer func() {
		if err != nil {
			t.close()
		}
	}()
	var device compute.Device = p.counter()
	if j.GPU != nil {
		t.device = &sender{stored: j.Stored, mapped: j.GPU.Mapped}
		device = t.device
	}
	model, err := nn.NewModel(p.counter(), j.Model, j.Seed)
	if err != nil {
		return t, err
	}
	t.closers = append(t.closers, func() error { model.Close(); return nil })
	spec := j.Sample
	if of.layer >= 0 && j.Reads() {
		spec = sample.Neighbours(sample.All)
	}
	o := parallel.TrialOptions{Rank: of.rank, Layer: of.layer,
		Unmade: j.Sparse && of.layer <= 0 && j.GPU == nil,
		Options: parallel.Options{Device: device, Model: model,
			Drawing: parallel.Drawing{Topology: p.shards.Topology(), Sample: spec,
				Rows: j.Offsets()},
			// a rank holds 1/K of the columns for K minibatches, which is the same size as all
			// columns for one
			Reading: parallel.Reading{Cols: j.Model.In}}}
	if of.train {
		o.Eval, o.Depth, o.Labels = j.Eval, j.Depth, p.shards.Labels()
		o.GroupSize, o.Serving = p.groupSize(), p.relays()
		// in other modes the sizes of minibatches are not bounded in advance
		if !p.shares() && !j.Mode.Columns {
			o.MaxSeeds = j.MaxSeeds()
			o.Edges, o.Here = p.shards.Edges, len(j.Neighbours(of.rank))
		}
	}
	if kind := policy.Find(j.Cache.Policy); of.train && !kind.Static() {
		o.Policy = missing{}
		if kind.Window != nil {
			o.Ahead = 1
		}
	}
	return t, p.openRows(t, of, &o)
}

// openRows opens the exchanges through which a trial plans to fetch rows.
func (p *planner) openRows(t *trial, of trialOf, o *parallel.TrialOptions) (err error) {
	j, needs := p.job, p.job.Model.Needs()
	kinds, here, sums := j.ReadRows(), p.inMemory(of), j.OwnersSums()
	for k, learned := range j.LearnedKinds() {
		// if nothing is trained, learned rows are read like feature rows
		if learned.Cols > 0 && !of.train {
			kinds[k] = learned
		}
	}
	if of.layer > 0 {
		in, out := j.Model.Widths(of.layer)
		kind := exchange.Kind{Cols: in, Type: j.Model.Stored(of.layer-1, p.job.Stored).DType()}
		if o.Mapped = p.mapsFirst(of.layer); o.Mapped {
			kind = exchange.Kind{Cols: out, Type: compute.Float32}
		}
		kinds = []exchange.Kind{kind}
	}
	open := func(x *exchange.Exchange, err error) (*exchange.Exchange, error) {
		if err == nil {
			t.closers = append(t.closers, func() error { x.Free(); return nil })
		}
		return x, err
	}
	if o.Exchange, err = open(j.ExchangeOf(of.rank, kinds, here, sums)); err != nil {
		return err
	}
	if j.FetchesAsNodes() {
		o.Exchange.PlanNodes(j.NodeOf(), of.train && j.Divides(&j.Cache))
	}
	if of.layer > 0 {
		o.Cols = kinds[0].Cols
	}
	if needs.EdgeRows {
		if err := shard.CheckEdgeRows(p.shards); err != nil {
			return fmt.Errorf("%w: %w", ErrParts, err)
		}
		if o.EdgeExchange, err = open(j.EdgeExchange(of.rank)); err != nil {
			return err
		}
		o.EdgeCols = j.Model.EdgeIn
		if j.FetchesAsNodes() {
			o.EdgeExchange.PlanNodes(j.NodeOf(), false)
		}
	}
	if of.train && j.Model.LearnsRows() {
		o.Learned.Rows = &nn.Learned{Cols: j.Model.Learned}
		all := []**exchange.Exchange{&o.Learned.Ask, &o.Learned.Move}
		if j.FetchesAsNodes() {
			all = append(all, &o.Learned.NodesAsk, &o.Learned.NodesMove)
		}
		for i, x := range all {
			if *x, err = open(j.LearnedExchange(of.rank, i >= 2)); err != nil {
				return err
			}
		}
	}
	if t.Trial, err = parallel.NewTrial(*o); err != nil {
		return fmt.Errorf("%w: %w", ErrJob, err)
	}
	return nil
}

// inMemory returns the ranks whose rows the rank of the trial reads from memory, without fetching
// them.
func (p *planner) inMemory(of trialOf) []int {
	j := p.job
	all := make([]int, j.Ranks)
	for r := range all {
		all[r] = r
	}
	switch own := all[of.rank : of.rank+1]; {
	case of.layer > 0:
		return own
	// no rows are fetched: they are read from files, or the rank holds its columns of all rows
	case j.Cache.FromFiles(), of.layer < 0 && j.Mode.Columns:
		return all
	case p.shares(), j.Model.LearnsRows() && !p.shards.Schema.Typed():
		return own // even the rows of the other ranks of the node are fetched
	}
	return j.Neighbours(of.rank)
}

// close frees the memory. It may be called on nil.
func (t *trial) close() {
	if t == nil {
		return
	}
	if t.Trial != nil {
		_ = t.Trial.Close() // Close cannot fail, because the trial has sent nothing
	}
	_ = t.closers.Close()
}

// prepare prepares a sampled minibatch and completes its shape. It does not prepare the minibatch
// if the trial is plain and has room for it, because then no array would grow.
func (t *trial) prepare(mb *sample.Minibatch, seeds []graph.VertexID, key sample.Key, train bool,
	s *shape) error {
	if t.plain && t.hasRoom(s, train) {
		s.vectors = s.remote
		for l := range s.hops {
			h := &s.hops[l]
			if h.read = h.edges; t.self {
				h.read += h.destinations
			}
		}
		return nil
	}
	if err := t.Prepare(mb, seeds, key, train); err != nil {
		return err
	}
	for l, h := range t.Hops() {
		s.hops[l].reads(&h, t.related)
	}
	if t.device != nil {
		s.sent = t.device.sent
	}
	s.vectors = t.Vectors()
	s.edgeRows, s.edgeBytes = t.EdgeRows()
	if train {
		s.learns.vectors, s.learns.sums, s.learns.ids = t.Learned()
	}
	return nil
}

// hasRoom reports whether the arrays have room for each number of a shape. If not, it raises the
// room to what the arrays have after such a minibatch is prepared. That is an eighth more than the
// numbers, because mem.Grow reserves an eighth more.
func (t *trial) hasRoom(s *shape, train bool) bool {
	numbers, room := s.numbers(), t.room[train]
	if room == nil {
		room = make([]int, len(numbers))
		t.room[train] = room
	}
	has := true
	for i, n := range numbers {
		if n > room[i] {
			room[i], has = n+n/8, false
		}
	}
	return has
}

// reads notes what a layer reads of a hop. If the layer treats relations separately, `related` is
// true.
func (h *hopShape) reads(of *nn.Hop, related bool) {
	if h.read = of.Edges; related {
		h.rows, h.pairs = of.Forward.Len(), of.Pairs.Len()
		for _, ends := range [][]int32{of.Ends, of.OwnEnds, of.PairEnds} {
			h.tiles = max(h.tiles, compute.GroupTiles(ends))
		}
		h.folded, h.mapped = of.Folded, !of.Folded
	}
}

// heldBytes holds the memory of a rank's minibatches, and of what fetches their rows. TrialBytes is
// the memory of pipeline slots after training. The field judged has the memory of slots after
// evaluation: of the same slots or, with a look-ahead cache, of slots that only evaluate.
type heldBytes struct {
	parallel.TrialBytes
	judged parallel.TrialBytes
}

// held returns what the minibatches in the trials of a rank take.
func (r *rankPlan) held() heldBytes {
	h := heldBytes{r.trial.Bytes(), r.trial.Bytes()}
	if r.evaluator != nil {
		h.judged = r.evaluator.Bytes()
	} else if r.trained != nil {
		h.TrialBytes = *r.trained
	}
	h.Strategy, h.Choices = max(h.Strategy, h.judged.Strategy), max(h.Choices, h.judged.Choices)
	return h
}

// missing is a cache that holds no rows, so every read is a miss.
type missing struct{ cache.Policy }

func (missing) Feed([]graph.VertexID, []uint8) {}

func (missing) Step(remote []graph.VertexID, d *cache.Decision) {
	d.Clear()
	d.Slot = mem.Grow(d.Slot[:0], len(remote))
	for i := range d.Slot {
		d.Slot[i] = -1
	}
	d.Misses = len(remote)
}

// sent counts the bytes of a minibatch that go to a GPU, without its input rows.
type sent struct {
	blocks int // bytes of edges, vertices and labels
	types  int // bytes of the rows that the host makes for each vertex type
	room   room
}

// room is the pinned memory for the largest minibatch of the same kind as a given one; 0 if it is
// not known. It is known for rows anywhere (`all`), and for the case that all rows are on the
// device (`onDevice`).
type room struct{ all, onDevice int }

func (r *room) atLeast(o room) {
	r.all, r.onDevice = max(r.all, o.all), max(r.onDevice, o.onDevice)
}

func (s *sent) atLeast(o sent) {
	s.blocks, s.types = max(s.blocks, o.blocks), max(s.types, o.types)
	s.room.atLeast(o.room)
}

// sender is a GPU that computes nothing. It only counts what is sent to it.
type sender struct {
	compute.Accelerator
	stored compute.Elements
	// whether the GPU reads the rows that are not resident in place, in host memory, so that they
	// are never copied to it
	mapped bool
	sent   sent
	room   room
}

func (d *sender) Capabilities() compute.Capabilities { return compute.Capabilities{Accelerator: d} }

func (d *sender) NewStagingBuffer(compute.Host, bool) compute.StagingBuffer {
	return staging{device: d}
}

// staging is the staging buffer of a sender.
type staging struct {
	compute.StagingBuffer
	device *sender
}

// Send implements compute.StagingBuffer.
func (b staging) Send(in *compute.Inputs) error {
	n, types := len(in.Labels), 0
	for _, s := range in.Segments {
		n += 8*len(s.Indptr) + 4*(len(s.Indices)+len(s.Edges))
	}
	for _, w := range in.Weights {
		n += 4 * len(w)
	}
	for _, v := range in.Vertices {
		n += 4 * len(v)
	}
	for i := range in.Types {
		types += in.Types[i].Len() * in.Types[i].Cols * b.device.stored.Size()
	}
	b.device.sent = sent{blocks: n, types: types, room: b.device.room}
	return nil
}

// Reserve implements compute.StagingBuffer.
func (b staging) Reserve(in *compute.Inputs, g compute.Growth, most int) error {
	at := compute.RowsAnywhere
	if b.device.mapped {
		at = compute.RowsInPlace
	}
	stored := b.device.stored
	b.device.room = room{in.PinnedRoom(g, stored, at, most),
		in.PinnedRoom(g, stored, compute.RowsOnDevice, most)}
	return nil
}

func (staging) Close() error       { return nil }
func (staging) Free() error        { return nil }
func (staging) PinnedBytes() int64 { return 0 }
