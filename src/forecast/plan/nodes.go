package plan

import (
	"fmt"
	"slices"

	"halognn/src/base/mem"
	"halognn/src/rows/access"
	"halognn/src/rows/cache"
	"halognn/src/rows/exchange"
	"halognn/src/rows/policy"
	"halognn/src/step/parallel"
	"halognn/src/topology/graph"
)

// nodeShares maps the first rank of a node to the node's share for each kind of rows. A share is
// the number of rows that the node fetches as one, divided by the number that its ranks would fetch
// for themselves.
type nodeShares map[int]perKind

// rankShares returns the shares of the node of rank r. The settings c give the capacity of one
// rank's cache. If the flag `sums` is true, owners send sums in place of some rows, and the shares
// are for the other rows. If it is false, owners send only rows.
func (n *nodeShares) rankShares(p *planner, r *rankPlan, c *policy.Settings,
	sums bool) (perKind, error) {
	if *n == nil {
		*n = nodeShares{}
	}
	lo, hi := p.node(r.rank)
	share := (*n)[lo]
	if share != nil {
		return share, nil
	}
	of := p.nodeShare
	if sums {
		of = p.sumsShare
	}
	share, err := of(lo, hi, c)
	(*n)[lo] = share
	return share, err
}

// sumsShare computes the shares of a node of ranks [lo,hi) if owners sum rows. It counts the rows
// that travel besides sums, over some minibatches of each rank.
func (p *planner) sumsShare(lo, hi int, c *policy.Settings) (perKind, error) {
	each := make([]*accesses, hi-lo)
	defer func() {
		for _, a := range each {
			if a != nil {
				a.free()
			}
		}
	}()
	place, err := p.sharedPlace(lo, c)
	if err != nil {
		return nil, err
	}
	defer place.free()
	steps := summedSteps
	for rank := lo; rank < hi; rank++ {
		r, own, err := p.analysedOr(rank)
		if err != nil {
			return nil, err
		}
		device, err := p.holds(r, c, place)
		if err == nil {
			steps = min(steps, p.traceSteps(r, hi-lo))
			each[rank-lo], _, err = p.travelling(r, steps, device)
		}
		if place == nil {
			mem.Free(device)
		}
		if own {
			r.free()
		}
		if err != nil {
			return nil, err
		}
	}
	var w wanted
	defer w.free()
	w.unite(each, -1, steps, int(p.shards.Vertices))
	of, share, alone := p.kinds(), p.same(0), p.same(0)
	for i, v := range w.ids {
		share[of.Of(v)]++
		alone[of.Of(v)] += float64(w.by[i])
	}
	return share.over(alone), nil
}

// held has, for each vertex, the number within the node of the rank that caches it, or -1.
type held []int16

func (h held) free() { mem.Free(h) }

// sharedPlace returns which rank of the node caches which vertex, if the ranks of a node divide
// their caches. It returns nil if each rank has a cache of its own.
func (p *planner) sharedPlace(lo int, c *policy.Settings) (held, error) {
	kind := policy.Find(c.Policy)
	if !c.Shared() || kind.None() {
		return nil, nil
	}
	ranks := p.job.Neighbours(lo)
	score, err := p.nodeScore(kind, ranks)
	if err != nil {
		return nil, err
	}
	capacity, err := p.capacity(&rankPlan{rank: lo}, c)
	if err != nil {
		return nil, err
	}
	place, err := c.Place(score, p.job.Owned(ranks), capacity)
	if err != nil {
		return nil, err
	}
	defer place.Free()
	device, slot := place.Lookup(0)
	mem.Free(slot)
	return device, nil
}

// holds returns which vertices a rank finds in caches. If place is not nil, this is place.
// Otherwise the rank is assumed to cache the vertices that it reads most, as many as its cache
// holds. The result is nil if there is no cache.
func (p *planner) holds(r *rankPlan, c *policy.Settings, place held) (held, error) {
	if place != nil || policy.Find(c.Policy).None() {
		return place, nil
	}
	capacity, err := p.capacity(r, c)
	if err != nil {
		return nil, err
	}
	best, err := p.graph.Best(r.read, r.reader, capacity)
	if err != nil {
		return nil, err
	}
	defer mem.Free(best)
	device := mem.Make[int16](int(p.shards.Vertices))
	for v := range device {
		device[v] = -1
	}
	for _, v := range best {
		device[v] = 0
	}
	return device, nil
}

