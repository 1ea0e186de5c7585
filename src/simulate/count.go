package simulate

import (
	"fmt"

	"halognn/src/exchange"
	"halognn/src/graph"
	"halognn/src/mem"
	"halognn/src/policy"
	"halognn/src/sample"
)

// counter counts over one rank's minibatches.
type counter struct {
	*Simulation
	rank     int
	accesses []uint32  // [N] minibatches of all epochs that read the remote vertex
	each     []int64   // [Epochs*Steps] remote vertices of the step's minibatches
	remote   int64     // their sum
	asked    Asked     // what they would ask
	dynamic  []*player // caches that decide step by step

	recent *policy.History // the last minibatches
	used   used
}

func (c *counter) free() {
	mem.Free(c.accesses)
	if c.recent != nil {
		c.recent.Free()
	}
	for _, p := range c.dynamic {
		p.Free()
	}
}

// count samples and plans every minibatch of the rank, in the order of training.
func (c *counter) count(workers int) error {
	most := c.job.Streams.MaxPiece()
	if c.o.LastShort {
		most = c.o.Batch
	}
	s, err := sample.New(c.shards.Topology(), sample.Options{
		Spec: c.job.Sample, Workers: workers, MaxSeeds: most, ForwardOnly: true,
	})
	if err != nil {
		return err
	}
	defer s.Free()
	x, free, err := c.job.Exchange(c.rank)
	if err != nil {
		return err
	}
	defer free()
	var mb sample.Minibatch
	defer mb.Free()
	var plan exchange.Plan
	defer plan.Free()
	steps, perStep := c.job.Steps(), c.job.Minibatches()
	c.each = make([]int64, c.o.Epochs*steps)
	defer func() { c.used.sampler = s.Bytes() + mb.Bytes() + plan.Bytes() }() // before they are freed
	pieces := pieces{streams: c.job.Streams}
	if c.o.LastShort {
		pieces.batch = c.o.Batch
	}
	for epoch := 1; epoch <= c.o.Epochs; epoch++ {
		for item := range steps * perStep {
			key := c.job.Key(c.rank, epoch, item)
			err := s.Sample(&mb, pieces.at(epoch, key.Step, key.Stream), key)
			if err == nil {
				err = x.Locate(&plan, mb.Frontier)
			}
			remote := plan.RemoteIDs
			if c.o.Cache.FromFiles() {
				remote = mb.Frontier
			}
			if err == nil {
				c.ask(&mb)
				err = c.take((epoch-1)*steps+key.Step, remote, epoch == c.o.Epochs &&
					item+1 == steps*perStep)
			}
			if err != nil {
				return fmt.Errorf("rank %d, epoch %d, step %d: %w", c.rank, epoch, key.Step, err)
			}
		}
	}
	return nil
}

// ask counts what a minibatch would ask of other ranks if each held the edges of its own vertices
// alone, where the kind of sampling permits that.
func (c *counter) ask(mb *sample.Minibatch) {
	if c.job.Sample.NeedsWhole() {
		return
	}
	first, end := c.job.Vertices(c.rank)
	asked := sample.Sum(mb.Asks(c.job.Sample.Fanouts, c.job.Ranks, c.job.GlobalSeeds,
		graph.VertexID(first), graph.VertexID(end)))
	c.asked.add(Asked{int64(asked.Vertices), int64(asked.Neighbours), int64(asked.Bytes)})
}

// take counts one minibatch of a step; last says that no other follows.
func (c *counter) take(step int, remote []graph.VertexID, last bool) error {
	c.each[step] += int64(len(remote))
	c.remote += int64(len(remote))
	c.used.minibatch = max(c.used.minibatch, int64(len(remote)))
	for _, v := range remote {
		c.accesses[v]++
	}
	c.recent.Add(remote)
	for _, p := range c.dynamic {
		if err := p.take(c.recent, last); err != nil {
			return err
		}
	}
	return nil
}

// pieces returns the seeds of a stream's steps: the near-equal pieces of training, or full batches
// and a short last one.
type pieces struct {
	streams *sample.Streams
	batch   int // 0: near-equal

	seeds, order []graph.VertexID
	epoch        int // the epoch of order
}

func (p *pieces) at(epoch, step, stream int) []graph.VertexID {
	if p.batch == 0 {
		p.seeds = p.streams.Piece(epoch, step, stream, p.seeds)
		return p.seeds
	}
	if p.epoch != epoch { // the pieces in order are the shuffled seeds
		p.order, p.epoch = p.order[:0], epoch
		for s := range p.streams.Steps() {
			p.seeds = p.streams.Piece(epoch, s, stream, p.seeds)
			p.order = append(p.order, p.seeds...)
		}
	}
	n := len(p.order)
	return p.order[min(n, step*p.batch):min(n, (step+1)*p.batch)]
}
