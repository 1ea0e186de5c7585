package plan

import (
	"math"
	"slices"

	"halognn/src/base/mem"
	"halognn/src/base/trace"
	"halognn/src/devices/compute"
	"halognn/src/model/nn"
	"halognn/src/model/task"
	"halognn/src/rows/policy"
	"halognn/src/step/job"
	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
)

// Memory that a rank needs in any job, measured on a run without data.
const (
	runtimeBytes = 43 << 20 // program, MPI and BLAS
	heapBytes    = 12 << 20 // the Go runtime: goroutines, communicators, memory not yet returned
	slotBytes    = 6 << 10  // bytes on the heap for a minibatch in preparation, without its arrays
	hopBytes     = 5 << 10  // further bytes on the heap for each layer of such a minibatch
)

// memory predicts the memory of the analysed rank that needs most, with traffic t.
func (p *planner) memory(t *Traffic) (trace.Memory, error) {
	var most trace.Memory
	for i, r := range p.ranks {
		m, err := p.rankMemory(r, t, t.each(i, p.job.Minibatches()))
		if err != nil {
			return nil, err
		}
		if most == nil || m.Sum() > most.Sum() {
			most = m
		}
	}
	return most, nil
}

// rankMemory predicts the memory of one rank, item by item. The argument `fetched` is the number of
// rows that the rank fetches for a minibatch.
func (p *planner) rankMemory(r *rankPlan, t *Traffic, fetched float64) (trace.Memory, error) {
	j, s := p.job, p.shards
	lo, hi := p.node(r.rank)
	if p.shares() {
		lo, hi = r.rank, r.rank+1
	}
	rowBytes, of := int64(s.RowBytes()), p.kinds()
	model, err := p.modelBytes(r)
	if err != nil {
		return nil, err
	}
	// share is the part of its remote rows that a minibatch fetches. It is below 1 only if the
	// cache is full from the first minibatch on, or knows the reads to come. It is 1 if the cache
	// fills during the run, because the first minibatches then fetch everything. It is also 1 if
	// the ranks of a node divide the cache, because rows in it are still passed on between them.
	// Without a cache all rows are fetched. Where ranks share minibatches, rows do not count as
	// traffic, so fetched cannot be used.
	share, cache := 1.0, policy.Find(t.Policy)
	if mean := meanVectors(r); mean > 0 && !cache.None() && (t.Window > 0 || cache.Static()) &&
		!j.Divides(&j.Cache) {
		share = min(1, fetched/mean)
	}
	resident, whole := 0.0, false
	if j.GPU != nil {
		rows, reads := p.resident(r, model.onDevice)
		_, more := p.cached(r, t, fetched, model.onDevice, rows)
		resident, whole = reads+more, j.Ranks == 1 && rows == p.shards.Vertices && !j.GPU.Mapped
		model.parameters -= model.onDevice
	}
	slot, held := r.slot(), p.held(r, t, model.needs)
	trained := p.untried(&r.most, resident, whole, model.needs)
	both := p.untried(slot, resident, whole, model.needs)
	messages := int64(share * float64(held.Messages))
	rest := held.Lent - held.Messages
	waiting, buffers := held.Waiting+trained.waiting, rest+messages+trained.buffers
	// Training and evaluation use the same slots of the pipeline. With a look-ahead cache, though,
	// training minibatches occupy the slots. Evaluation then has slots of its own, which use the
	// same buffers, and it fetches all rows.
	evaluated := max(0, both.buffers-trained.buffers)
	if t.Window > 0 {
		evaluated += max(0, held.judged.Lent-held.judged.Messages-rest) +
			max(0, held.judged.Messages-messages)
	} else {
		evaluated += held.judged.Waiting - held.Waiting + held.judged.Lent - held.judged.Messages -
			rest + int64(share*float64(held.judged.Messages)) - messages +
			max(0, both.waiting-trained.waiting)
	}
	first, _ := j.Vertices(lo)
	_, end := j.Vertices(hi - 1)
	cached, mapped := t.held, of.Within(first, end)
	shared := j.Cache.Shared() && !j.Divides(&j.Cache)
	if shared {
		cached *= int64(hi - lo)
	}
	if j.Cache.FromFiles() {
		mapped = s.Vertices * rowBytes
	}
	mapped += p.edgeRowBytes(lo, hi)
	slots, waits := p.filled(t.Window)
	judged := p.judgedMinibatches()
	// The number of slots that evaluate is an upper bound: an evaluation may use slots again that
	// an earlier evaluation has used.
	judging := min(slots, judged*int64(j.Evaluations))
	edges, ids := p.topologyBytes(r.rank)
	m := trace.Memory{
		{Name: trace.MemFeatures, Bytes: mapped + p.columnBytes(r.rank),
			Shared: !p.shares() && !j.Mode.Columns},
		{Name: trace.MemTopology, Bytes: edges, Shared: !j.Partitioned},
		{Name: trace.MemIDs, Bytes: ids, Shared: true},
		{Name: trace.MemSamplers,
			Bytes: int64(j.Workers)*(r.sampler+held.Choices) + held.Strategy +
				r.reader.Near.Bytes() + p.drawingBytes(slot, slots+waits)},
		{Name: trace.MemSeeds, Bytes: p.seedBytes(r)},
		{Name: trace.MemCacheRows, Bytes: cached, Shared: shared},
		{Name: trace.MemCacheIndex, Bytes: t.policyBytes},
		{Name: trace.MemWindow, Bytes: waits * waiting},
		{Name: trace.MemMinibatches, Bytes: slots*(waiting+buffers) + judging*evaluated},
		{Name: trace.MemParameters, Bytes: model.parameters + p.learnedBytes(r)},
		{Name: trace.MemActivations, Bytes: model.activations + model.scratch},
	}
	if j.GPU != nil {
		m[len(m)-1].Bytes = model.pinned
	}
	evaluation, err := p.evaluationBytes(r)
	if err != nil {
		return nil, err
	}
	if t.Window > 0 && j.Evaluations > 0 && p.options.Bound != Least {
		own := held.judged.Waiting + p.untried(r.judged(), resident, whole, model.needs).waiting
		evaluation = max(evaluation, min(int64(j.Depth+1), judged)*own)
	}
	return append(m, trace.Memory{
		{Name: trace.MemEvaluation, Bytes: evaluation},
		{Name: trace.MemHeap, Bytes: heapBytes +
			int64(j.Depth+1+t.Window)*int64(slotBytes+hopBytes*j.Model.Layers)},
		{Name: trace.MemRuntime, Bytes: runtimeBytes},
	}...), nil
}

