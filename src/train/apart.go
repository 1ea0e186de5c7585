package train

import (
	"errors"
	"fmt"

	"halognn/src/comm"
	"halognn/src/exchange"
	"halognn/src/graph"
	"halognn/src/mem"
	"halognn/src/ranking"
	"halognn/src/trace"
)

// openApart opens a cache where no rank sees the whole topology: a static one whose ranking has
// been written before, or one that needs nothing of the graph. Collective.
func (s *session) openApart() (exchange.Cache, error) {
	p := s.policy()
	if p.Whole != "" || s.o.Cache.HaloFraction > 0 {
		return nil, AgreedOn(s.Comm, fmt.Errorf("cache.policy %s cannot be had where no rank "+
			"sees the whole topology: %s", p.Name, p.Whole))
	}
	if !p.Static() {
		var err error
		s.dynamic, err = s.openDynamic(nil)
		return nil, err
	}
	held, left, err := s.ranked()
	defer func() { mem.Free(held) }()
	if err = Agree(s.Comm, err); err != nil {
		return nil, fmt.Errorf("cache.policy %s: %w", p.Name, err)
	}
	s.SetUp.Done(trace.SetUpRank)
	if s.expected, err = comm.AgreeSum(s.Comm, left*float64(s.minibatches())); err != nil {
		return nil, err
	}
	c, err := s.fillCache(held)
	if err != nil {
		return nil, fmt.Errorf("filling the cache: %w", err)
	}
	s.SetUp.Done(trace.SetUpFill)
	s.closers = append(s.closers, func() error { c.free(); return nil })
	return c, nil
}

// ranked reads what a static policy keeps on this rank, and the rows that a minibatch is expected
// to fetch beside it.
func (s *session) ranked() (held []graph.VertexID, left float64, err error) {
	r, err := ranking.Open(s.job, s.policy())
	if err == nil {
		var capacity int
		if capacity, err = s.cacheCapacity(nil); err == nil {
			held, left, err = r.Hold(s.Comm.Rank(), capacity)
		}
	}
	if errors.Is(err, ranking.ErrMissing) {
		err = fmt.Errorf("%w; where no rank sees the whole topology it takes a ranking that was "+
			"written before: halognn analyze --config FILE --ranks %d --ranks-per-node %d "+
			"--policies %s --alpha %g",
			err, s.Comm.Size(), s.Comm.Size()/s.nodes, s.o.Cache.Policy, s.o.Cache.Alpha)
	}
	return held, left, err
}