// analysedOr returns the analysis of a rank. If the rank is not among the analysed ones, it
// analyses the rank; the result own is then true, and the caller frees the analysis.
func (p *planner) analysedOr(rank int) (r *rankPlan, own bool, err error) {
	i := slices.IndexFunc(p.ranks, func(r *rankPlan) bool { return r.rank == rank })
	if i >= 0 {
		return p.ranks[i], false, nil
	}
	r = &rankPlan{rank: rank, reader: p.job.Workload(rank, p.job.Workers)}
	if err = p.readBy(r); err != nil {
		r.free()
		return nil, false, err
	}
	return r, true, nil
}

// shareOthers sets edgesOnce and learnedOnce. If the node fetches as one, a rank fetches only a
// part of the rows of edges and of the learned rows that it reads; these numbers are that part. It
// samples the probes for all ranks of the node.
func (p *planner) shareOthers(r *rankPlan) error {
	r.edgesOnce, r.learnedOnce = 1, 1
	m, t := &p.job.Model, p.shards.Topology()
	if !p.job.FetchesAsNodes() || !p.job.Reads() || m.EdgeIn == 0 && !m.LearnsRows() {
		return nil
	}
	lo, hi := p.node(r.rank)
	first, _ := p.job.Vertices(lo)
	_, end := p.job.Vertices(hi - 1)
	n := len(r.probes)
	edges, learned := make([][]graph.VertexID, n), make([][]graph.VertexID, n)
	near := 0 // learned rows of this node's ranks, which each rank fetches for itself
	var positions []graph.VertexID
	defer func() { mem.Free(positions) }()
	for rank := lo; rank < hi; rank++ {
		reader := p.job.Workload(rank, p.job.Workers)
		replay, err := reader.Replay(t, p.samplerOptions(reader.Near))
		if err != nil {
			return err
		}
		defer replay.Free()
		var counter *parallel.LearnedCounter
		if m.LearnsRows() {
			x, err := p.job.LearnedExchange(rank, false)
			if err != nil {
				return err
			}
			counter = parallel.NewLearnedCounter(*m, t, x)
			defer counter.Free()
		}
		for i := range n {
			if _, err := replay.SampleItem(1, p.scattered(i)); err != nil {
				return fmt.Errorf("sampling: %w", err)
			}
			mb := &replay.Minibatch
			if m.EdgeIn > 0 {
				if positions, err = parallel.EdgePositions(positions, mb, t); err != nil {
					return err
				}
				slices.Sort(positions)
				for _, e := range slices.Compact(positions) {
					if int64(e) < t.Graph.Indptr[first] || int64(e) >= t.Graph.Indptr[end] {
						edges[i] = append(edges[i], e)
					}
				}
			}
			if counter == nil {
				continue
			}
			if _, err := counter.Count(mb); err != nil {
				return err
			}
			for v := range counter.Rows() {
				if int64(v) < first || int64(v) >= end {
					learned[i] = append(learned[i], v)
				} else {
					near++
				}
			}
		}
	}
	r.edgesOnce, r.learnedOnce = onceOf(edges, 0), onceOf(learned, near)
	return nil
}

// onceOf returns the number of fetched rows divided by the number of read rows. A row is read as
// often as the lists have it. It is fetched once for each list that has it. There are `near`
// further reads of all ranks, each of which is also a fetch.
func onceOf(lists [][]graph.VertexID, near int) float64 {
	once, all := near, near
	for _, ids := range lists {
		all += len(ids)
		slices.Sort(ids)
		once += len(slices.Compact(ids))
	}
	if all == 0 {
		return 1
	}
	return float64(once) / float64(all)
}

