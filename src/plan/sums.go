package plan

import (
	"halognn/src/cache"
	"halognn/src/exchange"
	"halognn/src/mem"
	"halognn/src/nn"
	"halognn/src/parallel"
	"halognn/src/policy"
	"halognn/src/sample"
	"halognn/src/trace"
)

// summer chooses between rows and sums of minibatches that are sampled for a prediction, as the
// exchange of a run does.
type summer struct {
	x        *exchange.Exchange
	free     func()
	needs    nn.Needs
	topology *sample.Topology
	edges    parallel.LayerEdges
	plan     exchange.Plan
	groups   exchange.Groups
	chooser  *exchange.Chooser
}

// newSummer makes the summer of a rank; nil if rows alone travel.
func (p *planner) newSummer(rank int) (*summer, error) {
	sums := p.job.OwnersSums()
	if sums == nil || p.shares() {
		return nil, nil
	}
	x, free, err := p.layout.Exchange(rank)
	if err != nil {
		return nil, err
	}
	return &summer{x: x, free: free, needs: p.job.Model.Needs(), topology: p.shards.Topology(),
		chooser: exchange.NewChooser(sums, p.shards.Features, p.shards.Type())}, nil
}

// list lists the remote vertices and the groups of a minibatch.
func (s *summer) list(mb *sample.Minibatch) error {
	if err := s.x.Locate(&s.plan, mb.Frontier); err != nil {
		return err
	}
	s.edges.List(mb, s.needs, s.topology, s.x, &s.plan, &s.groups)
	return nil
}

// close frees the memory; nil is allowed.
func (s *summer) close() {
	if s == nil {
		return
	}
	s.edges.Free()
	s.plan.Free()
	s.groups.Free()
	s.chooser.Free()
	s.free()
}

// summed is what a minibatch transfers without a cache, and what choosing it takes.
type summed struct {
	trace.Counters
	scratch int64 // bytes of the choice
}

func (s *summed) atLeast(o *summed) {
	s.RowBytes, s.IDBytes = max(s.RowBytes, o.RowBytes), max(s.IDBytes, o.IDBytes)
	s.Remote, s.Sums = max(s.Remote, o.Remote), max(s.Sums, o.Sums)
	s.scratch = max(s.scratch, o.scratch)
}

// probed adds what a minibatch transfers to its shape; s may be nil.
func (s *summer) probed(mb *sample.Minibatch, shape *shape) error {
	if s == nil {
		return nil
	}
	if err := s.list(mb); err != nil {
		return err
	}
	c := s.chooser.Counts(&s.groups, nil, nil)
	shape.sums = &summed{Counters: c, scratch: s.chooser.Bytes() + s.groups.Bytes()}
	return nil
}

// movedBytes returns the bytes of a minibatch's messages, taking those of others to be like its own,
// and of the references and indices with which others' sums are added: 12 bytes an id.
func (s *summed) movedBytes() int64 {
	return 2*(s.RowBytes+s.IDBytes) + s.IDBytes/exchange.IDBytes*12 + s.Sums*8
}

// meanVectors averages the rows and sums that the probes transfer without a cache.
func meanVectors(r *rankPlan) float64 {
	n := 0.0
	for _, s := range r.probes {
		if s.sums == nil {
			return meanRemote(r)
		}
		n += float64(s.sums.Remote + s.sums.Sums)
	}
	return n / float64(len(r.probes))
}

// fetchedBySums is fetched where owners add rows: the policy decides about sampled minibatches of
// the rank, as in a run, and what it leaves is divided between rows and sums.
func (p *planner) fetchedBySums(r *rankPlan, kind *policy.Policy, c *policy.Settings) (*fetched,
	error) {
	steps := min(p.traceSteps(r), summedSteps)
	return &fetched{free: func() {}, at: func(capacity int) (fetch, error) {
		setup := policy.Setup{Graph: p.graph, Workload: r.reader, Settings: c, Capacity: capacity,
			Sums: true}
		window, err := kind.Plan(&setup, r.read, p.layout.Items()*p.job.Epochs)
		if err != nil {
			return fetch{}, err
		}
		setup.Window = min(window, steps)
		f, err := p.playSums(r, kind, setup, steps)
		f.held, f.window, f.counted = capacity, window, steps
		if kind.Bytes != nil {
			f.bytes = kind.Bytes(policy.Size{Vertices: p.shards.Vertices, Rows: int64(capacity),
				Window: int64(window), Uses: meanRemote(r), Sums: true})
		}
		return f, err
	}}, nil
}

// summedSteps is how many minibatches of a rank are played where owners add rows.
const summedSteps = 64

// playSums lets a policy decide about the given number of minibatches.
func (p *planner) playSums(r *rankPlan, kind *policy.Policy, setup policy.Setup, steps int) (f fetch,
	err error) {
	s, err := p.newSummer(r.rank)
	if err != nil {
		return f, err
	}
	defer s.close()
	sampler, err := sample.New(p.shards.Topology(), p.samplerOptions(r.reader.Near))
	if err != nil {
		return f, err
	}
	defer sampler.Free()
	var mb sample.Minibatch
	defer mb.Free()
	h, player := policy.NewHistory(setup.Window), policy.NewPlayer(kind, setup)
	defer h.Free()
	defer player.Free()
	groups := make([]exchange.Groups, setup.Window+1) // a ring
	defer func() {
		for i := range groups {
			groups[i].Free()
		}
	}()
	var total trace.Counters
	var kept []int32
	var worth []uint8
	defer func() { mem.Free(kept); mem.Free(worth) }()
	for i := range steps {
		key := p.layout.Key(r.rank, 1+i/p.layout.Items(), i%p.layout.Items())
		if err := sampler.Sample(&mb, p.layout.Seeds(key, nil), key); err != nil {
			return f, err
		}
		if err := s.list(&mb); err != nil {
			return f, err
		}
		groups[i%len(groups)].Copy(&s.groups)
		worth = s.groups.Worth(worth)
		h.Add(s.plan.RemoteIDs, worth)
		if err := player.Advance(h, i == steps-1, func(k int, d *cache.Decision) {
			kept = d.Kept(kept)
			n := s.chooser.Counts(&groups[k%len(groups)], d.Slot, kept)
			n.Remote += int64(len(d.Early))
			total.Add(n)
		}); err != nil {
			return f, err
		}
	}
	n := float64(steps)
	return fetch{rows: float64(total.Remote) / n, sums: float64(total.Sums) / n,
		ids: float64(total.IDBytes) / n, deciding: player.Took().Seconds() / n}, nil
}
