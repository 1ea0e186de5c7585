package parallel

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"halognn/src/base/npy"
	"halognn/src/devices/compute"
	"halognn/src/devices/compute/ref"
	"halognn/src/model/nn"
	"halognn/src/ranks/comm"
	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
	"halognn/tests/race"
)

// seedsOf returns n seeds of a stream, none for n = 0.
func seedsOf(stream, n int) []graph.VertexID {
	seeds := make([]graph.VertexID, n)
	for i := range seeds {
		seeds[i] = graph.VertexID((stream*31 + i*7) % vertices)
	}
	return seeds
}

// A minibatch that went through all stages has the vertices and edges of the reference sampler and
// the rows of the feature matrix, whichever rank owns them.
func TestBatchIsWhatItsKeySays(t *testing.T) {
	fanouts := []int{4, 3}
	for _, ranks := range []int{1, 2, 4} {
		for _, dtype := range []compute.DType{compute.Float32, compute.Float16, compute.Int8} {
			w := newWorld(t, 4)
			err := comm.RunWorld(ranks, func(c comm.Comm) error {
				d, err := w.data(c, dtype,
					Options{Drawing: Drawing{Sample: sample.Neighbours(fanouts...),
						Labels: w.oneLabel()}}, everything, 2)
				if err != nil {
					return err
				}
				defer d.Close()
				var m Minibatch
				defer m.Free()
				// The slot is reused, for smaller and larger minibatches.
				for step, n := range []int{20, 1, 0, 48} {
					m.Key = sample.Key{Seed: 3, Epoch: 1, Step: step, Stream: c.Rank()}
					m.Train, m.GlobalSeeds = step%2 == 0, 99
					// ranks differ in their seeds, and may have none
					m.SetSeeds(seedsOf(c.Rank(), n*(c.Rank()+1)/ranks))
					if err := prepare(d.Stages(), &m); err != nil {
						return err
					}
					if err := w.check(&m, fanouts); err != nil {
						return fmt.Errorf("step %d: %w", step, err)
					}
				}
				return nil
			})
			if err != nil {
				t.Errorf("%d ranks, type %d: %v", ranks, dtype, err)
			}
		}
	}
}

// check compares a minibatch with the reference sampler and the feature matrix.
func (w *world) check(m *Minibatch, fanouts []int) error {
	want := sample.Reference(&w.topology, sample.Neighbours(fanouts...), m.Seeds, m.Key)
	defer want.Free()
	b := &m.Batch
	if m.Digest != want.Digest() {
		return fmt.Errorf("other blocks than the plain sampler's")
	}
	if b.Train != m.Train || b.GlobalSeeds != 99 || len(b.Hops) != len(fanouts) {
		return fmt.Errorf("train %t, %d global seeds, %d hops", b.Train, b.GlobalSeeds, len(b.Hops))
	}
	for l := range fanouts {
		h, blk := b.Hops[l], &want.Blocks[l]
		if h.Sources != blk.NumSrc || h.Destinations != blk.NumDst ||
			!slices.Equal(h.Vertices, want.Original[:blk.NumDst]) {
			return fmt.Errorf("hop %d: %d sources, %d destinations, want %d, %d", l, h.Sources,
				h.Destinations, blk.NumSrc, blk.NumDst)
		}
		if k := m.Key; h.Dropout != compute.NewDropoutKey(k.Seed, k.Epoch, k.Step, k.Stream, l) {
			return fmt.Errorf("hop %d: another dropout key", l)
		}
	}
	for i, v := range want.Frontier {
		if got := b.X.Row(i); !slices.Equal(got, w.row(v)) {
			return fmt.Errorf("row of source %d, vertex %d: %v, want %v", i, v, got, w.row(v))
		}
	}
	input := &want.Blocks[0]
	if err := w.checkOrder(m, input, want.Frontier); err != nil {
		return err
	}
	for i := range input.NumDst {
		if got := b.Own.Row(i); !slices.Equal(got, w.row(want.Frontier[i])) {
			return fmt.Errorf("own row of destination %d: %v, want %v", i, got,
				w.row(want.Frontier[i]))
		}
		mean := make([]float32, cols) // of eighths: exact but for the division
		edges := input.Indices[input.Indptr[i]:input.Indptr[i+1]]
		for _, s := range edges {
			for j, x := range w.row(want.Frontier[s]) {
				mean[j] += x
			}
		}
		for j, got := range b.Aggregate.Row(i) {
			if n := float32(max(1, len(edges))); got < mean[j]/n-1e-6 || got > mean[j]/n+1e-6 {
				return fmt.Errorf("mean of destination %d, column %d: %g, want %g", i, j, got,
					mean[j]/n)
			}
		}
	}
	for i, v := range m.Seeds {
		if y := npy.View[int32](b.Labels)[i]; y != w.labels[v] {
			return fmt.Errorf("label of seed %d: %d, want %d", i, y, w.labels[v])
		}
	}
	return nil
}