// untried is the memory of a minibatch that no trial measures.
type untried struct {
	waiting int64 // bytes held from the time when the minibatch is sampled
	buffers int64 // bytes of the minibatch's rows, and of pinned memory for what goes to a GPU
}

// untried returns the untried memory of a minibatch of shape s. Of its rows, `resident` are on
// devices. If all rows of all minibatches are on devices, `whole` is true.
func (p *planner) untried(s *shape, resident float64, whole bool, needs nn.Needs) (u untried) {
	if p.shares() {
		u.waiting = p.askingBytes(s)
	}
	if p.job.Mode.Columns {
		u.waiting += p.joinedBytes(s)
	}
	u.buffers = p.sparseInputs(s, needs)
	if p.job.GPU != nil {
		up := p.onDevice(s, resident, needs)
		room := s.sent.room.all
		if whole {
			room = s.sent.room.onDevice
		}
		u.buffers += max(withRoom(up.blocks+up.inputs), int64(room))
	}
	return u
}

// filled returns the number of slots of a pipeline that ever get a minibatch, and the number of
// minibatches that wait in the window until the cache decides about them. Together they are no more
// than the minibatches of the run.
func (p *planner) filled(window int) (slots, waits int64) {
	all := p.job.Streams.Steps() * p.job.Minibatches() * p.job.Epochs
	slots = int64(min(p.job.Depth+1, all))
	return slots, min(int64(window), int64(all)-slots)
}

// judgedMinibatches returns the number of minibatches that a rank has in a sampled evaluation.
// Every rank has the same number. If ranks share minibatches, it is the number of the group with
// the most validation vertices. Otherwise a rank evaluates each of its parts by itself, and each
// part counts as the part with the most validation vertices. With the bound Most, every slot has a
// minibatch.
func (p *planner) judgedMinibatches() int64 {
	if p.options.Bound == Most {
		return int64(p.job.Depth + 1)
	}
	valid := func(part int) int { return len(p.shards.Valid(part)) }
	each, most := 1, 0.0
	if group := p.groupSize(); group > 1 {
		for rank := 0; rank < p.job.Ranks; rank += group {
			first, _ := p.job.Vertices(rank)
			_, last := p.job.Vertices(rank + group - 1)
			most = max(most, p.owned(first, last, valid))
		}
	} else {
		pieces := max(1, p.job.Ranks/p.shards.Parts)
		each = max(1, p.shards.Parts/p.job.Ranks)
		for k := range p.shards.Parts {
			most = max(most, float64(valid(k))/float64(pieces))
		}
	}
	return int64(each) * int64(math.Ceil(most/float64(p.job.MaxSeeds())))
}

// owned returns how many of some items belong to the vertices first to last-1. The function itemsOf
// returns the number of items of a part. If the range cuts a part, the part's items count in
// proportion to its vertices in the range.
func (p *planner) owned(first, last int64, itemsOf func(part int) int) (n float64) {
	for k := range p.shards.Parts {
		begin, end := p.shards.Offsets[k], p.shards.Offsets[k+1]
		if lo, hi := max(first, begin), min(last, end); lo < hi {
			n += float64(itemsOf(k)) * float64(hi-lo) / float64(end-begin)
		}
	}
	return n
}

// seedBytes returns the bytes of sample.Streams: the seeds of all streams, and two shuffled orders
// of the seeds that the rank draws from. These are its own seeds, or all seeds.
func (p *planner) seedBytes(r *rankPlan) int64 {
	all := int64(0)
	for k := range p.shards.Parts {
		all += int64(len(p.shards.Train(k)))
	}
	return 4 * (all + 2*int64(len(r.reader.Seeds())))
}

