package residence

import (
	"errors"
	"fmt"
	"time"

	"halognn/src/base/mem"
	"halognn/src/base/trace"
	"halognn/src/data/shard"
	"halognn/src/ranks/comm"
	"halognn/src/rows/access"
	"halognn/src/step/ranking"
	"halognn/src/topology/graph"
)

// openPartitioned opens a cache if each rank holds only the in-edges of its own vertices. A policy
// that needs no graph opens at once, and so does a static policy whose ranking was written before.
// Otherwise, and for caches that divide their bytes among vertex types, ranks first map and analyse
// the whole graph. Collective.
func (s *Store) openPartitioned(c *Cache, at Position) error {
	p, o := c.Policy(), &c.Settings
	if shared := o.Shared() && (p.Static() || s.Job.Divides(o)); shared || o.HaloFraction > 0 ||
		o.FromFiles() || s.Job.Kinds() != nil {
		return s.openWhole(c, at)
	}
	if !p.Static() {
		if p.Needs {
			return s.openWhole(c, at)
		}
		return s.openDynamic(c, nil, at)
	}
	held, left, err := s.ranked(c)
	defer func() { mem.Free(held) }()
	missing := errors.Is(err, ranking.ErrMissing)
	if missing {
		err = nil
	}
	if err = comm.Agree(s.Comm, err); err != nil {
		return fmt.Errorf("cache.policy %s: %w", p.Name, err)
	}
	if missing, err = comm.AgreeAny(s.Comm, missing); err != nil {
		return err
	}
	if missing {
		return s.openWhole(c, at)
	}
	s.SetUp.Done(trace.SetUpRank)
	c.Expected, err = comm.AgreeSum(s.Comm, left*float64(s.Job.Minibatches()))
	if err != nil {
		return err
	}
	return s.fillStatic(c, held)
}

// ranked reads the vertices that a static policy keeps on this rank, and the number of rows that a
// minibatch is expected to fetch in addition.
func (s *Store) ranked(c *Cache) (held []graph.VertexID, left float64, err error) {
	capacity, err := s.capacity(c, nil)
	if err != nil {
		return nil, 0, err
	}
	r, err := ranking.Open(s.Job, c.Policy())
	if err == nil {
		held, left, err = r.Hold(s.Comm.Rank(), capacity)
	}
	return held, left, err
}

// openWhole opens a cache that needs an analysis of the whole graph. Collective.
func (s *Store) openWhole(c *Cache, at Position) error {
	return s.withGraph(c.Settings.Policy, func(m *access.Graph) error {
		return s.openAnalysed(c, m, at)
	})
}

// withGraph calls the function f with the whole graph, prepared for analyses. Collective.
func (s *Store) withGraph(policy string, f func(m *access.Graph) error) error {
	begin := time.Now()
	return s.withWhole(func() error {
		m, err := s.graph()
		if err = comm.Agree(s.Comm, err); err == nil {
			s.tellAnalysis(policy, time.Since(begin))
			err = f(m)
		}
		if m != nil {
			m.Free()
		}
		return err
	})
}

// withWhole calls the function f. Until f returns, the method workload describes the whole
// topology. A rank that holds only a part of it maps the files of all parts meanwhile; the ranks of
// the node share these pages. Collective.
func (s *Store) withWhole(f func() error) (err error) {
	if !s.Job.Partitioned {
		return f()
	}
	s.whole, err = shard.Whole(s.shards())
	if err = comm.Agree(s.Comm, err); err == nil {
		err = f()
	}
	if s.whole != nil {
		err = errors.Join(err, s.whole.Close())
	}
	s.whole = nil
	return err
}

// tellAnalysis warns that an analysis will take more than a minute, and that `halognn analyze`
// could have done it in advance. It estimates that preparing the graph took one pass over the
// edges, and that an analysis takes one more pass for each hop.
func (s *Store) tellAnalysis(policy string, prepared time.Duration) {
	takes := prepared * time.Duration(s.Job.Sample.Hops()+1)
	if s.whole == nil || takes < time.Minute {
		return
	}
	s.note("ranking vertices takes each rank about %s at every start; for static policies "+
		"`halognn analyze %s --config FILE --ranks %d --ranks-per-node %d --policies %s --alpha "+
		"%g`, with the --set of this run, does it once", takes.Round(time.Second), s.shards().Dir,
		s.Comm.Size(), s.Comm.Size()/s.Job.Nodes(), policy, s.Job.Cache.Alpha)
}
