package parallel

import (
	"halognn/src/exchange"
	"halognn/src/graph"
	"halognn/src/trace"
)

// composeHybrid makes hybrid parallelism: split parallelism among the ranks of a node, data parallelism
// across nodes. Each node has minibatches of its own. A vertex of these is drawn, read and computed
// by one of its ranks, also if another node has it (sample.Owners); that rank fetches its feature
// row, unless it caches it, and passes it on to those of its node that read it (relay). So a row of
// another node crosses the network once for a minibatch, and is cached once in a node.
//
//	in the node    sample ──> found | owners ──> join ──> ... serve
//	               own seeds  how many, which    next hop     whose rows others read
//	across nodes   plan ──> counts | ids ──> slice ──> rows
//	               own rows, cached ones, and those to fetch
//	in the node    collect ──> pass on ──> assemble
//	               rows that others read
//
// The layers are those of split parallelism, gradients are summed over all ranks.
func composeHybrid(s *Strategy) error {
	drawer, err := s.share(s.o.GroupSize, true)
	if err != nil {
		return err
	}
	s.rows = newFetched(s, frontier{s.o.Exchange})
	if drawer.hops() > 0 {
		s.rows = newFetched(s, relay{s.o.Exchange, drawer})
	}
	return nil
}

// relay are the readers of ranks that share the minibatches of a node: a rank finds the feature rows
// that the node reads of its vertices, and passes them on to those that read them.
type relay struct {
	exchange *exchange.Exchange
	drawer   *splitDrawer
}

func (relay) vertices(m *Minibatch) []graph.VertexID { return m.shared.crossing(0).Reads }
func (relay) serve(*Minibatch) error                 { return nil }
func (relay) counters(*Minibatch, *trace.Counters)   {}

// request also lists the rows that are passed on, of which none comes as a sum, and those that
// others pass on.
func (r relay) request(m *Minibatch, group func(*Minibatch)) error {
	c := m.shared.crossing(0)
	r.exchange.Request(&m.Fetch, c.Reads, exchange.Wants{})
	if err := r.exchange.Relay(&m.Fetch, c.Own(), c.At, c.IDs); err != nil {
		return err
	}
	group(m)
	return nil
}

// stages pass the rows on.
func (r relay) stages() []Stage {
	if r.drawer.ranks() == 1 {
		return nil
	}
	return []Stage{
		local(trace.Slice, "collect", func(m *Minibatch) error {
			r.exchange.Collect(&m.Fetch)
			return nil
		}),
		collective(trace.Exchange, "pass on", r.start, nil),
	}
}

// start sends the rows to the ranks that read them.
func (r relay) start(m *Minibatch) (request, error) {
	c, count := m.shared.crossing(0), &m.moved
	rowBytes := int64(m.Fetch.Rows.RowBytes())
	count.Rounds++
	count.Rows += int64(len(c.IDs))
	count.Bytes += int64(len(c.At)) * rowBytes
	count.Got += int64(len(c.IDs)) * rowBytes
	return r.exchange.StartRelay(r.drawer.group, &m.Fetch, c.Wanted, c.Count), nil
}
