package plan

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"halognn/src/base/trace"
	"halognn/src/data/shard"
	"halognn/src/model/nn"
	"halognn/src/model/task"
	"halognn/src/rows/access"
	"halognn/src/rows/exchange"
	"halognn/src/rows/policy"
	"halognn/src/step/job"
	"halognn/src/topology/sample"
)

// Bound says what a plan assumes about the edges of a graph if it knows only their number.
type Bound int

// The assumptions that a plan can make.
const (
	// An average case: neighbours are random vertices, and Options.Cut says how many of them are on
	// other nodes.
	Expected Bound = iota
	Least          // minibatches have no vertices but their seeds, and caches are empty
	Most           // no vertex is drawn twice, and all drawn vertices are on other nodes
)

// Bounds returns the least and the most memory of a rank, for shards that have only sizes (see
// shard.Sizes). It returns those errors of New that sizes are enough to find. It also returns an
// error for a job whose memory cannot be told from sizes, because that takes the parts.
func Bounds(s *shard.Shards, j Job) (least, most trace.Memory, err error) {
	if err := j.Trainable(s); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrParts, err)
	}
	if err := j.fill(s); err != nil {
		return nil, nil, err
	}
	if task.Stored(s.Task).Embeds {
		return nil, nil, fmt.Errorf("%w: a model of links needs the parts, because only they say "+
			"which links are seeds; give --parts", ErrJob)
	}
	l, err := job.New(s, j.Spec)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %s: %w", ErrParts, s.Dir, err)
	}
	defer l.Close()
	of := func(b Bound) (trace.Memory, error) {
		p := &planner{job: j.lay(l), options: &Options{Bound: b}, shards: s}
		// The number of the rank with the fewest vertices, and the number of the rank with the
		// most.
		fewest, most := 0, 0
		for rank := range j.Ranks {
			if n := p.rows(rank); n < p.rows(fewest) {
				fewest = rank
			} else if n > p.rows(most) {
				most = rank
			}
		}
		rank := fewest
		if b == Most {
			rank = most
		}
		r := p.sized(rank)
		p.ranks = []*rankPlan{r}
		p.join()
		t, err := p.sizedTraffic(r)
		if err != nil {
			return nil, err
		}
		return p.rankMemory(r, t, t.each(0, l.Minibatches()))
	}
	if least, err = of(Least); err != nil {
		return nil, nil, err
	}
	most, err = of(Most)
	return least, most, err
}

// sizedPlan does what plan does, for shards that have only sizes.
func (p *planner) sizedPlan() (*Prediction, error) {
	j := p.job
	if p.shares() || j.Mode.Columns || j.Partitioned || j.GPU != nil {
		return nil, fmt.Errorf("%w: without parts a plan needs parallel.mode=data, "+
			"topology.kind=replicated and compute.device=cpu; set these, or give --parts", ErrJob)
	}
	r := p.sized(0)
	p.ranks = []*rankPlan{r}
	t, err := p.sizedTraffic(r)
	if err != nil {
		return nil, err
	}
	out := &Prediction{
		Parts: p.shards.Dir, Ranks: j.Ranks, RanksPerNode: j.RanksPerNode, Exact: j.Exact,
		Analysed: 1,
		Steps:    j.Steps(), Minibatches: j.Minibatches(), Minibatch: p.minibatch(), Traffic: *t,
		MemoryHas: p.options.Memory, Rates: p.options.Rates, Sizes: true,
	}
	if out.Memory, err = p.rankMemory(r, t, t.each(0, j.Minibatches())); err != nil {
		return nil, err
	}
	out.MemoryRank, out.MemoryNode = out.Memory.Sum(), out.Memory.Node(j.RanksPerNode)
	if out.Rates.Network == 0 {
		out.Rates.Network, out.Rates.assumed = AssumedNetwork, true
	}
	out.Times.Remote = t.Busiest * p.bytesOf(t) / out.Rates.Network
	out.Gradients = p.gradientBytes()
	out.Times.Sync = p.syncSeconds(&out.Rates)
	out.Notes = append(out.Notes,
		fmt.Sprintf("the plan knows only the sizes of the graph. So neighbours are assumed to "+
			"be random vertices, and %.3g %% of the edges to go between nodes. Vertices of high "+
			"degree make real minibatches smaller", 100*p.options.Cut),
		"what a cache saves depends on the edges, so the rows are those without a cache. Only "+
			"from parts can the times of preparation and training be predicted; give --parts")
	if out.Rates.assumed {
		out.Notes = append(out.Notes,
			fmt.Sprintf("the rate of the network is not known, so %g GB/s a node is assumed; "+
				"give --network", out.Rates.Network/1e9))
	}
	return out, nil
}

