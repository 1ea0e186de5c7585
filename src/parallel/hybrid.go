package parallel

import (
	"errors"

	"halognn/src/exchange"
	"halognn/src/graph"
	"halognn/src/trace"
)

// newHybrid makes hybrid parallelism: split parallelism among the ranks of a node, data parallelism
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
func newHybrid(o Options) (Strategy, error) {
	switch {
	case o.Policy != nil:
		return nil, errors.New("rows that a rank passes on to others of its node must stay where they " +
			"are; choose a static cache.policy, or parallel.mode=data")
	case o.Partitioned && o.Sample.Hops() > 0:
		return nil, errors.New("a rank also draws for vertices of other nodes, whose in-edges it does " +
			"not hold; set topology.kind=replicated, or parallel.mode=split or data")
	}
	d, err := newShared(o, o.GroupSize, true)
	if err != nil {
		return nil, err
	}
	if d.between != nil {
		d.relay = &relay{o.Exchange, d.between.drawer}
	}
	return &hybrid{d}, nil
}

// hybrid is a rank of hybrid parallelism.
type hybrid struct{ *dataParallel }

// Counters implements Strategy. Rows that other ranks of the node pass on count as shuffled; the
// others are those of the vertices that this rank owns, whoever reads them.
func (h *hybrid) Counters(m *Minibatch) (trace.Counters, error) {
	c, err := h.dataParallel.Counters(m)
	x := &m.shared
	c.Sampling, c.Shuffle = x.sampling, x.shuffle
	c.Rounds += c.Sampling.Rounds + c.Shuffle.Rounds
	return c, err
}

// relay passes feature rows on to the ranks of a node that read them. A nil relay passes none.
type relay struct {
	exchange *exchange.Exchange
	drawer   *splitDrawer
}

// planned returns the vertices whose rows this rank finds.
func (r *relay) planned(m *Minibatch) []graph.VertexID {
	if r == nil {
		return m.Sampled.Frontier
	}
	return m.shared.crossing(0).Reads
}

// plan lists the rows that are passed on and those that others pass on, after those of planned have
// been found.
func (r *relay) plan(m *Minibatch) error {
	if r == nil {
		return nil
	}
	c := m.shared.crossing(0)
	return r.exchange.Relay(&m.Fetch, c.Own(), c.At, c.IDs)
}

// stages come after the rows of planned.
func (r *relay) stages() []Stage {
	if r == nil || r.drawer.ranks() == 1 {
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
func (r *relay) start(m *Minibatch) (request, error) {
	c, count := m.shared.crossing(0), &m.shared.shuffle
	rowBytes := int64(m.Fetch.Rows.RowBytes())
	count.Rounds++
	count.Rows += int64(len(c.IDs))
	count.Bytes += int64(len(c.At)) * rowBytes
	count.Got += int64(len(c.IDs)) * rowBytes
	return r.exchange.StartRelay(r.drawer.group, &m.Fetch, c.Wanted, c.Count), nil
}