// drawingBytes returns the memory of the collectives that draw minibatches on a partitioned
// topology. At most `slots` minibatches are drawn at a time.
func (p *planner) drawingBytes(s *shape, slots int64) int64 {
	if p.shares() {
		return 0
	}
	j := p.job
	return min(slots, int64(j.Workers+2*j.Sample.Hops())) * p.askingBytes(s)
}

// layerEdges returns the number of edges of a hop that a layer reads.
func (p *planner) layerEdges(h hopShape) int {
	switch {
	case h.read > 0:
		return h.read
	case p.job.Model.Needs().SelfEdges:
		return h.edges + h.destinations
	}
	return h.edges
}

// hop returns a hop with the numbers that a layer reads of it.
func (p *planner) hop(h hopShape) nn.Hop {
	return nn.Hop{Sources: h.sources, Destinations: h.destinations, Edges: p.layerEdges(h),
		Rows: h.rows, PairRows: h.pairs}
}

// inputRows returns the bytes of the feature rows that the model reads of a minibatch.
func (p *planner) inputRows(s *shape, needs nn.Needs) int64 {
	if len(s.hops) == 0 {
		return 0
	}
	switch {
	// When an array with an entry for each row is too small, it grows by half. An array with an
	// entry for each column grows by an eighth. So the mean growth is 5/16.
	case p.multiplies():
		return p.sparseBytes(s.hops[0], needs) * 21 / 16
	// Nothing is counted here. Rows of vertex types are counted as uploads, and learned rows are
	// made by the step.
	case needs.Types, p.job.Model.LearnsRows():
		return 0
	}
	h, cols, _ := p.input(s)
	return h.inputRows(needs) * int64(cols*p.job.Stored.Size())
}

// sparseInputs returns the bytes that a host makes from the sparse rows of a minibatch for the
// input layer: the length of each row, the offset of each fetched row, and the input itself.
func (p *planner) sparseInputs(s *shape, needs nn.Needs) int64 {
	if !p.job.Sparse {
		return 0
	}
	ends := 4*int64(s.frontier()) + 8*int64(s.remote)
	if p.multiplies() {
		return ends + p.inputRows(s, needs)
	}
	// all rows are made dense first
	dense := ends + int64(s.frontier())*int64(4*p.job.Model.In)
	if p.job.GPU == nil {
		dense += p.inputRows(s, needs)
	}
	return dense
}

func (p *planner) labelBytes() int {
	return task.Stored(p.job.Model.Task).LabelBytes(p.job.Model.Out)
}

// modelBytes holds the bytes that package nn reserves for a model. A device that only counts has
// counted them.
type modelBytes struct {
	parameters, activations int64
	scratch                 int64 // bytes on a CPU in which weight gradients are summed
	partial                 int64 // bytes on a GPU for partial sums of weight gradients
	wide                    int64 // bytes on a GPU for products before they are stored rounded
	rounded                 int64 // bytes on a GPU for rounded factors of matrix products
	onDevice                int64 // bytes of parameters on the device
	pinned                  int64 // pinned bytes of rows between layers, on the host of a GPU
	needs                   nn.Needs
}

func (p *planner) modelBytes(r *rankPlan) (*modelBytes, error) {
	j := p.job
	dev := p.counter()
	m, err := nn.NewModel(dev, j.Model, j.Seed)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	p.parameters, p.unrounded = m.Params.Len(), m.Params.Exact(j.Model.Layers-1)
	out := &modelBytes{needs: m.Needs(), parameters: dev.live}
	if p.forward {
		err := p.reserveForward(m, &r.evaluated)
		out.activations = dev.live - out.parameters
		return out, err
	}
	optimizer, err := nn.NewOptimizer(dev, m.Params, j.Optimizer)
	if err != nil {
		return nil, err
	}
	defer optimizer.Close()
	// Copies of the parameters beside those in use: two for the best weights and for a gradient in
	// an allreduce. On rank 0 also those for a checkpoint: weights, best weights and the state of
	// the optimiser.
	copies := 2 + 2 + len(optimizer.Slots())
	out.onDevice = dev.live
	out.parameters = dev.live + int64(copies)*int64(m.Params.Len())*4
	before, columns := dev.live, int64(0)
	for l, h := range r.most.hops {
		in := nn.Input{Hop: p.hop(h), Train: true,
			Gradient: l > 0 || out.needs.Types || j.Model.LearnsRows()}
		in.Others, in.Partial = r.most.others(l), p.shares() && p.groupSize() > 1
		if l == 0 && out.needs.Aggregate != compute.NoReduction {
			in.Aggregate = p.aggregate(0, h.destinations, j.Mode.Columns)
		}
		if l == 0 && j.Mode.Columns {
			if columns, err = p.reserveColumns(m, r, &in); err != nil {
				return nil, err
			}
		}
		if err := p.reserveFolds(m, l, in, &h); err != nil {
			return nil, err
		}
	}
	if err := p.reserveForward(m, &r.evaluated); err != nil {
		return nil, err
	}
	moving, pinned := p.shuffleBytes(r)
	// host memory for the sums of all ranks or, later, the gradients of the sums
	if _, width := j.Model.Widths(0); j.Mode.Columns {
		own := j.Ranks * r.most.hops[0].destinations
		pinned = 4 * int64(width) * int64(r.slot().joined.destinations+own)
	}
	out.activations, out.pinned = dev.live-before+moving+columns, pinned
	if j.GPU != nil && j.GPU.Direct {
		out.pinned = 0
	}
	out.scratch = scratchBytes(m, r.most.hops, p.multiplies())
	if j.GPU != nil {
		slot := r.slot()
		out.partial = p.partialBytes(m, r.most.hops)
		out.wide = p.wideBytes(m, slot.hops, slot.kinds)
		out.rounded = p.roundedBytes(m, slot)
	}
	return out, nil
}

