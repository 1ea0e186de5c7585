package plan

import (
	"halognn/src/base/mem"
	"halognn/src/rows/access"
	"halognn/src/rows/cache"
	"halognn/src/rows/policy"
	"halognn/src/topology/graph"
)

// accesses are the remote vertices of consecutive minibatches of a rank: those of minibatch i are
// ids[ends[i-1]:ends[i]].
type accesses struct {
	ids  []graph.VertexID
	ends []int
}

// record samples n minibatches, from the first epoch on, and keeps their remote vertices, which
// take 4 bytes each.
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

// played is the mean of what a policy does for a minibatch.
type played struct {
	held    int     // rows held before the first step
	seconds float64 // time that the policy takes
	bytes   int64   // memory that the policy takes
}

// play lets a policy decide minibatch by minibatch, as training would. count gets each decision.
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
