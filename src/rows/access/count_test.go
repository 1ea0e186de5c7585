package access

import (
	"path/filepath"
	"slices"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/base/mem/memtest"
	"halognn/src/data/dataset"
	"halognn/src/topology/graph"
	"halognn/src/topology/graph/graphtest"
	"halognn/src/topology/partition"
	"halognn/src/topology/sample"
	"halognn/tests/race"
)

// generated is a block model cut into parts that are contiguous, as a run has it.
type generated struct {
	*Graph
	topology *sample.Topology
	parts    []Range
	train    [][]graph.VertexID
}

func newGenerated(t *testing.T, parts int, o dataset.GenerateOptions) *generated {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	if err := dataset.Generate(dir, o); err != nil {
		t.Fatal(err)
	}
	ds, err := dataset.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer ds.Close()
	part, err := partition.LDG(ds.Graph, partition.Weights{},
		partition.Options{Parts: parts, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	newID, offsets := partition.Order(part, parts, partition.InDegrees(ds.Graph, &ds.Columns))
	g := graphtest.Relabel(ds.Graph, newID)
	t.Cleanup(g.Free)
	out := &generated{Graph: mustNew(t, g, Options{}),
		topology: &sample.Topology{Graph: *g, Original: make([]int32, len(newID))}}
	for old, v := range newID {
		out.topology.Original[v] = int32(old)
	}
	for k := range parts {
		out.parts = append(out.parts,
			Range{graph.VertexID(offsets[k]), graph.VertexID(offsets[k+1])})
		out.train = append(out.train, nil)
	}
	for _, v := range ds.Split.Train {
		out.train[part[v]] = append(out.train[part[v]], newID[v])
	}
	return out
}

func (g *generated) streams(t *testing.T, batch int) *sample.Streams {
	t.Helper()
	s, err := sample.NewStreams(g.train, sample.StreamOptions{Batch: batch, Seed: 7})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Free)
	return s
}

// perStep returns the mean number of remote rows that a step reads and that are not cached, from
// the counts of the given number of steps.
func (g *generated) perStep(t *testing.T, counts []float32, part, steps int,
	cached []graph.VertexID) float64 {
	t.Helper()
	rows, err := Expected(counts, g.parts[part:part+1], cached)
	if err != nil {
		t.Fatal(err)
	}
	return rows / float64(steps)
}

// Counts are those of training's minibatches, sampled one by one by the reference.
func TestCountsAreThoseOfTheReference(t *testing.T) {
	g := newGenerated(t, 3, dataset.GenerateOptions{Vertices: 600, Degree: 8, Features: 1, Seed: 1})
	streams := g.streams(t, 16)
	w := sample.Sweep{Spec: sample.Neighbours(3, 2), Epoch: 2, Epochs: 3,
		Reader: sample.Reader{Streams: streams, First: 1, Count: 1, Seed: 5}}
	want := make([]float32, 600)
	for epoch := 2; epoch <= 4; epoch++ {
		for step := range streams.Steps() {
			seeds := streams.Piece(epoch, step, 1, nil)
			mb := sample.Reference(g.topology, w.Spec, seeds,
				sample.Key{Seed: 5, Epoch: epoch, Step: step, Stream: 1})
			for _, v := range mb.Frontier {
				want[v]++
			}
			mb.Free()
		}
	}
	for _, w.Workers = range []int{0, 1, 4} {
		if got := memtest.Must[float32](t)(Count(g.topology, &w)); !slices.Equal(got, want) {
			t.Errorf("%d workers: other counts than the reference", w.Workers)
		}
	}
	w.Epoch, w.Epochs = SimulatedFirst, SimulatedEpochs
	if got := memtest.Must[float32](t)(Count(g.topology, &w)); slices.Equal(got, want) {
		t.Error("simulated epochs have the very accesses of the run")
	}
}

func TestCountErrors(t *testing.T) {
	g := newGenerated(t, 2, dataset.GenerateOptions{Vertices: 200, Degree: 4, Features: 1, Seed: 1})
	for _, c := range []struct {
		name, want string
		w          sample.Sweep
	}{
		{"several", "count accesses: 1 streams from stream 2 on; there are 2, numbered " +
			"from 0\nthe number of epochs is 0; it must be at least 1\nworkers is -1; " +
			"it must not be negative (0 means 1)",
			sample.Sweep{Spec: sample.Neighbours(1), Reader: sample.Reader{First: 2, Count: 1},
				Workers: -1}},
		{"no stream", "count accesses: 0 streams from stream 0 on; there are 2, numbered from 0",
			sample.Sweep{Spec: sample.Neighbours(1), Epochs: 1}},
		{"of the sampler", "count accesses: sample: fanouts[0] is 0; it must be at least 1, or " +
			"-1 for all neighbours",
			sample.Sweep{Spec: sample.Neighbours(0), Reader: sample.Reader{Count: 1}, Epochs: 1}},
	} {
		c.w.Streams = g.streams(t, 10)
		before := mem.Allocated()
		if _, err := Count(g.topology, &c.w); err == nil || err.Error() != c.want {
			t.Errorf("%s: error %q, want %q", c.name, err, c.want)
		}
		if held := mem.Allocated() - before; held != 0 {
			t.Errorf("%s: %d bytes are held after the error", c.name, held)
		}
	}
}

// The analysis predicts the measured rows of a simulation within 5%, with and without a cache, for
// every part: Inclusion for any fanouts, VIP for fanouts that fall from hop to hop. The cache of
// VIP misses at most 5% more than that of the oracle.
func TestPredictionsAreThoseOfSimulation(t *testing.T) {
	race.Alone(t)
	g := newGenerated(t, 4,
		dataset.GenerateOptions{Vertices: 8000, Degree: 30, Features: 1, Seed: 2, Split: "8/2/90"})
	const batch, epochs = 24, 8
	streams := g.streams(t, batch)
	steps := epochs * streams.Steps()
	for _, fanouts := range [][]int{{15, 10, 5}, {5, 5, 5}} {
		for part := range g.parts {
			mean := float64(len(g.train[part])) / float64(streams.Steps())
			counts := memtest.Must[float32](t)(Count(g.topology, &sample.Sweep{
				Spec: sample.Neighbours(fanouts...), Epoch: 1, Epochs: epochs, Workers: 2,
				Reader: sample.Reader{Streams: streams, First: part, Count: 1, Seed: 5}}))
			vip := memtest.Must[float32](t)(g.VIP(g.train[part], mean, fanouts))
			inclusion := memtest.Must[float32](t)(g.Inclusion(g.train[part], mean, fanouts))
			for _, alpha := range []float64{0, 0.2} {
				capacity := int(alpha * float64(len(counts)) / float64(len(g.parts)))
				local := g.parts[part : part+1]
				cached := memtest.Must[graph.VertexID](t)(g.Top(vip, local, capacity))
				best := memtest.Must[graph.VertexID](t)(g.Top(counts, local, capacity))
				measured := g.perStep(t, counts, part, steps, cached)
				oracle := g.perStep(t, counts, part, steps, best)
				byVIP, byInclusion := g.perStep(t, vip, part, 1, cached),
					g.perStep(t, inclusion, part, 1, cached)
				t.Logf("fanouts %v, part %d, alpha %g: %.0f remote rows a step; Inclusion is off "+
					"by %+.1f%%, VIP by %+.1f%%; VIP's cache misses %+.1f%% more than the oracle's",
					fanouts, part, alpha, measured, 100*(byInclusion/measured-1),
					100*(byVIP/measured-1), 100*(measured/oracle-1))
				if off := byInclusion/measured - 1; off < -0.05 || off > 0.05 {
					t.Errorf("fanouts %v, part %d, alpha %g: Inclusion predicts %.1f rows, "+
						"measured are %.1f", fanouts, part, alpha, byInclusion, measured)
				}
				if off := byVIP/measured - 1; fanouts[0] > fanouts[1] &&
					(off < -0.05 || off > 0.05) {
					t.Errorf("fanouts %v, part %d, alpha %g: VIP predicts %.1f rows, measured "+
						"are %.1f", fanouts, part, alpha, byVIP, measured)
				}
				if measured > 1.05*oracle {
					t.Errorf("fanouts %v, part %d, alpha %g: VIP's cache misses %.1f rows, the "+
						"oracle's %.1f", fanouts, part, alpha, measured, oracle)
				}
			}
		}
	}
}

// Every part has its own ranking: published code used that of part 0 for all.
func TestRankingsArePartWise(t *testing.T) {
	g := newGenerated(t, 4,
		dataset.GenerateOptions{Vertices: 4000, Degree: 16, Features: 1, Seed: 3})
	fanouts := []int{10, 5}
	streams := g.streams(t, 32)
	scores := make([][]float32, len(g.parts))
	for k := range scores {
		scores[k] = memtest.Must[float32](t)(g.VIP(g.train[k], 32, fanouts))
	}
	for part := range g.parts {
		counts := memtest.Must[float32](t)(Count(g.topology,
			&sample.Sweep{Spec: sample.Neighbours(fanouts...), Epoch: 1, Epochs: 2,
				Reader: sample.Reader{Streams: streams, First: part, Count: 1}}))
		misses := func(ranking int) float64 {
			return g.perStep(t, counts, part, 2*streams.Steps(),
				memtest.Must[graph.VertexID](t)(g.Top(scores[ranking], g.parts[part:part+1], 300)))
		}
		own := misses(part)
		for other := range g.parts {
			if m := misses(other); other != part && m <= own {
				t.Errorf("part %d misses %.1f rows a step with its own ranking and %.1f with "+
					"that of part %d", part, own, m, other)
			}
		}
	}
}