// aggregate returns an aggregate of the given rows, as layer l reads it if it is the input layer.
// If ranks make it from columns, `shared` is true.
func (p *planner) aggregate(l, rows int, shared bool) compute.Matrix {
	in, _ := p.job.Model.Widths(l)
	m := compute.Matrix{Rows: rows, Cols: in}
	if p.job.GPU != nil && p.job.Model.Needs().Joined && !shared && !(l == 0 && p.multiplies()) {
		m.Cols *= 2
	}
	return m
}

// reserveForward reserves the arrays of m for a minibatch that is only evaluated.
func (p *planner) reserveForward(m *nn.Model, s *shape) error {
	for l, h := range s.hops {
		in := nn.Input{Hop: p.hop(h)}
		in.Others = s.others(l)
		if l == 0 && m.Needs().Aggregate != compute.NoReduction {
			in.Aggregate = p.aggregate(0, h.destinations, p.job.Mode.Columns)
		}
		if err := p.reserveFolds(m, l, in, &h); err != nil {
			return err
		}
	}
	return nil
}

// reserveFolds does what reserve does, for both kinds of minibatches: one in which the input layer
// maps feature rows by its weights, and one in which it folds rows.
func (p *planner) reserveFolds(m *nn.Model, l int, in nn.Input, h *hopShape) error {
	if l > 0 || !h.folded || h.mapped {
		if err := p.reserve(m, l, &in); err != nil {
			return err
		}
	}
	if l > 0 || !h.folded {
		return nil
	}
	in.Folded, in.Gradient = true, false
	return p.reserve(m, l, &in)
}

// reserve reserves the arrays of m for layer l and the given input.
func (p *planner) reserve(m *nn.Model, l int, in *nn.Input) error {
	if l == 0 && p.multiplies() {
		if err := m.ReserveSparse(in); err != nil {
			return err
		}
	}
	return m.Reserve(l, in)
}

// scratchBytes returns the bytes that a CPU keeps to make the gradients of the weights: partial
// sums, the sums themselves and transposed weights. Each of these is as large as the layer that
// needs most. Weights that multiply sparse rows need none of them.
func scratchBytes(m *nn.Model, hops []hopShape, sparse bool) int64 {
	partial, weights := 0, 0
	for l, h := range hops {
		_, chunks := multiplied(m, h)
		all, largest := 0, 0
		for _, p := range m.Params.Layer(l) {
			if len(p.Shape) == 2 && !(sparse && l == 0 && p.Shape[1] == m.Config.In) {
				all, largest = all+p.Len(), max(largest, p.Len())
			}
		}
		// There are partial sums for ChunkWave chunks of one matrix, or for ChunkWave/2 chunks of
		// each of two matrices.
		partial = max(partial, min(compute.ChunkWave*largest, chunks*all))
		weights = max(weights, all)
	}
	floats := partial + 2*weights
	return int64(floats+floats/8) * 4 // mem.Grow reserves an eighth more
}

// multiplied returns the number of rows that a layer multiplies by its weights, and the number of
// chunks in which the gradients of these products are summed.
func multiplied(m *nn.Model, h hopShape) (rows, chunks int) {
	rows = h.destinations
	if m.Needs().Sources { // attention multiplies the rows of all sources
		rows = h.sources
	}
	return rows, (rows + compute.ChunkRows - 1) / compute.ChunkRows
}

// counter is a device that computes nothing and only counts bytes. Its arrays are addresses without
// memory behind them.
type counter struct {
	compute.Device
	compute.PairKernels
	is   compute.Capabilities
	live int64
}

// counter returns a counter that stores and rounds rows as the job's devices do.
func (p *planner) counter() *counter {
	c := &counter{is: compute.Capabilities{Stores: p.job.Stored}}
	if p.job.Stored == compute.BF16s {
		c.is.Precision = compute.PrecisionBF16
	}
	if p.job.GPU != nil {
		c.is.Pairs = c
	}
	return c
}

var _ compute.Counter = new(counter)

func (c *counter) Counts() {}

func (c *counter) Alloc(n int) ([]float32, error) {
	x, err := mem.Reserve[float32](n)
	if err == nil {
		c.live += int64(n) * 4
	}
	return x, err
}

