package simulate

import (
	"fmt"
	"slices"

	"halognn/src/base/mem"
	"halognn/src/rows/access"
	"halognn/src/rows/exchange"
	"halognn/src/rows/policy"
	"halognn/src/step/job"
	"halognn/src/step/parallel"
	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
)

// counter counts what the minibatches of one rank read.
type counter struct {
	*Simulation
	rank     int
	accesses []uint32 // [N] number of minibatches, over all epochs, that read each remote vertex
	// [Epochs*Steps] number of remote vertices that the minibatches of a step read
	each     []int64
	remote   int64 // sum of each
	asked    Asked // what sampling would ask of other ranks with a partitioned topology
	edgeRows int64 // rows of edges that the minibatches fetch, if the model reads some
	// Edges of the latest minibatch whose feature rows are on other nodes.
	edges   []graph.VertexID
	learns  *parallel.LearnedCounter // counts learned rows; nil if the model learns none
	learned parallel.LearnedCounts
	playing []*player // policies that decide step by step, each with one size of cache

	kinds *access.Kinds // the kinds of rows; nil if all rows have one size
	// History of the remote vertices of the latest minibatches, as long as the longest window of a
	// policy.
	recent *policy.History
	// counts the sums that owners send instead of rows; nil if they send rows only
	sums *parallel.SumCounter
	used used
}

func (c *counter) free() {
	mem.Free(c.accesses)
	mem.Free(c.edges)
	if c.recent != nil {
		c.recent.Free()
	}
	c.sums.Free()
	c.learns.Free()
	for _, p := range c.playing {
		p.Free()
	}
}

// minibatch is a sampled minibatch, with the owners of its vertices found. The rank's next
// minibatch reuses its memory.
type minibatch struct {
	key     sample.Key
	sampled *sample.Minibatch
	x       *exchange.Exchange
	plan    exchange.Plan
	step    int              // number of the step, counted over all epochs
	remote  []graph.VertexID // remote vertices in frontier order
	ends    bool             // this is the rank's last minibatch of the run
}

// draws says in which epochs to sample minibatches, and which vertices to draw likelier than
// others.
type draws struct {
	first, last int         // first and last epoch, counted from 1
	near        sample.Near // vertices to favour
	favour      float64     // factor by which a favoured vertex is likelier drawn than another
}

// plain returns the draws of all epochs, without favoured vertices.
func (s *Simulation) plain() draws { return draws{first: 1, last: s.job.Epochs} }

// eachMinibatch samples the rank's minibatches in the order of training, finds the owners of their
// vertices, and calls the function `take` with each minibatch.
func (c *counter) eachMinibatch(workers int, d draws, take func(m *minibatch) error) error {
	o := sample.Options{Spec: c.job.Sample, Near: d.near, Workers: workers, ForwardOnly: true}
	if c.o.LastShort {
		o.MaxSeeds = c.job.Batch
	}
	reader := c.job.Reader(c.rank)
	reader.Favour = d.favour
	replay, err := reader.Replay(c.shards.Topology(), o)
	if err != nil {
		return err
	}
	defer replay.Free()
	if c.o.LastShort {
		last := pieces{streams: c.job.Streams, batch: c.job.Batch}
		replay.Seeds = last.at
	}
	x, err := c.job.Exchange(c.rank)
	if err != nil {
		return err
	}
	defer x.Free()
	m := minibatch{x: x, sampled: &replay.Minibatch}
	defer m.plan.Free()
	defer func() { // runs before the deferred calls above, which free the memory
		c.used.sampler = max(c.used.sampler, replay.Bytes()+m.plan.Bytes()+c.learns.Bytes())
	}()
	steps, items := c.job.Steps(), reader.Items()
	n := items * (d.last - d.first + 1)
	for i := range n {
		m.key, err = replay.SampleItem(d.first, i)
		if err == nil {
			err = x.Locate(&m.plan, m.sampled.Frontier)
		}
		if m.remote = m.plan.RemoteIDs; c.job.Cache.FromFiles() {
			m.remote = m.sampled.Frontier
		}
		m.step = (m.key.Epoch-1)*steps + m.key.Step
		m.ends = i == n-1 && d.last == c.job.Epochs
		if err == nil {
			err = take(&m)
		}
		if err != nil {
			return fmt.Errorf("rank %d, epoch %d, step %d: %w", c.rank, m.key.Epoch, m.key.Step,
				err)
		}
	}
	return nil
}

