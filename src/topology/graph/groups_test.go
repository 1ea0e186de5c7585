package graph

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
)

// Edges come part by part, in their order within a part, with their weights, and the first of each
// later part is marked: at any number of parts, again and again with the same arrays.
func TestEdgesByPart(t *testing.T) {
	type edge struct {
		source int32
		weight float32
	}
	random := rand.New(rand.NewPCG(1, 2))
	var g Grouper
	defer g.Free()
	for round, parts := range []int{2, 3, 64, 65, 200, 1, 4} {
		part := make([]uint16, 50)
		for s := range part {
			part[s] = uint16(random.IntN(parts))
			if round == 6 { // most segments lie in one part
				part[s] /= 3
			}
		}
		indptr, indices, weights := []int64{0}, []int32(nil), []float32(nil)
		for range 100 {
			for range random.IntN(20) {
				indices = append(indices, int32(random.IntN(len(part))))
				weights = append(weights, float32(len(weights)))
			}
			indptr = append(indptr, int64(len(indices)))
		}
		if round == 3 {
			weights = nil
		}
		var want []edge
		for d := range 100 {
			lo, hi := int(indptr[d]), int(indptr[d+1])
			segment := make([]edge, hi-lo)
			for k := range segment {
				segment[k].source = indices[lo+k]
				if weights != nil {
					segment[k].weight = weights[lo+k]
				}
			}
			slices.SortStableFunc(segment, func(a, b edge) int {
				return cmp.Compare(part[a.source], part[b.source])
			})
			for k := len(segment) - 1; k > 0; k-- {
				if part[segment[k].source] != part[segment[k-1].source] {
					segment[k].source = ^segment[k].source
				}
			}
			want = append(want, segment...)
		}
		g.ByPart(indptr, indices, weights, part, parts)
		for e, w := range want {
			if indices[e] != w.source || weights != nil && weights[e] != w.weight {
				t.Fatalf("%d parts: edge %d is from %d; want %d with weight %v", parts, e,
					indices[e], w.source, w.weight)
			}
		}
	}
}