func (c *counter) Free(x []float32) {
	c.live -= int64(len(x)) * 4
	mem.Unreserve(x)
}

func (c *counter) Upload(dst, src []float32)          {}
func (c *counter) Sync() error                        { return nil }
func (c *counter) Capabilities() compute.Capabilities { return c.is }

// evaluationBytes returns the bytes that the final test adds. It infers layer by layer over all own
// vertices, so it holds the rows of two layers, the chunks in flight, the logits of a chunk, and
// the logits of the validation and test vertices. If rows are in files, the rows that are read at a
// time count. If ranks hold columns, chunks take less than is counted here. What the model reserves
// on a GPU counts as device memory, not here.
func (p *planner) evaluationBytes(r *rankPlan) (bytes int64, err error) {
	j, rows, slot, trained := p.job, p.rows(r.rank), r.slot(), int64(0)
	if j.GPU == nil {
		if trained, err = p.inferenceBytes(slot, nil, 0); err != nil {
			return 0, err
		}
	}
	most, hops := int64(0), make([]hopShape, j.Model.Layers)
	for l := range hops {
		in, out := j.Model.Widths(l)
		of := p.chunks(r.rank, p.rowBytes(l))
		chunks, err := p.chunksHeld(r, l, of)
		if err != nil {
			return 0, err
		}
		largest, err := p.largestChunk(r, l, of)
		if err != nil {
			return 0, err
		}
		hops[l] = largest.hop
		inPlace := p.readsInPlace(l)
		if inPlace {
			chunks = p.spanBytes(rows, l, &largest)
			hops[l] = largest.hop
		}
		if j.GPU == nil {
			grown, err := p.inferenceBytes(slot, hops[:l+1], 0)
			if err != nil {
				return 0, err
			}
			chunks += grown - trained
		}
		if !inPlace {
			chunks += p.chunkSamplers(int64(of.of)) * largest.sampler
		}
		if l == j.Model.Layers-1 && !j.Model.Jumps() {
			chunks += 4 * int64(largest.vertices*out)
		}
		// The space for mapped rows of the destinations on their way from files, if the layer reads
		// these rows.
		if p.mapsFirst(l) && j.Scratch && j.GPU == nil {
			chunks += 4 * int64(largest.vertices*(j.Model.MappedColumns(l)-out))
		}
		// rows on the way to files and, if layers run in passes over columns, rows read back from
		// files
		if j.Scratch {
			to, from := 2*4*int64(largest.vertices*out), 4*4*int64(largest.vertices*in)
			chunks = max(chunks, from) + to
		}
		most = max(most, p.layerRows(rows, l)+chunks)
	}
	judged := 4 * p.judgedRows(r.rank) * int64(j.Model.Out)
	if !j.Model.Jumps() {
		return judged + most, nil
	}
	output := 4 * min(rows, int64(j.Model.OutputRows(job.ChunkBytes))) * int64(j.Model.Out)
	if p.keepsOutputs() {
		output = 4 * rows * int64(j.Model.Out)
	}
	if j.Scratch || p.storedRow(0) < 4*j.Model.Hidden {
		// memory for rows that are read from the files or widened to float32
		output += job.ChunkBytes
	}
	if !j.Scratch {
		output += rows * int64(j.Model.Layers*p.storedRow(0))
	}
	if j.GPU == nil {
		grown, err := p.inferenceBytes(slot, hops,
			min(int(rows), j.Model.OutputRows(job.ChunkBytes)))
		if err != nil {
			return 0, err
		}
		output += grown - trained
	}
	return judged + max(most, output), nil
}

// readsInPlace reports whether inference reads the rows of layer l where they are, without copying
// them.
func (p *planner) readsInPlace(l int) bool {
	j := p.job
	return j.GPU == nil && j.ReadsInPlace() && !p.shards.Schema.Typed() &&
		!(l == 0 && (p.shards.Type().IsSparse() || j.Model.LearnsRows()))
}

// spanBytes returns the largest number of bytes that one reduction of layer l takes: the aggregates
// and edges of the vertices that are reduced together. If the rows are not in memory in the
// device's type, it adds the vertices' own rows and the references to rows. The layer may also
// compute all these vertices together, so spanBytes enlarges the chunk `largest` to all of them.
func (p *planner) spanBytes(rows int64, l int, largest *chunk) int64 {
	cols, out := p.job.Model.Widths(l)
	size := p.job.Stored.Size()
	if p.mapsFirst(l) {
		cols, size = out, 4
	}
	vertices, edges := job.SpanOf(cols, job.ChunkBytes)
	n := min(rows, int64(max(vertices, largest.vertices)))
	e := min(p.shards.Edges, int64(max(edges, largest.hop.edges)))
	largest.vertices = int(n)
	largest.hop.destinations, largest.hop.sources = int(n), max(largest.hop.sources, int(n))
	bytes := n*int64(cols*size+8) + 4*e
	inMemory := l > 0 && !p.job.Scratch &&
		(p.mapsFirst(l) || p.job.Model.Stored(l-1, p.job.Stored) == p.job.Stored)
	if !inMemory {
		bytes += int64(largest.vertices * (cols*size + 8))
	}
	return bytes + bytes/8 // arrays grow by an eighth more than they need
}

