package train

import (
	"fmt"

	"halognn/src/access"
	"halognn/src/cache"
	"halognn/src/comm"
	"halognn/src/exchange"
	"halognn/src/graph"
	"halognn/src/mem"
	"halognn/src/parallel"
)

// tally counts rows and what a cache decided about them.
type tally struct {
	exchange.Counters
	Evictions    int64 // rows that others overwrote
	Replacements int64 // rows that entered in eviction rounds
	Deciding     int64 // nanoseconds that the policy took
}

// of returns the tally of a minibatch.
func tallyOf(m *parallel.Minibatch) tally {
	d := &m.Decision
	return tally{m.Fetch.Counters, int64(d.Evictions), int64(d.Replacements), int64(m.Deciding)}
}

func (t *tally) add(o tally) {
	t.Counters.Add(o.Counters)
	t.Evictions += o.Evictions
	t.Replacements += o.Replacements
	t.Deciding += o.Deciding
}

// rowsOf returns what a tally comes to in reports.
func (s *session) rowsOf(t tally) Rows {
	r := Rows{
		Local: t.Local, CacheHits: t.Cached, Peer: t.Peer, PeerCached: t.PeerCached, Fetched: t.Remote - t.Early,
		Remote: t.Remote, RemoteBytes: t.Remote * int64(s.Shards.Meta.RowBytes()),
		Evictions: t.Evictions, Replacements: t.Replacements, ScoreSeconds: float64(t.Deciding) / 1e9,
	}
	if s.o.Cache.Policy == cache.NamePrefetch {
		r.Replacement = t.Early
	} else {
		r.Early = t.Early
	}
	r.HitRate, r.BufferHitRate = r.rates()
	return r
}

// rates returns the hit rate, which charges every row that was transferred, and that of MassiveGNN (eq. 8), which charges misses alone.
func (r *Rows) rates() (hit, buffer float64) {
	hits := r.CacheHits + r.PeerCached
	accesses := hits + r.Fetched
	if accesses == 0 {
		return 0, 0
	}
	return 1 - float64(r.Remote)/float64(accesses), float64(hits) / float64(accesses)
}

// dynamicCache is a cache whose rows change while training runs.
type dynamicCache struct {
	policy cache.Policy
	rows   []byte // [slots, rowBytes]
	window int    // steps that the policy sees in advance
}

func (c *dynamicCache) free() {
	c.policy.Free()
	mem.Free(c.rows)
}

// openDynamic makes the policy and fetches what it begins with. Collective.
func (s *session) openDynamic(m *access.Graph) (*dynamicCache, error) {
	window := s.o.Cache.Window
	capacity, err := s.cacheCapacity(m)
	if err = Agree(s.Comm, err); err != nil {
		return nil, fmt.Errorf("cache: %w", err)
	}
	if s.o.Cache.Policy == cache.NameLookahead && window == 0 {
		if window, err = s.planWindow(m, capacity); err != nil {
			return nil, fmt.Errorf("planning a window: %w", err)
		}
	}
	initial, policy, err := s.newPolicy(m, capacity, window)
	defer mem.Free(initial)
	if err = Agree(s.Comm, err); err != nil {
		return nil, fmt.Errorf("cache.policy %s: %w", s.o.Cache.Policy, err)
	}
	c := &dynamicCache{policy: policy, rows: mem.Make[byte](policy.Slots() * s.Shards.RowBytes())}
	if l, ok := policy.(*cache.Lookahead); ok {
		c.window = l.Window()
	}
	s.closers = append(s.closers, func() error { c.free(); return nil })
	if err := s.fetchRows(initial, c.rows); err != nil {
		return nil, fmt.Errorf("filling the cache: %w", err)
	}
	return c, nil
}

// newPolicy returns the policy of this rank, and the vertices in its first slots.
func (s *session) newPolicy(m *access.Graph, capacity, window int) ([]graph.VertexID, cache.Policy, error) {
	o, n := s.o.Cache, int(s.Shards.Vertices)
	switch o.Policy {
	case cache.NameSieve:
		p, err := cache.NewSieve(n, capacity)
		return nil, p, err
	case cache.NamePrefetch:
		return s.newPrefetch(m, capacity)
	}
	p, err := cache.NewLookahead(cache.LookaheadOptions{
		Vertices: n, Capacity: capacity, Window: min(window, s.steps()*s.minibatches()), Level: o.Level,
	})
	return nil, p, err
}

// newPrefetch returns a prefetch buffer filled by degree or by access probability.
func (s *session) newPrefetch(m *access.Graph, capacity int) ([]graph.VertexID, cache.Policy, error) {
	o := s.o.Cache
	score, err := m.Score(o.Initial, s.reader())
	if err != nil {
		return nil, nil, err
	}
	defer mem.Free(score)
	candidates, err := s.candidates(m, score)
	defer mem.Free(candidates)
	if err != nil {
		return nil, nil, err
	}
	initial, err := m.Top(score, s.local(), capacity)
	if err != nil {
		return nil, nil, err
	}
	g, delta := &s.topology.Graph, o.Delta
	if !o.Evict {
		delta = 0
	}
	p, err := cache.NewPrefetch(cache.PrefetchOptions{
		Vertices: int(s.Shards.Vertices), Capacity: capacity, Initial: initial, Candidates: candidates, Gamma: o.Gamma, Delta: delta,
		Degree: func(v graph.VertexID) int { return int(g.Indptr[v+1] - g.Indptr[v]) }, Layout: o.Layout,
	})
	return initial, p, err
}

