package sample

import (
	"math/rand/v2"
	"slices"
	"testing"

	"halognn/src/topology/graph"
)

// A reader's minibatches are those of training, step by step and stream by stream, over the ends of
// epochs; what is not asked for is not sampled, and seeds alone are a minibatch where nothing is
// drawn.
func TestMinibatchesOfAReader(t *testing.T) {
	topology := randomTopology(rand.New(rand.NewPCG(2, 1)), 40)
	streams, err := NewStreams([][]graph.VertexID{{0, 1, 2, 3, 4}, {10, 11, 12}, {20, 21, 22, 23}},
		StreamOptions{Batch: 2, Seed: 9})
	if err != nil {
		t.Fatal(err)
	}
	defer streams.Free()
	r := Reader{Streams: streams, First: 1, Count: 2, Seed: 9}
	var want []Key
	for epoch := 1; epoch < 4; epoch++ {
		for step := range streams.Steps() {
			for stream := 1; stream < 3; stream++ {
				want = append(want, Key{Seed: 9, Epoch: epoch, Step: step, Stream: stream})
			}
		}
	}
	const from, n = 3, 8
	i := from
	var fault error
	for key, mb := range r.Minibatches(topology, Options{Spec: Neighbours(2, 1)}, 1, from, n,
		&fault) {
		seeds := streams.Piece(key.Epoch, key.Step, key.Stream, nil)
		one := Reference(topology, Neighbours(2, 1), seeds, key)
		if key != want[i] || mb.Digest() != one.Digest() {
			t.Errorf("item %d: another minibatch, of %+v, want %+v", i, key, want[i])
		}
		one.Free()
		i++
	}
	if i != from+n || fault != nil {
		t.Errorf("%d minibatches, %v", i-from, fault)
	}
	for key, mb := range r.Minibatches(topology, Options{}, 1, from, n, &fault) {
		if seeds := streams.Piece(1, key.Step, key.Stream, nil); !slices.Equal(mb.Frontier, seeds) {
			t.Errorf("%v where nothing is drawn, want %v", mb.Frontier, seeds)
		}
		break
	}
	for range r.Minibatches(topology, Options{Spec: Neighbours(0)}, 1, 0, n, &fault) {
		t.Error("bad fanouts draw something")
	}
	if fault == nil {
		t.Error("bad fanouts are no error")
	}
}