// chunkSamplers returns how many samplers draw chunks if there are the given number of chunks.
func (p *planner) chunkSamplers(chunks int64) int64 { return min(int64(p.job.Workers), chunks) }

// judgedRows returns how many validation and test vertices a rank owns.
func (p *planner) judgedRows(rank int) int64 {
	first, last := p.job.Vertices(rank)
	return int64(p.owned(first, last, func(k int) int {
		return p.shards.Splits[k].Valid + p.shards.Splits[k].Test
	}))
}

// keepsOutputs reports whether inference keeps the outputs of all own vertices. It keeps
// embeddings, because links between any two vertices may be rated. It passes logits on chunk by
// chunk.
func (p *planner) keepsOutputs() bool { return task.Stored(p.job.Model.Task).Embeds }

// mapsFirst reports whether inference multiplies the rows that layer l reads by the weights before
// it adds them up.
func (p *planner) mapsFirst(l int) bool { return p.job.Model.MapsFirst(l) }

// layerRows returns the bytes of the rows in memory while layer l runs: those that it makes and
// those that it reads. With jumping knowledge the rows of all earlier layers count too, because the
// output reads the rows of every layer. Hidden rows in files take no memory.
func (p *planner) layerRows(rows int64, l int) int64 {
	m := &p.job.Model
	_, out := m.Widths(l)
	made, hidden := 0, 0
	switch {
	case l < m.Layers-1 || m.Jumps():
		hidden = p.hiddenRow(l)
	case p.keepsOutputs():
		made = 4 * out
	}
	if l > 0 {
		hidden += p.hiddenRow(l - 1)
	}
	if m.Jumps() && l > 1 {
		hidden += (l - 1) * p.hiddenRow(0)
	}
	if p.job.Scratch {
		hidden = 0
	}
	return rows * int64(made+hidden)
}

// hiddenRow returns the bytes that inference keeps for a row of hidden layer l. It keeps the row
// or, if the next layer maps rows first, the mapped row.
func (p *planner) hiddenRow(l int) int {
	if p.mapsFirst(l + 1) {
		return 4 * p.job.Model.MappedColumns(l+1)
	}
	return p.storedRow(l)
}

// storedRow returns the bytes of a row of hidden layer l.
func (p *planner) storedRow(l int) int {
	_, out := p.job.Model.Widths(l)
	return out * p.job.Model.Stored(l, p.job.Stored).Size()
}

// chunk is the size of a chunk of vertices in layer-wise inference.
type chunk struct {
	vertices int
	hop      hopShape
	bytes    int64 // bytes of the chunk with its rows, sampled and planned
	sent     sent  // bytes that go to a GPU for the chunk
	sampler  int64
}

// chunkRows returns the bytes of the input rows of layer l for a chunk.
func (p *planner) chunkRows(l int, chunk hopShape, needs nn.Needs) int64 {
	if l == 0 && p.multiplies() {
		return p.sparseBytes(chunk, needs)
	}
	in, out := p.job.Model.Widths(l)
	if p.mapsFirst(l) {
		return int64(4 * chunk.destinations * out)
	}
	return chunk.inputRows(needs) * int64(in*p.job.Stored.Size())
}

// inputRows returns the number of rows that a layer reads of a hop.
func (h hopShape) inputRows(needs nn.Needs) (rows int64) {
	if needs.Own {
		rows += int64(h.destinations)
	}
	if needs.Aggregate != compute.NoReduction {
		rows += int64(h.destinations)
	}
	if needs.Sources {
		rows += int64(h.sources)
	}
	return rows
}

// inferenceBytes returns the bytes that a model has reserved on a CPU after inference. It has
// inferred minibatches of the given shape, chunks of the given sizes in its first layers and,
// unless output is 0, an output of that number of rows. The layers share arrays. The layer with the
// most edges reserves first, so that each array gets its final size at once: an array that grows
// takes a quarter more, which is never written.
func (p *planner) inferenceBytes(minibatch *shape, chunks []hopShape, output int) (int64, error) {
	dev := p.counter()
	m, err := nn.NewModel(dev, p.job.Model, 0)
	if err != nil {
		return 0, err
	}
	defer m.Close()
	before, hops := dev.live, slices.Clone(minibatch.hops)
	order := make([]int, len(hops))
	for l := range hops {
		if order[l] = l; l < len(chunks) {
			hops[l].atLeast(&chunks[l])
		}
		if output > 0 {
			output = max(output, hops[l].destinations)
		}
	}
	if output > 0 {
		if err := m.ReserveOutput(output); err != nil {
			return 0, err
		}
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return p.layerEdges(hops[b]) - p.layerEdges(hops[a])
	})
	for _, l := range order {
		h := hops[l]
		if l < len(chunks) && p.mapsFirst(l) {
			if err := p.reserveMapped(m, l, chunks[l]); err != nil {
				return 0, err
			}
			h = minibatch.hops[l]
		}
		if l < len(chunks) && p.mapsFirst(l+1) {
			if err := m.ReserveMapped(l+1, chunks[l].destinations); err != nil {
				return 0, err
			}
		}
		in := nn.Input{Hop: p.hop(h)}
		if l >= len(chunks) && l == 0 && p.job.Mode.Columns {
			in.Shares = p.sums(h.destinations)
		}
		if m.Needs().Aggregate != compute.NoReduction {
			in.Aggregate = p.aggregate(l, 0, true)
		}
		if err := p.reserveFolds(m, l, in, &h); err != nil {
			return 0, err
		}
	}
	return dev.live - before, nil
}

