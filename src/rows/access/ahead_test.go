package access

import (
	"slices"
	"testing"

	"halognn/src/base/mem/memtest"
	"halognn/src/topology/graph"
	"halognn/src/topology/graph/graphtest"
	"halognn/src/topology/sample"
)

// reading is a reader of the first half of a graph: two streams, a quarter each.
func reading(t *testing.T, hops int) (*Graph, *Workload) {
	t.Helper()
	r := graphtest.Random(t)
	const n = 400
	g := graphtest.NewGraph(t, n, graphtest.Edges(r, n, 3000)...)
	original := make([]int32, n)
	for v := range original {
		original[v] = int32(v)
	}
	var seeds [2][]graph.VertexID
	for v := range n / 2 {
		seeds[v*4/n] = append(seeds[v*4/n], graph.VertexID(v))
	}
	streams, err := sample.NewStreams(seeds[:], sample.StreamOptions{Batch: 8, Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(streams.Free)
	return mustNew(t, g, Options{}), &Workload{
		Local: []Range{{0, n / 4}, {n / 4, n / 2}}, Sources: Sources(streams, 0, 2),
		Sample: sample.Neighbours(3, 2), Hops: hops,
		Topology: &sample.Topology{Graph: *g, Original: original}, Epochs: 1,
		Reader: sample.Reader{Streams: streams, Count: 2, Seed: 3}, Workers: 2,
	}
}

// Ahead yields what the reference sampler draws for the same keys.
func TestAheadIsWhatTrainingReads(t *testing.T) {
	_, r := reading(t, 0)
	each := r.Streams.Steps() * r.Count
	items := 2 * each // of epochs 2 and 3, the last one
	r.Epochs = 3
	for _, c := range []struct{ from, n int }{{0, items}, {3, 4}, {each - 2, 10},
		{each - 2, 2 * each}, {0, 0}} {
		var fault error
		i := c.from
		for remote := range r.Ahead(2, c.from, c.n, &fault) {
			key := sample.Key{Seed: r.Seed, Epoch: 2 + i/each, Step: i % each / 2, Stream: i % 2}
			mb := sample.Reference(r.Topology, r.Sample, r.Streams.Piece(key.Epoch,
				key.Step, key.Stream, nil), key)
			want := slices.DeleteFunc(slices.Clone(mb.Frontier),
				func(v graph.VertexID) bool { return v < r.Local[1].End })
			if !slices.Equal(remote, want) || len(want) == 0 {
				t.Fatalf("item %d: remote vertices %v, want %v", i, remote, want)
			}
			mb.Free()
			i++
		}
		if want := min(c.from+c.n, items); i != want || fault != nil {
			t.Errorf("from %d on, %d: ended before item %d (%v), want %d", c.from, c.n, i, fault,
				want)
		}
	}
	var fault error
	r.Sample = sample.Neighbours(0)
	for range r.Ahead(1, 0, 3, &fault) {
		t.Error("a minibatch without fanouts")
	}
	if fault == nil {
		t.Error("no error")
	}
}

// Planned windows fit the epoch, and a larger cache gets a longer window.
func TestPlannedWindows(t *testing.T) {
	m, r := reading(t, 0)
	p := memtest.Must[float32](t)(m.Reads(r))
	last := 0
	for _, capacity := range []int{0, 10, 50, 100, 150, 1000} {
		w, err := m.PlanWindow(r, p, capacity)
		if err != nil || w < max(last, 1) || w > 2*r.Streams.Steps()*r.Count {
			t.Errorf("capacity %d: window %d (%v) after %d, of %d minibatches", capacity, w, err,
				last, r.Streams.Steps()*r.Count)
		}
		last = w
	}
	if _, err := m.Reuse(&Workload{Local: []Range{{3, 1}}}, p); err == nil {
		t.Error("ranges that fall were taken")
	}
}

// Where ranks of a node divide a cache, minibatches that wait take more, and fewer fit.
func TestWindowBytesOfDividedCaches(t *testing.T) {
	m, r := reading(t, 0)
	p := memtest.Must[float32](t)(m.Reads(r))
	var bytes [2]int64
	for i := range bytes {
		var err error
		r.Divided = i == 1
		if bytes[i], err = m.WindowBytes(r, p, 1); err != nil {
			t.Fatal(err)
		}
	}
	if more := bytes[1] - bytes[0] - int64(16*total(p)); more < -1 || more > 1 {
		t.Errorf("%d bytes, with own caches %d, of %g vertices", bytes[1], bytes[0], total(p))
	}
}

// The halo is the vertices outside that are sampled from inside.
func TestHaloSize(t *testing.T) {
	m, r := reading(t, 0)
	halo := map[graph.VertexID]bool{}
	for v := graph.VertexID(0); v < r.Local[1].End; v++ {
		for _, u := range r.Topology.Graph.InNeighbours(v) {
			if !within(r.Local, u) {
				halo[u] = true
			}
		}
	}
	if size, err := m.HaloSize(&Workload{Local: r.Local}); err != nil || size != len(halo) {
		t.Errorf("halo of %d vertices (%v), want %d", size, err, len(halo))
	}
	// A reader that shares minibatches fetches some of the halo of its home.
	home := []Range{r.Local[0]}
	score := memtest.Must[float32](t)(m.RankHalo(&Workload{Local: r.Local, Home: home}, 1))
	reached := map[graph.VertexID]bool{}
	for v := home[0].First; v < home[0].End; v++ {
		for _, u := range r.Topology.Graph.InNeighbours(v) {
			reached[u] = reached[u] || !within(r.Local, u)
		}
	}
	want := 0
	for v := range score {
		if x := reached[graph.VertexID(v)]; x != (score[v] == 1) {
			t.Errorf("vertex %d of the halo of the home: %t, score %g", v, x, score[v])
		} else if x {
			want++
		}
	}
	if size, err := m.HaloSize(&Workload{Local: r.Local, Home: home}); err != nil || size != want {
		t.Errorf("halo of the home has %d vertices (%v), want %d", size, err, want)
	}
}
