package plan

import (
	"fmt"
	"slices"

	"halognn/src/base/mem"
	"halognn/src/rows/access"
	"halognn/src/rows/cache"
	"halognn/src/rows/exchange"
	"halognn/src/rows/policy"
)

// Traffic is what crosses the network in a step, with one cache.
type Traffic struct {
	Policy   string  `json:"policy"`
	Alpha    float64 `json:"alpha,omitempty"`
	Capacity int     `json:"capacity_rows"` // largest capacity of a rank's cache
	Window   int     `json:"window,omitempty"`

	// input vertices of all ranks whose owners are on other nodes
	Reads float64 `json:"remote_reads"`
	Rows  float64 `json:"remote_rows"`           // rows transferred to all ranks
	Sums  float64 `json:"sum_vectors,omitempty"` // sums that owners send instead of rows
	Bytes float64 `json:"remote_bytes"`          // bytes of rows and sums
	IDs   float64 `json:"id_bytes"`              // bytes of ids
	// rows that another rank of the reader's node fetches
	Shared  float64 `json:"shared_rows,omitempty"`
	HitRate float64 `json:"hit_rate"` // 1 - (Rows + Shared + Sums)/Reads
	Factor  float64 `json:"factor"`   // reads in the probes / reads predicted
	// rows and sums that the busiest node receives or sends, whichever is more
	Busiest float64 `json:"busiest_rows"`

	// These are set only if the ranks of a node read each other's caches. Own and Peer are the
	// reads, of all ranks, that find the row in the rank's own cache and in a peer's cache. Cost is
	// the cost of a step's rows, in units of the cost of a far row (policy.Settings.Place).
	Own      float64 `json:"own_cache_rows,omitempty"`
	Peer     float64 `json:"peer_cache_rows,omitempty"`
	PeerCost float64 `json:"peer_cost,omitempty"`
	Cost     float64 `json:"cost,omitempty"`

	// EdgeRows is the number of rows of edge features that all ranks fetch. EdgeBytes is the bytes
	// of these rows and of their ids. No cache holds rows of edges.
	EdgeRows   float64 `json:"edge_rows,omitempty"`
	EdgeBytes  float64 `json:"edge_bytes,omitempty"`
	EdgeShared float64 `json:"shared_edge_rows,omitempty"` // fetched by another rank of the node

	// Counted is the number of minibatches of a rank that were played. It is 0 if a formula has
	// given the traffic instead.
	Counted int `json:"counted_minibatches,omitempty"`

	// Types has Reads and Rows for each vertex type, if there are types.
	Types []TypeRows `json:"types,omitempty"`

	rows     perKind   // like Rows, for each kind of rows
	sumBytes float64   // bytes of the sums that the analysed ranks receive in a step
	held     int64     // bytes of the rows in the fullest cache
	received []float64 // [analysed ranks] number of rows and sums received from other nodes
	// [analysed ranks] received, plus the rows that other ranks of the node fetch and pass on
	gets        []float64
	deciding    float64 // seconds that the policy takes for a minibatch; 0 if not measured
	policyBytes int64   // bytes of memory of the policy
}

// TypeRows are rows of one vertex type.
type TypeRows struct {
	Type     string  `json:"type"`
	RowBytes int     `json:"row_bytes"`
	Reads    float64 `json:"remote_reads"`
	Rows     float64 `json:"remote_rows"`
}

// dynamic reports whether the cache changes during training. The zero Traffic stands for no cache.
func (t *Traffic) dynamic() bool {
	p := policy.Find(t.Policy)
	return p != nil && !p.Static()
}

// each returns the number of rows and sums that the i-th analysed rank gets for a minibatch.
func (t *Traffic) each(i, minibatches int) float64 { return t.gets[i] / float64(minibatches) }

