package plan

import (
	"halognn/src/base/mem"
	"halognn/src/base/trace"
	"halognn/src/rows/cache"
	"halognn/src/rows/exchange"
	"halognn/src/rows/policy"
	"halognn/src/step/job"
	"halognn/src/step/parallel"
	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
)

// summer counts the rows and sums that ranks would transfer for sampled minibatches.
type summer struct {
	*parallel.SumCounter
	x    *exchange.Exchange
	plan exchange.Plan
}

// newSummer returns the summer of a rank. The cache's policy sees `window` minibatches ahead. The
// result is nil if owners send no sums, or if ranks share minibatches.
func (p *planner) newSummer(rank, window int) (*summer, error) {
	if p.job.OwnersSums() == nil || p.shares() {
		return nil, nil
	}
	x, err := p.job.Exchange(rank)
	if err != nil {
		return nil, err
	}
	return &summer{x: x, SumCounter: parallel.NewSumCounter(p.job.Model.Needs(),
		p.shards.Topology(), job.NewChooser(p.job.Job), window)}, nil
}

// add finds where the vertices of a minibatch are, and keeps its groups of rows that can be summed.
// It returns the worth of the remote rows, by which a policy decides.
func (s *summer) add(mb *sample.Minibatch) ([]uint8, error) {
	if err := s.x.Locate(&s.plan, mb.Frontier); err != nil {
		return nil, err
	}
	return s.Add(mb, s.x, &s.plan), nil
}

// close frees the memory. It may be called on nil.
func (s *summer) close() {
	if s == nil {
		return
	}
	s.SumCounter.Free()
	s.plan.Free()
	s.x.Free()
}

// meanVectors returns the mean number of rows and sums that the probes transfer without a cache.
func meanVectors(r *rankPlan) float64 {
	return r.mean(func(s *shape) float64 { return float64(s.vectors) })
}

// fetchedBySums does what fetched does, if owners send sums of rows. The cache decides about
// sampled minibatches of the rank, as in a run, and its misses are transferred as rows or as sums.
func (p *planner) fetchedBySums(r *rankPlan, kind *policy.Policy, c *policy.Settings) (*fetched,
	error) {
	if kind.Static() && !kind.None() && c.Shared() {
		return p.fetchedBySumsOfNode(r, kind, c)
	}
	steps := min(p.traceSteps(r, 1), summedSteps)
	return &fetched{free: func() {}, at: func(capacity int) (fetch, error) {
		setup := policy.Setup{Graph: p.graph, Workload: r.reader, Settings: c, Capacity: capacity,
			Sums: true}
		window, err := kind.WindowOf(&setup, r.read, p.job.Items()*p.job.Epochs)
		if err != nil {
			return fetch{}, err
		}
		setup.Window = min(window, steps)
		h, player := policy.NewHistory(setup.Window), policy.NewPlayer(kind, setup)
		defer h.Free()
		defer player.Free()
		f, err := p.playSums(r, setup.Window, steps, func(remote []graph.VertexID, worth []uint8,
			last bool, each func(k int, d *cache.Decision)) error {
			h.Add(remote, worth)
			return player.Advance(h, last, each)
		}, nil)
		f.deciding = player.Took().Seconds() / float64(steps)
		f.held, f.bytes = player.Filled(), player.Bytes()
		f.window, f.counted = window, steps
		if p.shards.Schema.Typed() { // with types the capacity is in bytes
			f.heldBytes = int64(capacity)
			return f, err
		}
		f.held, f.heldBytes = capacity, int64(capacity)*int64(p.shards.RowBytes())
		if kind.Bytes != nil {
			f.bytes = kind.Bytes(policy.Size{Vertices: p.shards.Vertices, Rows: int64(capacity),
				Window: int64(window), Uses: meanRemote(r), Sums: true})
		}
		return f, err
	}}, nil
}