// ask counts what sampling a minibatch would ask of other ranks if each rank held only the edges of
// its own vertices.
func (c *counter) ask(mb *sample.Minibatch, key sample.Key) {
	first, end := c.job.Vertices(c.rank)
	asked := sample.Sum(mb.Asks(&sample.Askers{Spec: c.job.Sample,
		Carried: job.CarriedOf(&c.job.Spec), Topology: c.shards.Topology(), Ranks: c.job.Ranks,
		Elsewhere: c.job.SeedsElsewhere(), First: graph.VertexID(first), End: graph.VertexID(end),
		Draws: func(graph.VertexID) bool { return true }, Key: key}))
	c.asked.add(Asked{int64(asked.Vertices), int64(asked.Neighbours), int64(asked.Bytes)})
}

// count counts the reads of each remote vertex by a minibatch, and everything that add counts.
func (c *counter) count(m *minibatch) error {
	for _, v := range m.remote {
		c.accesses[v]++
	}
	return c.add(m)
}

// add counts how many rows a minibatch reads, without noting which vertices.
func (c *counter) add(m *minibatch) error {
	c.ask(m.sampled, m.key)
	c.each[m.step] += int64(len(m.remote))
	c.remote += int64(len(m.remote))
	c.used.minibatch = max(c.used.minibatch, int64(len(m.remote)))
	if c.job.FetchesAsNodes() { // counted for all ranks of the node together
		return nil
	}
	if c.learns != nil {
		n, err := c.learns.Count(m.sampled)
		if err != nil {
			return err
		}
		c.learned.Add(n)
	}
	if c.job.Model.EdgeIn > 0 {
		err := c.listEdges(m.sampled)
		c.edgeRows += int64(len(c.edges))
		return err
	}
	return nil
}

// listEdges lists the edges of a minibatch that have their feature row on another node, in
// ascending order. The owner of an edge's target has the row of the edge.
func (c *counter) listEdges(m *sample.Minibatch) (err error) {
	t := c.shards.Topology()
	if c.edges, err = parallel.EdgePositions(c.edges, m, t); err != nil {
		return err
	}
	here := c.job.Neighbours(c.rank)
	first, _ := c.job.Vertices(here[0])
	_, end := c.job.Vertices(here[len(here)-1])
	slices.Sort(c.edges)
	n := 0
	for _, e := range slices.Compact(c.edges) {
		if int64(e) < t.Graph.Indptr[first] || int64(e) >= t.Graph.Indptr[end] {
			c.edges[n] = e
			n++
		}
	}
	c.edges = c.edges[:n]
	return nil
}

// play lets all policies that decide step by step decide about one more minibatch.
func (c *counter) play(m *minibatch) error {
	var worth []uint8
	if c.sums != nil {
		worth = c.sums.Add(m.sampled, m.x, &m.plan)
	}
	c.recent.Add(m.remote, worth)
	for _, p := range c.playing {
		if err := p.take(c.recent, c.sums, c.kinds, m.ends); err != nil {
			return err
		}
	}
	return nil
}

// pieces cuts the seeds of one stream into full minibatches and a short last one.
type pieces struct {
	streams *sample.Streams
	batch   int

	order []graph.VertexID // the shuffled seeds
	epoch int              // the epoch whose shuffled seeds are in order
}

// at returns the seeds of a minibatch. sample.Replay calls it through its field Seeds; dst is
// memory for the result.
func (p *pieces) at(k sample.Key, dst []graph.VertexID) []graph.VertexID {
	// Training cuts the shuffled seeds of an epoch into pieces. So the pieces in order are these
	// seeds again.
	if p.epoch != k.Epoch {
		p.order, p.epoch = p.order[:0], k.Epoch
		for s := range p.streams.Steps() {
			dst = p.streams.Piece(k.Epoch, s, k.Stream, dst)
			p.order = append(p.order, dst...)
		}
	}
	n := len(p.order)
	return append(dst[:0], p.order[min(n, k.Step*p.batch):min(n, (k.Step+1)*p.batch)]...)
}
