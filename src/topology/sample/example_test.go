package sample_test

import (
	"fmt"

	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
)

// ring is a graph in which vertex v reads the three vertices after it.
func ring(n int) *sample.Topology {
	t := &sample.Topology{Original: make([]int32, n)}
	t.Graph.Indptr = append(t.Graph.Indptr, 0)
	for v := range n {
		t.Original[v] = int32(v)
		for k := 1; k <= 3; k++ {
			t.Graph.Indices = append(t.Graph.Indices, graph.VertexID((v+k)%n))
		}
		t.Graph.Indptr = append(t.Graph.Indptr, int64(len(t.Graph.Indices)))
	}
	return t
}

// Seeds come first in the frontier, then what each hop reaches. Blocks are in the order of layers:
// the last has the seeds as destinations, the first reads the features of the whole frontier.
func Example() {
	s, err := sample.New(ring(10), sample.Options{Spec: sample.Neighbours(sample.All, 2)})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Free()
	var mb sample.Minibatch
	defer mb.Free()
	if err := s.Sample(&mb, []graph.VertexID{0, 5}, sample.Key{Seed: 1}); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("seeds", mb.Frontier[:2], "and what hop 1 reaches", mb.Frontier[2:8])
	for l, b := range mb.Blocks {
		fmt.Printf("layer %d: %d sources, %d destinations, %d edges\n", l, b.NumSrc, b.NumDst,
			b.NumEdges())
	}
	// Output:
	// seeds [0 5] and what hop 1 reaches [1 2 3 6 7 8]
	// layer 0: 10 sources, 8 destinations, 16 edges
	// layer 1: 8 sources, 2 destinations, 6 edges
}

// A minibatch is a function of its key alone, so whoever draws it draws the same.
func ExampleSampler() {
	draw := func(key sample.Key) uint64 {
		s, err := sample.New(ring(1000), sample.Options{Spec: sample.Neighbours(2, 2, 2)})
		if err != nil {
			panic(err)
		}
		defer s.Free()
		var mb sample.Minibatch
		defer mb.Free()
		if err := s.Sample(&mb, []graph.VertexID{3, 400, 999}, key); err != nil {
			panic(err)
		}
		return mb.Digest() // of blocks and frontier
	}
	here := draw(sample.Key{Seed: 1, Epoch: 2, Step: 7})
	fmt.Println("another rank:", draw(sample.Key{Seed: 1, Epoch: 2, Step: 7}) == here)
	fmt.Println("another step:", draw(sample.Key{Seed: 1, Epoch: 2, Step: 8}) == here)
	// Output:
	// another rank: true
	// another step: false
}
