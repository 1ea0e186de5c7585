package simulate

import (
	"fmt"
	"iter"

	"halognn/src/access"
	"halognn/src/cache"
	"halognn/src/graph"
	"halognn/src/mem"
)

// history keeps the remote vertices of the last minibatches, for caches that see some in advance decide about older ones.
type history struct {
	remote  [][]graph.VertexID // a ring; minibatch i is at i modulo its length
	perStep int
	n       int // minibatches so far, of all epochs
}

// newHistory keeps so many minibatches of a rank that trains perStep in a step.
func newHistory(minibatches, perStep int) history {
	return history{remote: make([][]graph.VertexID, minibatches), perStep: perStep}
}

func (h *history) add(remote []graph.VertexID) {
	at := &h.remote[h.n%len(h.remote)]
	*at = mem.Grow((*at)[:0], len(remote))
	copy(*at, remote)
	h.n++
}

// of returns a minibatch.
func (h *history) of(i int) []graph.VertexID { return h.remote[i%len(h.remote)] }

func (h *history) free() {
	for _, remote := range h.remote {
		mem.Free(remote)
	}
}

// player is one dynamic policy of one size.
type player struct {
	policy, size int // as in Options
	rows, filled int64
	trace        Trace

	window  int // minibatches it sees in advance
	open    func(ahead iter.Seq[[]graph.VertexID]) (cache.Policy, error)
	cache   cache.Policy // nil until it may be opened
	optimum *cache.Optimum
	fed     int // minibatches that it knows
	next    int // the one that is due
	d       cache.Decision
}

// addDynamic adds the dynamic policies that are asked for.
func (c *counter) addDynamic(m *access.Graph, r *access.Reader, capacity []int) error {
	most := 0
	for i, name := range c.o.Policies {
		for size, rows := range capacity {
			p := &player{policy: i, size: size}
			switch name {
			case PolicyOptimum:
				var err error
				if p.optimum, err = cache.NewOptimum(int(c.shards.Vertices), rows, true); err != nil {
					return fmt.Errorf("policy %s: %w", name, err)
				}
			case cache.NameSieve, cache.NamePrefetch, cache.NameLookahead:
				d := access.Dynamic{
					Policy: name, Capacity: rows, Gamma: c.o.Gamma, Delta: c.o.Delta, Initial: c.o.Initial, Level: c.o.Level,
				}
				if name == cache.NameLookahead {
					d.Window = c.windows[size]
				}
				p.window = d.Window
				p.trace = make(Trace, c.o.Epochs*c.streams.Steps())
				p.open = func(ahead iter.Seq[[]graph.VertexID]) (cache.Policy, error) {
					policy, held, err := m.NewPolicy(r, d, ahead)
					p.filled = int64(len(held))
					mem.Free(held)
					if err != nil {
						return nil, fmt.Errorf("policy %s: %w", name, err)
					}
					return policy, nil
				}
			default:
				continue
			}
			most = max(most, p.window)
			c.dynamic = append(c.dynamic, p)
		}
	}
	c.recent = newHistory(most+1, c.minibatches())
	return nil
}

// take tells the player of the latest minibatch, which may be the last of all, and lets it decide as far as it then can.
func (p *player) take(h *history, last bool) error {
	if p.optimum != nil {
		p.rows += int64(p.optimum.Step(h.of(h.n - 1)))
		p.filled = int64(p.optimum.Filled())
		return nil
	}
	if p.cache == nil {
		if h.n <= p.window && !last {
			return nil
		}
		var err error
		if p.cache, err = p.open(func(yield func([]graph.VertexID) bool) {
			for i := 0; i < h.n && yield(h.of(i)); i++ {
			}
		}); err != nil {
			return err
		}
	}
	if l, ok := p.cache.(*cache.Lookahead); ok {
		for ; p.fed < h.n; p.fed++ {
			l.Feed(h.of(p.fed))
		}
	}
	for p.next < h.n && (last || p.next+p.window < h.n) {
		p.cache.Step(h.of(p.next), &p.d)
		p.rows += int64(p.d.Transferred())
		p.trace[p.next/h.perStep].add(Decided{
			Fetched: int64(p.d.Misses), Early: int64(len(p.d.Early)), Evictions: int64(p.d.Evictions), Replacements: int64(p.d.Replacements),
		})
		p.next++
	}
	return nil
}

func (p *player) close() {
	if p.cache != nil {
		p.cache.Free()
	}
	if p.optimum != nil {
		p.optimum.Free()
	}
	p.d.Free()
}
