package plan

import (
	"time"

	"halognn/src/access"
	"halognn/src/cache"
	"halognn/src/graph"
	"halognn/src/mem"
)

// Played is what a policy came to on a trace, per minibatch.
type Played struct {
	Steps   int
	Rows    float64 // transferred
	Seconds float64 // that the policy took
	Bytes   int64   // of the policy
}

// Play lets a dynamic policy decide about the minibatches of a trace, as training would, and counts what it transfers.
func (t *Trace) Play(m *access.Graph, r *access.Reader, d access.Dynamic) (Played, error) {
	window := min(d.Window, t.Steps())
	policy, held, err := m.NewPolicy(r, d, func(yield func([]graph.VertexID) bool) {
		for i := range min(window+1, t.Steps()) {
			if !yield(t.step(i)) {
				return
			}
		}
	})
	mem.Free(held)
	if err != nil {
		return Played{}, err
	}
	defer policy.Free()
	var decision cache.Decision
	defer decision.Free()
	feeder, sees := policy.(interface{ Feed(remote []graph.VertexID) })
	rows, fed := 0, 0
	begin := time.Now()
	for i := range t.ends {
		for ; sees && fed < min(i+window+1, t.Steps()); fed++ {
			feeder.Feed(t.step(fed))
		}
		policy.Step(t.step(i), &decision)
		rows += decision.Transferred()
	}
	n := float64(max(1, t.Steps()))
	return Played{Steps: t.Steps(), Rows: float64(rows) / n, Seconds: time.Since(begin).Seconds() / n, Bytes: policy.Bytes()}, nil
}
