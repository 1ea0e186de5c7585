package policy

import (
	"slices"

	"halognn/src/base/mem"
	"halognn/src/rows/access"
	"halognn/src/rows/cache"
	"halognn/src/topology/graph"
)

// If rows are of several kinds (access.Kinds), the capacity of a cache is in bytes. A static policy
// keeps its best rows that fit. With a dynamic policy each kind has its own cache, with its own
// slots. To set the numbers of slots, the likeliest rows of all kinds are chosen until the capacity
// is full. Each kind gets a slot for every chosen row of this kind.

// Share is the part of a cache that belongs to one kind of rows.
type Share struct {
	Kind, Rows int
	Reader     *access.Workload // the workload restricted to rows of this kind
}

// Shares divides a capacity among the kinds of rows. p [N] is the probability that a minibatch
// reads each vertex. A single kind gets the whole capacity.
func Shares(m *access.Graph, r *access.Workload, p []float32, capacity int) ([]Share, error) {
	if r.Kinds == nil {
		return []Share{{0, capacity, r}}, nil
	}
	likeliest, err := m.Best(p, r, capacity)
	defer mem.Free(likeliest)
	if err != nil {
		return nil, err
	}
	var all []Share
	for kind, rows := range r.Kinds.PerKind(likeliest) {
		if r.Kinds.Bytes[kind] > 0 {
			all = append(all, Share{kind, rows, r.Of(kind)})
		}
	}
	return all, nil
}

// Start opens a dynamic policy and returns the rows that it holds before the first step, outside
// the Go heap: the i-th row of a kind is in the kind's slot i.
func (p *Policy) Start(s *Setup) (cache.Policy, []graph.VertexID, error) {
	if s.Workload.Kinds == nil {
		return p.Open(s)
	}
	reads, err := s.Graph.Reads(s.Workload)
	if err != nil {
		return nil, nil, err
	}
	all, err := Shares(s.Graph, s.Workload, reads, s.Capacity)
	mem.Free(reads)
	if err != nil {
		return nil, nil, err
	}
	kinds := s.Workload.Kinds
	policies, ahead := make([]cache.Policy, len(kinds.Bytes)), byKind(s, kinds)
	var held []graph.VertexID
	for _, of := range all {
		if of.Rows == 0 {
			continue
		}
		one, initial := *s, []graph.VertexID(nil)
		one.Workload, one.Capacity, one.Ahead = of.Reader, of.Rows, slices.Values(ahead[of.Kind])
		policies[of.Kind], initial, err = p.Open(&one)
		at := len(held)
		held = mem.Grow(held, at+len(initial))
		copy(held[at:], initial)
		mem.Free(initial)
		if err != nil {
			policies[of.Kind] = nil
			cache.NewByKind(kinds.Of, policies).Free()
			mem.Free(held)
			return nil, nil, err
		}
	}
	return cache.NewByKind(kinds.Of, policies), held, nil
}

// byKind returns the vertices that the minibatches of Setup.Ahead read, separated by kind:
// [kind][minibatch].
func byKind(s *Setup, kinds *access.Kinds) [][][]graph.VertexID {
	ahead := make([][][]graph.VertexID, len(kinds.Bytes))
	if s.Window == 0 || s.Ahead == nil {
		return ahead
	}
	for remote := range s.Ahead {
		for kind := range ahead {
			ahead[kind] = append(ahead[kind], nil)
		}
		for _, v := range remote {
			of := ahead[kinds.Of(v)]
			of[len(of)-1] = append(of[len(of)-1], v)
		}
	}
	return ahead
}

// Widest returns the largest window that Policy.Window gives for any kind of rows.
func (p *Policy) Widest(s *Setup, reads []float32) (most int, err error) {
	all, err := Shares(s.Graph, s.Workload, reads, s.Capacity)
	for _, of := range all {
		one := *s
		one.Workload, one.Capacity = of.Reader, of.Rows
		w, failed := p.Window(&one, reads)
		if failed != nil {
			return 0, failed
		}
		most = max(most, w)
	}
	return most, err
}

// Fetched returns the bytes of the rows that a decision fetches or, if all rows have one size, the
// number of these rows. A cache's capacity has the same unit.
func Fetched(kinds *access.Kinds, remote []graph.VertexID, d *cache.Decision) (takes int64) {
	if kinds == nil {
		return d.Counters().Remote
	}
	for _, v := range d.Early {
		takes += int64(kinds.Size(v))
	}
	for i, slot := range d.Slot {
		if slot < 0 {
			takes += int64(kinds.Size(remote[i]))
		}
	}
	return takes
}
