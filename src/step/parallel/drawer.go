package parallel

import (
	"errors"

	"halognn/src/base/fault"
	"halognn/src/base/mem"
	"halognn/src/base/trace"
	"halognn/src/model/nn"
	"halognn/src/model/task"
	"halognn/src/topology/sample"
)

// Drawer draws minibatches on the whole topology and copies the labels of their seeds. It is the
// first stage of strategies in which every rank has the whole topology. Exports of minibatches use
// it too.
type Drawer struct {
	o        DrawerOptions
	samplers pool[sample.Sampler]
}

// DrawerOptions say how minibatches are drawn, and how many at a time.
type DrawerOptions struct {
	Topology *sample.Topology
	// Sampling.Spec may be zero, for a model that reads no neighbours: then the frontier is the
	// seeds.
	Sampling sample.Options
	Samplers int // number of samplers that draw at a time, each with about 4 bytes a vertex

	Labels     task.Labels // labels of all vertices; no labels if minibatches are not scored
	Undigested bool        // nobody reads the digests of the minibatches, so they are not made
}

// NewDrawer makes the samplers.
func NewDrawer(o DrawerOptions) (*Drawer, error) {
	d := &Drawer{o: o, samplers: make(pool[sample.Sampler], o.Samplers)}
	if !d.draws() {
		return d, nil
	}
	for range o.Samplers {
		s, err := sample.New(o.Topology, o.Sampling)
		if err != nil {
			d.Close()
			return nil, err
		}
		d.samplers <- s
	}
	return d, nil
}

// ofDraw is the state that a Draw keeps in a minibatch.
type ofDraw struct {
	draws  remoteDraws // used if the topology is partitioned
	shared sharing     // used if other ranks share the minibatch
	edges  LayerEdges  // used if the model reads more than the sampled edges
	card   onCard      // used if the device has drawn the minibatch
	labels []byte
}

func (d *ofDraw) bytes() int64 {
	return d.draws.bytes() + d.shared.bytes() + d.edges.Bytes() + int64(cap(d.labels))
}

func (d *ofDraw) free() {
	d.draws.free()
	d.shared.free()
	d.edges.Free()
	mem.Free(d.labels)
}

// drawn has what happens before and after a minibatch is drawn. This does not depend on whether the
// host, the device or other ranks draw it.
type drawn struct {
	needs    nn.Needs
	topology *sample.Topology
	rank     int
}

// begin is called before a minibatch is drawn.
func (d *drawn) begin(m *Minibatch) error {
	m.asked, m.moved = trace.Sampling{}, trace.Shuffles{}
	return m.point(fault.Sample, d.rank)
}

// end makes the edges and weights that the model needs besides the complete blocks.
func (d *drawn) end(m *Minibatch) { m.edges.Build(&m.Sampled, d.needs, m.Train, d.topology) }

// drawn returns what happens before and after a minibatch of this strategy is drawn.
func (s *Strategy) drawn() drawn { return drawn{s.needs, s.o.Topology, s.o.Comm.Rank()} }

// alone is the Draw of a rank that holds the whole topology.
type alone struct {
	*Drawer
	drawn
}

func (a alone) stages() []Stage {
	return []Stage{local(trace.Sample, "sample", a.prepare)}
}

func (a alone) prepare(m *Minibatch) error {
	if err := a.begin(m); err != nil {
		return err
	}
	m.card.drawn = nil
	if err := a.Draw(m); err != nil {
		return err
	}
	a.end(m)
	return nil
}

func (a alone) close() error {
	a.Close()
	return nil
}

// drawerOptions returns how the minibatches of a strategy are drawn.
func (s *Strategy) drawerOptions() DrawerOptions {
	o := &s.o
	return DrawerOptions{
		Topology: o.Topology,
		Sampling: sample.Options{Spec: o.Sample, Eval: o.Eval, Near: o.Near, Workers: 1,
			MaxSeeds: o.MaxSeeds, ForwardOnly: s.needs.Copies(),
			Weights: s.needs.OfData, Places: s.needs.EdgeRows},
		Samplers: o.Workers, Labels: o.Labels, Undigested: o.Undigested,
	}
}

