package parallel

import (
	"errors"
	"fmt"

	"halognn/src/base/fault"
	"halognn/src/base/mem"
	"halognn/src/base/trace"
	"halognn/src/ranks/comm"
	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
)

// splitDrawer draws minibatches that a group of ranks makes together. After each hop except the
// last, vertices go to their owners in a collective of the pipeline, counts before ids. If
// `serving` is true, this also happens after the last hop. A hop that is drawn as a whole
// (sample.Layer) has one more collective before that. If ranks hold only the in-edges of their own
// vertices, and so draw for other groups too, a hop begins with the collectives of a remoteDrawer.
// As in a remoteDrawer, no stage keeps a sampler for the next stage.
type splitDrawer struct {
	drawn
	o        DrawerOptions
	group    comm.Comm // for the collectives, which the pipeline's issuer starts in one order
	owners   *sample.Owners
	serving  bool  // owners also find the rows of the last hop
	ones     []int // [S] 1 for every rank of the group, because each gets one count
	samplers pool[*sample.Split]
	asker    *remoteDrawer      // for hops whose in-edges other groups hold
	layers   chan *sample.Layer // layers that no minibatch uses at present
}

// newSplitDrawer makes the samplers, and the communicator of the rank's group. A group has `size`
// ranks. Collective.
func newSplitDrawer(o *Options, size int, serving bool, draw DrawerOptions, around drawn,
) (*splitDrawer, error) {
	d := &splitDrawer{
		drawn: around, o: draw, owners: sample.NewOwners(o.Rows, size),
		serving:  serving && draw.Sampling.Hops() > 0,
		samplers: make(pool[*sample.Split], draw.Samplers),
		layers:   make(chan *sample.Layer, draw.Samplers),
	}
	for range size {
		d.ones = append(d.ones, 1)
	}
	var err error
	d.asker = &remoteDrawer{ranks: 1, samplers: make(pool[*sample.Remote])}
	if o.Partitioned && size < o.Comm.Size() && d.hops() > 0 {
		d.asker, err = newRemoteDrawer(o.Comm, o.Rows, o.SeedsElsewhere, draw, around)
		if err != nil {
			return nil, err
		}
	}
	for range min(d.hops(), 1) * draw.Samplers {
		s, err := sample.NewSplit(draw.Topology, d.owners, d.rank, draw.Sampling)
		if err != nil {
			return nil, errors.Join(err, d.close())
		}
		d.samplers <- s
	}
	if size == o.Comm.Size() {
		d.group, err = o.Comm.Dup()
	} else {
		d.group, err = o.Comm.Split(d.rank/size, d.rank)
	}
	if err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

func (d *splitDrawer) ranks() int { return d.owners.Size }

// hops returns the number of hops of a minibatch; 0 for a model that reads no neighbours.
func (d *splitDrawer) hops() int { return d.o.Sampling.Hops() }

// close frees samplers and communicator.
func (d *splitDrawer) close() error {
	d.samplers.free()
	for range len(d.layers) {
		(<-d.layers).Free()
	}
	err := d.asker.close()
	if d.group == nil {
		return err
	}
	return errors.Join(err, d.group.Free())
}

// Bytes implements Draw.
func (d *splitDrawer) Bytes() int64 {
	bytes := d.samplers.bytes() + d.asker.Bytes()
	for range len(d.layers) {
		l := <-d.layers
		bytes += l.Bytes()
		d.layers <- l
	}
	return bytes
}

// stages returns the stages from the seeds to the blocks and, if `serving` is true, to the rows
// that other ranks read.
func (d *splitDrawer) stages() []Stage {
	stages := []Stage{local(trace.Sample, "sample", d.sample)}
	for h := 1; h <= d.hops(); h++ {
		if d.asks(h) {
			stages = append(stages, d.asker.asking(h, func(m *Minibatch) error {
				return d.samplers.with(func(s *sample.Split) error { return d.extend(m, s, h) })
			})...)
		}
		if d.ranks() > 1 && d.o.Sampling.Layered(true) {
			stages = append(stages, d.choosing(h)...)
		}
		switch {
		case d.ranks() == 1:
		case h < d.hops():
			stages = append(stages, d.crossing(h, "join", func(m *Minibatch,
				s *sample.Split) error {
				return d.joinAndDraw(m, s, h)
			})...)
		case d.serving:
			stages = append(stages, d.crossing(h, "serve", d.serve)...)
		}
	}
	return stages
}

// asks reports whether hop h asks the ranks that hold its in-edges.
func (d *splitDrawer) asks(h int) bool { return d.asker.askingHops() > 0 && h >= d.asker.first }

// crossing returns the stages in which the vertices that hop h has found go to their owners. Then
// the function `next` runs.
func (d *splitDrawer) crossing(h int, what string,
	next func(*Minibatch, *sample.Split) error) []Stage {
	name := func(what string) string { return fmt.Sprintf("%s %d", what, h) }
	return []Stage{
		collective(trace.Ask, name("found"),
			func(m *Minibatch) (request, error) { return d.startFound(m, h) }, nil),
		local(trace.Sample, name(what), func(m *Minibatch) error {
			return d.samplers.with(func(s *sample.Split) error { return next(m, s) })
		}),
	}
}

// choosing returns the stages in which ranks send each other the in-neighbours that they have found
// for hop h, as candidates, and choose among them. In an evaluation that draws by fanouts instead,
// the messages of these stages are empty.
func (d *splitDrawer) choosing(h int) []Stage {
	name := func(what string) string { return fmt.Sprintf("%s %d", what, h) }
	return []Stage{
		collective(trace.Ask, name("layer"), d.startLayer, nil),
		local(trace.Sample, name("choose"), func(m *Minibatch) error {
			if !d.o.Sampling.Layered(m.Train) {
				return nil
			}
			return d.samplers.with(func(s *sample.Split) error { return d.choose(m, s, h) })
		}),
	}
}

// startLayer sends every rank of the group the candidates that this rank has found.
func (d *splitDrawer) startLayer(m *Minibatch) (request, error) {
	if err := m.point(fault.Ask, d.rank); err != nil {
		return nil, err
	}
	x := &m.shared
	var own []uint32
	if x.layer != nil {
		own = x.layer.Own
	}
	x.d = d
	if len(x.counts) != d.ranks() {
		x.counts, x.sends = make([]int, d.ranks()), make([]int, d.ranks())
	}
	for k := range x.sends {
		x.sends[k] = len(own) * 4 / sample.CandidateBytes
		x.asks[k] = int64(x.sends[k])
	}
	m.asked.Collectives++
	m.asked.Bytes += int64(d.ranks()-1) * (CountBytes + int64(len(own))*4)
	return d.group.StartAlltoallThen(mem.Bytes(x.asks), mem.Bytes(x.asked), d.ones, d.ones,
		CountBytes, comm.Then{Send: mem.Bytes(own), SendRows: x.sends,
			RowBytes: sample.CandidateBytes, ToAll: true, Expect: (*candidates)(m)}), nil
}

// These types make a Minibatch a comm.Expecter. Type `candidates` expects the candidates of all
// ranks of a group. Type `found` expects those vertices of this rank that other ranks have found.
type (
	candidates Minibatch
	found      Minibatch
)

// Expect makes room for the candidates of all ranks. Their counts have just arrived.
func (m *candidates) Expect() ([]byte, []int, error) {
	x := &m.shared
	for k, n := range x.asked {
		x.counts[k] = int(n)
	}
	if x.layer == nil {
		return nil, x.counts, nil
	}
	err := x.layer.Expect(x.d.owners, x.d.rank, x.counts)
	return mem.Bytes(x.layer.All), x.counts, err
}

// choose draws hop h from the candidates of all ranks.
func (d *splitDrawer) choose(m *Minibatch, s *sample.Split, h int) error {
	x := &m.shared
	err := s.Choose(&m.Sampled, x.layer, x.counts, &x.hops[h-1], h, m.Train, m.Key, &m.Edges)
	if err != nil {
		return err
	}
	if h == d.hops() {
		select {
		case d.layers <- x.layer:
		default:
			x.layer.Free()
		}
		x.layer = nil
	}
	return d.found(m, s, h)
}

// find collects the candidates of hop h. They come from own in-edges or, if the argument a is not
// nil, from the replies of other ranks. A rank that is alone in its group also chooses.
func (d *splitDrawer) find(m *Minibatch, s *sample.Split, h int, a *sample.Asking) error {
	x := &m.shared
	if x.layer == nil {
		select {
		case x.layer = <-d.layers:
		default:
			x.layer = new(sample.Layer)
		}
	}
	if err := s.Find(&m.Sampled, x.layer, h, m.Train, m.Key, a); err != nil || d.ranks() > 1 {
		return err
	}
	return d.choose(m, s, h)
}

// sample selects the seeds of a minibatch that this rank owns, and draws their neighbours.
func (d *splitDrawer) sample(m *Minibatch) error {
	if err := d.begin(m); err != nil {
		return err
	}
	x := &m.shared
	x.begin(d.hops(), d.ranks())
	if err := d.mine(m); err != nil {
		return err
	}
	m.Edges = 0
	if d.hops() == 0 {
		m.Scored = x.own
		d.label(m)
		d.o.seedsOnly(m)
		return nil
	}
	return d.samplers.with(func(s *sample.Split) error {
		if err := s.Begin(&m.Sampled, x.own, d.hops()); err != nil {
			return err
		}
		return d.draw(m, s, 1)
	})
}

// mine selects the seeds that this rank owns.
func (d *splitDrawer) mine(m *Minibatch) error {
	x, n := &m.shared, 0
	x.own = mem.Grow(x.own, len(m.Seeds))
	for _, v := range m.Seeds {
		if v < 0 || int(v) >= len(d.o.Topology.Original) {
			return fmt.Errorf("sampling: seed %d: %w (the graph has %d vertices)", v,
				graph.ErrVertexRange, len(d.o.Topology.Original))
		}
		if d.owners.Owner(v) == d.group.Rank() {
			x.own[n] = v
			n++
		}
	}
	x.own = x.own[:n]
	return nil
}

// draw draws hop h, or asks for it.
func (d *splitDrawer) draw(m *Minibatch, s *sample.Split, h int) error {
	if d.asks(h) {
		return s.Ask(&m.draws.asking, &d.asker.parts, d.asker.ranks, &m.Sampled, m.Key, h, m.Train)
	}
	if d.o.Sampling.Layered(m.Train) {
		return d.find(m, s, h, nil)
	}
	err := s.Draw(&m.Sampled, &m.shared.hops[h-1], h, m.Train, m.Key, &m.Edges)
	if err != nil {
		return err
	}
	return d.found(m, s, h)
}

// extend makes hop h from the replies of other ranks.
func (d *splitDrawer) extend(m *Minibatch, s *sample.Split, h int) error {
	if d.o.Sampling.Layered(m.Train) {
		return d.find(m, s, h, &m.draws.asking)
	}
	err := s.Extend(&m.Sampled, &m.shared.hops[h-1], h, &m.draws.asking, m.Key, &m.Edges)
	if err != nil {
		return err
	}
	return d.found(m, s, h)
}

// found runs once hop h is drawn. A rank alone in its group goes on with the next hop.
func (d *splitDrawer) found(m *Minibatch, s *sample.Split, h int) error {
	switch {
	case h == d.hops():
		d.complete(m, s)
		if d.serving && d.ranks() == 1 {
			return d.serve(m, s)
		}
		return nil
	case d.ranks() == 1:
		return d.joinAndDraw(m, s, h)
	}
	return nil
}

// joinAndDraw adds to hop h what other ranks have found, and draws the next.
func (d *splitDrawer) joinAndDraw(m *Minibatch, s *sample.Split, h int) error {
	if err := s.Join(&m.Sampled, &m.shared.hops[h-1], h); err != nil {
		return err
	}
	m.shared.index(d.hops()-h, m.Train)
	return d.draw(m, s, h+1)
}

// complete completes a minibatch whose hops are all drawn.
func (d *splitDrawer) complete(m *Minibatch, s *sample.Split) {
	x, sampled := &m.shared, &m.Sampled
	s.Last(sampled, &x.hops[d.hops()-1])
	if len(sampled.Others) != d.hops() {
		sampled.Others = make([][]graph.VertexID, d.hops())
	}
	for l := 1; l < d.hops(); l++ {
		sampled.Others[l] = x.crossing(l).IDs
	}
	m.Scored = sampled.Seeds
	d.label(m)
	m.Digest = sampled.Digest()
	d.end(m)
}

// label copies the labels of the seeds that this rank owns. For tasks about links it determines
// which links this rank scores, and which embeddings it needs.
func (d *splitDrawer) label(m *Minibatch) {
	l := d.o.Sampling.Links
	if l == nil || !m.Train {
		d.o.copyLabels(m)
		return
	}
	x := &m.shared.rated
	m.labels = l.Divide(&x.crossing, m.labels, m.Key, d.owners, d.group.Rank())
	m.Batch.Labels = m.labels
	x.known = true
	x.move.index(&x.crossing, true)
}

// serve finds out which rows of own vertices the ranks of the group read.
func (d *splitDrawer) serve(m *Minibatch, s *sample.Split) error {
	return s.Serve(&m.Sampled, m.shared.crossing(0))
}

// startFound sends to each rank those of its vertices that hop h has found on this rank.
func (d *splitDrawer) startFound(m *Minibatch, h int) (request, error) {
	if err := m.point(fault.Ask, d.rank); err != nil {
		return nil, err
	}
	x, c := &m.shared, &m.shared.hops[h-1]
	x.d, x.hop = d, h
	for k, n := range c.Count {
		x.asks[k] = int64(n)
	}
	m.asked.Asked += int64(len(c.IDs))
	m.asked.Collectives++
	m.asked.Bytes += int64(len(x.asks))*CountBytes + int64(len(c.IDs))*sample.VertexBytes
	return d.group.StartAlltoallThen(mem.Bytes(x.asks), mem.Bytes(x.asked), d.ones, d.ones,
		CountBytes, comm.Then{Send: mem.Bytes(c.IDs), SendRows: c.Count,
			RowBytes: sample.VertexBytes, Expect: (*found)(m)}), nil
}

// Expect makes room for the vertices of this rank that other ranks have found. Their counts have
// just arrived.
func (m *found) Expect() ([]byte, []int, error) {
	x := &m.shared
	c := &x.hops[x.hop-1]
	for k, n := range x.asked {
		c.Wanted[k] = int(n)
	}
	if err := c.Expect(x.d.owners, x.d.rank); err != nil {
		return nil, nil, err
	}
	m.asked.Answered += int64(len(c.WantIDs))
	return mem.Bytes(c.WantIDs), c.Wanted, nil
}