// fetchedBySumsOfNode does what fetchedBySums does, for a static policy whose rows the ranks of a
// node divide among their caches.
func (p *planner) fetchedBySumsOfNode(r *rankPlan, kind *policy.Policy, c *policy.Settings) (
	*fetched, error) {
	steps := min(p.traceSteps(r, 1), summedSteps)
	return p.placed(r, kind, c, func(device []int16, self int) (fetch, error) {
		peers, by := 0, fixed{device: device}
		defer by.free()
		f, err := p.playSums(r, 0, steps, by.decide, func(s *summer, _ []graph.VertexID) {
			for _, v := range s.plan.RemoteIDs {
				if d := int(device[v]); d >= 0 && d != self {
					peers++
				}
			}
		})
		f.peer, f.counted = float64(peers)/float64(steps), steps
		return f, err
	})
}

// summedSteps is the number of minibatches of a rank that are simulated if owners send sums.
const summedSteps = 64

// decides is a function that tells a cache about the next minibatch. The cache then decides about
// this minibatch, and about earlier ones that had to wait for it. The function each is called with
// every decision. If no minibatch follows, `last` is true.
type decides func(remote []graph.VertexID, worth []uint8, last bool,
	each func(minibatch int, d *cache.Decision)) error

// fixed is a cache that always holds the same vertices: those whose entry of device is not
// negative. If device is nil, it holds none.
type fixed struct {
	device []int16
	d      cache.Decision
	n      int
}

func (f *fixed) decide(remote []graph.VertexID, _ []uint8, _ bool,
	each func(minibatch int, d *cache.Decision)) error {
	f.d.Clear()
	f.d.Slot = mem.Grow(f.d.Slot, len(remote))
	for i, v := range remote {
		f.d.Slot[i] = 0
		if f.device == nil || f.device[v] < 0 {
			f.d.Slot[i] = -1
			f.d.Misses++
		}
	}
	each(f.n, &f.d)
	f.n++
	return nil
}

func (f *fixed) free() { f.d.Free() }

// playSums calls the function by, in which a cache decides, for the given number of minibatches of
// a rank. It returns what these minibatches fetch on average. If the window is 0, so that no
// minibatch waits, the function `took` gets the rows that travel for each minibatch. The function
// `took` may be nil.
func (p *planner) playSums(r *rankPlan, window, steps int, by decides,
	took func(s *summer, rows []graph.VertexID)) (f fetch, err error) {
	s, err := p.newSummer(r.rank, window)
	if err != nil {
		return f, err
	}
	defer s.close()
	var total trace.Counters
	var rows []graph.VertexID
	defer func() { mem.Free(rows) }()
	f.rows = p.same(0)
	i := 0
	for _, mb := range p.job.Reader(r.rank).Minibatches(p.shards.Topology(),
		p.samplerOptions(r.reader.Near), 1, 0, steps, &err) {
		worth, err := s.add(mb)
		if err != nil {
			return f, err
		}
		if err := by(s.plan.RemoteIDs, worth, i == steps-1, func(k int, d *cache.Decision) {
			total.Add(s.Count(k, d))
			s.AddRows(k, d, f.rows)
			if took == nil {
				return
			}
			travel, _ := s.Travels(k)
			rows = mem.Grow(rows[:0], len(travel))
			for n, at := range travel {
				rows[n] = s.plan.RemoteIDs[at]
			}
			took(s, rows)
		}); err != nil {
			return f, err
		}
		i++
	}
	if err != nil {
		return f, err
	}
	n := float64(steps)
	for kind := range f.rows {
		f.rows[kind] /= n
	}
	f.sums, f.ids = float64(total.Sums)/n, float64(total.IDBytes)/n
	f.sumBytes = float64(total.RowBytes)/n - f.rows.bytes(p.kinds())
	return f, nil
}

// travelling samples n minibatches of a rank, and returns for each the rows that travel besides
// sums. The rank has the rows of the vertices whose entry of device is not negative.
func (p *planner) travelling(r *rankPlan, n int, device []int16) (a *accesses, f fetch, err error) {
	a, by := new(accesses), fixed{device: device}
	defer by.free()
	f, err = p.playSums(r, 0, n, by.decide, func(_ *summer, rows []graph.VertexID) {
		at := len(a.ids)
		a.ids = mem.Grow(a.ids, at+len(rows))
		copy(a.ids[at:], rows)
		a.ends = append(a.ends, len(a.ids))
	})
	return a, f, err
}
