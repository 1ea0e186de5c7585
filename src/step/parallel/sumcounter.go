package parallel

import (
	"halognn/src/base/mem"
	"halognn/src/base/trace"
	"halognn/src/model/nn"
	"halognn/src/rows/cache"
	"halognn/src/rows/exchange"
	"halognn/src/topology/sample"
)

// SumCounter predicts how many rows and sums a run transfers if owners sum rows. It keeps the
// groups of a minibatch until a cache has decided which rows it has. Then it chooses between rows
// and sums as the exchange of a run does. Several caches may decide about the same minibatches.
type SumCounter struct {
	needs    nn.Needs
	topology *sample.Topology
	edges    LayerEdges
	list     exchange.Groups
	recent   []exchange.Groups // a ring: groups of minibatch i at i modulo its length
	n        int               // number of minibatches so far
	chooser  *exchange.Chooser
	kept     []int32
	worth    []uint8
}

// NewSumCounter keeps the groups of window+1 minibatches, for a model with these needs. The counter
// frees c.
func NewSumCounter(needs nn.Needs, t *sample.Topology, c *exchange.Chooser,
	window int) *SumCounter {
	return &SumCounter{needs: needs, topology: t, chooser: c,
		recent: make([]exchange.Groups, window+1)}
}

// Add keeps the groups of the next minibatch, for which the exchange x has located rows in the plan
// p. It returns the worth of each remote row for a cache, valid until the next call. It reorders
// the minibatch's edges.
func (s *SumCounter) Add(m *sample.Minibatch, x *exchange.Exchange, p *exchange.Plan) []uint8 {
	s.edges.List(m, s.needs, s.topology, x, p, &s.list)
	s.recent[s.n%len(s.recent)].Copy(&s.list)
	s.n++
	s.worth = s.list.Worth(s.worth)
	return s.worth
}

// Count returns the counters of a minibatch whose groups are still kept, after a cache's decision
// d.
func (s *SumCounter) Count(minibatch int, d *cache.Decision) trace.Counters {
	s.kept = d.Kept(s.kept)
	c, n := d.Counters(), s.chooser.Counts(&s.recent[minibatch%len(s.recent)],
		exchange.Wants{Slot: d.Slot, Early: d.Early, Kept: s.kept})
	c.Remote, c.Sums, c.Summed, c.RowBytes, c.IDBytes = n.Remote, n.Sums, n.Summed, n.RowBytes,
		n.IDBytes
	return c
}

// Travels returns what travels for the minibatch that Count was last called for: the remote rows,
// as indices, and the bytes of sums.
func (s *SumCounter) Travels(minibatch int) (rows []int32, sumBytes int64) {
	return s.chooser.Rows(), s.chooser.SumBytes(&s.recent[minibatch%len(s.recent)])
}

// AddRows adds to rows[k] the number of rows of kind k that travel for the minibatch that Count was
// last called for.
func (s *SumCounter) AddRows(minibatch int, d *cache.Decision, rows []float64) {
	s.chooser.AddRows(&s.recent[minibatch%len(s.recent)], exchange.Wants{Early: d.Early}, rows)
}

// Bytes returns two numbers, which are 0 for a nil counter. The result all is the memory of the
// groups and of choosing. The result one is the part of it that an exchange needs to choose for one
// minibatch.
func (s *SumCounter) Bytes() (all, one int64) {
	if s == nil {
		return 0, 0
	}
	one = s.list.Bytes() + s.chooser.Bytes()
	all = one
	for i := range s.recent {
		all += s.recent[i].Bytes()
	}
	return all, one
}

// Free frees the memory; nil is allowed.
func (s *SumCounter) Free() {
	if s == nil {
		return
	}
	s.edges.Free()
	s.list.Free()
	for i := range s.recent {
		s.recent[i].Free()
	}
	s.chooser.Free()
	mem.Free(s.kept)
	mem.Free(s.worth)
}
