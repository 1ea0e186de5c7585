package graph

import (
	"errors"
	"fmt"
	"slices"

	"halognn/src/mem"
)

// ErrKeptDuplicates is the error of BuildWeighted with CleanOptions.KeepDuplicates.
var ErrKeptDuplicates = errors.New("repeated edges cannot be kept where edges have weights")

// BuildWeighted is Build for edges with weights, in the order of Add. It returns the weight of each
// edge of the graph, in the order of Indices: the sum, in that order, of the weights of an edge
// that is given several times, and for an edge that is there because of CleanOptions.Undirected
// alone that of its reverse. O(E log degree) more than Build; the builder's edges stay in memory
// meanwhile.
func (b *Builder) BuildWeighted(n int, o CleanOptions, weights []float32) (*CSC, []float32,
	CleanReport, error) {
	if o.KeepDuplicates {
		return nil, nil, CleanReport{}, ErrKeptDuplicates
	}
	if int64(len(weights)) != b.NumEdges() {
		return nil, nil, CleanReport{}, fmt.Errorf("%d weights for %d edges", len(weights), b.NumEdges())
	}
	defer b.Free()
	n, err := b.count(n)
	if err != nil {
		return nil, nil, CleanReport{}, err
	}
	g, report := clean(0, n, b.Each, func() {}, o)
	all := mem.Make[float32](len(g.Indices))
	given := mem.Make[uint8](len(g.Indices))
	defer mem.Free(given)
	i := 0
	b.Each(func(edges []Edge) {
		for _, e := range edges {
			if at := g.Find(e.Src(), e.Dst()); at >= 0 { // not so: a loop that was dropped
				all[at] += weights[i]
				given[at] = 1
			}
			i++
		}
	})
	for v := range VertexID(n) {
		for at := g.Indptr[v]; at < g.Indptr[v+1]; at++ {
			if given[at] == 0 {
				all[at] = all[g.Find(v, g.Indices[at])]
			}
		}
	}
	return g, all, report, nil
}

// Find returns the position of the edge src -> dst in Indices, whose rows ascend, or -1.
func (g *CSC) Find(src, dst VertexID) int64 {
	at, found := slices.BinarySearch(g.InNeighbours(dst), src)
	if !found {
		return -1
	}
	return g.Indptr[dst] + int64(at)
}