// nodeShare computes the shares of a node of ranks [lo,hi). Let q(r) be the probability that rank r
// has to fetch a vertex. It is the probability that a minibatch reads the vertex, or 0 if the cache
// has it. The node fetches the vertex once with probability 1 - prod(1 - q), while its ranks on
// their own would fetch it sum(q) times. The cache is assumed to have the vertices that the rank
// reads most or, if ranks share their caches, that they all read most. What a dynamic cache keeps
// is not known: it is treated as a static cache of the same size.
func (p *planner) nodeShare(lo, hi int, c *policy.Settings) (perKind, error) {
	if !p.job.Reads() { // minibatches have no vertices but their seeds, so no row is remote
		return p.same(1), nil
	}
	n := int(p.shards.Vertices)
	// for each vertex, asNode has 1 - prod(1 - q), and asRanks has sum(q)
	asNode, asRanks := mem.Make[float32](n), mem.Make[float32](n)
	defer func() { mem.Free(asNode); mem.Free(asRanks) }()
	for rank := lo; rank < hi; rank++ {
		if err := p.addReads(rank, c, asNode, asRanks); err != nil {
			return nil, err
		}
	}
	local := p.job.Local(lo)
	for _, r := range local {
		clear(asNode[r.First:r.End])
		clear(asRanks[r.First:r.End])
	}
	if c.Shared() && !policy.Find(c.Policy).None() {
		capacity, err := p.capacity(&rankPlan{rank: lo}, c)
		if err != nil {
			return nil, err
		}
		place, err := c.Place(asRanks, p.job.Owned(p.job.Neighbours(lo)), capacity)
		if err != nil {
			return nil, err
		}
		defer place.Free()
		device, slot := place.Lookup(0)
		defer func() { mem.Free(device); mem.Free(slot) }()
		for v, d := range device {
			if d >= 0 {
				asNode[v], asRanks[v] = 0, 0
			}
		}
	}
	of, share, alone := p.kinds(), p.same(0), p.same(0)
	for v, q := range asRanks {
		if q > 0 {
			kind := of.Of(graph.VertexID(v))
			share[kind] += float64(asNode[v])
			alone[kind] += float64(q)
		}
	}
	return share.over(alone), nil
}

// over divides each number of k by the same number of alone. The quotient is 1 where alone has 0.
func (k perKind) over(alone perKind) perKind {
	for kind := range k {
		if alone[kind] == 0 {
			alone[kind], k[kind] = 1, 1
		}
		k[kind] /= alone[kind]
	}
	return k
}

// addReads adds the probabilities q of one rank to the arrays of nodeShare.
func (p *planner) addReads(rank int, c *policy.Settings, asNode, asRanks []float32) error {
	r := &rankPlan{rank: rank, reader: p.job.Workload(rank, p.job.Workers)}
	if i := slices.IndexFunc(p.ranks, func(r *rankPlan) bool { return r.rank == rank }); i >= 0 {
		r = p.ranks[i]
	} else {
		defer r.free()
		if err := p.readBy(r); err != nil {
			return err
		}
	}
	var held []graph.VertexID // vertices in the cache, ascending
	if !c.Shared() && !policy.Find(c.Policy).None() {
		capacity, err := p.capacity(r, c)
		if err != nil {
			return err
		}
		if held, err = p.graph.Best(r.read, r.reader, capacity); err != nil {
			return err
		}
		defer mem.Free(held)
	}
	next := held
	for v, q := range r.read {
		if len(next) > 0 && int(next[0]) == v {
			next = next[1:]
			continue
		}
		asNode[v] += q - asNode[v]*q
		asRanks[v] += q
	}
	return nil
}

// buy turns the rows that a rank would fetch for itself into those that it fetches for its node.
// The others are counted as shared.
func (f *fetch) buy(share perKind) {
	before := f.rows.sum()
	for kind, x := range share {
		f.rows[kind] *= x
	}
	f.shared = before - f.rows.sum()
	if f.ids > 0 { // the bytes of the ids of rows and sums, without those of shared rows
		f.ids -= f.shared * exchange.IDBytes
	}
}

// wanted lists, for each minibatch, the rows of one rank, the buyer, that the ranks of its node
// want from it. Each row is listed once.
type wanted struct {
	accesses
	by   []int32 // number of ranks that want each row
	self []uint8 // 1 if the buyer itself wants the row
}

func (w *wanted) free() {
	w.accesses.free()
	mem.Free(w.by)
	mem.Free(w.self)
}

