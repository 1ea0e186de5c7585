package presample

import (
	"fmt"
	"slices"
	"sync"

	"halognn/src/topology/graph"
	"halognn/src/topology/partition"
	"halognn/src/topology/sample"
)

// Measure samples one epoch that Count does not sample, and divides its minibatches among the parts
// of a partition. It ignores o.Epochs. It takes as much time and memory as Count takes for one
// epoch, except the memory for the counts.
func Measure(g *graph.CSC, train []graph.VertexID, part []int32, parts int, o Options) (
	*partition.Sampled, error,
) {
	o.Epochs = 1
	s, err := o.start(g, train, 0)
	if err != nil {
		return nil, fmt.Errorf("measuring the partition: %w", err)
	}
	defer s.free()
	layers := o.Sample.Hops()
	r := &partition.Sampled{
		Kind: string(o.Sample.Kind), Fanouts: o.Sample.Fanouts, Batch: o.Batch, Seed: o.Seed,
		Minibatches: s.minibatches(),
		Imbalance:   make([]float64, layers), WorstImbalance: make([]float64, layers),
	}
	var sum sync.Mutex
	// There is one entry for each minibatch. Entries are sorted before they are added up, so that
	// the sums have the same bits in whatever order the goroutines finish.
	imbalance := make([][]float64, 0, r.Minibatches)
	edges, cross := int64(0), int64(0)
	owner := func(v graph.VertexID) int { return int(part[v]) }
	err = s.run(firstMeasured, func() (func(sample.Key, *sample.Minibatch) error, func()) {
		loads := sample.NewLoads(parts, layers)
		return func(_ sample.Key, mb *sample.Minibatch) error {
			mb.Loads(owner, 1, nil, loads)
			sum.Lock()
			defer sum.Unlock()
			imbalance = append(imbalance, imbalanceOf(loads))
			for _, of := range loads {
				for _, load := range of {
					edges, cross = edges+int64(load.Edges), cross+int64(load.Cross)
				}
			}
			return nil
		}, func() {}
	})
	if err != nil {
		return nil, fmt.Errorf("measuring the partition: %w", err)
	}
	r.Edges = edges
	r.CrossEdges = float64(cross) / float64(max(edges, 1))
	slices.SortFunc(imbalance, slices.Compare)
	for _, of := range imbalance {
		for l, x := range of {
			r.Imbalance[l] += x / float64(len(imbalance))
			r.WorstImbalance[l] = max(r.WorstImbalance[l], x)
		}
	}
	return r, nil
}

// imbalanceOf returns, for each layer, the largest number of edges of any part divided by the mean.
// It returns 1 for a layer without edges.
func imbalanceOf(loads [][]sample.Load) []float64 {
	all := make([]float64, len(loads[0]))
	for l := range all {
		most, total := 0, 0
		for _, of := range loads {
			most, total = max(most, of[l].Edges), total+of[l].Edges
		}
		all[l] = 1
		if total > 0 {
			all[l] = float64(most) * float64(len(loads)) / float64(total)
		}
	}
	return all
}
