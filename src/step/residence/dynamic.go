package residence

import (
	"errors"
	"fmt"
	"iter"
	"slices"

	"halognn/src/base/mem"
	"halognn/src/base/trace"
	"halognn/src/ranks/comm"
	"halognn/src/rows/access"
	"halognn/src/rows/cache"
	"halognn/src/rows/exchange"
	"halognn/src/rows/policy"
	"halognn/src/topology/graph"
)

// dynamicCache is a cache whose rows change while training runs.
type dynamicCache struct {
	policy cache.Policy
	table      // rows in the cache's slots
	window int // number of steps that the policy sees in advance
}

func (c *dynamicCache) free() error {
	c.policy.Free()
	mem.Free(c.rows)
	return nil
}

// openDynamic makes the policy and fetches its first rows. The graph m is nil if no rank sees the
// whole topology. Collective.
func (s *Store) openDynamic(c *Cache, m *access.Graph, at Position) error {
	kind := c.Policy()
	setup := policy.Setup{
		Graph: m, Vertices: int(s.shards().Vertices), Workload: s.workload(),
		Settings: &c.Settings,
		Sums:     s.Job.OwnersSums() != nil, Passing: s.whole != nil,
	}
	var err error
	setup.Capacity, err = s.capacity(c, m)
	if err = comm.Agree(s.Comm, err); err != nil {
		return fmt.Errorf("cache: %w", err)
	}
	if kind.Window != nil {
		s.SetUp.Done(trace.SetUpRank)
		if c.Expected, err = s.planWindow(kind, &setup); err != nil {
			return fmt.Errorf("planning a window: %w", err)
		}
		s.SetUp.Done(trace.SetUpPredict)
	}
	var sampling error // error of sampling the first window
	setup.Ahead = setup.Workload.Ahead(at.Epoch, at.Item, setup.Window+1, &sampling)
	if s.Job.Divides(&c.Settings) {
		if err := s.divide(kind, &setup, &sampling); err != nil {
			return fmt.Errorf("dividing a cache among the ranks of a node: %w", err)
		}
		defer mem.Free(setup.Scores)
	}
	opened, initial, err := kind.Start(&setup)
	defer func() { mem.Free(initial) }()
	if err = comm.Agree(s.Comm, errors.Join(sampling, err)); err != nil {
		return fmt.Errorf("cache.policy %s: %w", kind.Name, err)
	}
	s.SetUp.Done(trace.SetUpRank)
	slots := []int{opened.Slots()}
	if p, typed := opened.(*cache.ByKind); typed {
		slots = p.SlotsOf()
	}
	c.dynamic = &dynamicCache{policy: opened, table: newTable(s, slots), window: setup.Window}
	c.closers = append(c.closers, c.dynamic.free)
	if err := s.fetchRows(initial, c.dynamic.table); err != nil {
		return fmt.Errorf("filling the cache: %w", err)
	}
	s.SetUp.Done(trace.SetUpFill)
	return nil
}

// divide changes the setup of a rank's cache to that of a buyer, which decides about all rows that
// its node wants from it. For the first fill the ranks of the node rank the vertices together. For
// the first window they tell each other what they read. Ranks choose between rows and sums before
// they know what buyers hold, so for a buyer all rows are worth the same. Collective.
func (s *Store) divide(kind *policy.Policy, setup *policy.Setup, sampling *error) error {
	var err error
	if kind.Scores {
		setup.Scores, err = policy.Find(setup.Settings.Initial).Rank(setup.Graph, setup.Workload)
	}
	if err = comm.Agree(s.Comm, err); err != nil {
		return err
	}
	if kind.Scores {
		if err := addUp(s.node, setup.Scores, s.Host.AddInto); err != nil {
			return err
		}
	}
	if kind.Window != nil {
		wanted, err := s.wantedOf(setup.Ahead, sampling)
		if err != nil {
			return err
		}
		setup.Ahead = slices.Values(wanted)
	}
	setup.Workload, setup.Sums = s.Job.Bought(s.Comm.Rank(), setup.Workload), false
	return nil
}

// wantedOf returns what the ranks of the node want from this rank, minibatch by minibatch. The
// sequence ahead has the remote vertices of this rank's minibatches. Collective.
func (s *Store) wantedOf(ahead iter.Seq[[]graph.VertexID], sampling *error) (
	all [][]graph.VertexID, err error) {
	for remote := range ahead {
		all = append(all, slices.Clone(remote))
	}
	if err := comm.Agree(s.Comm, *sampling); err != nil {
		return nil, err
	}
	f, err := s.Fetcher(nil, false)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	var p exchange.Plan
	defer p.Free()
	for i, remote := range all { // the same number of rounds on every rank
		if err := f.Plan(&p, remote); err != nil {
			return nil, err
		}
		if err := f.StartWants(&p).Wait(); err != nil {
			return nil, err
		}
		if err := f.Merge(&p); err != nil {
			return nil, err
		}
		all[i] = append(remote[:0], p.Wanted()...)
	}
	return all, nil
}

// planWindow sets how many minibatches the policy knows in advance. This is the configured number.
// If none is configured, it is the largest number that any rank plans, as far as the memory of all
// ranks allows it. It predicts the rows that a step of all ranks fetches. Collective.
func (s *Store) planWindow(kind *policy.Policy, setup *policy.Setup) (expected float64, err error) {
	m, r, minibatches := setup.Graph, setup.Workload, s.Job.Epochs*s.Job.Items()
	planned, waiting, rows, wanted := 1, int64(0), 0.0, setup.Settings.Window
	p, err := m.Reads(r)
	defer func() { mem.Free(p) }()
	if err == nil {
		planned, err = kind.Widest(setup, p)
	}
	if err == nil {
		waiting, err = m.WindowBytes(r, p, 1)
	}
	if err = comm.Agree(s.Comm, err); err != nil {
		return 0, err
	}
	if planned, err = comm.AgreeMax(s.Comm, planned); err != nil {
		return 0, err
	}
	if waiting, err = comm.AgreeMax(s.Comm, waiting); err != nil {
		return 0, err
	}
	planned = min(planned, int(access.WindowMemory/max(1, waiting)))
	waiting *= int64(min(wanted, minibatches))
	if setup.Window = wanted; wanted == 0 {
		setup.Window = max(1, planned)
	} else if waiting > access.WindowMemory {
		s.note("the minibatches that wait in a cache.window of %d take about %.1f GB of a rank. "+
			"With cache.window 0 the program would choose a window of %d minibatches, to stay "+
			"within %.1f GB", wanted, float64(waiting)/1e9, max(1, planned),
			float64(access.WindowMemory)/1e9)
	}
	setup.Window = min(setup.Window, minibatches) // the run has no more minibatches
	rows, err = kind.Expected(m, p, r, nil, setup.Capacity, setup.Window, minibatches)
	if err = comm.Agree(s.Comm, err); err != nil {
		return 0, err
	}
	return comm.AgreeSum(s.Comm, rows*float64(r.Count))
}
