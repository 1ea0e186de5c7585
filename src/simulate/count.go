package simulate

import (
	"fmt"

	"halognn/src/cache"
	"halognn/src/comm"
	"halognn/src/compute"
	"halognn/src/compute/ref"
	"halognn/src/exchange"
	"halognn/src/graph"
	"halognn/src/mem"
	"halognn/src/sample"
)

// counter is what the pass over one rank's minibatches finds.
type counter struct {
	*Simulation
	rank     int
	accesses []uint32  // [N] minibatches of all epochs that wanted the remote vertex
	remote   int64     // their sum
	dynamic  []*player // caches that decide step by step

	ids []graph.VertexID // remote vertices of a step
}

// player is one dynamic policy of one size.
type player struct {
	policy, alpha int // as in Options
	step          func(remote []graph.VertexID) int
	free          func()
	rows          int64
}

func (c *counter) free() {
	mem.Free(c.accesses)
	mem.Free(c.ids)
	for _, p := range c.dynamic {
		p.free()
	}
}

// count samples and plans every minibatch of the rank, in step order.
func (c *counter) count(workers int) error {
	s, err := sample.New(c.shards.Topology(), sample.Options{
		Fanouts: c.o.Fanouts, Workers: workers, MaxSeeds: c.o.Batch, ForwardOnly: true,
	})
	if err != nil {
		return err
	}
	defer s.Free()
	x, done, err := c.exchange()
	if err != nil {
		return err
	}
	defer done()
	var mb sample.Minibatch
	defer mb.Free()
	var plan exchange.Plan
	defer plan.Free()
	pieces := pieces{streams: c.streams, rank: c.rank}
	if c.o.LastShort {
		pieces.batch = c.o.Batch
	}
	for epoch := 1; epoch <= c.o.Epochs; epoch++ {
		for step := range c.streams.Steps() {
			key := sample.Key{Seed: c.o.Seed, Epoch: epoch, Step: step, Stream: c.rank}
			if err := s.Sample(&mb, pieces.at(epoch, step), key); err != nil {
				return fmt.Errorf("rank %d, epoch %d, step %d: %w", c.rank, epoch, step, err)
			}
			if err := x.Plan(&plan, mb.Frontier); err != nil {
				return fmt.Errorf("rank %d, epoch %d, step %d: %w", c.rank, epoch, step, err)
			}
			c.take(&plan, mb.Frontier)
		}
	}
	return nil
}

// exchange returns the rank's exchange, which plans and fetches nothing. Its rows are of two bytes that nobody ever reads or writes, so they
// take addresses but no memory.
func (c *counter) exchange() (*exchange.Exchange, func(), error) {
	first, last, err := c.shards.RankRange(c.rank, c.o.Ranks)
	if err != nil {
		return nil, nil, err
	}
	offsets := c.shards.Offsets
	width := int64(compute.Float16.Size())
	rows := mem.Make[byte](int((offsets[last] - offsets[first]) * width))
	tables := make([][]byte, c.shards.Parts)
	for p := first; p < last; p++ {
		tables[p] = rows[(offsets[p]-offsets[first])*width : (offsets[p+1]-offsets[first])*width]
	}
	x, err := exchange.New(comm.NewWorld(c.o.Ranks).Rank(c.rank), exchange.Options{
		Offsets: offsets, Tables: tables, Cols: 1, Type: compute.Float16, Host: ref.Host{},
	})
	return x, func() { mem.Free(rows) }, err
}

// take counts a planned step.
func (c *counter) take(p *exchange.Plan, frontier []graph.VertexID) {
	received := c.shards.Parts + 1 // the table of rows that travel
	c.ids = mem.Grow(c.ids[:0], int(p.Remote))[:0]
	for i, row := range p.Rows.Of {
		if row.Table() == received {
			c.ids = append(c.ids, frontier[i])
		}
	}
	c.remote += p.Remote
	for _, v := range c.ids {
		c.accesses[v]++
	}
	for _, d := range c.dynamic {
		d.rows += int64(d.step(c.ids))
	}
}

// pieces hands out the seeds of a rank's steps: the near-equal pieces of training, or full batches and one short one.
type pieces struct {
	streams *sample.Streams
	rank    int
	batch   int // 0: near-equal

	seeds, order []graph.VertexID
	epoch        int // that order is of
}

func (p *pieces) at(epoch, step int) []graph.VertexID {
	if p.batch == 0 {
		p.seeds = p.streams.Piece(epoch, step, p.rank, p.seeds)
		return p.seeds
	}
	if p.epoch != epoch { // one after the other, the pieces are the shuffled seeds
		p.order, p.epoch = p.order[:0], epoch
		for s := range p.streams.Steps() {
			p.seeds = p.streams.Piece(epoch, s, p.rank, p.seeds)
			p.order = append(p.order, p.seeds...)
		}
	}
	n := len(p.order)
	return p.order[min(n, step*p.batch):min(n, (step+1)*p.batch)]
}

// addDynamic adds the dynamic policies that are asked for. initial returns what a cache of so many rows holds at first if it is
// filled by degree.
func (c *counter) addDynamic(capacity []int, initial func(rows int) ([]graph.VertexID, error)) error {
	n := int(c.shards.Vertices)
	for i, name := range c.o.Policies {
		for a, rows := range capacity {
			p := &player{policy: i, alpha: a}
			var err error
			switch name {
			case PolicyOptimum:
				var o *cache.Optimum
				if o, err = cache.NewOptimum(n, rows, true); err == nil {
					p.step, p.free = o.Step, o.Free
				}
			case PolicySieve:
				var s *cache.Sieve
				if s, err = cache.NewSieve(n, rows); err == nil {
					p.play(s)
				}
			case PolicyPrefetch:
				err = c.prefetch(p, n, rows, initial)
			default:
				continue
			}
			if err != nil {
				return fmt.Errorf("policy %s: %w", name, err)
			}
			c.dynamic = append(c.dynamic, p)
		}
	}
	return nil
}

// prefetch makes the buffer of p.
func (c *counter) prefetch(p *player, n, rows int, initial func(rows int) ([]graph.VertexID, error)) error {
	first, err := initial(rows)
	if err != nil {
		return err
	}
	defer mem.Free(first)
	g := &c.shards.Topology().Graph
	b, err := cache.NewPrefetch(cache.PrefetchOptions{
		Vertices: n, Capacity: rows, Initial: first, Gamma: c.o.Gamma, Delta: c.o.Delta,
		Degree: func(v graph.VertexID) int { return int(g.Indptr[v+1] - g.Indptr[v]) },
	})
	if err == nil {
		p.play(b)
	}
	return err
}

// play lets a policy decide.
func (p *player) play(policy cache.Policy) {
	d := new(cache.Decision)
	p.step = func(remote []graph.VertexID) int {
		policy.Step(remote, d)
		return d.Transferred()
	}
	p.free = func() { policy.Free(); d.Free() }
}