// drawOwn sets the Draw of a rank that has minibatches of its own. If the rank holds the whole
// topology, it draws them alone. Otherwise it asks other ranks. Collective.
func (s *Strategy) drawOwn() error {
	o, draw := &s.o, s.drawerOptions()
	if o.Partitioned && o.Sample.Hops() > 0 {
		if err := s.degreesKnown(); err != nil {
			return err
		}
		d, err := newRemoteDrawer(o.Comm, o.Rows, o.SeedsElsewhere, draw, s.drawn())
		if err == nil {
			s.draw = d
		}
		return err
	}
	whole, err := NewDrawer(draw)
	if err != nil {
		return err
	}
	s.draw, err = s.drawOnDevice(alone{whole, s.drawn()})
	return err
}

// degreesKnown returns an error if the model's edge weights need degrees that this rank does not
// have.
func (s *Strategy) degreesKnown() error {
	if t := s.o.Topology; s.needs.Weights == nn.WeightsSymmetric && t.Rows == nil &&
		t.Graph.NumVertices() < len(t.Original) {
		return errors.New("the model weighs edges by the degrees of all vertices, but this rank " +
			"has opened the row pointers of only some; open the parts with shard.Options.AllRows")
	}
	return nil
}

func (d *Drawer) draws() bool { return d.o.Sampling.Hops() > 0 }

// Close frees the samplers. No sampler may be drawing.
func (d *Drawer) Close() { d.samplers.free() }

// Bytes returns the memory of the samplers and of the sets that they share. No sampler may be
// drawing.
func (d *Drawer) Bytes() int64 { return d.o.Sampling.Near.Bytes() + d.samplers.bytes() }

// Draw fills m.Sampled, the digests and the labels from m.Seeds and m.Key. If other goroutines use
// all samplers, it waits for one.
func (d *Drawer) Draw(m *Minibatch) error {
	m.Scored = m.Seeds
	if !d.draws() {
		d.o.copyLabels(m)
		d.o.seedsOnly(m)
		return nil
	}
	return d.samplers.with(func(s sample.Sampler) error {
		draw := s.Sample
		if !m.Train {
			draw = s.SampleEval
		}
		if err := draw(&m.Sampled, m.Seeds, m.Key); err != nil {
			return err
		}
		d.o.copyLabels(m) // after the sampler has found that all seeds are vertices
		d.o.digest(m)
		return nil
	})
}

// digest sets the two digests of a minibatch whose blocks are complete, if anyone reads them.
func (o *DrawerOptions) digest(m *Minibatch) {
	if m.Digest, m.Edges = 0, 0; !o.Undigested {
		m.Digest, m.Edges = m.Sampled.Digest(), m.Sampled.EdgesDigest(m.Key)
	}
}

// seedsOnly replaces sampling for a model without neighbours: the frontier is the scored seeds.
func (o *DrawerOptions) seedsOnly(m *Minibatch) {
	s, n := &m.Sampled, len(m.Scored)
	s.Frontier, s.Original = mem.Grow(s.Frontier, n), mem.Grow(s.Original, n)
	copy(s.Frontier, m.Scored)
	for i, v := range m.Scored {
		s.Original[i] = o.Topology.Original[v]
	}
	s.Seeds = s.Frontier
	if m.Digest, m.Edges = 0, 0; !o.Undigested {
		m.Digest = s.Digest()
	}
}

// copyLabels copies the labels of the scored seeds.
func (o *DrawerOptions) copyLabels(m *Minibatch) {
	// The label of a link says which of the seeds are its ends.
	if l := o.Sampling.Links; l != nil && m.Train {
		m.labels = l.Truth(m.labels, m.Key)
		m.Batch.Labels = m.labels
		return
	}
	width := o.Labels.Width
	m.labels = mem.Grow(m.labels, len(m.Scored)*width)
	for i, v := range m.Scored {
		copy(m.labels[i*width:], o.Labels.Row(int(v)))
	}
	m.Batch.Labels = m.labels
}
