package partition

import (
	"cmp"
	"slices"

	"halognn/src/base/mem"
	"halognn/src/topology/graph"
)

// Order numbers the vertices so that parts are contiguous. Inside a part, vertices with a higher
// score come first, because they are read most (hot); equal scores are in order of the old id.
//
//	part    [N]    in [0, parts)
//	score   [N]    such as InDegrees(g), or access probabilities
//	newID   [N]    new id of each old id
//	offsets [P+1]  part k holds the new ids offsets[k] to offsets[k+1]-1
//
// Time O(N log N) on all CPUs, memory O(N).
func Order[S cmp.Ordered](part []int32, parts int, score []S) (newID []graph.VertexID,
	offsets []int64) {
	members, offsets := graph.Members(part, parts)
	newID = make([]graph.VertexID, len(part))
	mem.Pieces(parts, 1, func(_, k, _ int) {
		hot := members[offsets[k]:offsets[k+1]]
		slices.SortFunc(hot, func(a, b int32) int {
			return cmp.Or(cmp.Compare(score[b], score[a]), cmp.Compare(a, b))
		})
		for i, v := range hot {
			newID[v] = graph.VertexID(offsets[k] + int64(i))
		}
	})
	return newID, offsets
}

// InDegrees returns the default score of Order: the in-degree of every vertex. The type of the
// vertex counts before its in-degree, so that vertices of one type come together, in the order of
// the types.
func InDegrees(g *graph.CSC, c *graph.Columns) []int64 {
	degrees := make([]int64, g.NumVertices())
	for v := range degrees {
		kind, _, _ := c.Of(graph.VertexID(v))
		degrees[v] = g.Indptr[v+1] - g.Indptr[v] - int64(kind)<<48
	}
	return degrees
}