// reserveMapped reserves the arrays of m for a chunk of layer l. The chunk's rows are multiplied by
// the weights before they are added up.
func (p *planner) reserveMapped(m *nn.Model, l int, chunk hopShape) error {
	_, out := p.job.Model.Widths(l)
	n := chunk.destinations
	return p.reserve(m, l, &nn.Input{Hop: nn.Hop{Sources: n, Destinations: n},
		Shares: []compute.Matrix{{Rows: n, Cols: out}}})
}

// largestChunk returns a chunk in which each number is the maximum over the sampled chunks of a
// layer.
func (p *planner) largestChunk(r *rankPlan, l int, of chunking) (largest chunk, err error) {
	for _, bounds := range of.some {
		c, err := p.chunk(r, l, bounds)
		if err != nil {
			return largest, err
		}
		largest.vertices = max(largest.vertices, c.vertices)
		largest.sampler = max(largest.sampler, c.sampler)
		largest.hop.atLeast(&c.hop)
		largest.sent.atLeast(c.sent)
	}
	return largest, nil
}

// rowBytes returns the bytes of a row that layer l reads. Full inference sets the size of chunks
// from it.
func (p *planner) rowBytes(l int) int {
	if l == 0 {
		return p.widest()
	}
	return p.storedRow(l - 1)
}

// chunk returns the size of the chunk of vertices bounds[0] to bounds[1]-1 with all neighbours, for
// layer l. Layers that read hidden rows of the same width share their chunks, so a chunk is sampled
// once.
func (p *planner) chunk(r *rankPlan, l int, bounds [2]int64) (chunk, error) {
	in, out := p.job.Model.Widths(l)
	if p.mapsFirst(l) {
		in = -out // another key, because the chunk's rows are narrower
	}
	key := [3]int64{int64(min(l, 1)), int64(in), bounds[0]}
	c, made := r.chunks[key]
	if made {
		return c, nil
	}
	c, err := p.sampleChunk(r, l, bounds)
	if r.chunks == nil {
		r.chunks = map[[3]int64]chunk{}
	}
	r.chunks[key] = c
	return c, err
}

// sampleChunk samples a chunk with all neighbours and returns its size.
func (p *planner) sampleChunk(r *rankPlan, l int, bounds [2]int64) (c chunk, err error) {
	c.vertices = int(bounds[1] - bounds[0])
	if !p.shards.HasTopology() || c.vertices == 0 {
		p.sizedChunk(r.rank, l, &c)
		return c, nil
	}
	t, err := p.newTrial(trialOf{rank: r.rank, layer: l})
	if err != nil {
		return c, err
	}
	defer t.close()
	seeds := consecutive(bounds[0], int64(c.vertices))
	var mb sample.Minibatch
	defer mb.Free()
	of := seedShape(1, c.vertices)
	if p.job.Reads() {
		s, err := sample.New(p.shards.Topology(), sample.Options{
			Spec: sample.Neighbours(
				sample.All), Workers: 1, MaxSeeds: c.vertices, ForwardOnly: true,
			Map:     p.vertexMap(),
			Weights: p.job.Model.EdgeWeights,
		})
		if err != nil {
			return c, err
		}
		defer s.Free()
		if err := s.Sample(&mb, seeds, sample.Key{}); err != nil {
			return c, err
		}
		of, c.sampler = shapeOf(&mb, nil), s.Bytes()
	}
	if err := t.prepare(&mb, seeds, sample.Key{}, false, &of); err != nil {
		return c, err
	}
	held := t.Bytes()
	c.hop, c.sent, c.bytes = of.hops[0], of.sent, held.Waiting+held.Strategy+held.Choices
	if needs := p.job.Model.Needs(); p.job.GPU != nil { // add the pinned memory of the chunk
		c.bytes += int64(c.sent.blocks+c.sent.types) + p.chunkRows(l, c.hop, needs)
	} else if l == 0 && p.job.Sparse {
		c.bytes += p.sparseInputs(&of, needs)
	}
	return c, nil
}

// chunking says how a rank's vertices are cut into chunks. The size of a chunk is counted in rows:
// one for each of its vertices and each of their in-edges.
type chunking struct {
	some [][2]int64 // first vertex and end of each chunk that the plan samples
	rows []int64    // rows of each sampled chunk
	of   int        // number of all chunks
	// largest number of rows of a chunk; a vertex with more rows is a chunk of its own
	budget int64
	slots  []int64 // rows of the largest chunk that passes through each slot of the pipeline
}

