package parallel

import (
	"halognn/src/mem"
	"halognn/src/sample"
	"halognn/src/trace"
)

// Drawer draws minibatches on the whole topology and copies the labels of their seeds. It is the
// first stage of strategies in which every rank has the whole topology, and the source of an
// export.
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
	Samplers int // minibatches that are drawn at a time; each takes about 4 bytes a vertex

	Labels  []int32 // as in Options
	Targets []uint8
	Classes int
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

// drawing makes the blocks of minibatches: the first stages of a strategy, from the seeds on.
type drawing interface {
	stages() []Stage
	// Bytes returns the memory of the samplers. None may be drawing.
	Bytes() int64
	// close gives everything back. None may be drawing.
	close() error
}

// alone is the drawing of a rank that holds the whole topology, between begin and end.
type alone struct {
	*Drawer
	begin func(*Minibatch) error
	end   func(*Minibatch)
}

func (a alone) stages() []Stage {
	return []Stage{local(trace.Sample, "sample", func(m *Minibatch) error {
		if err := a.begin(m); err != nil {
			return err
		}
		if err := a.Draw(m); err != nil {
			return err
		}
		a.end(m)
		return nil
	})}
}

func (a alone) close() error {
	a.Close()
	return nil
}

// draws reports whether there are neighbours to draw.
func (d *Drawer) draws() bool { return d.o.Sampling.Hops() > 0 }

// Close frees the samplers. None may be drawing.
func (d *Drawer) Close() { d.samplers.free() }

// Bytes returns the memory of the samplers and of the sets that they share. None may be drawing.
func (d *Drawer) Bytes() int64 { return d.o.Sampling.Near.Bytes() + d.samplers.bytes() }

// Draw fills m.Sampled, the digests and the labels from m.Seeds and m.Key. It waits for a sampler
// if more than DrawerOptions.Samplers goroutines call it.
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
		m.Digest, m.Edges = m.Sampled.Digest(), m.Sampled.EdgesDigest(m.Key)
		return nil
	})
}

// seedsOnly is sampling for a model without neighbours: the frontier is the scored seeds.
func (o *DrawerOptions) seedsOnly(m *Minibatch) {
	s, n := &m.Sampled, len(m.Scored)
	s.Frontier, s.Original = mem.Grow(s.Frontier, n), mem.Grow(s.Original, n)
	copy(s.Frontier, m.Scored)
	for i, v := range m.Scored {
		s.Original[i] = o.Topology.Original[v]
	}
	s.Seeds = s.Frontier
	m.Digest, m.Edges = s.Digest(), 0
}

// copyLabels copies the labels of the scored seeds.
func (o *DrawerOptions) copyLabels(m *Minibatch) {
	switch {
	case o.Labels != nil:
		m.labels = mem.Grow(m.labels, len(m.Scored))
		for i, v := range m.Scored {
			m.labels[i] = o.Labels[v]
		}
		m.Batch.Labels = m.labels
	case o.Targets != nil:
		c := o.Classes
		m.targets = mem.Grow(m.targets, len(m.Scored)*c)
		for i, v := range m.Scored {
			copy(m.targets[i*c:(i+1)*c], o.Targets[int(v)*c:])
		}
		m.Batch.Targets = m.targets
	}
}