// Own returns the items of memory that have no file behind them, so that the system cannot take
// their memory back.
func Own(m trace.Memory) trace.Memory {
	return slices.DeleteFunc(slices.Clone(m), func(i trace.MemoryItem) bool {
		return i.Name == trace.MemFeatures || i.Name == trace.MemTopology || i.Name == trace.MemIDs
	})
}

// Predictions is the name of the memory item of the predictions for all vertices.
const Predictions = "predictions"

// cures maps an item of memory to the settings that make it smaller.
var cures = map[string]string{
	trace.MemParameters:  "model.hidden, model.layers or model.heads",
	trace.MemActivations: "model.hidden, model.layers, sample.batch or sample.fanouts",
	trace.MemEvaluation: "model.hidden, model.layers or pipeline.depth, or set run.scratch_dir " +
		"to keep hidden rows in files",
	trace.MemMinibatches: "sample.batch, sample.fanouts or pipeline.depth",
	trace.MemSamplers:    "sample.batch, sample.fanouts or pipeline.workers",
	trace.MemWindow:      "cache.window", trace.MemCacheRows: "cache.alpha",
	trace.MemCacheIndex: "cache.alpha or cache.window",
	Predictions:         "the number of vertices (--vertices)",
	trace.MemHeap:       "pipeline.depth or cache.window", "threads": "compute.threads or " +
		"pipeline.workers",
}

// Largest returns the item that takes most memory on a node with the given number of ranks. It
// gives the item's bytes on the node, and the settings to lower.
func Largest(m trace.Memory, ranks int) (item trace.MemoryItem, cure string) {
	for _, i := range m {
		if i.Bytes = (trace.Memory{i}).Node(ranks); i.Bytes > item.Bytes {
			item = i
		}
	}
	return item, cmp.Or(cures[item.Name], "sample.batch, model.hidden or cache.alpha")
}

// sized does what look does, for shards that have only sizes.
func (p *planner) sized(rank int) *rankPlan {
	r := &rankPlan{rank: rank, reader: p.job.Workload(rank, p.job.Workers), factor: perKind{1}}
	seeds := p.job.Streams.MaxPiece()
	if p.options.Bound == Least {
		seeds = len(r.reader.Seeds()) / (p.job.Items() * p.groupSize())
	}
	s := p.sizedShape(p.job.Sample, rank, seeds)
	r.add(&s)
	r.remote = perKind{float64(s.remote)}
	if p.job.Eval.Hops() > 0 && p.options.Bound != Least {
		r.evaluated = p.sizedShape(p.job.Eval, rank, p.job.Streams.MaxPiece())
	}
	if p.options.Bound != Least && p.job.Reads() {
		r.sampler = min(4*p.shards.Vertices, 16*int64(s.frontier())) + 8*int64(s.numEdges())
	}
	return r
}

