package plan

import (
	"fmt"

	"halognn/src/access"
	"halognn/src/cache"
	"halognn/src/mem"
)

// Traffic is what crosses the network in a step, with one cache.
type Traffic struct {
	Policy   string  `json:"policy"`
	Alpha    float64 `json:"alpha,omitempty"`
	Capacity int     `json:"capacity_rows"` // of a rank, the largest
	Window   int     `json:"window,omitempty"`

	Reads   float64 `json:"remote_reads"` // input vertices owned outside the reader's node; all ranks
	Rows    float64 `json:"remote_rows"`  // of them transferred; all ranks
	Bytes   float64 `json:"remote_bytes"` // of those rows
	HitRate float64 `json:"hit_rate"`     // 1 - Rows/Reads
	Factor  float64 `json:"factor"`       // reads of the sampled minibatches / those that the probabilities alone predict
	Busiest float64 `json:"busiest_rows"` // received or sent by one node, whichever is more

	Counted int `json:"counted_minibatches,omitempty"` // of a rank: where there is no formula

	held      int       // rows in the fullest cache
	received  []float64 // of the ranks that were looked at
	deciding  float64   // seconds of a minibatch, where they were measured
	planBytes int64     // of what decides
}

// traffic predicts a step with cache c.
func (p *planner) traffic(c *Cache) (Traffic, error) {
	t, err := p.traffics(c, func(r *rankPlan) ([]int, error) {
		capacity, err := p.capacity(r, c)
		return []int{capacity}, err
	})
	if err != nil {
		return Traffic{}, err
	}
	t[0].Alpha = c.Alpha
	if c.HaloFraction > 0 || c.Policy == access.PolicyNone {
		t[0].Alpha = 0
	}
	return t[0], nil
}

// traffics predicts a step with caches of the policy of c, of several capacities each.
func (p *planner) traffics(c *Cache, capacities func(r *rankPlan) ([]int, error)) ([]Traffic, error) {
	var all []Traffic
	for _, r := range p.ranks {
		sizes, err := capacities(r)
		if err != nil {
			return nil, err
		}
		if all == nil {
			all = make([]Traffic, len(sizes))
		}
		f, err := p.fetched(r, c)
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
				got.rows *= r.factor
			}
			all[i].add(&got, capacity, p.layout.each)
		}
		f.free()
	}
	for i := range all {
		t := &all[i]
		t.Policy = c.Policy
		for _, r := range p.ranks {
			t.Factor += r.factor / float64(len(p.ranks))
			t.Reads += r.remote * r.factor * float64(p.layout.each)
		}
		scale := float64(p.job.Ranks) / float64(len(p.ranks))
		t.Reads, t.Rows = t.Reads*scale, t.Rows*scale
		t.Bytes = t.Rows * float64(p.shards.RowBytes())
		if t.Reads > 0 {
			t.HitRate = 1 - t.Rows/t.Reads
		}
		t.Busiest = p.busiest(t)
	}
	return all, nil
}

// add puts the share of one rank in.
func (t *Traffic) add(f *fetch, capacity, minibatches int) {
	t.Rows += f.rows * float64(minibatches)
	t.received = append(t.received, f.rows*float64(minibatches))
	t.Capacity, t.held, t.Window = max(t.Capacity, capacity), max(t.held, f.held), max(t.Window, f.window)
	t.Counted, t.deciding, t.planBytes = max(t.Counted, f.counted), max(t.deciding, f.deciding), max(t.planBytes, f.bytes)
}

// busiest returns the rows that the node with the most to receive or to send moves in a step. What an owner sends is told by where the
// reads go, as long as all ranks were looked at.
func (p *planner) busiest(t *Traffic) float64 {
	most, l := 0.0, p.layout
	if !p.exact() {
		for _, x := range t.received {
			most = max(most, x)
		}
		return most * float64(l.perNode)
	}
	in, out := make([]float64, l.ranks), make([]float64, l.ranks) // of nodes, at their first rank
	for i, r := range p.ranks {
		lo, _ := l.node(r.rank)
		in[lo] += t.received[i]
		for owner, share := range r.owners {
			node, _ := l.node(owner)
			out[node] += t.received[i] * share
		}
	}
	for r := range in {
		most = max(most, in[r], out[r])
	}
	return most
}

