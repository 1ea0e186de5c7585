package simulate

import (
	"slices"

	"halognn/src/rows/policy"
)

// used holds the sizes that determine the memory: the maxima over one rank's samples, or over those
// of all ranks.
type used struct {
	sampler   int64 // bytes of a sampler and its minibatch
	minibatch int64 // remote vertices of a minibatch
	sums      int64 // bytes of the groups of sums, and of choosing between rows and sums
	near      int64 // bytes of a rank's sets of favoured vertices
	policies  int64 // bytes of a rank's policies
}

func (u *used) atLeast(o used) {
	u.sampler, u.minibatch = max(u.sampler, o.sampler), max(u.minibatch, o.minibatch)
	u.sums, u.near, u.policies = max(u.sums, o.sums), max(u.near, o.near),
		max(u.policies, o.policies)
}

// The memory of a process without the simulation, measured on a small graph.
const programBytes = 32 << 20

// Counts returns the bytes of the counts of all steps, the least that Run needs.
func (s *Simulation) Counts() int64 {
	sizes, _ := s.o.sizes()
	return s.countBytes(min(s.o.Workers, s.job.Ranks), len(sizes))
}

// countBytes returns the bytes of the counts of the ranks that are counted at a time, and of their
// sum.
func (s *Simulation) countBytes(together, sizes int) int64 {
	steps := int64(s.job.Epochs) * int64(s.job.Steps())
	return int64(together+1) * steps * (8 + 32*int64(len(s.policies)*sizes))
}

// bytes predicts the largest resident set.
func (s *Simulation) bytes(together, each int, u used, capacity []int) int64 {
	n, edges := s.shards.Vertices, s.shards.Topology().Graph.NumEdges()
	// includes the row pointers and vertices of the columns
	mapped := 4*edges + 12*n + 12*s.columns()
	if s.transposed {
		mapped += 4*edges + 8*n
	}
	seeds := int64(0)
	for p := range s.shards.Parts {
		seeds += int64(len(s.shards.Train(p)))
	}
	counts := s.countBytes(together, len(capacity))
	// placements; and their lookup tables or, before them, the scores and their order
	if s.shared != nil {
		for _, node := range s.shared {
			for _, place := range slices.Concat(node...) {
				counts += place.Bytes()
			}
		}
		counts += max(int64(together)*(6*n+4*n), 16*n)
	}
	work := int64(together) * s.rankBytes(each, u, capacity)
	switch {
	case s.job.FetchesAsNodes():
		work = s.nodesBytes(together, each, u, capacity)
	case s.job.FavoursNear():
		work = s.nearBytes(together, each, u, capacity)
	}
	return programBytes + mapped + 16*seeds + counts + work
}

// nodesBytes returns the memory if ranks of a node fetch as one: that of all ranks of the nodes
// that are counted at a time. Each node also knows when vertices came last, at which place, and how
// often it reads them; scores of first fills; and what ranks lack of the minibatches about which
// not all have decided, or what is wanted of them.
func (s *Simulation) nodesBytes(together, each int, u used, capacity []int) int64 {
	n, ranks, rows := s.shards.Vertices, int64(s.mostRanks()), int64(0)
	node := 12 * n
	for i, p := range s.policies {
		if p.Scores && s.own[i].Placement == policy.PlacementGroup {
			node += 8 * n // and those of a rank, while they are added
		}
		for size := range capacity {
			rows += int64(s.windows[i][size] + 1)
		}
	}
	node += ranks * u.minibatch * rows * 2 * 8 // lists grow by doubling
	return int64(s.nodesTogether(together)) * (ranks*s.rankBytes(each, u, capacity) + node)
}

// nearBytes returns the memory of all ranks if draws depend on the cache. Policies and sizes are
// counted one after the other. Each rank has the sets of its cached and its near vertices, or the
// state of a dynamic policy. The ranks that work at a time (together) also rank vertices and find
// the near ones, or sample.
func (s *Simulation) nearBytes(together, each int, u used, capacity []int) int64 {
	n := s.shards.Vertices
	changing, scratch := int64(0), int64(0)
	for i, p := range s.policies {
		if p.Scratch != nil {
			scratch = max(scratch, p.Scratch(n, int64(each)*u.sampler, s.own[i])+s.summing())
		}
		for size, rows := range capacity {
			if !p.Static() {
				changing = max(changing, s.policyBytes(i, size, rows, u)+8*u.minibatch)
			}
		}
	}
	// scores of a ranking, and the counts of paths
	opening, sampling := max(4*n+scratch, 8*n)+4*int64(slices.Max(capacity))+n/8, u.sampler+scratch
	return int64(s.job.Ranks)*(u.near+n/4+changing) + int64(together)*max(opening, sampling)
}

// policyBytes returns the bytes of a policy that decides step by step.
func (s *Simulation) policyBytes(which, size, rows int, u used) int64 {
	return s.policies[which].Bytes(policy.Size{
		Vertices: s.shards.Vertices, Rows: int64(rows), Window: int64(s.windows[which][size]),
		Uses: float64(u.minibatch), Steps: int64(s.job.Epochs * s.job.Items()),
		Degrees: s.transposed, Sums: s.job.Sums,
	})
}

// rankBytes returns the memory of one rank: its accesses, its dynamic policies, and the largest of
// sampling, of opening a policy meanwhile, and of predicting and ranking afterwards.
func (s *Simulation) rankBytes(each int, u used, capacity []int) int64 {
	n, w := s.shards.Vertices, max(s.shards.Vertices, s.columns())
	reads := 4*n + 4*w + w/8 + s.summing() // memory to find how often vertices are read
	bytes, sampling, ranking, window := 4*n, u.sampler, reads, 0
	for i, p := range s.policies {
		scratch := int64(0)
		if p.Scratch != nil {
			scratch = p.Scratch(w, int64(each)*u.sampler, s.own[i]) + s.summing()
		}
		if s.job.Kinds() != nil && !p.Static() { // the policy divides the capacity first
			scratch = max(scratch, reads)
		}
		if p.Static() {
			ranking = max(ranking, 4*n+scratch)
			for _, rows := range capacity {
				if (s.job.Sums || s.job.FetchesAsNodes()) && !p.None() { // the policy is played
					bytes += p.Bytes(policy.Size{Vertices: n, Rows: int64(rows)})
				}
			}
			continue
		}
		sampling = max(sampling, u.sampler+scratch)
		for size, rows := range capacity {
			window = max(window, s.windows[i][size])
			if s.job.Kinds() == nil {
				bytes += s.policyBytes(i, size, rows, u)
			}
		}
	}
	if s.job.Kinds() != nil { // each kind of rows has policies of its own
		bytes += u.policies
	}
	worth := int64(0)
	if s.job.Sums {
		worth = 1
	}
	return bytes + u.sums + (4+worth)*u.minibatch*int64(window+1) + max(sampling, ranking)
}

// columns returns the number of columns; 0 without types.
func (s *Simulation) columns() int64 {
	return int64(max(1, len(s.shards.Topology().Columns.Indptr)) - 1)
}

// summing returns the bytes for adding up the analyses of a step's minibatches, if their seeds
// differ.
func (s *Simulation) summing() int64 {
	if s.job.Minibatches() > 1 && !s.job.GlobalSeeds {
		return 4 * s.shards.Vertices
	}
	return 0
}
