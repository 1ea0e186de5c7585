package plan

import (
	"halognn/src/base/trace"
	"halognn/src/rows/cache"
	"halognn/src/rows/exchange"
	"halognn/src/rows/policy"
	"halognn/src/step/job"
	"halognn/src/step/parallel"
	"halognn/src/topology/sample"
)

// summer counts the rows and sums that ranks would transfer for sampled minibatches.
type summer struct {
	*parallel.SumCounter
	x    *exchange.Exchange
	plan exchange.Plan
}

// newSummer returns the summer of a rank. The argument window is the number of minibatches that the
// cache's policy sees ahead. The result is nil if owners send no sums, or if ranks share
// minibatches.
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

// fetchedBySums does what fetched does, if owners send sums of rows. The policy decides about
// sampled minibatches of the rank, as in a run, and its misses are transferred as rows or as sums.
func (p *planner) fetchedBySums(r *rankPlan, kind *policy.Policy, c *policy.Settings) (*fetched,
	error) {
	steps := min(p.traceSteps(r, 1), summedSteps)
	return &fetched{free: func() {}, at: func(capacity int) (fetch, error) {
		setup := policy.Setup{Graph: p.graph, Workload: r.reader, Settings: c, Capacity: capacity,
			Sums: true}
		window, err := kind.WindowOf(&setup, r.read, p.job.Items()*p.job.Epochs)
		if err != nil {
			return fetch{}, err
		}
		setup.Window = min(window, steps)
		f, err := p.playSums(r, kind, setup, steps)
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

// summedSteps is the number of minibatches of a rank that are simulated if owners send sums.
const summedSteps = 64

// playSums lets a policy decide about the given number of minibatches, and returns what they fetch
// on average.
func (p *planner) playSums(r *rankPlan, kind *policy.Policy, setup policy.Setup, steps int) (
	f fetch, err error) {
	s, err := p.newSummer(r.rank, setup.Window)
	if err != nil {
		return f, err
	}
	defer s.close()
	h, player := policy.NewHistory(setup.Window), policy.NewPlayer(kind, setup)
	defer h.Free()
	defer player.Free()
	var total trace.Counters
	f.rows = p.same(0)
	i := 0
	for _, mb := range p.job.Reader(r.rank).Minibatches(p.shards.Topology(),
		p.samplerOptions(r.reader.Near), 1, 0, steps, &err) {
		worth, err := s.add(mb)
		if err != nil {
			return f, err
		}
		h.Add(s.plan.RemoteIDs, worth)
		if err := player.Advance(h, i == steps-1, func(k int, d *cache.Decision) {
			total.Add(s.Count(k, d))
			s.AddRows(k, d, f.rows)
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
	f.sums, f.ids, f.deciding = float64(total.Sums)/n, float64(total.IDBytes)/n,
		player.Took().Seconds()/n
	f.sumBytes = float64(total.RowBytes)/n - f.rows.bytes(p.kinds())
	f.held, f.bytes = player.Filled(), player.Bytes()
	return f, nil
}