// sizedShape returns the shape of a minibatch of the given number of seeds, drawn by spec.
func (p *planner) sizedShape(spec sample.Spec, rank, seeds int) shape {
	n, all, bound := float64(p.shards.Vertices), float64(p.shards.Edges), p.options.Bound
	s := shape{seeds: seeds, hops: make([]hopShape, p.job.Model.Layers)}
	reads := p.job.Reads()
	// The variable at is the number of vertices of a hop, and own is the part of them that the
	// rank's node owns.
	at, own := float64(seeds), 1.0
	lo, hi := p.node(rank)
	back := p.options.Cut * float64(hi-lo) / max(1, float64(p.job.Ranks-(hi-lo)))
	for h := range p.job.Model.Layers {
		edges, sources := 0.0, at
		if reads && bound != Least {
			drawn, degree := math.Inf(1), all/n
			if !spec.HasFanouts() {
				sources, edges = at+float64(spec.Vertices[h]), at*degree
			} else if drawn = float64(spec.Fanouts[h]); drawn < 0 {
				drawn = math.Inf(1)
			}
			switch {
			case at == 0:
			case bound == Most:
				edges = min(all, at*drawn)
				sources = min(n, max(sources, at+edges))
			case spec.HasFanouts():
				edges = at * min(drawn, degree)
				sources = at + (n-at)*-math.Expm1(-edges/n)
			}
			now := own*(1-p.options.Cut) + (1-own)*min(1, back)
			own = (at*own + (sources-at)*now) / sources
		}
		s.hops[p.job.Model.Layers-1-h] = hopShape{sources: int(sources), destinations: int(at),
			edges: int(edges)}
		at = sources
	}
	switch least := bound == Least; {
	// no learned rows are read: the model has none, or seeds may be of a type without them
	case !p.job.Model.LearnsRows(), least && p.shards.Schema.Typed():
	case least: // the rank may own all learned rows that it reads
		s.kinds = []kindShape{{all: int(at)}}
	default:
		s.kinds = []kindShape{{all: int(at), foreign: int(at)}}
	}
	switch {
	case p.job.Ranks == p.job.RanksPerNode || !reads || bound == Least:
	case bound == Most:
		s.remote = int(at)
	default:
		s.remote = int(min(at*(1-own), n-float64(p.between(lo, hi))))
	}
	return s
}

// sizedTraffic returns the traffic of one rank, for shards that have only sizes. Which rows a cache
// saves depends on the edges, so the cache is assumed to save none.
func (p *planner) sizedTraffic(r *rankPlan) (*Traffic, error) {
	c, t := &p.job.Cache, &Traffic{Policy: p.job.Cache.Policy}
	kind := policy.Find(c.Policy)
	remote := r.remote.sum() * float64(p.job.Minibatches())
	t.received, t.gets = []float64{remote}, []float64{remote}
	t.Reads = remote * float64(p.job.Ranks)
	t.Rows, t.Busiest = t.Reads, remote*float64(p.job.RanksPerNode)
	t.Bytes = t.Rows * float64(p.shards.RowBytes())
	t.Factor = 1
	if kind.None() {
		return t, nil
	}
	others := p.shards.Vertices - p.rows(r.rank)
	t.Capacity = access.Capacity(c.Alpha, p.shards.Vertices, p.job.Ranks)
	if c.HaloFraction > 0 {
		t.Capacity = int(min(1, c.HaloFraction) * float64(others))
	}
	if p.options.Bound == Least && (kind.Static() || c.HaloFraction > 0) {
		t.Capacity = 0
	}
	held := int64(t.Capacity)
	if kind.Static() {
		held = min(held, others)
	}
	t.held = held * int64(p.shards.RowBytes())
	run := p.job.Items() * p.job.Epochs
	if kind.Window != nil {
		if t.Window = min(c.Window, run); c.Window == 0 && p.options.Bound != Least {
			waiting := int(p.sizedWaiting(&r.most, t))
			t.Window = min(run, access.WindowMemory/max(1, waiting))
		}
		if c.Window == 0 && p.options.Bound == Expected {
			t.Window = min(t.Window, usualWindow)
		}
	}
	if p.options.Bound != Least {
		remote := float64(p.sizedWanted(int64(math.Ceil(r.remote.sum()))))
		t.policyBytes = kind.Bytes(policy.Size{Vertices: p.shards.Vertices, Rows: held,
			Window: int64(t.Window), Uses: remote, Degrees: p.job.Partitioned})
	}
	return t, nil
}

// usualWindow is the window assumed for a look-ahead cache whose window is not set.
const usualWindow = 8

// sizedChunks does what chunks does, for shards that have only sizes. It returns one chunk that
// fills the budget with vertices of mean degree. With the bound Most there are two worst cases:
// each vertex may be a chunk of its own, and a chunk may have a vertex for each row of the budget.
func (p *planner) sizedChunks(rank int, budget int64) (c chunking) {
	first, end := p.job.Vertices(rank)
	degree := 1 + p.shards.Edges/max(1, p.shards.Vertices)
	if p.options.Bound == Least || first == end {
		return c
	}
	most := p.partEnd(first, end) - first
	vertices, n := min(most, max(1, budget/degree)), end-first
	if p.options.Bound == Most {
		vertices = min(most, max(1, budget))
	} else {
		n = (n + vertices - 1) / vertices
	}
	return chunking{some: [][2]int64{{first, first + vertices}}, rows: []int64{1}, of: int(n),
		budget: 1, slots: slices.Repeat([]int64{1}, int(min(int64(p.job.Depth+1), n)))}
}

