package train

import (
	"context"
	"errors"
	"fmt"
	"time"

	"halognn/src/access"
	"halognn/src/cache"
	"halognn/src/comm"
	"halognn/src/exchange"
	"halognn/src/mem"
	"halognn/src/policy"
	"halognn/src/trace"
)

// tally counts rows and what a cache decided about them.
type tally struct {
	exchange.Counters
	Evictions    int64 // rows that others overwrote
	Replacements int64 // rows that entered in eviction rounds
	Scoring      int64 // nanoseconds that the policy took
}

// tallyOf returns the tally of a minibatch, for which the policy has taken some time.
func tallyOf(c exchange.Counters, d *cache.Decision, scoring time.Duration) tally {
	return tally{c, int64(d.Evictions), int64(d.Replacements), int64(scoring)}
}

func (t *tally) add(o tally) {
	t.Counters.Add(o.Counters)
	t.Evictions += o.Evictions
	t.Replacements += o.Replacements
	t.Scoring += o.Scoring
}

// rowsOf returns what a tally comes to in reports.
func (s *session) rowsOf(t tally) Rows {
	r := Rows{
		Local: t.Local, CacheHits: t.Cached, Peer: t.Peer, PeerCached: t.PeerCached, Fetched: t.Remote - t.Early,
		Remote: t.Remote, RemoteBytes: t.Remote * int64(s.Shards.Meta.RowBytes()),
		Evictions: t.Evictions, Replacements: t.Replacements, ScoreSeconds: float64(t.Scoring) / 1e9,
		Drawing: Drawing{t.Sampling.Asked, t.Sampling.Drawn, t.Sampling.Bytes},
	}
	if s.policy().Rounds {
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
	setup := policy.Setup{
		Graph: m, Reader: s.reader(), Settings: &s.o.Cache, Vertices: int(s.Shards.Vertices),
	}
	var err error
	setup.Capacity, err = s.cacheCapacity(m)
	if err = Agree(s.Comm, err); err != nil {
		return nil, fmt.Errorf("cache: %w", err)
	}
	if s.policy().Window != nil {
		s.SetUp.Done(trace.SetUpRank)
		if err := s.planWindow(&setup); err != nil {
			return nil, fmt.Errorf("planning a window: %w", err)
		}
		s.SetUp.Done(trace.SetUpPredict)
	}
	var fault error
	epoch, item := s.beginning()
	setup.Ahead = setup.Reader.Ahead(epoch, item, setup.Window+1, &fault)
	opened, initial, err := s.policy().Open(&setup)
	defer func() { mem.Free(initial) }()
	if err = Agree(s.Comm, errors.Join(fault, err)); err != nil {
		return nil, fmt.Errorf("cache.policy %s: %w", s.o.Cache.Policy, err)
	}
	s.SetUp.Done(trace.SetUpRank)
	c := &dynamicCache{
		policy: opened, rows: mem.Make[byte](opened.Slots() * s.Shards.RowBytes()), window: setup.Window,
	}
	s.closers = append(s.closers, func() error { c.free(); return nil })
	if err := s.fetchRows(initial, c.rows); err != nil {
		return nil, fmt.Errorf("filling the cache: %w", err)
	}
	s.SetUp.Done(trace.SetUpFill)
	return c, nil
}

// beginning returns the epoch and the minibatch that training begins with.
func (s *session) beginning() (epoch, item int) {
	if s.from > 0 {
		return s.from, 0
	}
	if s.Resume != nil {
		return s.Resume.state.Epoch, s.Resume.state.Step * s.minibatches()
	}
	return 1, 0
}

// planWindow sets how many minibatches the policy knows in advance, which is the most that any rank
// should see unless the config says how many, and predicts what is fetched. Collective.
func (s *session) planWindow(setup *policy.Setup) error {
	m, r, minibatches := setup.Graph, setup.Reader, s.o.Epochs*s.job.Items()
	planned, waiting, rows := 1, int64(0), 0.0
	p, err := m.Reads(r)
	defer func() { mem.Free(p) }()
	if err == nil {
		planned, err = s.policy().Window(setup, p)
	}
	if err == nil {
		waiting, err = m.WindowBytes(r, p, min(s.o.Cache.Window, minibatches))
	}
	if err = Agree(s.Comm, err); err != nil {
		return err
	}
	if planned, err = comm.AgreeMax(s.Comm, planned); err != nil {
		return err
	}
	if waiting, err = comm.AgreeMax(s.Comm, waiting); err != nil {
		return err
	}
	if setup.Window = s.o.Cache.Window; setup.Window == 0 {
		setup.Window = planned
	} else if waiting > access.WindowMemory && s.Progress != nil {
		s.Progress.Note(context.Background(), fmt.Sprintf("cache.window %d: the minibatches that wait in "+
			"it take about %.1f GB of a rank; cache.window 0 plans one of %d, within %.1f GB",
			setup.Window, float64(waiting)/1e9, planned, float64(access.WindowMemory)/1e9))
	}
	setup.Window = min(setup.Window, minibatches) // there are no more to see
	rows, err = s.policy().Expected(p, r, nil, setup.Capacity, setup.Window, minibatches)
	if err = Agree(s.Comm, err); err != nil {
		return err
	}
	s.expected, err = comm.AgreeSum(s.Comm, rows*float64(r.Count))
	return err
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
	if s.policy().None() && s.auto == nil {
		return nil, nil
	}
	c := &CacheSummary{Policy: o.Policy, Alpha: o.Alpha}
	if s.auto != nil {
		c.Chosen = s.auto.why
	}
	if o.HaloFraction > 0 {
		c.Alpha = 0
	}
	var own [5]int64 // capacity, bytes, plan, window, high water
	switch c := s.cached.(type) {
	case *staticCache:
		own[1], own[2] = int64(len(c.rows)), c.index.Bytes()
	case *groupCache:
		own[1], own[2] = int64((c.end-c.first)*s.Shards.RowBytes()), c.index.Bytes()
	}
	if s.dynamic != nil {
		p := s.dynamic.policy
		own[1], own[2], own[3] = int64(len(s.dynamic.rows)), p.Bytes(), int64(s.dynamic.window)
		if high, ok := p.(interface{ HighWater() int }); ok {
			own[4] = int64(high.HighWater())
		}
		if s.policy().Rounds {
			c.Gamma, c.Delta, c.HaloHops = o.Gamma, o.Delta, o.HaloHops
		}
	}
	own[0] = own[1] / int64(s.Shards.RowBytes())
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
