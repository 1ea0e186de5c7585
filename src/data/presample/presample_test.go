package presample

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/data/dataset"
	"halognn/src/topology/graph"
	"halognn/src/topology/partition"
	"halognn/src/topology/sample"
)

// skewed is a block model whose training seeds are the first quarter of the vertices.
func skewed(t *testing.T) *dataset.Dataset {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	if err := dataset.Generate(dir, dataset.GenerateOptions{
		Vertices: 1200, Degree: 8, Features: 1, Seed: 3}); err != nil {
		t.Fatal(err)
	}
	d, err := dataset.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	d.Split.Train = nil
	for v := range graph.VertexID(300) {
		d.Split.Train = append(d.Split.Train, v)
	}
	return d
}

func options(workers int) Options {
	return Options{Sample: sample.Neighbours(3, 2), Batch: 64, Seed: 5, Epochs: 2, Workers: workers}
}

// references returns the minibatches of some epochs, sampled by the reference.
func references(t *testing.T, d *dataset.Dataset, o Options, first, epochs int) (
	all []*sample.Minibatch,
) {
	t.Helper()
	topology := &sample.Topology{Graph: *d.Graph}
	for v := range d.Graph.NumVertices() {
		topology.Original = append(topology.Original, int32(v))
	}
	s, err := sample.NewStreams([][]graph.VertexID{d.Split.Train}, sample.StreamOptions{
		Batch: o.Batch, Scope: sample.ScopeGlobal, Seeds: sample.SeedsGlobal, Seed: o.Seed})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Free()
	for epoch := first; epoch < first+epochs; epoch++ {
		for step := range s.Steps() {
			mb := sample.Reference(topology, o.Sample, s.Piece(epoch, step, 0, nil),
				sample.Key{Seed: o.Seed, Epoch: epoch, Step: step})
			t.Cleanup(mb.Free)
			all = append(all, mb)
		}
	}
	return all
}

func TestCountsAreThoseOfTheReference(t *testing.T) {
	d := skewed(t)
	o := options(0)
	vertices := make([]int32, d.Graph.NumVertices())
	edges := map[graph.Edge]int32{}
	all := references(t, d, o, firstCounted, o.Epochs)
	for _, mb := range all {
		for _, v := range mb.Seeds {
			vertices[v]++
		}
		for _, b := range mb.Blocks {
			for _, v := range mb.Frontier[:b.NumSrc] {
				vertices[v]++
			}
			for dst := range b.NumDst {
				for _, s := range b.Indices[b.Indptr[dst]:b.Indptr[dst+1]] {
					edges[graph.MakeEdge(mb.Frontier[s], mb.Frontier[dst])]++
				}
			}
		}
	}
	before := mem.Allocated()
	for _, o.Workers = range []int{0, 1, 3} {
		c, err := Count(d.Graph, d.Split.Train, o)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(c.Vertices, vertices) || c.Minibatches != len(all) {
			t.Errorf("%d workers: other counts of vertices than the reference", o.Workers)
		}
		drawn := 0
		for v := range graph.VertexID(d.Graph.NumVertices()) {
			for i, u := range d.Graph.InNeighbours(v) {
				x := c.Edges[d.Graph.Indptr[v]+int64(i)]
				if want := edges[graph.MakeEdge(u, v)]; x != want {
					t.Fatalf("edge %d to %d was drawn %d times, the count is %d", u, v, want, x)
				}
				if x > 0 {
					drawn++
				}
			}
		}
		if drawn != len(edges) {
			t.Errorf("%d edges have counts, %d were drawn", drawn, len(edges))
		}
		c.Free()
	}
	if leak := mem.Allocated() - before; leak != 0 {
		t.Errorf("%d bytes were not freed", leak)
	}
}

// The edges that are left are those with counts, and keep them.
func TestDrawnHasTheEdgesThatWereDrawn(t *testing.T) {
	g := &graph.CSC{Indptr: []int64{0, 2, 2, 5}, Indices: []graph.VertexID{1, 2, 0, 1, 2}}
	c := &Counts{Vertices: make([]int32, 3), Edges: []int32{0, 4, 7, 0, 1}}
	drawn, weights := c.Drawn(g)
	defer drawn.Free()
	defer mem.Free(weights)
	if !slices.Equal(drawn.Indptr, []int64{0, 1, 1, 3}) ||
		!slices.Equal(drawn.Indices, []graph.VertexID{2, 0, 2}) ||
		!slices.Equal(weights, []int32{4, 7, 1}) {
		t.Errorf("got %v with weights %v", drawn, weights)
	}
}

// Where seeds lie in one corner of the graph, balancing what sampling touches gives parts equal
// work, and balancing vertices does not.
func TestPartsAreBalancedInWhatSamplingTouches(t *testing.T) {
	d := skewed(t)
	o := options(2)
	c, err := Count(d.Graph, d.Split.Train, o)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Free()
	const parts = 4
	by := partition.Options{Parts: parts, Seed: 1}
	worst := func(part []int32) float64 {
		r, err := Measure(d.Graph, d.Split.Train, part, parts, o)
		if err != nil {
			t.Fatal(err)
		}
		return slices.Max(r.Imbalance)
	}
	plain, err := partition.Contiguous(d.Graph, partition.Weights{}, by)
	if err != nil {
		t.Fatal(err)
	}
	if x := worst(plain); x < 1.5 {
		t.Fatalf("parts of equal size have an imbalance of only %.2f; the test needs another graph",
			x)
	}
	for _, edges := range []bool{true, false} {
		part, err := c.Partition(partition.LDG, d.Graph, by, edges)
		if err != nil {
			t.Fatal(err)
		}
		load := make([]int64, parts)
		for v, k := range part {
			load[k] += int64(c.Vertices[v])
		}
		if most := slices.Max(load) * parts; float64(most) > 1.06*float64(sum(load)) {
			t.Errorf("edges %v: parts have the loads %v", edges, load)
		}
		if x := worst(part); x > 1.25 {
			t.Errorf("edges %v: a part has %.2f times the mean of a layer's edges", edges, x)
		}
	}
}

