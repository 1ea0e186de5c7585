package simulate

import (
	"halognn/src/cache"
	"halognn/src/exchange"
	"halognn/src/mem"
	"halognn/src/nn"
	"halognn/src/parallel"
	"halognn/src/sample"
	"halognn/src/trace"
)

// summer divides what caches leave to fetch between rows and sums, as the exchange of a run does. It
// keeps the groups of as many minibatches as policies know in advance.
type summer struct {
	needs    nn.Needs
	topology *sample.Topology
	edges    parallel.LayerEdges
	list     exchange.Groups
	recent   []exchange.Groups // a ring
	n        int               // minibatches so far
	chooser  *exchange.Chooser
	rowBytes int
	kept     []int32
	worth    []uint8
}

// newSummer makes a summer that keeps the groups of window+1 minibatches.
func (c *counter) newSummer(window int) *summer {
	return &summer{needs: c.job.Model.Needs(), topology: c.shards.Topology(),
		recent: make([]exchange.Groups, window+1), rowBytes: c.shards.RowBytes(),
		chooser: exchange.NewChooser(c.job.OwnersSums(), c.shards.Features, c.shards.Type())}
}

// add keeps the groups of a minibatch, and returns the worth of its remote rows; nil of a nil summer.
func (s *summer) add(m *minibatch) []uint8 {
	if s == nil {
		return nil
	}
	s.edges.List(&m.sampled, s.needs, s.topology, m.x, &m.plan, &s.list)
	s.recent[s.n%len(s.recent)].Copy(&s.list)
	s.n++
	s.worth = s.list.Worth(s.worth)
	return s.worth
}

// count puts into n what travels in a minibatch about which a cache has decided.
func (s *summer) count(minibatch int, d *cache.Decision, n *trace.Counters) {
	s.kept = d.Kept(s.kept)
	chosen := s.chooser.Counts(&s.recent[minibatch%len(s.recent)], d.Slot, s.kept)
	n.Remote, n.Sums, n.Summed = chosen.Remote+n.Early, chosen.Sums, chosen.Summed
	n.RowBytes = chosen.RowBytes + n.Early*int64(s.rowBytes)
	n.IDBytes = chosen.IDBytes + n.Early*exchange.IDBytes
}

// bytes returns the memory.
func (s *summer) bytes() (n int64) {
	if s == nil {
		return 0
	}
	for i := range s.recent {
		n += s.recent[i].Bytes()
	}
	return n + s.list.Bytes() + s.chooser.Bytes()
}

func (s *summer) close() {
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
