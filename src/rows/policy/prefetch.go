package policy

import (
	"fmt"
	"math"

	"halognn/src/base/mem"
	"halognn/src/rows/access"
	"halognn/src/rows/cache"
	"halognn/src/topology/graph"
)

// Prefetch is the name of the policy that is MassiveGNN's prefetch buffer.
const Prefetch = "prefetch"

// prefetch is the prefetch buffer of MassiveGNN (Sarkar et al., CLUSTER 2024, algorithms 1 and 2,
// section 3).
var prefetch = &Policy{
	Name: Prefetch, Doc: "dynamic; MassiveGNN's buffer: at intervals the rows missed most " +
		"replace unused ones",
	Needs: true, Scores: true,
	Open: openPrefetch,
	Bytes: func(s Size) int64 {
		bytes := 4*s.Vertices + 24*s.Rows
		if s.Degrees { // degrees break ties between scores
			bytes += 4 * s.Vertices
		}
		return bytes
	},
	Scratch: func(n, sampler int64, o *Settings) int64 {
		return Find(o.Initial).Scratch(n, sampler, o)
	},
	Variants: prefetchVariants,
	Reads:    []string{"halo_hops", "gamma", "delta", "leave", "evict", "initial", "scores"},
	Rounds:   true,
}

// Initial lists the static policies that can fill a prefetch buffer.
func Initial() []string { return []string{Degree, VIP, Inclusion} }

// openPrefetch makes a buffer that starts with the best of the candidates that minibatches can
// reach. It leaves out the other candidates, because they are never read.
func openPrefetch(s *Setup) (cache.Policy, []graph.VertexID, error) {
	m, o := s.Graph, s.Settings
	score, err := s.firstScores()
	if err != nil {
		return nil, nil, err
	}
	defer mem.Free(score)
	candidates, err := m.Candidates(s.Workload)
	defer candidates.Free()
	if err != nil {
		return nil, nil, err
	}
	candidates.Mask(score)
	held, err := m.Top(score, s.Workload.Local, s.Capacity)
	if err != nil {
		return nil, nil, err
	}
	p, err := newBuffer(m, s.Passing, cache.PrefetchOptions{
		Vertices: m.NumVertices(), Capacity: s.Capacity, Initial: held, Candidates: candidates,
		Gamma: o.Gamma, Delta: o.interval(), Unused: o.Leave == LeaveUnused, Layout: o.Layout,
	})
	if err != nil {
		mem.Free(held)
		return nil, nil, err
	}
	return p, held, nil
}

// firstScores returns the scores of the first fill, which the caller frees.
func (s *Setup) firstScores() ([]float32, error) {
	if s.Scores == nil {
		return Find(s.Settings.Initial).Rank(s.Graph, s.Workload)
	}
	score := mem.Make[float32](len(s.Scores))
	copy(score, s.Scores)
	return score, nil
}

// interval returns the number of minibatches between eviction rounds. It returns 0 if there are no
// rounds.
func (o *Settings) interval() int {
	if !o.Evict {
		return 0
	}
	return o.Delta
}

// newBuffer makes the buffer, which needs the degree of each vertex as long as it lives. It copies
// the degrees if the graph is freed before the buffer (`passing`). It also copies them if they come
// from the transpose of the graph, because the transpose is always freed before the buffer.
func newBuffer(m *access.Graph, passing bool, o cache.PrefetchOptions) (cache.Policy, error) {
	if !m.Transposed() && !passing {
		o.Degree = m.OutDegrees()
		return cache.NewPrefetch(o)
	}
	degrees := mem.Make[int32](o.Vertices)
	of := m.OutDegrees()
	for v := range degrees {
		degrees[v] = int32(min(of(graph.VertexID(v)), math.MaxInt32))
	}
	o.Degree = func(v graph.VertexID) int { return int(degrees[v]) }
	p, err := cache.NewPrefetch(o)
	if err != nil {
		mem.Free(degrees)
		return nil, err
	}
	return &withDegrees{p, degrees}, nil
}

// withDegrees is a buffer with its own copy of the degrees that break ties.
type withDegrees struct {
	*cache.Prefetch
	degrees []int32 // [N] out-degree of each vertex
}

// Bytes returns the memory of the buffer's arrays and of the degrees.
func (d *withDegrees) Bytes() int64 { return d.Prefetch.Bytes() + int64(len(d.degrees))*4 }

// Free frees the buffer and the degrees.
func (d *withDegrees) Free() {
	d.Prefetch.Free()
	mem.Free(d.degrees)
}

// prefetchVariants returns the intervals between eviction rounds that auto tries. Auto counts rows
// only in half of the minibatches. Each interval is short enough for two rounds in that half,
// because a buffer without rounds is a static cache.
func prefetchVariants(minibatches int) []Variant {
	var all []Variant
	for _, delta := range []int{8, 16, 32} {
		if delta > minibatches/4 {
			continue
		}
		all = append(all, Variant{
			Name: fmt.Sprintf("%s (delta %d)", Prefetch, delta),
			Set: func(o *Settings) {
				o.Policy, o.Delta, o.Leave, o.Evict, o.Initial = Prefetch, delta, LeaveUnused, true,
					VIP
			},
		})
	}
	return all
}
