package access

import (
	"errors"
	"strings"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/data/dataset"
	"halognn/src/topology/sample"
)

func TestCapacity(t *testing.T) {
	for _, c := range []struct {
		alpha   float64
		n       int64
		readers int
		want    int
	}{{0, 100, 4, 0}, {0.1, 1000, 4, 25}, {0.1, 999, 4, 24}, {1, 1000, 4, 250}, {4, 1000, 4, 1000},
		{1e300, 1000, 4, 1000}} {
		if got := Capacity(c.alpha, c.n, c.readers); got != c.want {
			t.Errorf("alpha %g of %d vertices among %d: %d rows, want %d", c.alpha, c.n, c.readers,
				got, c.want)
		}
	}
}

// An analysis that needs fanouts rejects a kind of sampling without them, by name.
func TestWithoutFanouts(t *testing.T) {
	g := newGenerated(t, 2, dataset.GenerateOptions{Vertices: 60, Degree: 4, Seed: 3})
	r := &Workload{
		Local: g.parts[:1], Sources: []Source{{g.train[0], 5, 1}},
		Sample: sample.Spec{Kind: sample.LADIES, Vertices: []int{5, 5}}, Hops: 2,
		Topology: g.topology, Epochs: 1,
		Reader: sample.Reader{Streams: g.streams(t, 16), Count: 1},
	}
	p := mem.Make[float32](60)
	defer mem.Free(p)
	for name, f := range map[string]func() error{
		"ranking by vip": func() error { _, err := g.RankVIP(r); return err },
	} {
		err := f()
		if !errors.Is(err, sample.ErrFanouts) || !strings.Contains(err.Error(), name) ||
			!strings.Contains(err.Error(), "sample.kind ladies") {
			t.Errorf("%s: %v", name, err)
		}
	}
	// The memory of a window is that of counted minibatches.
	one, err := g.WindowBytes(r, p, 1)
	if err != nil || one < 24 {
		t.Errorf("a minibatch that waits takes %d bytes: %v", one, err)
	}
	if three, err := g.WindowBytes(r, p, 3); err != nil || three != 3*one {
		t.Errorf("three take %d bytes, one %d: %v", three, one, err)
	}
	if _, err := g.PlanWindow(r, p, 10); err != nil {
		t.Errorf("planning a window: %v", err)
	}
	// Without fanouts reads are counted, over all minibatches of an epoch where these are few.
	reads, err := g.Reads(r)
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Free(reads)
	score, err := r.Counted(SimulatedFirst, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Free(score)
	for v, n := range score {
		if want := n / float32(r.Streams.Steps()); reads[v] != want {
			t.Errorf("vertex %d is read with probability %g, want %g", v, reads[v], want)
		}
	}
	for name, rank := range map[string]func() ([]float32, error){ // these read only the graph
		"halo": func() ([]float32, error) { return g.Halo(r.Local, 1) },
		"wpr":  func() ([]float32, error) { return g.PageRank(r.Seeds()) },
	} {
		score, err := rank()
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		mem.Free(score)
	}
}
