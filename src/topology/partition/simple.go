package partition

import (
	"math/rand/v2"

	"halognn/src/topology/graph"
)

// Random shuffles the vertices and deals them to the parts in turn. Vertices that have a weight in
// the same constraints are dealt together, separately from other vertices. So two parts differ by
// at most a few vertices, a few training seeds, and so on. Repair then evens out weights such as
// in-edges, of which some vertices have very many. The cut of Random, about 1 - 1/P of the edges,
// is the baseline for the other methods.
//
// Time O(N + M), memory O(N).
func Random(g *graph.CSC, w Weights, o Options) ([]int32, error) {
	if err := Check(g, w, o); err != nil {
		return nil, err
	}
	n := g.NumVertices()
	order := make([]int32, n)
	for v := range order {
		order[v] = int32(v)
	}
	rng := rand.New(rand.NewPCG(o.Seed, 0x72616e646f6d))
	rng.Shuffle(n, func(i, j int) { order[i], order[j] = order[j], order[i] })

	list := Constraints(n, w, o)
	// next[signature] is the part that gets the next vertex with this signature; a signature is the
	// set of constraints in which a vertex has a weight
	part, next := make([]int32, n), map[uint64]int{}
	for _, v := range order {
		var signature uint64
		for c := range list {
			if list[c].Weights[v] > 0 {
				signature |= 1 << (c % 64)
			}
		}
		k := next[signature]
		part[v] = int32(k)
		next[signature] = (k + 1) % o.Parts
	}
	Repair(g, w, o, part)
	return part, nil
}

// Contiguous cuts the vertex ids, in order, into P ranges whose sizes differ by at most one. It
// suits ids that already follow the structure, such as a crawl order. It balances only the number
// of vertices, and ignores weights.
//
// Time and memory O(N).
func Contiguous(g *graph.CSC, w Weights, o Options) ([]int32, error) {
	if err := Check(g, w, o); err != nil {
		return nil, err
	}
	n := int64(g.NumVertices())
	part := make([]int32, n)
	for v := range n {
		part[v] = int32(v * int64(o.Parts) / n)
	}
	return part, nil
}
