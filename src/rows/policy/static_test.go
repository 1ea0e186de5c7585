package policy

import (
	"slices"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/data/dataset"
	"halognn/src/data/shard/shardtest"
	"halognn/src/rows/access"
	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
)

// Score is the analysis that the policy's name stands for.
func TestScoreByName(t *testing.T) {
	s := shardtest.Open(t, dataset.GenerateOptions{
		Vertices: 200, Degree: 6, Features: 2, Classes: 2, Seed: 3,
	}, shardtest.Options{Parts: 2})
	topology := s.Topology()
	g := mustNew(t, &topology.Graph, access.Options{})
	streams, err := sample.NewStreams([][]graph.VertexID{s.Train(0), s.Train(1)},
		sample.StreamOptions{Batch: 16, Seed: 7})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(streams.Free)
	parts := []access.Range{{First: 0, End: graph.VertexID(s.Offsets[1])}}
	fanouts := []int{4, 3}
	r := access.Workload{
		Local: parts, Sources: []access.Source{{Seeds: s.Train(0), PerBatch: 12, Minibatches: 1}},
		Sample:   sample.Neighbours(fanouts...),
		Topology: topology, Epochs: 3, Workers: 2,
		Reader: sample.Reader{Streams: streams, Count: 2, Seed: 5},
	}
	count := func(first, epochs int) ([]float32, error) { // of both streams
		sum := make([]float32, g.NumVertices())
		for k := range 2 {
			score, err := access.Count(topology,
				&sample.Sweep{Spec: sample.Neighbours(fanouts...), Epoch: first, Epochs: epochs,
					Reader: sample.Reader{Streams: streams, First: k, Count: 1, Seed: 5}})
			if err != nil {
				return nil, err
			}
			for v, x := range score {
				sum[v] += x
			}
			mem.Free(score)
		}
		return sum, nil
	}
	want := map[string]func() ([]float32, error){
		Degree: func() ([]float32, error) { return g.Degree(s.Train(0), 2) },
		Halo1:  func() ([]float32, error) { return g.Halo(parts, 1) },
		WPR:    func() ([]float32, error) { return g.PageRank(s.Train(0)) },
		Paths:  func() ([]float32, error) { return g.Paths(s.Train(0), 2) },
		Sim: func() ([]float32,
			error) {
			return count(access.SimulatedFirst, access.SimulatedEpochs)
		},
		VIP:       func() ([]float32, error) { return g.VIP(s.Train(0), 12, fanouts) },
		Inclusion: func() ([]float32, error) { return g.Inclusion(s.Train(0), 12, fanouts) },
		Oracle:    func() ([]float32, error) { return count(1, 3) },
	}
	for _, name := range Names(func(p *Policy) bool { return p.Rank != nil }) {
		got, err := Find(name).Rank(g, &r)
		if err != nil {
			t.Fatal(err)
		}
		if want[name] == nil {
			t.Errorf("%s: say in want which analysis it names", name)
			continue
		}
		same, err := want[name]()
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, same) || slices.Max(got) == 0 {
			t.Errorf("%s is not the score that it names", name)
		}
		mem.Free(got)
	}
}