// wantedOf samples n minibatches of each rank of the node, and returns what the ranks want from
// rank r. If sums is set, owners sum rows, and it also returns the sums of rank r.
func (p *planner) wantedOf(r *rankPlan, n int, sums bool) (w *wanted, own fetch, err error) {
	w = new(wanted)
	ranks := p.job.Neighbours(r.rank)
	each := make([]*accesses, len(ranks))
	defer func() {
		for _, a := range each {
			if a != nil {
				a.free()
			}
		}
	}()
	for i, rank := range ranks {
		reader := r.reader
		if rank != r.rank {
			reader = p.job.Workload(rank, p.job.Workers)
			if reader.Near, err = p.near(&rankPlan{rank: rank, reader: reader}); err != nil {
				return nil, own, err
			}
		}
		bought := p.job.Bought(r.rank, reader)
		if sums {
			var f fetch
			each[i], f, err = p.travelling(&rankPlan{rank: rank, reader: reader}, n, nil)
			each[i].keep(func(v graph.VertexID) bool { return !access.Among(bought.Local, v) })
			if rank == r.rank {
				own = f
			}
		} else {
			each[i], err = record(bought, n)
		}
		if rank != r.rank {
			reader.Near.Free()
		}
		if err != nil {
			return nil, own, err
		}
	}
	w.unite(each, slices.Index(ranks, r.rank), n, int(p.shards.Vertices))
	return w, own, nil
}

// unite lists, for each of n minibatches, the rows that any rank wants, each row once. The buyer
// has the index `self`.
func (w *wanted) unite(each []*accesses, self, n, vertices int) {
	// For each vertex: 1 + the index in w of its latest use, or 0 if there is none.
	last := mem.Make[int32](vertices)
	defer mem.Free(last)
	for step := range n {
		begin := len(w.ids)
		for i, a := range each {
			if step >= len(a.ends) {
				continue
			}
			own := uint8(0)
			if i == self {
				own = 1
			}
			for _, v := range a.step(step) {
				at := int(last[v]) - 1
				if at < begin {
					at = len(w.ids)
					w.ids, w.by = mem.Grow(w.ids, at+1), mem.Grow(w.by, at+1)
					w.self = mem.Grow(w.self, at+1)
					w.ids[at], w.by[at], w.self[at], last[v] = v, 0, 0, int32(at+1)
				}
				w.by[at]++
				w.self[at] |= own
			}
		}
		w.ends = append(w.ends, len(w.ids))
	}
}

// fetchedByBuyer does what fetched does, for a dynamic cache that the ranks of a node divide. It
// plays the policy on what the ranks of the node want from rank r. For rank r it counts all rows
// that r buys. It also counts the rows that other ranks of the node find in r's cache, and those
// that r fetches for them too.
func (p *planner) fetchedByBuyer(r *rankPlan, kind *policy.Policy, c *policy.Settings,
	sums bool) (*fetched, error) {
	ranks := p.job.Neighbours(r.rank)
	steps := p.traceSteps(r, len(ranks))
	if sums {
		steps = min(steps, summedSteps)
	}
	w, own, err := p.wantedOf(r, steps, sums)
	if err != nil {
		return nil, err
	}
	var scores []float32
	if kind.Scores {
		if scores, err = p.nodeScore(policy.Find(c.Initial), ranks); err != nil {
			w.free()
			return nil, err
		}
	}
	return &fetched{free: w.free, at: func(capacity int) (f fetch, err error) {
		setup := policy.Setup{Graph: p.graph, Workload: r.reader, Settings: c, Capacity: capacity,
			Passing: p.job.Partitioned}
		setup.Window, err = kind.WindowOf(&setup, r.read, p.job.Items()*p.job.Epochs)
		if err != nil {
			return f, err
		}
		setup.Workload = p.job.Bought(r.rank, r.reader)
		setup.Scores = scores
		f = fetch{rows: p.same(0), held: capacity, window: setup.Window, counted: len(w.ends),
			heldBytes: int64(capacity) * int64(p.shards.RowBytes())}
		got, err := w.play(kind, setup, func(i int, d *cache.Decision) { f.pass(w, i, d) })
		f.deciding, f.bytes = got.seconds, got.bytes
		n := float64(len(w.ends))
		f.rows[0], f.peer, f.shared = f.rows[0]/n, f.peer/n, f.shared/n
		if sums {
			f.sums, f.sumBytes = own.sums, own.sumBytes
			f.ids = own.ids + (f.rows[0]-own.rows[0])*exchange.IDBytes
		}
		return f, err
	}}, nil
}

// pass counts the rows that a buyer fetches and passes on for the i-th minibatch, by the decision d
// of its cache.
func (f *fetch) pass(w *wanted, i int, d *cache.Decision) {
	f.rows[0] += float64(d.Counters().Remote)
	end := w.ends[i]
	begin := end - len(w.step(i))
	for k, slot := range d.Slot {
		at := begin + k
		if slot < 0 {
			f.shared += float64(w.by[at] - 1)
		} else {
			f.peer += float64(w.by[at] - int32(w.self[at]))
		}
	}
}
