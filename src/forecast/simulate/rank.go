package simulate

import (
	"halognn/src/base/mem"
	"halognn/src/rows/access"
	"halognn/src/rows/policy"
)

// reader returns the description of a rank's minibatches from which policies predict reads.
func (s *Simulation) reader(rank, workers int) *access.Workload {
	r := s.job.Workload(rank, workers)
	if s.o.LastShort { // LastShort needs a stream of seeds for each rank
		own := &r.Sources[0]
		own.PerBatch = float64(len(own.Seeds)) / float64(s.stepsOf(len(own.Seeds)))
	}
	return r
}

// stepsOf returns the number of steps of an epoch in which a rank with the given number of seeds
// has a minibatch.
func (s *Simulation) stepsOf(seeds int) int {
	if !s.o.LastShort {
		return s.job.Steps()
	}
	return max(1, (seeds+s.job.Batch-1)/s.job.Batch)
}

// capacities returns the capacity of a rank's cache in rows, for each size.
func (s *Simulation) capacities(m *access.Graph, rank int) ([]int, error) {
	var rows []int
	for _, size := range s.settings() {
		n, err := s.job.Capacity(m, rank, &size)
		if err != nil {
			return nil, err
		}
		rows = append(rows, n)
	}
	return rows, nil
}

// settings returns the settings of the cache, for each size.
func (s *Simulation) settings() (all []policy.Settings) {
	sizes, _ := s.o.sizes()
	for _, x := range sizes {
		o := s.job.Cache
		if o.Alpha, o.HaloFraction = x, 0; len(s.o.HaloFractions) > 0 {
			o.Alpha, o.HaloFraction = 0, x
		}
		all = append(all, o)
	}
	return all
}

// planWindows sets the windows of policies that know minibatches in advance. A configured window is
// used as it is. Otherwise the window is the largest that any rank plans. No window is longer than
// the run.
func (s *Simulation) planWindows(m *access.Graph) error {
	sizes, _ := s.o.sizes()
	ranks := 0 // number of ranks to plan for: one if windows are configured
	s.windows = make([][]int, len(s.policies))
	for i, p := range s.policies {
		s.windows[i] = make([]int, len(sizes))
		switch {
		case p.Window == nil:
		case s.own[i].Window == 0:
			ranks = s.job.Ranks
		default:
			ranks = max(ranks, 1)
		}
	}
	for rank := range ranks {
		r := s.reader(rank, s.o.Workers)
		capacity, err := s.capacities(m, rank)
		if err != nil {
			return err
		}
		inclusion, err := m.Reads(r)
		if err != nil {
			return err
		}
		err = s.widen(m, r, capacity, inclusion)
		mem.Free(inclusion)
		if err != nil {
			return err
		}
	}
	return nil
}

// widen makes the windows at least as long as one rank plans them.
func (s *Simulation) widen(m *access.Graph, r *access.Workload, capacity []int,
	inclusion []float32) error {
	for i, p := range s.policies {
		for size, rows := range capacity {
			w, err := p.WindowOf(&policy.Setup{
				Graph: m, Workload: r, Settings: s.own[i], Capacity: rows,
			}, inclusion, s.job.Epochs*s.job.Items())
			if err != nil {
				return err
			}
			s.windows[i][size] = max(s.windows[i][size], w)
		}
	}
	return nil
}
