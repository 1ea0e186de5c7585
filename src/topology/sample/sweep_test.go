package sample

import (
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"halognn/src/topology/graph"
)

// A sweep samples the minibatches of training, each once, whatever the number of goroutines.
func TestSweepSamplesEachMinibatchOnce(t *testing.T) {
	topology := randomTopology(rand.New(rand.NewPCG(1, 1)), 40)
	lists := [][]graph.VertexID{{0, 1, 2, 3, 4, 5, 6}, {10, 11, 12}, {20, 21, 22, 23, 24}}
	streams, err := NewStreams(lists, StreamOptions{Batch: 2, Seed: 9})
	if err != nil {
		t.Fatal(err)
	}
	defer streams.Free()
	w := Sweep{Reader: Reader{Streams: streams, First: 1, Count: 2, Seed: 9},
		Spec: Neighbours(2, 1), Epoch: 3, Epochs: 2}
	want := map[Key]uint64{}
	for epoch := 3; epoch < 5; epoch++ {
		for step := range streams.Steps() {
			for stream := 1; stream < 3; stream++ {
				key := Key{Seed: 9, Epoch: epoch, Step: step, Stream: stream}
				mb := Reference(topology, w.Spec, streams.Piece(epoch, step, stream, nil), key)
				want[key] = mb.Digest()
				mb.Free()
			}
		}
	}
	if w.Len() != len(want) {
		t.Errorf("%d minibatches, want %d", w.Len(), len(want))
	}
	for _, w.Workers = range []int{0, 1, 3, 100} {
		var mu sync.Mutex
		got, opened, closed := map[Key]uint64{}, 0, 0
		err := w.Run(topology, func() (func(Key, *Minibatch) error, func()) {
			mu.Lock()
			defer mu.Unlock()
			opened++
			return func(key Key, mb *Minibatch) error {
					mu.Lock()
					defer mu.Unlock()
					if _, twice := got[key]; twice {
						t.Errorf("%d goroutines: %+v was sampled twice", w.Workers, key)
					}
					got[key] = mb.Digest()
					return nil
				}, func() {
					mu.Lock()
					defer mu.Unlock()
					closed++
				}
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != len(want) || opened != closed {
			t.Errorf("%d goroutines: %d minibatches, want %d; %d opened, %d closed", w.Workers,
				len(got), len(want), opened, closed)
		}
		for key, digest := range want {
			if got[key] != digest {
				t.Errorf("%d goroutines: another minibatch at %+v", w.Workers, key)
			}
		}
	}
	bad := errors.New("bad")
	err = w.Run(topology, func() (func(Key, *Minibatch) error, func()) {
		return func(Key, *Minibatch) error { return bad }, func() {}
	})
	if !errors.Is(err, bad) {
		t.Errorf("got %v", err)
	}
	w.Spec = Neighbours(0)
	if err := w.Run(topology, func() (func(Key, *Minibatch) error, func()) {
		return nil, func() {}
	}); err == nil {
		t.Error("bad fanouts are no error")
	}
}

// A sweep draws: without fanouts it is refused, and does not pass seeds for minibatches.
func TestSweepWithoutFanouts(t *testing.T) {
	topology := randomTopology(rand.New(rand.NewPCG(1, 1)), 40)
	streams, err := NewStreams([][]graph.VertexID{{0, 1, 2}}, StreamOptions{Batch: 2, Seed: 9})
	if err != nil {
		t.Fatal(err)
	}
	defer streams.Free()
	w := Sweep{Reader: Reader{Streams: streams, Count: 1}, Epochs: 1}
	err = w.Run(topology, func() (func(Key, *Minibatch) error, func()) {
		return func(Key, *Minibatch) error { return nil }, func() {}
	})
	if err == nil || !strings.Contains(err.Error(), "no fanouts") {
		t.Errorf("without fanouts: %v", err)
	}
}
