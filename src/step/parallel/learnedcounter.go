package parallel

import (
	"iter"

	"halognn/src/model/nn"
	"halognn/src/rows/exchange"
	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
)

// LearnedCounter counts, for predictions, the learned rows and sums that withLearned would receive
// for sampled minibatches.
type LearnedCounter struct {
	x        *exchange.Exchange
	model    nn.Config
	topology *sample.Topology
	edges    LayerEdges
	places   exchange.Plan // places of the input layer's sources
	of       learnedOf
}

// NewLearnedCounter makes a counter for the rank whose exchange of learned rows is x. The counter
// frees x.
func NewLearnedCounter(model nn.Config, t *sample.Topology, x *exchange.Exchange) *LearnedCounter {
	return &LearnedCounter{x: x, model: model, topology: t}
}

// LearnedCounts count what a rank receives for minibatches.
type LearnedCounts struct {
	Rows, Sums int64
	Shared     int64 // rows that another rank of the node fetches
	Bytes      int64 // bytes of rows and sums, of their ids and late bits, and of the gradients
	RowBytes   int64 // number of bytes that would travel if owners made no sums
	Members    int64 // number of rows that owners add
}

// Add adds the counts o.
func (c *LearnedCounts) Add(o LearnedCounts) {
	c.Rows, c.Sums, c.Shared = c.Rows+o.Rows, c.Sums+o.Sums, c.Shared+o.Shared
	c.Bytes, c.RowBytes = c.Bytes+o.Bytes, c.RowBytes+o.RowBytes
	c.Members += o.Members
}

// Count counts what a rank receives for a training minibatch.
func (c *LearnedCounter) Count(m *sample.Minibatch) (n LearnedCounts, err error) {
	needs := c.model.Needs()
	needs.Weights = nn.NoWeights // no count depends on the weights
	c.edges.Build(m, needs, false, c.topology)
	vertices := c.edges.Sources(m)
	if needs.Averages {
		if err := c.x.Find(&c.places, vertices); err != nil {
			return n, err
		}
		c.edges.Group(m, needs, c.places.Parts, c.x.Parts())
	}
	if err := c.of.ask(c.x, &c.edges, vertices, c.model.Learns); err != nil {
		return n, err
	}
	p := &c.of.plan
	n.Rows, n.Sums = p.Remote, p.Sums
	both := int64(2 * 4 * c.model.Learned)
	n.Bytes = p.AskBytes() + (n.Rows+n.Sums)*both
	for rank := range c.x.Ranks() {
		n.Members += int64(c.x.AskedMembers(p, rank))
	}
	n.RowBytes = (n.Rows + p.Summed) * (both + exchange.IDBytes)
	return n, nil
}

// Rows yields the vertices whose rows the rank requests for the last minibatch.
func (c *LearnedCounter) Rows() iter.Seq[graph.VertexID] { return c.x.AskedRows(&c.of.plan) }

// Share changes the counts n of a rank that fetches for itself into those of a rank whose node
// fetches as one. The argument `fetched` is the number of rows that the rank then fetches for the
// node. It requests these from their owners in addition to naming all rows that it reads.
func (c *LearnedCounter) Share(n *LearnedCounts, fetched int64) {
	size := int64(4 * c.model.Learned)
	n.Bytes += fetched*(exchange.IDBytes+size) - n.Rows*size
	n.Rows, n.Shared = fetched, n.Rows-fetched
}

// Bytes returns the memory; 0 for a nil counter.
func (c *LearnedCounter) Bytes() int64 {
	if c == nil {
		return 0
	}
	return c.edges.Bytes() + c.places.Bytes() + c.of.bytes() + c.x.Bytes()
}

// Free frees the memory; nil is allowed.
func (c *LearnedCounter) Free() {
	if c == nil {
		return
	}
	c.edges.Free()
	c.places.Free()
	c.of.free()
	c.x.Free()
}