// sizedEdges returns the number of edges into the vertices of a rank's group. A group has the given
// number of ranks. With the bound Expected the result is the mean. With Most or Least it is the
// maximum or minimum over the groups, because it is not known which group has the most edges. If a
// part is cut into pieces, any piece may have all edges of the part, or none.
func (p *planner) sizedEdges(rank, ranks int) int64 {
	vertices := func(rank int) (first, end int64) {
		first, _ = p.job.Vertices(rank)
		_, end = p.job.Vertices(min(rank+ranks, p.job.Ranks) - 1)
		return first, end
	}
	if p.options.Bound == Expected {
		first, end := vertices(rank / ranks * ranks)
		return int64(float64(p.shards.Edges) / float64(max(1,
			p.shards.Vertices)) * float64(end-first))
	}
	most, least, offsets := int64(0), p.shards.Edges, p.shards.Offsets
	// without the edges of each part, a group may have all edges or none
	if len(p.shards.Report.Parts) != p.shards.Parts {
		most, least = least, most
	}
	for rank := 0; rank < p.job.Ranks; rank += ranks {
		first, end := vertices(rank)
		touched, whole := int64(0), int64(0)
		k, _ := slices.BinarySearch(offsets, first)
		for k = max(0, k-1); k < len(p.shards.Report.Parts) && offsets[k] < end; k++ {
			edges := p.shards.Report.Parts[k].Edges
			if offsets[k+1] > first {
				touched += edges
			}
			if offsets[k] >= first && offsets[k+1] <= end {
				whole += edges
			}
		}
		most, least = max(most, touched), min(least, whole)
	}
	if p.options.Bound == Most {
		return most
	}
	return least
}

// mostNeighbours is the largest degree that a plan from sizes assumes. No known graph has a vertex
// of larger degree.
const mostNeighbours = 1 << 27

// held returns the bytes that minibatches take. The rank's trials have measured them or, for shards
// that have only sizes, they are estimated.
func (p *planner) held(r *rankPlan, t *Traffic, needs nn.Needs) (h heldBytes) {
	if r.trial != nil {
		return r.held()
	}
	slot := r.slot()
	waits := slot
	if t.Window > 0 {
		waits = &r.most
	}
	h.Waiting = p.sizedWaiting(waits, t)
	if !p.job.Cache.FromFiles() {
		h.Messages = p.sizedMessages(slot.remote, p.shards.RowBytes())
	}
	h.Lent = h.Messages + int64(slot.seeds)*int64(4+p.labelBytes())
	if !p.job.Sparse {
		h.Lent += p.inputRows(slot, needs)
	}
	_, foreign := slot.learned(p.job.Model.Learns)
	h.Choices = p.sizedUnion(slot.remote) + p.sizedUnion(int(foreign))
	if p.job.Model.EdgeIn > 0 {
		h.Choices += p.sizedUnion(slot.numEdges())
	}
	h.judged = h.TrialBytes
	if t.Window > 0 {
		h.judged.Waiting = p.sizedWaiting(r.judged(), t)
	}
	return h
}

// sizedMessages returns the bytes of ids and rows that a rank sends and receives for a minibatch.
// Other ranks are assumed to ask this rank for the same number of rows as it asks them for. If
// nodes fetch as one, the rank also fetches rows for the other ranks of its node and passes them
// on. It is assumed to fetch the same number of such rows as it reads. With the bound Most it
// fetches all rows that each of these ranks reads, and no two ranks read the same row.
func (p *planner) sizedMessages(rows, rowBytes int) int64 {
	return 2*int64(rows)*int64(rowBytes+exchange.IDBytes) + p.sizedPassing(rows, rowBytes)
}

// sizedPassing returns the bytes that sizedMessages adds where nodes fetch as one.
func (p *planner) sizedPassing(rows, rowBytes int) int64 {
	n, row := int64(rows), int64(rowBytes+exchange.IDBytes)
	if !p.job.FetchesAsNodes() {
		return 0
	}
	wanted := n
	if p.options.Bound == Most {
		wanted *= int64(p.job.RanksPerNode)
	}
	// The bytes for each row that the rank fetches for its node: 4 for the vertex, 8 for the place
	// where the row is received, 4 for its size, and at most 1 for bits, sent and received, that
	// say which ranks want it. If the ranks divide a cache, 8 more are for the place where a miss
	// is received.
	each := int64(4 + 8 + 4 + 1)
	if p.job.Divides(&p.job.Cache) {
		each += 8
	}
	return (3*wanted-n)*row + wanted*each
}

