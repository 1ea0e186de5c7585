package simulate

import (
	"halognn/src/access"
	"halognn/src/cache"
)

// used is what the samples of a rank have come to, as far as memory depends on it; the largest of any rank.
type used struct {
	sampler   int64 // bytes of a sampler and its minibatch
	minibatch int64 // remote vertices of one
}

func (u *used) atLeast(o used) {
	u.sampler, u.minibatch = max(u.sampler, o.sampler), max(u.minibatch, o.minibatch)
}

// What a process holds whatever it simulates: measured on a small graph.
const programBytes = 32 << 20

// bytes is the formula of docs/simulate.md for the largest resident set.
func (s *Simulation) bytes(together, each int, u used, capacity []int) int64 {
	n, edges := s.shards.Vertices, s.shards.Topology().Graph.NumEdges()
	mapped := 4*edges + 12*n
	if s.transposed {
		mapped += 4*edges + 8*n
	}
	seeds := int64(0)
	for p := range s.shards.Parts {
		seeds += int64(len(s.shards.Train(p)))
	}
	steps := int64(s.o.Epochs) * int64(s.streams.Steps())
	counts := int64(together+1) * steps * (8 + 32*int64(len(s.o.Policies)*len(capacity)))
	return programBytes + mapped + 16*seeds + counts + int64(together)*s.rankBytes(each, u, capacity)
}

// rankBytes is a rank's share: its accesses, the policies that decide step by step, and what is largest of sampling, of filling a prefetch
// buffer meanwhile, and of predicting and ranking afterwards.
func (s *Simulation) rankBytes(each int, u used, capacity []int) int64 {
	n := s.shards.Vertices
	bytes, sampling, ranking, window := 4*n, u.sampler, 8*n+n/8+s.summing(), 0
	for _, name := range s.o.Policies {
		switch name {
		case access.PolicyNone, cache.NameSieve, cache.NameLookahead, PolicyOptimum:
		case cache.NamePrefetch:
			sampling = u.sampler + s.rankingBytes(s.o.Initial)
		case access.PolicySim: // it samples, on every worker
			ranking = max(ranking, 4*n+8*n+int64(each)*u.sampler)
		default:
			ranking = max(ranking, 4*n+s.rankingBytes(name))
		}
		for i, rows := range capacity {
			switch name {
			case cache.NameSieve:
				bytes += 4*n + 17*int64(rows)
			case cache.NamePrefetch:
				bytes += 4*n + 24*int64(rows)
				if s.transposed {
					bytes += 4 * n
				}
			case PolicyOptimum:
				bytes += 4*n + 16*int64(s.o.Epochs*s.streams.Steps()*s.minibatches())
			case cache.NameLookahead:
				window = max(window, s.windows[i])
				bytes += 4*n + 12*int64(rows) + 24*u.minibatch*int64(s.windows[i]+1) // 12 a use, in a ring up to twice as long
			}
		}
	}
	return bytes + 4*u.minibatch*int64(window+1) + max(sampling, ranking)
}

// rankingBytes is what package access takes to score all vertices.
func (s *Simulation) rankingBytes(policy string) int64 {
	n := s.shards.Vertices
	switch policy {
	case access.PolicyOracle: // counted already
		return 4 * n
	case access.PolicyVIP:
		return 12*n + n/8 + s.summing()
	case access.PolicyInclusion:
		return 8*n + n/8 + s.summing()
	}
	return 8*n + n/2
}

// summing is what analyses of one minibatch take to be added up over those of a step, where their seeds differ.
func (s *Simulation) summing() int64 {
	if s.minibatches() > 1 && !s.o.GlobalSeeds {
		return 4 * s.shards.Vertices
	}
	return 0
}
