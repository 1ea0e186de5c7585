package cache

import (
	"math/rand/v2"
	"slices"
	"testing"

	"halognn/src/topology/graph"
)

// plainSieve is SIEVE with a slice for its list, newest first.
type plainSieve struct {
	capacity int
	list     []graph.VertexID
	visited  map[graph.VertexID]bool
	hand     int // index in list; -1: at the tail
}

func (s *plainSieve) advance(remote []graph.VertexID) {
	var misses []graph.VertexID
	for _, v := range remote {
		if slices.Contains(s.list, v) {
			s.visited[v] = true
		} else {
			misses = append(misses, v)
		}
	}
	for _, v := range misses {
		if s.capacity == 0 {
			return
		}
		if len(s.list) == s.capacity {
			at := s.hand
			if at < 0 {
				at = len(s.list) - 1
			}
			for s.visited[s.list[at]] {
				s.visited[s.list[at]] = false
				if at--; at < 0 {
					at = len(s.list) - 1
				}
			}
			s.list = slices.Delete(s.list, at, at+1)
			s.hand = at - 1
		}
		s.list = slices.Insert(s.list, 0, v)
		if s.hand >= 0 {
			s.hand++
		}
	}
}

func TestSieveIsTheAlgorithm(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 4))
		n := 1 + r.IntN(60)
		want := &plainSieve{capacity: r.IntN(20), visited: map[graph.VertexID]bool{}, hand: -1}
		s := must[*Sieve](t)(NewSieve(n, want.capacity))
		run(t, s, nil, randomTrace(r, n, 80, r.IntN(25)+1, float64(r.IntN(3))),
			func(step int, remote []graph.VertexID, x *table) {
				want.advance(remote)
				have := slices.Sorted(slices.Values(want.list))
				if !slices.Equal(held(x), have) {
					t.Fatalf("seed %d, step %d: holds %v, want %v", seed, step, held(x), have)
				}
			})
		s.Free()
	}
}