// capacity returns the rows that a rank's cache holds.
func (p *planner) capacity(r *rankPlan, c *Cache) (int, error) {
	if c.Policy == access.PolicyNone || len(p.job.Fanouts) == 0 {
		return 0, nil
	}
	if c.HaloFraction == 0 {
		return access.Capacity(c.Alpha, p.shards.Vertices, p.job.Ranks), nil
	}
	halo, err := p.graph.HaloSize(r.reader.Local)
	return int(c.HaloFraction * float64(halo)), err
}

// fetched tells what a rank fetches for a minibatch as its cache grows.
type fetched struct {
	at   func(capacity int) (fetch, error)
	free func()
}

// fetch is what a cache of one size comes to.
type fetch struct {
	rows     float64 // of a minibatch
	held     int     // rows that the cache needs room for
	window   int
	counted  int
	deciding float64
	bytes    int64 // of index, scores, plan
}

func (p *planner) fetched(r *rankPlan, c *Cache) (*fetched, error) {
	n := int(p.shards.Vertices)
	f := &fetched{free: func() {}}
	if c.Policy == access.PolicyNone || len(p.job.Fanouts) == 0 || len(r.reader.Seeds()) == 0 {
		f.at = func(int) (fetch, error) {
			rows, err := access.Expected(r.read, r.reader.Local, nil)
			return fetch{rows: rows}, err
		}
		return f, nil
	}
	switch c.Policy {
	case cache.NameLookahead:
		reuse, err := access.Reuse(r.read, r.reader.Local)
		f.at = func(capacity int) (fetch, error) {
			window, err := c.Window, error(nil)
			if window == 0 {
				window, err = p.graph.PlanWindow(r.reader, r.read, capacity)
			}
			run := p.layout.streams.Steps() * p.layout.each * p.job.Epochs
			window = min(window, run) // there are no more to see
			bytes := cache.LookaheadBytes(cache.LookaheadOptions{Vertices: n, Capacity: capacity, Window: window}, int(reuse.Uses()*float64(window+1)))
			rows := reuse.Fetched(capacity, window, run)
			return fetch{rows: rows, held: capacity, window: window, bytes: bytes}, err
		}
		return f, err
	case cache.NamePrefetch, cache.NameSieve:
		t, err := record(r.reader, p.traceSteps(r))
		if err != nil {
			return nil, err
		}
		f.free = t.free
		f.at = func(capacity int) (fetch, error) {
			d := c.Dynamic
			d.Capacity = capacity
			got, err := t.play(p.graph, r.reader, d)
			return fetch{got.rows, capacity, 0, len(t.ends), got.seconds, got.bytes}, err
		}
		return f, nil
	}
	score, err := p.graph.Score(c.Policy, r.reader)
	if err != nil {
		return nil, err
	}
	f.free = func() { mem.Free(score) }
	f.at = func(capacity int) (fetch, error) {
		held, err := p.graph.Top(score, r.reader.Local, capacity)
		if err != nil {
			return fetch{}, err
		}
		defer mem.Free(held)
		rows, err := access.Expected(r.read, r.reader.Local, held)
		index := cache.NewIndex(n, len(held), cache.IndexAuto)
		defer index.Free()
		return fetch{rows: rows, held: len(held), bytes: index.Bytes()}, err
	}
	return f, nil
}

// What a policy without a formula is played over: enough minibatches for rounds of eviction, as far as memory and patience go.
const (
	traceSteps = 256
	traceRows  = 1 << 25
	traceEdges = 1 << 28
)

// traceSteps returns how many minibatches of a rank are played.
func (p *planner) traceSteps(r *rankPlan) int {
	n := min(traceSteps, p.layout.streams.Steps()*p.layout.each)
	n = min(n, traceRows/max(1, r.most.remote), traceEdges/max(1, r.most.numEdges()*len(p.ranks)))
	return max(n, 8)
}
