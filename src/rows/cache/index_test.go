package cache

import (
	"math/rand/v2"
	"testing"

	"halognn/src/topology/graph"
)

// Random changes, many of keys with neighbouring homes, compared with a map.
func TestIndexIsAMap(t *testing.T) {
	const n = 3000
	for _, kind := range []IndexKind{IndexDense, IndexHash} {
		for seed := range uint64(20) {
			r := rand.New(rand.NewPCG(seed, 1))
			x := NewIndex(n, r.IntN(100), kind)
			want := map[graph.VertexID]int32{}
			span := 1 + r.IntN(n)
			ids, slots := make([]graph.VertexID, n), make([]int32, n)
			for v := range ids {
				ids[v] = graph.VertexID(v)
			}
			for op := range 3000 {
				switch v := graph.VertexID(r.IntN(span)); r.IntN(3) {
				case 0, 1:
					if len(want) < span/2 || r.IntN(2) == 0 {
						want[v] = r.Int32N(1 << 30)
						x.Set(v, want[v])
						break
					}
					fallthrough
				default:
					delete(want, v)
					x.Remove(v)
				}
				if op%500 != 0 {
					continue
				}
				misses := x.Lookup(ids, slots)
				if misses != n-len(want) {
					t.Fatalf("kind %d, seed %d: %d misses with %d of %d keys", kind, seed, misses,
						len(want), n)
				}
				for v, got := range slots {
					w, ok := want[graph.VertexID(v)]
					if !ok {
						w = -1
					}
					if got != w || x.Get(graph.VertexID(v)) != w {
						t.Fatalf("kind %d, seed %d: vertex %d has %d and %d, want %d", kind, seed,
							v, got, x.Get(graph.VertexID(v)), w)
					}
				}
			}
			x.Free()
		}
	}
}

func TestIndexIsChosenByMemory(t *testing.T) {
	for _, c := range []struct {
		name           string
		vertices, keys int
		dense          bool
		most           int64
	}{
		{"many keys", 2_400_000, 300_000, true, 4 * 2_400_000},
		{"few keys", 2_400_000, 1000, false, 32 * 1000},
		{"no keys", 1000, 0, false, 512},
		{"no vertices", 0, 0, true, 4},
	} {
		x := NewIndex(c.vertices, c.keys, IndexAuto)
		if dense := x.dense != nil; dense != c.dense {
			t.Errorf("%s: dense is %t", c.name, dense)
		}
		if x.Bytes() > c.most {
			t.Errorf("%s: %d bytes, more than %d", c.name, x.Bytes(), c.most)
		}
		x.Free()
	}
}