// traffic predicts the traffic of a step with the cache c.
func (p *planner) traffic(c *policy.Settings) (Traffic, error) {
	t, err := p.traffics(c, func(r *rankPlan) ([]int, error) {
		capacity, err := p.capacity(r, c)
		return []int{capacity}, err
	}, p.job.OwnersSums() != nil && !p.shares(), p.job.FetchesAsNodes())
	if err != nil {
		return Traffic{}, err
	}
	t[0].Alpha = c.Alpha
	if c.HaloFraction > 0 || c.Policy == policy.None {
		t[0].Alpha = 0
	}
	return t[0], nil
}

// traffics predicts the traffic of a step for caches with the policy of c. The function capacities
// returns a list of sizes for a rank, and the result has a Traffic for each size. If `sums` is
// false, owners send rows only. If `nodes` is true, nodes fetch as one, and the capacities must be
// those of the job. If it is false, each rank fetches for itself.
func (p *planner) traffics(c *policy.Settings, capacities func(r *rankPlan) ([]int, error),
	sums, nodes bool) ([]Traffic, error) {
	var all []Traffic
	var bought nodeShares
	for _, r := range p.ranks {
		sizes, err := capacities(r)
		if err != nil {
			return nil, err
		}
		if all == nil {
			all = make([]Traffic, len(sizes))
		}
		f, err := p.fetched(r, c, sums)
		if err != nil {
			return nil, fmt.Errorf("rank %d, policy %s: %w", r.rank, c.Policy, err)
		}
		for i, capacity := range sizes {
			got, err := f.at(capacity)
			if err != nil {
				f.free()
				return nil, fmt.Errorf("rank %d, policy %s: %w", r.rank, c.Policy, err)
			}
			if got.counted == 0 {
				// peer is only set if rows have one kind, so its factor is known
				got.peer *= r.factor[0]
				for kind, factor := range r.factor {
					got.rows[kind] *= factor
				}
			}
			if nodes && !p.job.Divides(c) { // otherwise fetchedByBuyer has counted what is shared
				share, err := bought.rankShares(p, r, c, sums)
				if err != nil {
					f.free()
					return nil, fmt.Errorf("rank %d, what its node fetches: %w", r.rank, err)
				}
				got.buy(share)
			}
			if got.ids == 0 {
				got.ids = got.rows.sum() * exchange.IDBytes
			}
			if p.job.Sparse || p.shards.Schema.Typed() { // capacities are in bytes
				capacity = got.held
			}
			all[i].add(&got, capacity, p.job.Minibatches())
		}
		f.free()
	}
	of := p.kinds()
	for i := range all {
		t := &all[i]
		t.Policy = c.Policy
		scale := float64(p.job.Ranks) / float64(len(p.ranks))
		reads, rows, predicted := p.same(0), p.same(0), 0.0
		for _, r := range p.ranks {
			reads.add(r.reads(), scale*float64(p.job.Minibatches()))
			predicted += r.remote.sum() * scale * float64(p.job.Minibatches())
		}
		rows.add(t.rows, scale)
		t.Factor = 1
		if t.Reads, t.Rows = reads.sum(), rows.sum(); predicted > 0 {
			t.Factor = t.Reads / predicted
		}
		for kind, size := range of.Bytes {
			if p.shards.Schema.Typed() && size > 0 {
				t.Types = append(t.Types, TypeRows{p.shards.Schema.Types[kind], size, reads[kind],
					rows[kind]})
			}
		}
		t.Peer, t.Sums, t.IDs, t.Shared = t.Peer*scale, t.Sums*scale, t.IDs*scale, t.Shared*scale
		if c.Shared() && !sums { // a sum may replace reads of rows that no cache holds
			t.Own = t.Reads - t.Rows - t.Shared - t.Peer
		}
		// only static caches are placed by the cost of a peer's row
		if c.Shared() && !p.job.Divides(c) {
			t.PeerCost = c.Cost()
			t.Cost = t.Rows + t.Sums + t.PeerCost*t.Peer
		}
		t.Bytes = rows.bytes(of) + t.sumBytes*scale
		if t.Reads > 0 {
			t.HitRate = 1 - (t.Rows+t.Shared+t.Sums)/t.Reads
		}
		t.Busiest = p.busiest(t)
	}
	return all, nil
}

