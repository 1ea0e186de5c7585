package simulate

import (
	"fmt"

	"halognn/src/base/trace"
	"halognn/src/rows/access"
	"halognn/src/rows/cache"
	"halognn/src/rows/policy"
	"halognn/src/step/parallel"
)

// player runs one policy with one size of cache.
type player struct {
	*policy.Player
	policy, size int // index of the policy in Options.Policies, and index of the size
	filled       int64
	total        trace.Counters
	// counts of each step; nil for a static policy or one that decides with hindsight
	trace   Trace
	perStep int
}

// addPlayers adds a player for each size of each policy for which the function `plays` returns
// true.
func (c *counter) addPlayers(m *access.Graph, r *access.Workload, capacity []int,
	plays func(p *policy.Policy) bool) {
	most := 0
	for i, p := range c.policies {
		if !plays(p) {
			continue
		}
		for size, rows := range capacity {
			most = max(most, c.addPlayer(m, r, i, size, rows, nil).Window())
		}
	}
	c.recent = policy.NewHistory(most)
}

// addPlayer adds a player for one policy with one size of cache. The given scores rank the rows of
// the first fill. If they are nil, the policy ranks the rows itself.
func (c *counter) addPlayer(m *access.Graph, r *access.Workload, i, size, rows int,
	scores []float32) *player {
	p, d := c.policies[i], &player{policy: i, size: size, perStep: c.job.Minibatches()}
	d.Player = policy.NewPlayer(p, policy.Setup{
		Graph: m, Workload: r, Settings: c.own[i], Capacity: rows, Window: c.windows[i][size],
		Scores: scores, Sums: c.job.Sums && !c.divided(i),
	})
	if !p.Static() && !p.Hindsight {
		d.trace = make(Trace, c.job.Epochs*c.job.Steps())
	}
	c.playing = append(c.playing, d)
	return d
}

// take lets the player decide about all minibatches that its window permits, and counts the rows
// that are transferred. It also counts sums if s is not nil, and bytes if kinds is not nil. If no
// minibatch follows, `last` is true.
func (p *player) take(h *policy.History, s *parallel.SumCounter, kinds *access.Kinds,
	last bool) error {
	err := p.Advance(h, last, func(minibatch int, d *cache.Decision) {
		decided := d.Counters()
		switch {
		case s != nil:
			decided = s.Count(minibatch, d)
		case kinds != nil:
			decided.RowBytes = policy.Fetched(kinds, h.Remote(minibatch), d)
		}
		p.total.Add(decided)
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