// sizedUnion returns the bytes of the table in which a rank finds the rows that several ranks of
// its node want. It has up to 4 slots a row, of 8 bytes each.
func (p *planner) sizedUnion(rows int) int64 {
	if p.options.Bound != Most || !p.job.FetchesAsNodes() {
		return 0
	}
	return 4 * 8 * int64(p.job.RanksPerNode) * int64(rows)
}

// sizedWanted returns how many rows a dynamic cache decides about for a minibatch. The rank reads
// the given number of rows. If the ranks of a node divide their caches, the cache decides about the
// rows that the node wants from this rank. This is assumed to be the same number. With the bound
// Most it is all rows that each rank of the node reads.
func (p *planner) sizedWanted(rows int64) int64 {
	if p.options.Bound == Most && p.job.Divides(&p.job.Cache) {
		return rows * int64(p.job.RanksPerNode)
	}
	return rows
}

// sizedWaiting returns the bytes of a sampled and planned minibatch that waits to be used.
func (p *planner) sizedWaiting(s *shape, t *Traffic) int64 {
	// For each vertex: its original id, the reference to its row, its part and its position.
	bytes := int64(s.frontier()) * (4 + 8 + 2 + 4)
	// ids of vertices; until the neighbours are numbered, there is room for every drawn neighbour
	ids := int64(s.frontier())
	if len(s.hops) > 0 && p.job.Reads() && p.job.Sample.HasFanouts() && !p.shares() {
		ids = min(int64(s.hops[0].destinations)+int64(s.hops[0].edges), p.shards.Vertices) + 1
	}
	bytes += 4 * ids
	needs := p.job.Model.Needs()
	for l, h := range s.hops {
		if !p.job.Reads() {
			break
		}
		edges := int64(h.edges)
		bytes += 8*int64(h.destinations+1) + 4*edges
		if needs.SelfEdges { // copies of the hop with one more edge for each destination
			edges = int64(p.layerEdges(h))
			bytes += 8*int64(h.destinations+1) + 4*edges
		}
		if l > 0 || needs.Transposed { // the transposed hop
			bytes += 8*int64(h.sources+1) + 8*edges
		}
		if needs.Weights != nn.NoWeights {
			bytes += 8 * edges
		}
		if needs.OfData || p.job.Model.Estimates {
			bytes += 4 * int64(h.edges)
		}
	}
	if t.dynamic() {
		wanted := p.sizedWanted(int64(s.remote))
		bytes += int64(s.remote)*4 + wanted*4 // ids of remote vertices, and slots of the cache
		// The ids that a pipeline slot keeps from its last use: those that the rank asked other
		// ranks for, and those that other ranks asked this rank for. Their numbers are assumed to
		// be equal.
		if t.Window > 0 {
			bytes += wanted * (4 + 4)
		}
		// Ids of the rows that the rank wants, and ids of the rows that its node wants from it: a
		// list as it came, and a list without repeats.
		if t.Window > 0 && p.job.Divides(&p.job.Cache) {
			bytes += int64(s.remote)*4 + wanted*(4+4)
		}
	}
	return bytes + p.sizedEdgeRows(s) + p.sizedLearned(s)
}

// fetchedBytes is the number of bytes that a fetched row takes besides its data. These are four
// times the row's id (as asked for and as wanted, each in two orders), its place, its part and its
// reference. The data counts twice, because it is sent and received.
const fetchedBytes = 4*4 + 4 + 2 + 8

// sizedEdgeRows returns the bytes of the feature rows of a minibatch's edges: the rows as they are
// fetched, and again in the order of the edges. If the model adds an edge from each vertex to
// itself, there is one more copy with the mean row of each destination.
func (p *planner) sizedEdgeRows(s *shape) int64 {
	row, edges, all := int64(4*p.job.Model.EdgeIn), int64(0), int64(0)
	if row == 0 {
		return 0
	}
	for _, h := range s.hops {
		edges, all = edges+int64(h.edges), all+int64(p.layerEdges(h))
	}
	if p.job.Model.Needs().SelfEdges {
		all += edges
	}
	return edges*(fetchedBytes+2*row+8) + all*row + p.sizedPassing(int(edges), int(row))
}

