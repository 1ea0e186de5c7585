package parallel

import (
	"slices"
	"strings"
	"testing"

	"halognn/src/model/nn"
	"halognn/src/model/task"
	"halognn/src/step/job"
	"halognn/src/topology/graph"
	"halognn/src/topology/graph/graphtest"
	"halognn/src/topology/sample"
)

// What links cannot be trained with is refused by name, and without links none of it is.
func TestRefusalsOfLinks(t *testing.T) {
	for want, change := range map[string]func(*job.Spec){
		"links.filter": func(s *job.Spec) {
			s.Partitioned, s.Links.Filter = true, true
		},
		"the near neighbours among the edges": func(s *job.Spec) { s.Locality.Favour = 2 },
		"validation links have no weights": func(s *job.Spec) {
			s.Links.Graph, s.Model.EdgeWeights = job.TrainValidGraph, true
		},
		"tells the ends of links from others": func(s *job.Spec) { s.Model.EdgeWeights = true },
		"divides by degrees": func(s *job.Spec) {
			s.Mode, s.Model.Kind, s.Model.GCNNorm = modes[1].Mode, "gcn", nn.GCNBoth
		},
	} {
		s := job.Spec{Model: nn.Config{Kind: "sage", Layers: 2, Task: task.Links},
			Sample: sample.Neighbours(2, 2)}
		s.Links.Exclude = true
		change(&s)
		named := func() (found bool) {
			for _, r := range Refusals(&s) {
				found = found || strings.Contains(r.Error(), want) && r.Key != "sample.kind"
			}
			return found
		}
		if !named() {
			t.Errorf("%s is not refused: %v", want, Refusals(&s))
		}
		if s.Model.Task = task.Multiclass; named() {
			t.Errorf("%s is refused without links", want)
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
		return &sample.Topology{Graph: *graphtest.Of(t, n, edges...), Original: original}
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