// checkOrder returns an error unless the edges of the input layer come part by part, the first of
// each later part inverted.
func (w *world) checkOrder(m *Minibatch, input *graph.Block, frontier []graph.VertexID) error {
	part := func(s int32) int {
		p := 0
		for w.offsets[p+1] <= int64(frontier[s]) {
			p++
		}
		return p
	}
	got := m.Batch.Hops[0].Forward
	for d := range input.NumDst {
		lo, hi := input.Indptr[d], input.Indptr[d+1]
		sorted := slices.Clone(input.Indices[lo:hi])
		slices.SortStableFunc(sorted, func(a, b int32) int { return part(a) - part(b) })
		for k, s := range sorted {
			e := got.Indices[got.Indptr[d]+int64(k)]
			begins := k > 0 && part(s) != part(sorted[k-1])
			if compute.SourceOf(e) != s || begins != (e < 0) {
				return fmt.Errorf("edge %d of destination %d is %d; it comes from %d, and begins "+
					"a part: %t", k, d, e, s, begins)
			}
		}
	}
	return nil
}

// A model that reads no neighbours gets the seeds in every hop, and only their rows.
func TestSeedsOnly(t *testing.T) {
	w := newWorld(t, 3)
	err := comm.RunWorld(3, func(c comm.Comm) error {
		d, err := w.data(c, compute.Float32,
			Options{Drawing: Drawing{Labels: w.manyLabels()}},
			nn.Needs{Own: true}, 3)
		if err != nil {
			return err
		}
		defer d.Close()
		var m Minibatch
		defer m.Free()
		m.SetSeeds(seedsOf(c.Rank(), 10*c.Rank()))
		if err := prepare(d.Stages(), &m); err != nil {
			return err
		}
		b := &m.Batch
		if n := len(m.Seeds); b.X.Rows != 0 || b.Aggregate.Rows != 0 || b.Own.Rows != n ||
			len(b.Labels) != n*classes {
			return fmt.Errorf("%d rows of sources, %d of means, %d own ones, %d marks for %d seeds",
				b.X.Rows, b.Aggregate.Rows, b.Own.Rows, len(b.Labels), n)
		}
		for i, v := range m.Seeds {
			if !slices.Equal(b.Own.Row(i), w.row(v)) ||
				!slices.Equal(b.Labels[i*classes:(i+1)*classes],
					w.targets[int(v)*classes:(int(v)+1)*classes]) {
				return fmt.Errorf("seed %d has another's row or marks", i)
			}
		}
		for l, h := range b.Hops {
			if h.Sources != len(m.Seeds) || h.Destinations != len(m.Seeds) ||
				len(h.Vertices) != len(m.Seeds) {
				return fmt.Errorf("hop %d: %d sources, %d destinations", l, h.Sources,
					h.Destinations)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// The digest differs if one edge differs, and does not depend on the numbering of vertices.
func TestDigest(t *testing.T) {
	w := newWorld(t, 1)
	err := comm.RunWorld(1, func(c comm.Comm) error {
		d, err := w.data(c, compute.Float32,
			Options{Drawing: Drawing{Sample: sample.Neighbours(4, 3), Labels: w.oneLabel()}},
			everything, 2)
		if err != nil {
			return err
		}
		defer d.Close()
		var m, again Minibatch
		defer m.Free()
		defer again.Free()
		m.SetSeeds(seedsOf(0, 20))
		again.SetSeeds(seedsOf(0, 20))
		if err := d.draw.(alone).Draw(&m); err != nil {
			return err
		}
		if err := d.draw.(alone).Draw(&again); err != nil {
			return err
		}
		if m.Digest != again.Digest || m.Digest == 0 {
			return fmt.Errorf("digests of one minibatch are %x and %x", m.Digest, again.Digest)
		}
		edges := m.Sampled.Blocks[1].Indices
		edges[0]++
		if m.Sampled.Digest() == again.Digest {
			return fmt.Errorf("another edge, but the same digest")
		}
		edges[0]--
		for i := range m.Sampled.Frontier { // ids of another partition
			m.Sampled.Frontier[i] = vertices - 1 - m.Sampled.Frontier[i]
		}
		if m.Sampled.Digest() != again.Digest {
			return fmt.Errorf("the digest depends on the numbering")
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// In steady state preparing a minibatch allocates nothing.
func TestPreparingAllocatesNothing(t *testing.T) {
	if race.Detector {
		t.Skip("the race detector allocates")
	}
	w := newWorld(t, 2)
	steady := func(stages []Stage) (err error) {
		var m Minibatch
		defer m.Free()
		step := 0
		one := func() {
			m.Key.Step = step % 3
			m.SetSeeds(fixedSeeds)
			step++
			if err == nil {
				err = prepare(stages, &m)
			}
		}
		for range 6 {
			one()
		}
		if n := testing.AllocsPerRun(50, one); n != 0 {
			return fmt.Errorf("%g allocations a minibatch", n)
		}
		return err
	}
	err := comm.RunWorld(1, func(c comm.Comm) error {
		d, err := w.data(c, compute.Float32,
			Options{Drawing: Drawing{Sample: sample.Neighbours(4, 3), Labels: w.oneLabel()}},
			everything, 2)
		if err != nil {
			return err
		}
		defer d.Close()
		device := ref.New()
		defer device.Close()
		l, err := w.sharer(c, device, grouping{ModePushPull, 1, 1}, sharedModels()["gcn both"],
			false, nil, 0)
		if err != nil {
			return err
		}
		return errors.Join(steady(d.Stages()), steady(l.strategy.Stages()), l.close())
	})
	if err != nil {
		t.Error(err)
	}
}

var fixedSeeds = seedsOf(0, 40)
