package graph

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"halognn/src/base/mem"
)

// ErrKeptDuplicates is the error of BuildWeighted with CleanOptions.KeepDuplicates.
var ErrKeptDuplicates = errors.New("repeated edges cannot be kept where edges have weights")

// Merge says how the weight of an edge is computed if the edge is given several times, each time
// with a weight.
type Merge string

// The values of a Merge; "" is MergeSum.
const (
	MergeSum   Merge = "sum"
	MergeMean  Merge = "mean"
	MergeMax   Merge = "max"
	MergeMin   Merge = "min"
	MergeFirst Merge = "first"
)

// Merges lists the values of a Merge.
var Merges = []Merge{MergeSum, MergeMean, MergeMax, MergeMin, MergeFirst}

// merged returns the weight of an edge after it was given for the n-th time, this time with weight
// w. The argument `sofar` is the edge's weight before that.
func (m Merge) merged(sofar, w float32, n int32) float32 {
	if n == 1 {
		return w
	}
	switch m {
	case MergeMean:
		return sofar + (w-sofar)/float32(n)
	case MergeMax:
		return max(sofar, w)
	case MergeMin:
		return min(sofar, w)
	case MergeFirst:
		return sofar
	}
	return sofar + w
}

// BuildWeighted is like Build, for edges with weights: weights[i] belongs to the i-th edge added.
// It returns the weight of each edge of the graph, in the order of Indices. If an edge is given
// several times, o.Merge says how its weights become one, in the order of Add. An edge that exists
// only because of CleanOptions.Undirected gets the weight of its reverse. BuildWeighted takes O(E
// log degree) more time than Build, and leaves the edges in the builder.
func (b *Builder) BuildWeighted(n int, o CleanOptions, weights []float32) (*CSC, []float32,
	CleanReport, error) {
	if o.KeepDuplicates {
		return nil, nil, CleanReport{}, ErrKeptDuplicates
	}
	if int64(len(weights)) != b.NumEdges() {
		return nil, nil, CleanReport{}, fmt.Errorf("%d weights for %d edges", len(weights),
			b.NumEdges())
	}
	g, report, err := b.BuildKept(n, o)
	if err != nil {
		return nil, nil, CleanReport{}, err
	}
	all, times := mem.Make[float32](len(g.Indices)), mem.Make[int32](len(g.Indices))
	// first weight given for each edge; NaN once a later weight of the edge differs
	first := mem.Make[float32](len(g.Indices))
	defer func() { mem.Free(times); mem.Free(first) }()
	b.Carry(g, func(i int, at int64) {
		times[at]++
		all[at] = o.Merge.merged(all[at], weights[i], times[at])
		switch w := weights[i]; {
		case times[at] == 1:
			first[at] = w
		case first[at] == first[at] && first[at] != w:
			first[at] = float32(math.NaN())
			report.Unequal++
		}
	}, func(at, reverse int64) { all[at] = all[reverse] })
	if o.Undirected {
		report.Uneven = uneven(g, all)
	}
	return g, all, report, nil
}

// uneven counts the pairs of an edge and its reverse with different weights.
func uneven(g *CSC, weights []float32) (pairs int64) {
	for v := range VertexID(g.NumVertices()) {
		for at := g.Indptr[v]; at < g.Indptr[v+1]; at++ {
			if u := g.Indices[at]; u < v && weights[at] != weights[g.Find(v, u)] {
				pairs++
			}
		}
	}
	return pairs
}

// BuildKept is like Build, but leaves the edges in the builder, because Carry needs them.
func (b *Builder) BuildKept(n int, o CleanOptions) (*CSC, CleanReport, error) {
	n, err := b.count(n)
	if err != nil {
		return nil, CleanReport{}, err
	}
	g, report := clean(0, n, b.Each, func() {}, o)
	return g, report, nil
}

// Carry finds where each added edge is in g.Indices, so that features and labels can follow the
// edges. The graph g must come from BuildKept, without repeated edges. For each added edge that is
// not a dropped loop, in the order of Add, Carry calls the function `given`, with the index of the
// edge among the added ones, and its position in g.Indices. Then, for each edge that exists only as
// the reverse of another, it calls the function `alone`, with the positions of the edge and of its
// reverse.
func (b *Builder) Carry(g *CSC, given func(i int, at int64), alone func(at, reverse int64)) {
	seen := mem.Make[uint8](len(g.Indices))
	defer mem.Free(seen)
	i := 0
	b.Each(func(edges []Edge) {
		for _, e := range edges {
			if at := g.Find(e.Src(), e.Dst()); at >= 0 {
				given(i, at)
				seen[at] = 1
			}
			i++
		}
	})
	for v := range VertexID(g.NumVertices()) {
		for at := g.Indptr[v]; at < g.Indptr[v+1]; at++ {
			if seen[at] == 0 {
				alone(at, g.Find(v, g.Indices[at]))
			}
		}
	}
}

// Find returns the position of the edge src -> dst in Indices, or -1 if there is no such edge. The
// in-neighbours of each vertex must be in ascending order.
func (g *CSC) Find(src, dst VertexID) int64 {
	at, found := slices.BinarySearch(g.InNeighbours(dst), src)
	if !found {
		return -1
	}
	return g.Indptr[dst] + int64(at)
}
