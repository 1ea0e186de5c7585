package residence

import (
	"errors"
	"fmt"

	"halognn/src/comm"
	"halognn/src/graph"
	"halognn/src/mem"
	"halognn/src/ranking"
	"halognn/src/trace"
)

// openPartitioned opens a cache where no rank sees the whole topology: a static one, whose ranking
// was written before, or one that needs nothing of the graph. Collective.
func (s *Store) openPartitioned(c *Cache, at Position) error {
	p, o := c.Policy(), &c.Settings
	if p.Whole != "" || o.HaloFraction > 0 || o.Shared() || o.FromFiles() {
		return comm.AgreedOn(s.Comm, fmt.Errorf("cache.policy %s with cache.halo_fraction %g, "+
			"cache.placement %s and cache.source %s needs the whole topology on every rank", p.Name,
			o.HaloFraction, o.Placement, o.Source))
	}
	if !p.Static() {
		return s.openDynamic(c, nil, at)
	}
	held, left, err := s.ranked(c)
	defer func() { mem.Free(held) }()
	if err = comm.Agree(s.Comm, err); err != nil {
		return fmt.Errorf("cache.policy %s: %w", p.Name, err)
	}
	s.SetUp.Done(trace.SetUpRank)
	c.Expected, err = comm.AgreeSum(s.Comm, left*float64(s.Job.Minibatches()))
	if err != nil {
		return err
	}
	return s.fillStatic(c, held)
}

// ranked reads the vertices that a static policy keeps on this rank, and the rows that a minibatch
// is expected to fetch besides.
func (s *Store) ranked(c *Cache) (held []graph.VertexID, left float64, err error) {
	capacity, err := s.capacity(c, nil)
	if err != nil {
		return nil, 0, err
	}
	r, err := ranking.Open(s.Job, c.Policy())
	if err == nil {
		held, left, err = r.Hold(s.Comm.Rank(), capacity)
	}
	if errors.Is(err, ranking.ErrMissing) {
		err = fmt.Errorf("%w; where no rank sees the whole topology, a ranking must be written "+
			"before: halognn analyze %s --config FILE --ranks %d --ranks-per-node %d --policies %s "+
			"--alpha %g, with the --set of this run",
			err, s.shards().Dir, s.Comm.Size(), s.Comm.Size()/s.Job.Nodes(), c.Settings.Policy,
			c.Settings.Alpha)
	}
	return held, left, err
}