// add adds what one rank fetches with a cache of the given capacity.
func (t *Traffic) add(f *fetch, capacity, minibatches int) {
	if t.rows == nil {
		t.rows = make(perKind, len(f.rows))
	}
	t.rows.add(f.rows, float64(minibatches))
	t.Peer += f.peer * float64(minibatches)
	t.Shared += f.shared * float64(minibatches)
	t.Sums += f.sums * float64(minibatches)
	t.IDs += f.ids * float64(minibatches)
	t.sumBytes += f.sumBytes * float64(minibatches)
	received := (f.rows.sum() + f.sums) * float64(minibatches)
	t.received = append(t.received, received)
	t.gets = append(t.gets, received+f.shared*float64(minibatches))
	t.Capacity, t.held, t.Window = max(t.Capacity, capacity), max(t.held, f.heldBytes),
		max(t.Window, f.window)
	t.Counted, t.deciding, t.policyBytes = max(t.Counted, f.counted), max(t.deciding, f.deciding),
		max(t.policyBytes, f.bytes)
}

// addEdgeRows adds the feature rows of edges that the probes fetched.
func (p *planner) addEdgeRows(t *Traffic) {
	scale := float64(p.job.Minibatches()) * float64(p.job.Ranks) / float64(len(p.ranks))
	for _, r := range p.ranks {
		rows := scale * r.mean(func(s *shape) float64 { return float64(s.edgeRows) })
		bytes := scale * r.mean(func(s *shape) float64 { return float64(s.edgeBytes) })
		t.EdgeRows, t.EdgeBytes = t.EdgeRows+rows*r.edgesOnce, t.EdgeBytes+bytes*r.edgesOnce
		t.EdgeShared += rows * (1 - r.edgesOnce)
	}
}

// busiest returns the number of rows that the busiest node receives or sends in a step, whichever
// is more. Rows that owners send count only if all ranks were analysed; otherwise they are not
// known.
func (p *planner) busiest(t *Traffic) float64 {
	most := 0.0
	if p.job.Cache.FromFiles() {
		return 0
	}
	if !p.exact() {
		for _, x := range t.received {
			most = max(most, x)
		}
		return most * float64(p.job.RanksPerNode)
	}
	// number of rows that each node receives and sends, at the index of the node's first rank
	in, out := make([]float64, p.job.Ranks), make([]float64, p.job.Ranks)
	for i, r := range p.ranks {
		lo, _ := p.node(r.rank)
		in[lo] += t.received[i]
		for owner, share := range r.owners {
			node, _ := p.node(owner)
			out[node] += t.received[i] * share
		}
	}
	for r := range in {
		most = max(most, in[r], out[r])
	}
	return most
}

// capacity returns the number of rows that a rank's cache holds.
func (p *planner) capacity(r *rankPlan, c *policy.Settings) (int, error) {
	if policy.Find(c.Policy).None() {
		return 0, nil
	}
	return p.job.Capacity(p.graph, r.rank, c)
}

// fetched predicts what a rank fetches for a minibatch. The function at returns the prediction for
// a cache of one size.
type fetched struct {
	at   func(capacity int) (fetch, error)
	free func()
}

// fetch is the prediction of what a minibatch fetches with a cache of one size.
type fetch struct {
	rows      perKind // number of rows fetched, for each kind of rows
	sums      float64 // number of sums fetched
	sumBytes  float64
	ids       float64 // bytes of the ids of rows and sums; 0 without sums
	peer      float64 // number of rows found in the caches of other ranks of the node
	shared    float64 // number of rows that other ranks of the node fetch and pass on
	held      int     // number of rows for which the cache needs room
	heldBytes int64   // bytes of the rows that held counts
	window    int
	counted   int
	deciding  float64
	bytes     int64 // bytes of memory of the policy: index, scores, plan
}