func sum(x []int64) (total int64) {
	for _, v := range x {
		total += v
	}
	return total
}

// A part that would have only vertices that nobody draws gets one all the same.
func TestEveryPartHasAVertex(t *testing.T) {
	const n = 12
	g := &graph.CSC{Indptr: make([]int64, n+1)}
	c := &Counts{Vertices: make([]int32, n), Edges: []int32{}}
	c.Vertices[3] = 9
	for parts := 1; parts <= n; parts++ {
		part, err := c.Partition(partition.LDG, g, partition.Options{Parts: parts}, true)
		if err != nil {
			t.Fatal(err)
		}
		size := make([]int64, parts)
		for _, k := range part {
			size[k]++
		}
		if slices.Min(size) == 0 {
			t.Errorf("%d parts have the sizes %v", parts, size)
		}
	}
}

func TestWhatCannotBeSampledIsNamed(t *testing.T) {
	d := skewed(t)
	train := d.Split.Train
	for _, c := range []struct {
		change func(o *Options)
		want   string
	}{
		{func(o *Options) { o.Sample = sample.Neighbours(0) }, "fanouts[0] is 0"},
		{func(o *Options) { o.Sample = sample.Spec{Kind: sample.LADIES, Vertices: []int{9}} },
			"no fanouts"},
		{func(o *Options) { o.Batch = 0 }, "batch is 0"},
		{func(o *Options) { o.Epochs = 0 }, "the number of epochs is 0"},
		{func(o *Options) { o.Workers = -1 }, "workers is -1"},
		{func(*Options) { train = nil }, "training seed"},
		{func(o *Options) {
			train, o.Batch, o.Epochs = d.Split.Train, 1, 1<<20
			o.Sample = sample.Neighbours(1, 1, 1, 1, 1, 1, 1, 1)
		}, "counts have 32 bits"},
	} {
		o := options(1)
		c.change(&o)
		if _, err := Count(d.Graph, train, o); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %q", err, c.want)
		}
	}
	o := options(1)
	if err := o.fits(d.Graph, 300, 1<<60); !errors.Is(err, ErrMemory) ||
		!strings.Contains(err.Error(), "GB is available") {
		t.Errorf("a graph that needs 2^60 bytes: %v", err)
	}
	backward := &graph.CSC{Indptr: []int64{0, 2, 2, 2}, Indices: []graph.VertexID{2, 1}}
	o.Batch = 1
	if _, err := Count(backward, []graph.VertexID{0}, o); err == nil ||
		!strings.Contains(err.Error(), "vertex 0 are not in ascending order") {
		t.Errorf("got %v", err)
	}
}

func TestMeasureIsTheMeanOverMinibatches(t *testing.T) {
	d := skewed(t)
	o := options(1)
	const parts = 3
	part := make([]int32, d.Graph.NumVertices())
	for v := range part {
		part[v] = int32(v % parts)
	}
	var want partition.Sampled
	want.Imbalance, want.WorstImbalance = make([]float64, 2), make([]float64, 2)
	cross := int64(0)
	all := references(t, d, o, firstMeasured, 1)
	for _, mb := range all {
		want.Edges += int64(mb.NumEdges())
		for l := range mb.Blocks {
			b := &mb.Blocks[l]
			var edges [parts]int64
			for d := range b.NumDst {
				p := part[mb.Frontier[d]]
				for _, s := range b.Indices[b.Indptr[d]:b.Indptr[d+1]] {
					edges[p]++
					if part[mb.Frontier[s]] != p {
						cross++
					}
				}
			}
			x := float64(slices.Max(edges[:])) * parts / float64(sum(edges[:]))
			want.Imbalance[l] += x / float64(len(all))
			want.WorstImbalance[l] = max(want.WorstImbalance[l], x)
		}
	}
	var first *partition.Sampled
	for _, o.Workers = range []int{1, 3} {
		got, err := Measure(d.Graph, d.Split.Train, part, parts, o)
		if err != nil {
			t.Fatal(err)
		}
		if got.Edges != want.Edges || got.Minibatches != len(all) ||
			got.CrossEdges != float64(cross)/float64(want.Edges) ||
			!slices.Equal(got.WorstImbalance, want.WorstImbalance) {
			t.Errorf("%d workers: got %+v, want %+v", o.Workers, got, want)
		}
		for l, x := range got.Imbalance {
			if d := x - want.Imbalance[l]; d > 1e-12 || d < -1e-12 {
				t.Errorf("layer %d: imbalance %g, want %g", l, x, want.Imbalance[l])
			}
		}
		if first == nil {
			first = got
		} else if !slices.Equal(got.Imbalance, first.Imbalance) {
			t.Error("the number of goroutines changes the bits of the imbalance")
		}
	}
}
