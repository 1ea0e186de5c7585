package parallel

import (
	"math"
	"slices"
	"testing"

	"halognn/src/model/nn"
	"halognn/src/topology/graph"
	"halognn/src/topology/graph/graphtest"
	"halognn/src/topology/sample"
	"halognn/tests/race"
)

// aggregated adds up a number of each source of layer 0 as the layer weighs its edges.
func aggregated(t *testing.T, topology *sample.Topology, m *sample.Minibatch,
	needs nn.Needs) []float64 {
	t.Helper()
	var e LayerEdges
	defer e.Free()
	e.Build(m, needs, true, topology)
	h := e.Hop(m, 0, needs, true)
	y := make([]float64, h.Destinations)
	for d := range y {
		for k := h.Forward.Indptr[d]; k < h.Forward.Indptr[d+1]; k++ {
			original := m.Original[h.Forward.Indices[k]]
			y[d] += float64(h.Weights[k]) * (2 + math.Cos(float64(original)))
		}
	}
	return y
}

// Whatever weighs edges, data or sampler or both: on average over many draws a layer aggregates
// what it does over all neighbours, at the edges of a graph too, where vertices have none.
func TestLayersEstimateAllNeighbours(t *testing.T) {
	race.Alone(t)
	w := newWorld(t, 1)
	plain, weighted := w.topology, w.topology
	n := len(plain.Graph.Indices)
	weighted.Weights, weighted.WeightSums = make([]float32, n), make([]float32, vertices)
	for v := range vertices {
		for e := plain.Graph.Indptr[v]; e < plain.Graph.Indptr[v+1]; e++ {
			weighted.Weights[e] = float32(1+e%5) / 4
			weighted.WeightSums[v] += weighted.Weights[e]
		}
	}
	var seeds []graph.VertexID
	for v := 0; v < vertices; v += 3 {
		seeds = append(seeds, graph.VertexID(v))
	}
	const draws = 1200
	for _, spec := range []sample.Spec{
		{Kind: sample.Poisson, Fanouts: []int{2}}, {Kind: sample.LADIES, Vertices: []int{60}},
	} {
		for _, ofData := range []bool{false, true} {
			topology := &plain
			if ofData {
				topology = &weighted
			}
			for _, c := range []nn.Config{
				{Kind: "sage"}, {Kind: "gin"}, {Kind: "gcn"}, {Kind: "gcn", GCNNorm: nn.GCNBoth},
			} {
				c.Layers, c.In, c.Hidden, c.Out = 1, 1, 1, 2
				c.EdgeWeights, c.Estimates = ofData, true
				needs := c.Needs()
				s, err := sample.New(topology,
					sample.Options{Spec: spec, Eval: sample.Neighbours(sample.All),
						Weights: needs.OfData})
				if err != nil {
					t.Fatal(err)
				}
				var m sample.Minibatch
				if err := s.SampleEval(&m, seeds, sample.Key{}); err != nil {
					t.Fatal(err)
				}
				want := aggregated(t, topology, &m, needs)
				sum, squares := make([]float64, len(seeds)), make([]float64, len(seeds))
				for i := range draws {
					if err := s.Sample(&m, seeds, sample.Key{Step: i}); err != nil {
						t.Fatal(err)
					}
					for d, y := range aggregated(t, topology, &m, needs) {
						sum[d] += y
						squares[d] += y * y
					}
				}
				random := 0
				for d, all := range want {
					mean := sum[d] / draws
					variance := max(0, squares[d]/draws-mean*mean)
					if variance > 1e-8 {
						random++
					}
					if off := math.Abs(mean - all); off > 5*math.Sqrt(variance/draws)+1e-5 {
						t.Errorf("%+v, %s, %s: vertex %d comes to %g on average, %.1f standard "+
							"errors from %g", spec, c.Kind, c.GCNNorm, seeds[d], mean,
							off/math.Sqrt(variance/draws), all)
					}
				}
				if random < len(want)/2 {
					t.Errorf("%+v, %s: only %d of %d are random", spec, c.Kind, random, len(want))
				}
				m.Free()
				s.Free()
			}
		}
	}
}

// A minibatch that leaves its links out weighs edges as one of the graph that never had them, so
// that no weight tells ends of links from other vertices: of every sampler and normalisation.
func TestWeightsDoNotNameLinks(t *testing.T) {
	const n = 60
	topologyOf := func(edges [][2]int) *sample.Topology {
		original := make([]int32, n)
		for v := range original {
			original[v] = int32(v)
		}
		return &sample.Topology{Graph: *graphtest.NewGraph(t, n, edges...), Original: original}
	}
	var edges, left [][2]int
	for v := range n {
		for k := 1; k < 7; k++ {
			edges = append(edges, [2]int{v, (v + k*k) % n}, [2]int{(v + k*k) % n, v})
		}
	}
	var links []graph.Link
	var numbers []graph.VertexID
	for i, e := range edges {
		if i%10 == 0 {
			numbers = append(numbers, graph.VertexID(len(links)))
			links = append(links, graph.Link{Source: graph.VertexID(e[0]),
				Target: graph.VertexID(e[1])})
		}
	}
	for _, e := range edges {
		l := graph.Link{Source: graph.VertexID(e[0]), Target: graph.VertexID(e[1])}
		if !slices.Contains(links, l) && !slices.Contains(links, l.Reverse()) {
			left = append(left, e)
		}
	}
	whole, rest := topologyOf(edges), topologyOf(left)
	streams, err := sample.NewStreams([][]graph.VertexID{numbers},
		sample.StreamOptions{Batch: len(links)})
	if err != nil {
		t.Fatal(err)
	}
	rated, err := streams.Rate(links, []graph.VertexID{0, n}, whole,
		sample.LinkOptions{Exclude: true, Corrupt: sample.CorruptTarget,
			Negatives: sample.Negatives{Kind: sample.NegativesUniform, Count: 1}})
	if err != nil {
		t.Fatal(err)
	}
	for _, spec := range []sample.Spec{
		sample.Neighbours(sample.All, sample.All), sample.Neighbours(4, 20),
		{Kind: sample.Labor, Fanouts: []int{4, 20}},
		{Kind: sample.Poisson, Fanouts: []int{4, 20}},
		{Kind: sample.LADIES, Vertices: []int{30, 40}},
	} {
		spec = spec.InJob(1, 1, 1, 1)
		without := spec
		spec.Links = rated
		for _, c := range []nn.Config{
			{Kind: "sage"}, {Kind: "gin"}, {Kind: "gcn"}, {Kind: "gcn", GCNNorm: nn.GCNBoth},
		} {
			c.Layers, c.In, c.Hidden, c.Out, c.Estimates = 2, 1, 1, 2, spec.Estimates()
			var weights [2][]float32
			for i, of := range []*sample.Topology{whole, rest} {
				s, err := sample.New(of, sample.Options{Spec: []sample.Spec{spec, without}[i]})
				if err != nil {
					t.Fatal(err)
				}
				var m sample.Minibatch
				var e LayerEdges
				if err := s.Sample(&m, streams.Piece(1, 0, 0, nil),
					sample.Key{Epoch: 1}); err != nil {
					t.Fatal(err)
				}
				e.Build(&m, c.Needs(), true, of)
				weights[i] = slices.Clone(e.weights)
				e.Free()
				m.Free()
				s.Free()
			}
			if !slices.Equal(weights[0], weights[1]) {
				t.Errorf("%s, %s %s: edges weigh other than on the graph without the links", spec,
					c.Kind, c.GCNNorm)
			}
		}
	}
}