// sizedLearned returns the bytes of the learned rows of a minibatch. The rows of other ranks are
// fetched, early and late, and the gradients to send back are listed. The input layer reads rows or
// their means, and writes its gradient in the same place. There are also lists of the members of
// the means, and of what is added to the gradient of each row. With the bound Most there is a mean
// for each edge; with Least there are few means, and each row is in one of them.
func (p *planner) sizedLearned(s *shape) int64 {
	rows, foreign := s.learned(p.job.Model.Learns)
	row := int64(4 * p.job.Model.Learned)
	read, edges := rows, rows
	bytes := foreign * (2*(fetchedBytes+2*row) + 16)
	if p.job.FetchesAsNodes() { // by one plan for early rows, and one for late ones
		of := p.sizedMessages(int(foreign), int(row)) + foreign*(fetchedBytes+4+4)
		if bytes += of; p.job.Depth > 0 {
			bytes += of
		}
	}
	if rows > 0 && len(s.hops) > 0 && p.job.Model.Needs().Averages {
		h := s.hops[0]
		if read = 0; p.options.Bound != Least {
			edges = int64(p.layerEdges(h) + h.destinations)
			read = edges
		}
		bytes += 8*read + 4*edges + 4*rows
		// members of the sums that the rank asks for, and lists of members that other ranks ask for
		if p.job.LearnedSums() != nil && foreign > 0 {
			bytes += edges * (3*4 + 8 + 2*4)
		}
	}
	const listed = 4 + 4 + 8 + 4 // a row's id and place, the end of its list, and its segment
	return bytes + read*row + rows*listed + edges*(4+4)
}

// sizedChunk does what sampleChunk does, for shards that have only sizes.
func (p *planner) sizedChunk(rank, l int, c *chunk) {
	if !p.job.Reads() || c.vertices == 0 {
		c.hop = hopShape{sources: c.vertices, destinations: c.vertices}
		c.bytes = int64(c.vertices)*(4+4+8+2) + p.chunkRows(l, c.hop, p.job.Model.Needs())
		return
	}
	c.hop = p.sizedHop(rank, c.vertices, 1)
	passing := p.sizedHop(rank, c.vertices, int(min(int64(p.job.Depth+1), p.rows(rank))))
	of := shape{seeds: passing.destinations, hops: []hopShape{passing}}
	if p.job.Ranks > p.job.RanksPerNode {
		of.remote = int(p.options.Cut * float64(passing.sources))
	}
	if p.options.Bound == Most && p.job.Ranks > 1 {
		of.remote = passing.sources
	}
	moved, _ := p.job.Model.Widths(l)
	if moved *= 4; l == 0 {
		moved = p.widest()
		if p.job.Sparse {
			moved = p.shards.RowBytes()
		}
	}
	c.bytes = p.sizedWaiting(&of, &Traffic{}) + p.sizedMessages(of.remote, moved) +
		p.chunkRows(l, passing, p.job.Model.Needs())
	drawn := p.sizedHop(rank, c.vertices, int(p.chunkSamplers(p.rows(rank))))
	c.sampler = min(4*p.shards.Vertices, 16*int64(drawn.sources)) + 8*int64(drawn.edges)
}

// sizedHop returns the size of a chunk of the given number of vertices. A rank's slots, or its
// samplers, have room for n chunks at a time. With the bound Most, sizedHop returns the largest
// mean size of n chunks. No vertex is in two chunks, so n chunks together have at most the vertices
// and edges of the rank. The memory of a chunk grows no faster than its size, so n chunks take the
// most memory if all of them have the mean size.
func (p *planner) sizedHop(rank, vertices, n int) hopShape {
	edges := int(float64(vertices) * float64(p.shards.Edges) / float64(p.shards.Vertices))
	if p.options.Bound == Most {
		each := func(all int64) int64 { return (all + int64(n) - 1) / int64(n) }
		vertices = int(min(int64(vertices), each(p.rows(rank))))
		edges = int(min(each(p.sizedEdges(rank, 1)), mostNeighbours))
	}
	return hopShape{sources: min(int(p.shards.Vertices), vertices+edges), destinations: vertices,
		edges: edges}
}
