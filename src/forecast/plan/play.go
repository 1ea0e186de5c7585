package plan

import (
	"halognn/src/base/mem"
	"halognn/src/rows/access"
	"halognn/src/rows/cache"
	"halognn/src/rows/policy"
	"halognn/src/topology/graph"
)

// accesses holds the remote vertices of consecutive minibatches of a rank. Those of minibatch i are
// ids[ends[i-1]:ends[i]].
type accesses struct {
	ids  []graph.VertexID
	ends []int
}

// record samples n minibatches, beginning with the first epoch, and keeps their remote vertices. A
// vertex takes 4 bytes.
func record(r *access.Workload, n int) (*accesses, error) {
	a := new(accesses)
	var fault error
	for remote := range r.Ahead(1, 0, n, &fault) {
		at := len(a.ids)
		a.ids = mem.Grow(a.ids, at+len(remote))
		copy(a.ids[at:], remote)
		a.ends = append(a.ends, len(a.ids))
	}
	if fault != nil {
		a.free()
		return nil, fault
	}
	return a, nil
}

// keep leaves out the vertices for which a function (`of`) returns false.
func (a *accesses) keep(of func(graph.VertexID) bool) {
	n, from := 0, 0
	for i, end := range a.ends {
		for _, v := range a.ids[from:end] {
			if of(v) {
				a.ids[n] = v
				n++
			}
		}
		from, a.ends[i] = end, n
	}
	a.ids = a.ids[:n]
}

func (a *accesses) free() {
	mem.Free(a.ids)
	a.ids = nil
}

// step returns the remote vertices of minibatch i.
func (a *accesses) step(i int) []graph.VertexID {
	at := 0
	if i > 0 {
		at = a.ends[i-1]
	}
	return a.ids[at:a.ends[i]]
}

// played holds the time and memory that a policy takes, and how many rows its cache holds at first.
type played struct {
	held    int     // number of rows in the cache before the first step
	seconds float64 // mean time that the policy takes for a minibatch
	bytes   int64   // memory that the policy takes
}

// play lets a policy decide minibatch by minibatch, as training would. It calls the function
// `count` with each decision.
func (a *accesses) play(kind *policy.Policy, setup policy.Setup,
	count func(minibatch int, d *cache.Decision)) (played, error) {
	steps := len(a.ends)
	h, player := policy.NewHistory(setup.Window), policy.NewPlayer(kind, setup)
	defer h.Free()
	defer player.Free()
	for i := range steps {
		h.Add(a.step(i), nil)
		if err := player.Advance(h, i == steps-1, count); err != nil {
			return played{}, err
		}
	}
	return played{held: player.Filled(), seconds: player.Took().Seconds() / float64(max(1, steps)),
		bytes: player.Bytes()}, nil
}