// chunksHeld returns the bytes of a layer's chunks that are under way. A slot of the pipeline keeps
// room for the largest chunk that has passed through it. How many bytes a row takes differs between
// the sampled chunks. If one chunk passes through a slot, a row is assumed to take their mean; the
// more chunks pass, the closer the assumption is to their maximum. Sampled chunks that are small
// beside the others are left out, because most of their bytes do not depend on their rows.
func (p *planner) chunksHeld(r *rankPlan, l int, c chunking) (bytes int64, err error) {
	// These are bytes of a row. A hub is a chunk of one vertex that exceeds the budget. The
	// variable most is the maximum over the sampled chunks that are no hubs, and sum is their sum.
	// First usual counts these chunks; later it is the estimate for one of them. The variable hub
	// is the maximum over the sampled hubs.
	most, sum, usual, hub := 0.0, 0.0, 0.0, 0.0
	// number of rows of the largest sampled chunk that is no hub
	largest := int64(0)
	for _, rows := range c.rows {
		if rows <= c.budget {
			largest = max(largest, rows)
		}
	}
	for i, bounds := range c.some {
		if c.rows[i] < largest/2 {
			continue
		}
		x, err := p.chunk(r, l, bounds)
		if err != nil {
			return 0, err
		}
		if each := float64(x.bytes) / float64(c.rows[i]); c.rows[i] > c.budget {
			hub = max(hub, each)
		} else {
			most, sum, usual = max(most, each), sum+each, usual+1
		}
	}
	turns := max(1, c.of/max(1, len(c.slots)))
	if usual > 0 {
		usual = most - (most-sum/usual)/float64(turns)
	}
	for _, rows := range c.slots {
		each := usual
		if rows > c.budget && hub > 0 || usual == 0 {
			each = hub
		}
		bytes += int64(each * float64(rows))
	}
	return bytes, nil
}

// chunkSize returns the number of rows of a chunk: its vertices and their in-edges.
func chunkSize(g *graph.CSC, of [2]int64) int64 {
	return of[1] - of[0] + g.Indptr[of[1]] - g.Indptr[of[0]]
}

// sampled returns the chunks that the plan samples. These are the first chunk, which has the most
// neighbours if vertices are sorted by degree; a chunk in the middle; the chunk with the most
// vertices; and the chunk with the most rows, because a vertex of high degree may be anywhere. If
// there are at most three chunks, it returns all.
func sampled(g *graph.CSC, all [][2]int64) [][2]int64 {
	if len(all) <= 3 {
		return all
	}
	most, longest := all[0], all[0]
	for _, of := range all {
		if of[1]-of[0] > most[1]-most[0] {
			most = of
		}
		if chunkSize(g, of) > chunkSize(g, longest) {
			longest = of
		}
	}
	some := [][2]int64{all[0], all[len(all)/2], most}
	if !slices.Contains(some, longest) {
		some = append(some, longest)
	}
	return some
}

// chunks returns how a rank's vertices are cut into chunks if a row has rowBytes bytes.
func (p *planner) chunks(rank, rowBytes int) (c chunking) {
	first, end := p.job.Vertices(rank)
	g, budget := &p.shards.Topology().Graph, int64(job.ChunkBytes/rowBytes)
	if !p.shards.HasTopology() {
		return p.sizedChunks(rank, budget)
	}
	var all [][2]int64
	c.budget, c.slots = budget, make([]int64, p.job.Depth+1)
	for lo := first; lo < end; {
		hi := g.NextChunk(lo, p.partEnd(lo, end), budget)
		all = append(all, [2]int64{lo, hi})
		slot := &c.slots[(len(all)-1)%len(c.slots)]
		*slot = max(*slot, chunkSize(g, [2]int64{lo, hi}))
		lo = hi
	}
	c.some, c.of = sampled(g, all), len(all)
	for _, of := range c.some {
		c.rows = append(c.rows, chunkSize(g, of))
	}
	return c
}

// partEnd returns the end of the part of vertex v, or `end` if that is smaller. No chunk spans two
// parts.
func (p *planner) partEnd(v, end int64) int64 {
	for _, next := range p.shards.Offsets {
		if next > v {
			return min(next, end)
		}
	}
	return end
}

// edgeRowBytes returns the bytes of the feature rows of edges that ranks lo to hi-1 map, if the
// model reads such rows. They are the rows of the edges into the ranks' vertices or, if rows are
// read from files, the rows of all edges.
func (p *planner) edgeRowBytes(lo, hi int) int64 {
	edges := p.shards.Edges
	switch {
	case p.job.Model.EdgeIn == 0:
		return 0
	case p.job.Cache.FromFiles():
	case p.shards.HasTopology():
		rows := p.shards.Topology().Graph.Indptr
		first, _ := p.job.Vertices(lo)
		_, end := p.job.Vertices(hi - 1)
		edges = rows[end] - rows[first]
	default:
		ranks := p.job.RanksPerNode
		if p.shares() {
			ranks = 1
		}
		edges = p.sizedEdges(lo, ranks)
	}
	return edges * int64(4*p.job.Model.EdgeIn)
}