func (p *planner) fetched(r *rankPlan, c *policy.Settings, sums bool) (*fetched, error) {
	kind := policy.Find(c.Policy)
	switch {
	case sums && p.job.Divides(c):
		return p.fetchedByBuyer(r, kind, c, true)
	case sums:
		return p.fetchedBySums(r, kind, c)
	case kind.None() || !p.job.Reads() || len(r.reader.Seeds()) == 0:
		return &fetched{free: func() {}, at: func(int) (fetch, error) {
			rows, err := p.expected(r, nil)
			return fetch{rows: rows}, err
		}}, nil
	case p.job.Divides(c):
		return p.fetchedByBuyer(r, kind, c, false)
	case kind.Static() && c.Shared():
		return p.fetchedByNode(r, kind, c)
	case kind.Static():
		return p.fetchedByRank(r, kind)
	case kind.Predict != nil:
		return p.fetchedByFormula(r, kind, c)
	}
	return p.fetchedByPlay(r, kind, c)
}

// fetchedByRank does what fetched does, for a static policy. The prediction is the sum of the
// access probabilities of the vertices that are not cached.
func (p *planner) fetchedByRank(r *rankPlan, kind *policy.Policy) (*fetched, error) {
	score, err := kind.Rank(p.graph, r.reader)
	if err != nil {
		return nil, err
	}
	return &fetched{free: func() { mem.Free(score) }, at: func(capacity int) (fetch, error) {
		held, err := p.graph.Best(score, r.reader, capacity)
		if err != nil {
			return fetch{}, err
		}
		defer mem.Free(held)
		rows, err := p.expected(r, held)
		size := policy.Size{Vertices: p.shards.Vertices, Rows: int64(len(held))}
		return fetch{rows: rows, held: len(held), heldBytes: p.kinds().Sizes(held),
			bytes: kind.Bytes(size)}, err
	}}, nil
}

// fetchedByNode does what fetched does, for a static policy if the ranks of a node share the cached
// rows.
func (p *planner) fetchedByNode(r *rankPlan, kind *policy.Policy, c *policy.Settings) (*fetched,
	error) {
	return p.placed(r, kind, c, func(device []int16, self int) (fetch, error) {
		out := fetch{rows: slices.Clone(r.remote)}
		for v, d := range device {
			if d < 0 {
				continue
			}
			out.rows[0] -= float64(r.read[v])
			if int(d) != self {
				out.peer += float64(r.read[v])
			}
		}
		out.rows[0] = max(out.rows[0], 0)
		return out, nil
	})
}

// placed divides a static cache of any size among the ranks of a node. The function `count` returns
// what rank r fetches. Its argument device has, for each vertex, the number within the node of the
// rank that caches it, or -1. Its argument self is the number of rank r within the node.
func (p *planner) placed(r *rankPlan, kind *policy.Policy, c *policy.Settings,
	count func(device []int16, self int) (fetch, error)) (*fetched, error) {
	ranks := p.job.Neighbours(r.rank)
	self := slices.Index(ranks, r.rank)
	score, err := p.nodeScore(kind, ranks)
	if err != nil {
		return nil, err
	}
	return &fetched{free: func() {}, at: func(capacity int) (fetch, error) {
		place, err := c.Place(score, p.job.Owned(ranks), capacity)
		if err != nil {
			return fetch{}, err
		}
		defer place.Free()
		device, slot := place.Lookup(self)
		defer mem.Free(device)
		mem.Free(slot)
		f, err := count(device, self)
		f.held, f.heldBytes = len(place.Held(self)), p.kinds().Sizes(place.Held(self))
		f.bytes = kind.Bytes(policy.Size{Vertices: p.shards.Vertices, Rows: int64(place.Rows())})
		return f, err
	}}, nil
}

// nodeScore returns the scores by which the ranks of a node choose rows together. It keeps the last
// result, because the ranks of a node are analysed one after the other.
func (p *planner) nodeScore(kind *policy.Policy, ranks []int) ([]float32, error) {
	k := &p.together
	if k.score != nil && k.policy == kind && k.first == ranks[0] {
		return k.score, nil
	}
	k.free()
	var readers []*access.Workload
	for _, r := range ranks {
		readers = append(readers, p.job.Workload(r, p.job.Workers))
	}
	score, err := kind.RankTogether(p.graph, readers)
	if err == nil {
		*k = nodeScore{kind, ranks[0], score}
	}
	return score, err
}

