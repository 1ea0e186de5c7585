package simulate

import (
	"fmt"
	"slices"

	"halognn/src/base/mem"
	"halognn/src/rows/access"
	"halognn/src/rows/cache"
	"halognn/src/rows/policy"
	"halognn/src/topology/graph"
)

// shared holds, for the ranks of one node, which rank caches which rows: [policies][sizes]. It is
// nil for policy none and for policies that change the cached rows.
type shared [][]*cache.Placement

// shareNodes divides the rows of static caches among the ranks of every node as training does. It
// adds the scores of the ranks in the same order, so that they are rounded alike. A policy that
// scores vertices by counting minibatches samples these once more.
func (s *Simulation) shareNodes(m *access.Graph) error {
	s.shared = map[int]shared{}
	for rank := range s.job.Ranks {
		ranks := s.job.Neighbours(rank)
		if ranks[0] != rank {
			continue
		}
		node := make(shared, len(s.policies))
		s.shared[rank] = node
		for i, p := range s.policies {
			if p.None() || !p.Static() {
				continue
			}
			var err error
			if node[i], err = s.shareNode(m, p, ranks); err != nil {
				return fmt.Errorf("policy %s, ranks %v: %w", p.Name, ranks, err)
			}
		}
	}
	return nil
}

// shareNode decides, for every size of cache, which of the given ranks caches which rows by one
// policy.
func (s *Simulation) shareNode(m *access.Graph, p *policy.Policy, ranks []int) (
	sizes []*cache.Placement, err error) {
	// all ranks of a node have the same halo, and so the same capacity
	capacity, err := s.capacities(m, ranks[0])
	if err != nil {
		return nil, err
	}
	var readers []*access.Workload
	for _, rank := range ranks {
		readers = append(readers, s.reader(rank, s.o.Workers))
	}
	score, err := p.RankTogether(m, readers)
	if err != nil {
		return nil, err
	}
	defer mem.Free(score)
	for _, rows := range capacity {
		place, err := s.job.Cache.Place(score, s.job.Owned(ranks), rows)
		if err != nil {
			return sizes, err
		}
		sizes = append(sizes, place)
	}
	return sizes, nil
}

// freeShared frees the placements of shareNodes.
func (s *Simulation) freeShared() {
	for _, node := range s.shared {
		for _, place := range slices.Concat(node...) {
			place.Free()
		}
	}
	s.shared = nil
}

// sharedStatic does what static does, for ranks of a node that read each other's caches. Rows that
// the rank reads from the caches of the others are counted in `peer`.
func (c *counter) sharedStatic(which int, m *access.Graph, r *access.Workload,
	inclusion []float32, rows, peer, filled []int64, predicted []float64) error {
	ranks := c.job.Neighbours(c.rank)
	self := slices.Index(ranks, c.rank)
	for i, place := range c.shared[ranks[0]][which] {
		device, slot := place.Lookup(self)
		mem.Free(slot)
		held := mem.Make[graph.VertexID](place.Rows())[:0]
		rows[i], filled[i] = c.remote, int64(len(place.Held(self)))
		for v, d := range device {
			if d < 0 {
				continue
			}
			held = append(held, graph.VertexID(v))
			rows[i] -= int64(c.accesses[v])
			if int(d) != self {
				peer[i] += int64(c.accesses[v])
			}
		}
		var err error
		predicted[i], err = c.policies[which].Expected(m, inclusion, r, held, 0, 0, 0)
		predicted[i] *= float64(c.perEpoch(r))
		mem.Free(held)
		mem.Free(device)
		if err != nil {
			return err
		}
	}
	return nil
}
