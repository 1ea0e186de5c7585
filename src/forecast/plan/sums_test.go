package plan

import (
	"testing"

	"halognn/src/base/trace"
	"halognn/src/data/dataset"
	"halognn/src/data/shard/shardtest"
)

// Arrays of all layers, or of edges and vertices, have room for sums that have been, not for the
// sum of the most of each.
func TestSumsHaveRoom(t *testing.T) {
	two := func(edges, destinations [2]int) *shape {
		return &shape{hops: []hopShape{{destinations: destinations[0], edges: edges[0]},
			{destinations: destinations[1], edges: edges[1]}}}
	}
	for name, of := range map[string][3]*shape{
		"edges": {two([2]int{80, 0}, [2]int{}), two([2]int{0, 80}, [2]int{}),
			two([2]int{80, 80}, [2]int{})},
		"edges of vertices to themselves": {two([2]int{80, 0}, [2]int{}),
			two([2]int{}, [2]int{80, 0}), two([2]int{80, 0}, [2]int{80, 0})},
	} {
		a := &trial{room: map[bool][]int{}}
		for i, s := range of {
			if a.hasRoom(s, true) {
				t.Errorf("%s: minibatch %d is said to have room", name, i)
			}
		}
		if !a.hasRoom(of[2], true) || !a.hasRoom(of[0], true) {
			t.Errorf("%s: minibatches have no room once they were prepared", name)
		}
	}
}

// Each worker has what it chooses sums with, and no more of what the rank has by vertex for learned
// rows.
func TestWorkersChooseSums(t *testing.T) {
	s := shardtest.Open(t, dataset.GenerateOptions{Kind: "mag", Vertices: 1000, Features: 8,
		Classes: 4, Seed: 1}, shardtest.Options{Parts: 4})
	of := func(sums bool, workers int) Job {
		j := planJob()
		j.Ranks, j.RanksPerNode, j.Workers, j.Sums = 4, 1, workers, sums
		j.Model.Learned, j.Batch = 8, 4
		return j
	}
	samplers := func(sums bool, workers int) int64 {
		o := given
		o.Analyse = 1 // the same rank
		return planned(t, s, of(sums, workers), o).Memory.Of(trace.MemSamplers)
	}
	held := func(sums bool) heldBytes {
		j := of(sums, 1)
		return probed(t, laidOut(t, s, &j), 2).held() // that rank
	}
	once := held(true).Strategy - held(false).Strategy // of gradients of sums
	one := samplers(true, 1) - samplers(false, 1)
	more := (samplers(true, 9) - samplers(false, 9) - one) / 8
	if more == 0 || more != held(true).Choices || one != more+once {
		t.Errorf("a worker takes %d bytes for sums, the first one %d, of which %d are for all",
			more, one, once)
	}
}