// nodeScore holds the scores of one node. The node's first rank is in the field `first`.
type nodeScore struct {
	policy *policy.Policy
	first  int
	score  []float32
}

func (k *nodeScore) free() {
	mem.Free(k.score)
	*k = nodeScore{}
}

// fetchedByFormula does what fetched does, for a policy with a formula for the rows that it
// fetches.
func (p *planner) fetchedByFormula(r *rankPlan, kind *policy.Policy, c *policy.Settings) (
	*fetched, error) {
	of := p.kinds()
	reuses := make([]*cache.Reuse, len(of.Bytes)) // one for each kind of rows
	minibatches := p.job.Items() * p.job.Epochs
	return &fetched{free: func() {}, at: func(capacity int) (f fetch, err error) {
		setup := policy.Setup{Graph: p.graph, Workload: r.reader, Settings: c, Capacity: capacity}
		if f.window, err = kind.WindowOf(&setup, r.read, minibatches); err != nil {
			return f, err
		}
		shares, err := policy.Shares(p.graph, r.reader, r.read, capacity)
		if err != nil {
			return f, err
		}
		f.rows = p.same(0)
		for _, share := range shares {
			reuse := reuses[share.Kind]
			if reuse == nil {
				if reuse, err = p.graph.Reuse(share.Reader, r.read); err != nil {
					return f, err
				}
				reuses[share.Kind] = reuse
			}
			f.rows[share.Kind] = kind.Predict(reuse, share.Rows, f.window, minibatches)
			f.held += share.Rows
			f.heldBytes += int64(share.Rows) * int64(of.Bytes[share.Kind])
			f.bytes += kind.Bytes(policy.Size{
				Vertices: p.shards.Vertices, Rows: int64(share.Rows), Window: int64(f.window),
				Uses: reuse.Uses(),
			})
		}
		return f, nil
	}}, nil
}

// fetchedByPlay does what fetched does, for a policy that decides by earlier reads. It simulates
// the policy on sampled minibatches of the rank.
func (p *planner) fetchedByPlay(r *rankPlan, kind *policy.Policy, c *policy.Settings) (*fetched,
	error) {
	t, err := record(r.reader, p.traceSteps(r, 1))
	if err != nil {
		return nil, err
	}
	return &fetched{free: t.free, at: func(capacity int) (fetch, error) {
		rows := p.same(0)
		got, err := t.play(kind, policy.Setup{
			Graph: p.graph, Workload: r.reader, Settings: c, Capacity: capacity,
			Passing: p.job.Partitioned,
		}, func(i int, d *cache.Decision) { rows.count(p.kinds(), t.step(i), d) })
		f := fetch{rows: rows.each(len(t.ends)), held: capacity, heldBytes: int64(capacity),
			counted: len(t.ends), deciding: got.seconds, bytes: got.bytes}
		if p.shards.Schema.Typed() {
			f.held = got.held
		} else {
			f.heldBytes *= int64(p.shards.RowBytes())
		}
		return f, err
	}}, nil
}

// Limits on the minibatches over which a policy without a formula is simulated. They allow for
// several rounds of eviction, and bound memory and time.
const (
	traceSteps = 256
	traceRows  = 1 << 25
	traceEdges = 1 << 28
)

// traceSteps returns the number of minibatches over which the policy is simulated. The minibatches
// of `readers` ranks are sampled for it.
func (p *planner) traceSteps(r *rankPlan, readers int) int {
	n := min(traceSteps, p.job.Items())
	edges := r.most.numEdges() * len(p.ranks) * readers
	n = min(n, traceRows/max(1, r.most.remote), traceEdges/max(1, edges))
	return max(n, 8)
}