// candidates returns the vertices that may be buffered, as PrefetchOptions has them, and takes the score of all others away. With as many hops as
// the model has layers that is every vertex that is ever read, and nil.
func (s *session) candidates(m *access.Graph, score []float32) ([]uint64, error) {
	hops := s.o.Cache.HaloHops
	if hops == 0 || hops >= len(s.o.Fanouts) {
		return nil, nil
	}
	halo, err := m.Halo(s.local(), hops)
	if err != nil {
		return nil, err
	}
	defer mem.Free(halo)
	bits := mem.Make[uint64]((len(halo) + 63) / 64)
	for v, in := range halo {
		if in > 0 {
			bits[v/64] |= 1 << (v % 64)
		} else {
			score[v] = 0
		}
	}
	return bits, nil
}

// windowMemory is what minibatches that wait in a planned window may take.
const windowMemory = 1 << 30

// planWindow returns how many minibatches a look-ahead cache should see in advance: the most that any rank should. Collective.
func (s *session) planWindow(m *access.Graph, capacity int) (int, error) {
	steps := s.steps() * s.minibatches()
	edges, reached, draws := 0, 1, 1 // of a minibatch with as many seeds as any, at most
	for _, f := range s.o.Fanouts {
		draws *= max(f, 1) // sample.All is bounded by nothing; a window then is planned as if it were small
		edges += draws
		reached += draws
	}
	seeds := s.streams.MaxPiece()
	o := cache.WindowOptions{
		Capacity: capacity, Steps: steps, Reuse: cache.NewReuse(), Memory: windowMemory,
		StepBytes: int64(seeds*edges)*8 + min(int64(seeds*reached), s.Shards.Vertices)*24,
	}
	err := s.countReuse(m, o.Reuse)
	if err = Agree(s.Comm, err); err != nil {
		return 0, err
	}
	return comm.AgreeMax(s.Comm, cache.PlanWindow(o))
}

// countReuse tells how likely a minibatch of this rank reads each remote vertex.
func (s *session) countReuse(m *access.Graph, r *cache.Reuse) error {
	seeds, perStep := s.ownSeeds()
	if len(seeds) == 0 {
		return nil
	}
	p, err := m.Inclusion(seeds, perStep/float64(s.minibatches()), s.o.Fanouts)
	if err != nil {
		return err
	}
	defer mem.Free(p)
	next := graph.VertexID(0)
	for _, local := range s.local() {
		r.Add(p[next:local.First])
		next = local.End
	}
	r.Add(p[next:])
	return nil
}

// CacheSummary says what the cache of a run was.
type CacheSummary struct {
	Policy    string  `json:"policy"`
	Alpha     float64 `json:"alpha,omitempty"`
	Capacity  int     `json:"capacity_rows"` // largest of any rank, as are the next ones
	Bytes     int64   `json:"bytes"`         // of the rows
	PlanBytes int64   `json:"plan_bytes"`    // of what decides: index, scores, window
	Window    int     `json:"window,omitempty"`
	HighWater int     `json:"high_water,omitempty"`
	Gamma     float64 `json:"gamma,omitempty"`
	Delta     int     `json:"delta,omitempty"`
	HaloHops  int     `json:"halo_hops,omitempty"`
	Chosen    string  `json:"chosen,omitempty"` // why, by policy auto
}

// summariseCache describes the cache at the end of the run. Collective.
func (s *session) summariseCache() (*CacheSummary, error) {
	o := s.o.Cache
	if o.Policy == access.PolicyNone {
		return nil, nil
	}
	c := &CacheSummary{Policy: o.Policy, Alpha: o.Alpha}
	if o.HaloFraction > 0 {
		c.Alpha = 0
	}
	var own [5]int64 // capacity, bytes, plan, window, high water
	switch {
	case s.dynamic != nil:
		p := s.dynamic.policy
		own = [5]int64{int64(p.Slots()), int64(len(s.dynamic.rows)), p.Bytes(), int64(s.dynamic.window)}
		if l, ok := p.(*cache.Lookahead); ok {
			own[4] = int64(l.HighWater())
		}
		if o.Policy == cache.NamePrefetch {
			c.Gamma, c.Delta, c.HaloHops = o.Gamma, o.Delta, o.HaloHops
		}
	case s.cached != nil:
		bytes := int64(len(s.cached.Table()))
		own = [5]int64{bytes / int64(s.Shards.RowBytes()), bytes}
	}
	for i := range own {
		most, err := comm.AgreeMax(s.Comm, own[i])
		if err != nil {
			return nil, err
		}
		own[i] = most
	}
	c.Capacity, c.Bytes, c.PlanBytes, c.Window, c.HighWater = int(own[0]), own[1], own[2], int(own[3]), int(own[4])
	return c, nil
}
