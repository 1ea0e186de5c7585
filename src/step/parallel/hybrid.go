package parallel

import (
	"halognn/src/base/trace"
	"halognn/src/rows/exchange"
	"halognn/src/topology/graph"
)

// composeHybrid makes hybrid parallelism: split parallelism among the ranks of a node, data
// parallelism across nodes. Each node has minibatches of its own. Each vertex of a node's minibatch
// is assigned to one rank of the node, even if another node owns the vertex (sample.Owners). That
// rank draws its neighbours and computes its hidden rows. It also fetches the vertex's feature row,
// unless it has cached the row, and passes the row on to the ranks of the node that read it
// (relay). So a row of another node crosses the network once per minibatch, and is cached once per
// node.
//
//	in the node    sample ──> found ──> join ──> ... serve
//	               own seeds            next hop     whose rows others read
//	across nodes   plan ──> ids ──> slice ──> rows
//	               own rows, cached ones, and those to fetch
//	in the node    collect ──> pass on ──> assemble
//	               rows that others read
//
// Layers run as in split parallelism; gradients are summed over all ranks.
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

// relay implements readers for ranks that share the minibatches of a node. A rank finds the feature
// rows of those of its vertices that any rank of the node reads, and passes them on to the ranks
// that read them.
type relay struct {
	exchange *exchange.Exchange
	drawer   *splitDrawer
}

func (relay) vertices(m *Minibatch) []graph.VertexID { return m.shared.crossing(0).Reads }
func (relay) serve(*Minibatch) error                 { return nil }
func (relay) counters(*Minibatch, *trace.Counters)   {}

// edges returns the edges of the input layer whose sources this rank finds. Only this rank knows in
// which parts these sources are.
func (r relay) edges(f *fetched, m *Minibatch) *exchange.Edges {
	c := m.shared.crossing(0)
	f.group(m, r.exchange.Share(&m.Fetch, c.Own(), c.IDs, c.At))
	return m.grouped
}

// request also lists the rows that other ranks of the node will pass on.
func (r relay) request(_ *fetched, m *Minibatch, w exchange.Wants) error {
	c := m.shared.crossing(0)
	r.exchange.Request(&m.Fetch, c.Reads, w)
	return r.exchange.Relay(&m.Fetch, c.Own(), c.IDs)
}

// stages returns the stages that pass the rows on. A row of a cache that changes would be read here
// and again when the batch is made. So Collect copies such a row.
func (r relay) stages(f *fetched) []Stage {
	collect := f.keeper.last(f, trace.Slice, "collect", func(m *Minibatch) error {
		r.exchange.Collect(&m.Fetch, m.shared.crossing(0).At)
		return nil
	})
	assemble := local(trace.Gather, "assemble", f.assembleRows)
	if r.drawer.ranks() == 1 {
		return []Stage{collect, assemble}
	}
	return []Stage{collect, collective(trace.Exchange, "pass on", r.start, nil), assemble}
}

// start sends the rows to the ranks that read them.
func (r relay) start(m *Minibatch) (request, error) {
	c, count := m.shared.crossing(0), &m.moved
	rowBytes := int64(m.Fetch.Rows.RowBytes())
	count.Collectives++
	count.Rows += int64(len(c.IDs))
	count.Bytes += int64(len(c.At)) * rowBytes
	count.Got += int64(len(c.IDs)) * rowBytes
	return r.exchange.StartRelay(r.drawer.group, &m.Fetch, c.Wanted, c.Count), nil
}
