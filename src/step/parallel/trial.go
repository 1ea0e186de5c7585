package parallel

import (
	"errors"

	"halognn/src/devices/compute"
	"halognn/src/model/nn"
	"halognn/src/rows/exchange"
	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
)

// Trial prepares sampled minibatches to predict memory, as one rank of a job would. It runs the
// stages of a strategy except those that draw, on exchanges that only plan (exchange.NewPlanning)
// and with a host that computes nothing. So its arrays have the sizes that they have in a run, and
// no formula for the sizes is needed. If ranks share minibatches, it cuts this rank's share out of
// the whole minibatch.
type Trial struct {
	strategy *Strategy
	stages   []Stage
	drawer   *splitDrawer // completes minibatches, and has this rank's share
	shares   bool
	cutter   sample.Cutter

	m        Minibatch
	sampled  int64 // bytes of the blocks, which the caller owns
	messages int64 // bytes of the messages, counted before the minibatch gives back their memory
}

// TrialOptions say what is tried. They include the options of the strategy; NewTrial sets Host and
// Comm in these.
type TrialOptions struct {
	Options
	Rank    int
	Layer   int  // the layer, for inference layer by layer; -1 if all layers run
	Serving bool // ranks that share minibatches find rows for each other
	// Unmade leaves out the matrices made from rows. For sparse rows their size depends on the
	// entries, so the caller counts it.
	Unmade bool
}

// NewTrial makes a trial.
func NewTrial(o TrialOptions) (*Trial, error) {
	o.Comm, o.Host = exchange.NewEcho(o.Rank, len(o.Rows)-1), idle{}
	s := newStrategy(o.Options, o.needs(), 0, o.Model.Config.Layers)
	switch {
	case o.Mapped:
		s = newStrategy(o.Options, o.aggregateNeeds(), 0, 0)
	case o.Layer >= 0:
		s = newStrategy(o.Options, o.layerNeeds(o.Layer), o.Layer, 1)
	}
	if o.Unmade {
		s.landing = unmade{}
	}
	s.bound()
	d := &splitDrawer{drawn: s.drawn(), o: s.drawerOptions(),
		owners: sample.NewOwners(o.Rows, max(1, o.GroupSize)), serving: o.Serving}
	d.group = exchange.NewEcho(o.Rank%d.owners.Size, d.owners.Size)
	t := &Trial{strategy: s, drawer: d, shares: d.owners.Size > 1}
	depth := s.o.Depth
	s.o.Depth = 0 // one minibatch at a time, so only its buffers grow
	s.rows = newFetched(s, frontier{o.Exchange})
	if t.shares && o.Serving && d.hops() > 0 {
		s.rows = newFetched(s, relay{o.Exchange, d})
	}
	s.o.Depth = depth // the depth decides which learned rows are late
	if err := errors.Join(addEdgeRows(s), addLearned(s)); err != nil {
		return nil, err
	}
	t.stages = s.rows.stages()
	return t, nil
}

// Prepare prepares a minibatch of the given seeds that was sampled by one rank. It reorders the
// minibatch's edges.
func (t *Trial) Prepare(sampled *sample.Minibatch, seeds []graph.VertexID, key sample.Key,
	train bool) error {
	m := &t.m
	m.Key, m.Train, m.tried = key, train, true
	m.SetSeeds(seeds)
	if err := t.drawer.begin(m); err != nil {
		return err
	}
	if t.shares {
		if err := t.cut(sampled); err != nil {
			return err
		}
	} else {
		m.Sampled = *sampled
		defer func() { *sampled, m.Sampled = m.Sampled, sample.Minibatch{} }()
		m.Scored = m.Seeds
		t.drawer.o.copyLabels(m)
		if len(m.Sampled.Blocks) == 0 {
			t.drawer.o.seedsOnly(m)
		}
	}
	t.drawer.end(m)
	t.sampled = m.Sampled.Bytes()
	for _, s := range t.stages {
		if err := s.run(m); err != nil {
			return err
		}
	}
	if err := t.learn(m); err != nil {
		return err
	}
	t.messages = m.Fetch.MessageBytes()
	return t.strategy.Release(m)
}

