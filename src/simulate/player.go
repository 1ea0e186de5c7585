package simulate

import (
	"fmt"

	"halognn/src/access"
	"halognn/src/cache"
	"halognn/src/policy"
)

// player runs one dynamic policy with one size of cache.
type player struct {
	*policy.Player
	policy, size int // as in Options
	rows, filled int64
	trace        Trace // nil for a policy that decides with hindsight
	perStep      int
}

// addDynamic adds the requested dynamic policies.
func (c *counter) addDynamic(m *access.Graph, r *access.Workload, capacity []int) {
	most := 0
	for i, p := range c.policies {
		if p.Static() {
			continue
		}
		for size, rows := range capacity {
			d := &player{policy: i, size: size, perStep: c.job.Minibatches()}
			d.Player = policy.NewPlayer(p, policy.Setup{
				Graph: m, Workload: r, Settings: &c.o.Cache, Capacity: rows, Window: c.windows[i][size],
			})
			if !p.Hindsight {
				d.trace = make(Trace, c.o.Epochs*c.job.Steps())
			}
			most = max(most, d.Window())
			c.dynamic = append(c.dynamic, d)
		}
	}
	c.recent = policy.NewHistory(most)
}

// take lets the player decide as many minibatches as its window permits. last: no minibatch
// follows.
func (p *player) take(h *policy.History, last bool) error {
	err := p.Advance(h, last, func(minibatch int, d *cache.Decision) {
		decided := d.Counters()
		p.rows += decided.Remote
		if p.trace != nil {
			p.trace[minibatch/p.perStep].Add(decided)
		}
	})
	if err != nil {
		return fmt.Errorf("policy %s: %w", p.Name(), err)
	}
	p.filled = int64(p.Filled())
	return nil
}
