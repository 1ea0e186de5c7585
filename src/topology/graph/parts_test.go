package graph

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestPartOfEveryVertexIsFound(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for _, c := range []struct{ parts, vertices int }{{1, 1}, {1, 5000}, {3, 2}, {4, 1023},
		{4, 1024}, {8, 100_000}, {64, 3000}, {2000, 9000}} {
		l := make([]int64, c.parts+1)
		for p := 1; p < c.parts; p++ {
			l[p] = rng.Int64N(int64(c.vertices + 1))
		}
		l[c.parts] = int64(c.vertices)
		slices.Sort(l)
		index := NewPartIndex(l)
		for v := range c.vertices {
			if p := index.Find(uint32(v)); int64(v) < l[p] || int64(v) >= l[p+1] {
				t.Fatalf("%d parts: vertex %d found in part %d, [%d,%d)", c.parts, v, p, l[p],
					l[p+1])
			}
		}
	}
	last := NewPartIndex([]int64{0, 1 << 30, MaxVertices})
	if p := last.Find(MaxVertices - 1); p != 1 || len(last.first) > 4096 {
		t.Errorf("last of the largest graph found in part %d; %d ranges", p, len(last.first))
	}
}
