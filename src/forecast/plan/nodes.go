package plan

import (
	"slices"

	"halognn/src/base/mem"
	"halognn/src/rows/cache"
	"halognn/src/rows/exchange"
	"halognn/src/rows/policy"
	"halognn/src/topology/graph"
)

// nodeShares maps the first rank of a node to the node's share for each kind of rows. A share is
// the number of rows that the node fetches as one, divided by the number that its ranks would fetch
// for themselves.
type nodeShares map[int]perKind

// The method of returns the shares of the node of rank r. The settings c give the capacity of one
// rank's cache.
func (n *nodeShares) of(p *planner, r *rankPlan, c *policy.Settings) (perKind, error) {
	if *n == nil {
		*n = nodeShares{}
	}
	lo, hi := p.node(r.rank)
	share := (*n)[lo]
	if share != nil {
		return share, nil
	}
	share, err := p.nodeShare(lo, hi, c)
	(*n)[lo] = share
	return share, err
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
	// of each vertex, once is 1 - prod(1 - q), and all is sum(q)
	once, all := mem.Make[float32](n), mem.Make[float32](n)
	defer func() { mem.Free(once); mem.Free(all) }()
	for rank := lo; rank < hi; rank++ {
		if err := p.addReads(rank, c, once, all); err != nil {
			return nil, err
		}
	}
	local := p.job.Local(lo)
	for _, r := range local {
		clear(once[r.First:r.End])
		clear(all[r.First:r.End])
	}
	if c.Shared() && !policy.Find(c.Policy).None() {
		capacity, err := p.capacity(&rankPlan{rank: lo}, c)
		if err != nil {
			return nil, err
		}
		place, err := c.Place(all, p.job.Owned(p.job.Neighbours(lo)), capacity)
		if err != nil {
			return nil, err
		}
		defer place.Free()
		device, slot := place.Lookup(0)
		defer func() { mem.Free(device); mem.Free(slot) }()
		for v, d := range device {
			if d >= 0 {
				once[v], all[v] = 0, 0
			}
		}
	}
	of, share, alone := p.kinds(), p.same(0), p.same(0)
	for v, q := range all {
		if q > 0 {
			kind := of.Of(graph.VertexID(v))
			share[kind] += float64(once[v])
			alone[kind] += float64(q)
		}
	}
	for kind := range share {
		if alone[kind] == 0 {
			alone[kind], share[kind] = 1, 1
		}
		share[kind] /= alone[kind]
	}
	return share, nil
}

// addReads adds the probabilities of one rank to the arguments once and all.
func (p *planner) addReads(rank int, c *policy.Settings, once, all []float32) error {
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
		once[v] += q - once[v]*q
		all[v] += q
	}
	return nil
}

// buy reduces the rows that a rank would fetch for itself to those that it fetches for its node.
// The rest is counted as shared.
func (f *fetch) buy(share perKind) {
	before := f.rows.sum()
	for kind, x := range share {
		f.rows[kind] *= x
	}
	f.shared = before - f.rows.sum()
	if f.ids > 0 { // bytes of the ids of rows and sums: without those of shared rows
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
// rank r.
func (p *planner) wantedOf(r *rankPlan, n int) (*wanted, error) {
	w, ranks := new(wanted), p.job.Neighbours(r.rank)
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
			var err error
			if reader.Near, err = p.near(&rankPlan{rank: rank, reader: reader}); err != nil {
				return nil, err
			}
		}
		of := p.job.Bought(r.rank, reader)
		a, err := record(of, n)
		if rank != r.rank {
			reader.Near.Free()
		}
		if err != nil {
			return nil, err
		}
		each[i] = a
	}
	// index in w of each vertex's latest use, plus 1; 0 if there is none
	last := mem.Make[int32](int(p.shards.Vertices))
	defer mem.Free(last)
	for step := range n {
		begin := len(w.ids)
		for i, a := range each {
			if step >= len(a.ends) {
				continue
			}
			self := uint8(0)
			if ranks[i] == r.rank {
				self = 1
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
				w.self[at] |= self
			}
		}
		w.ends = append(w.ends, len(w.ids))
	}
	return w, nil
}

// fetchedByBuyer does what fetched does, for a dynamic cache that the ranks of a node divide. It
// plays the policy on what the ranks of the node want from rank r. It counts for rank r all rows
// that r buys, and all rows that other ranks find in r's cache or share.
func (p *planner) fetchedByBuyer(r *rankPlan, kind *policy.Policy, c *policy.Settings) (*fetched,
	error) {
	ranks := p.job.Neighbours(r.rank)
	w, err := p.wantedOf(r, p.traceSteps(r, len(ranks)))
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
