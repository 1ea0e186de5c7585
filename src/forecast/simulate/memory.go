package simulate

import (
	"slices"

	"halognn/src/rows/policy"
)

// used holds measured sizes that determine the memory. A size is the largest of all minibatches of
// a rank or, after atLeast, of all ranks.
type used struct {
	sampler   int64 // bytes of a sampler and the minibatch that it fills
	minibatch int64 // number of remote vertices of a minibatch
	sums      int64 // bytes for counting sums, and for choosing between rows and sums
	near      int64 // bytes of the sets of vertices that a rank favours
	policies  int64 // bytes of the policies that a rank plays
}

func (u *used) atLeast(o used) {
	u.sampler, u.minibatch = max(u.sampler, o.sampler), max(u.minibatch, o.minibatch)
	u.sums, u.near, u.policies = max(u.sums, o.sums), max(u.near, o.near),
		max(u.policies, o.policies)
}

// programBytes is the memory of the process without the simulation, measured on a small graph.
const programBytes = 32 << 20

// Counts returns the bytes for the counts of all steps. Run needs at least these.
func (s *Simulation) Counts() int64 {
	sizes, _ := s.o.sizes()
	return s.countBytes(min(s.o.Workers, s.job.Ranks), len(sizes))
}

// countBytes returns the bytes for the counts of all steps: a set of counts for each rank that is
// counted at a time, and one for the sum. The number of these ranks and the number of cache sizes
// are given.
func (s *Simulation) countBytes(ranks, sizes int) int64 {
	steps := int64(s.job.Epochs) * int64(s.job.Steps())
	return int64(ranks+1) * steps * (8 + 32*int64(len(s.policies)*sizes))
}

// bytes predicts the largest resident set. The number of ranks that are counted at a time (`ranks`)
// and the number of goroutines of one rank (`each`) are given.
func (s *Simulation) bytes(ranks, each int, u used, capacity []int) int64 {
	n, edges := s.shards.Vertices, s.shards.Topology().Graph.NumEdges()
	// the last term is the row pointers and vertices of the columns
	mapped := 4*edges + 12*n + 12*s.columns()
	if s.transposed {
		mapped += 4*edges + 8*n
	}
	seeds := int64(0)
	for p := range s.shards.Parts {
		seeds += int64(len(s.shards.Train(p)))
	}
	counts := s.countBytes(ranks, len(capacity))
	// the placements of shared caches; and, whichever is larger, the scores and order from which
	// they are made (16 n bytes), or the later lookup table of each rank (10 n bytes)
	if s.shared != nil {
		for _, node := range s.shared {
			for _, place := range slices.Concat(node...) {
				counts += place.Bytes()
			}
		}
		counts += max(int64(ranks)*(6*n+4*n), 16*n)
	}
	work := int64(ranks) * s.rankBytes(each, u, capacity)
	switch {
	case s.byNode():
		work = s.nodesBytes(ranks, each, u, capacity)
	case s.job.FavoursNear():
		work = s.nearBytes(ranks, each, u, capacity)
	}
	return programBytes + mapped + 16*seeds + counts + work
}

// nodesBytes returns the memory if the ranks of a node fetch as one. It is the memory of all ranks
// of the nodes that are counted at a time, and of these nodes themselves. For each vertex, a node
// keeps the latest pass over lists that met the vertex, the vertex's place in the list of that
// pass, and the number of turns that read the vertex. It also keeps the scores of first fills, and
// the rows that minibatches lack until all ranks have decided about them.
func (s *Simulation) nodesBytes(together, each int, u used, capacity []int) int64 {
	n, ranks, rows := s.shards.Vertices, int64(s.mostRanks()), int64(0)
	node := 12 * n
	for i, p := range s.policies {
		if p.Scores && s.own[i].Placement == policy.PlacementGroup {
			// the sum of the ranks' scores, and the scores of one rank while they are added
			node += 8 * n
		}
		for size := range capacity {
			rows += int64(s.windows[i][size] + 1)
			if s.job.Sums && s.shared != nil && p.Static() {
				node += 2 * n * ranks // who holds each vertex
			}
		}
	}
	if s.job.Sums {
		node += 4 * ranks * u.minibatch // rows about which divided caches decide
	}
	// A list that grows doubles its memory, so up to half of the memory is unused.
	node += ranks * u.minibatch * rows * 2 * 8
	return int64(s.nodesTogether(together)) * (ranks*s.rankBytes(each, u, capacity) + node)
}

// nearBytes returns the memory of all ranks if draws depend on the cache. Policies and sizes are
// simulated one after the other, so the result is that of the largest. Each rank keeps the set of
// its cached vertices and the set of vertices near them, or the state of a dynamic policy. At most
// `together` ranks work at the same time. Each of these also needs memory to open a cache and find
// the near vertices and, later, to sample.
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
	// opening a cache needs the scores that rank vertices, then the counts of paths that find the
	// near vertices
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

// rankBytes returns the memory of one rank: the counts of accesses, the dynamic policies, and the
// larger of two phases. The first phase samples, and opens policies meanwhile; the second ranks
// vertices and predicts reads.
func (s *Simulation) rankBytes(each int, u used, capacity []int) int64 {
	n, w := s.shards.Vertices, max(s.shards.Vertices, s.columns())
	reads := 4*n + 4*w + w/8 + s.summing() // memory to predict how often vertices are read
	bytes, sampling, ranking, window := 4*n, u.sampler, reads, 0
	for i, p := range s.policies {
		scratch := int64(0)
		if p.Scratch != nil {
			scratch = p.Scratch(w, int64(each)*u.sampler, s.own[i]) + s.summing()
		}
		// the policy first divides the capacity among the kinds of rows, by predicted reads
		if s.job.Kinds() != nil && !p.Static() {
			scratch = max(scratch, reads)
		}
		if p.Static() {
			ranking = max(ranking, 4*n+scratch)
			for _, rows := range capacity {
				// a static policy is then played step by step, like a dynamic one
				if (s.job.Sums || s.byNode()) && !p.None() {
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
	// each kind of rows has a policy of its own; u.policies is the measured bytes of all of them
	if s.job.Kinds() != nil {
		bytes += u.policies
	}
	worth := int64(0)
	if s.job.Sums {
		worth = 1
	}
	return bytes + u.sums + (4+worth)*u.minibatch*int64(window+1) + max(sampling, ranking)
}

// columns returns the number of columns of the graph. A vertex has a column for each relation that
// ends in its type. It is 0 for a graph without types.
func (s *Simulation) columns() int64 {
	return int64(max(1, len(s.shards.Topology().Columns.Indptr)) - 1)
}

// summing returns the bytes of the array that adds up the predicted reads of the minibatches of a
// step. It is 0 if one prediction is enough, because a rank has one minibatch in a step, or because
// all its minibatches draw from the same seeds.
func (s *Simulation) summing() int64 {
	if s.job.Minibatches() > 1 && !s.job.GlobalSeeds {
		return 4 * s.shards.Vertices
	}
	return 0
}