// run runs a stage for a single minibatch.
func (s *Stage) run(m *Minibatch) error {
	of := &s.stage
	switch {
	case of.Local != nil:
		return of.Local(m)
	case of.Ordered != nil:
		if of.Arrive != nil {
			if err := of.Arrive(m); err != nil {
				return err
			}
		}
		return of.Ordered(m)
	}
	r, err := of.Start(m)
	if err == nil {
		err = r.Wait()
	}
	if err == nil && of.Finish != nil {
		err = of.Finish(m)
	}
	return err
}

// cut makes this rank's share of a minibatch, with the lists of what crosses ranks.
func (t *Trial) cut(whole *sample.Minibatch) error {
	m, d := &t.m, t.drawer
	x := &m.shared
	x.begin(d.hops(), d.ranks())
	if err := d.mine(m); err != nil {
		return err
	}
	if d.hops() == 0 {
		m.Scored = x.own
		d.label(m)
		d.o.seedsOnly(m)
		return nil
	}
	t.cutter.Cut(whole, d.owners, d.group.Rank(), d.serving, &m.Sampled, x.hops)
	for l := 1; l < d.hops(); l++ {
		x.index(l, m.Train)
	}
	m.Scored = m.Sampled.Seeds
	d.label(m)
	return nil
}

// learn makes room for the learned rows that a step would receive.
func (t *Trial) learn(m *Minibatch) error {
	s := t.strategy
	if s.o.Learned.Rows == nil {
		return nil
	}
	in := m.Batch.Input(0, compute.Matrix{})
	return s.between.forward(m, 0, &in, unheard{})
}

// Learned returns three numbers about the last minibatch: how many learned vectors arrive (rows and
// sums), how many of these are sums, and the bytes of ids and late bits.
func (t *Trial) Learned() (vectors, sums, ids int64) {
	p := &t.m.learned.plan
	return p.Remote + p.Sums, p.Sums, p.AskBytes()
}

// Hops returns the hops of the last minibatch, valid until the next one.
func (t *Trial) Hops() []nn.Hop { return t.m.Batch.Hops }

// Vectors returns how many rows and sums of rows arrive for the last minibatch if nothing is
// cached.
func (t *Trial) Vectors() int { return int(t.m.Fetch.Remote + t.m.Fetch.Sums) }

// EdgeRows returns how many rows of edges the last minibatch reads from other nodes, and the bytes
// of these rows and of their ids.
func (t *Trial) EdgeRows() (rows, bytes int64) {
	rows = t.m.edgesOf.fetch.Remote
	return rows, rows * int64(4*t.strategy.o.EdgeCols+exchange.IDBytes)
}

// TrialBytes is the memory of a trial's minibatch, the largest so far.
type TrialBytes struct {
	Waiting  int64 // bytes while it waits for its decision; all bytes if it never waits
	Lent     int64 // additional bytes after its decision
	Messages int64 // part of these bytes: ids and rows of the frontier, if nothing is cached
	Strategy int64 // bytes of the strategy, without the minibatches
	// bytes that each worker needs to choose between rows and sums, and to merge the rows that
	// ranks of a node want; Strategy does not include them
	Choices int64
}

// Bytes returns the memory.
func (t *Trial) Bytes() TrialBytes {
	shared, lent := t.strategy.rows.bytes()
	own := t.m.Bytes()
	if t.shares { // otherwise the blocks are in the caller's minibatch, not in t.m
		own -= t.sampled
	}
	o := &t.strategy.o
	choices := o.Exchange.Bytes()
	for _, x := range []*exchange.Exchange{o.EdgeExchange, o.Learned.Ask, o.Learned.NodesAsk} {
		if x != nil {
			choices += x.Bytes()
		}
	}
	if w, is := t.strategy.rows.(*withLearned); is {
		choices += w.places.bytes()
	}
	return TrialBytes{Waiting: own + t.sampled, Lent: lent, Messages: t.messages,
		Strategy: shared - choices, Choices: choices}
}

// Close frees the memory.
func (t *Trial) Close() error {
	t.m.Free()
	t.cutter.Free()
	return t.strategy.rows.close()
}

// idle is a host that computes nothing.
type idle struct{ compute.Host }

func (idle) GatherRows(compute.Matrix, compute.Rows) {}
func (idle) SliceRows(_, _ []byte, _ int, _ []int32) {}
func (idle) SegmentRows(compute.Matrix, compute.Reduction, compute.Segments, []float32,
	compute.Rows) {
}

// unmade is a landing that makes nothing from the rows.
type unmade struct{ onHostMemory }

func (unmade) land(*Minibatch, *nn.Hop, nn.Needs) error { return nil }
