package sample

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"halognn/src/topology/graph"
)

// randomTopology has n vertices: isolated ones, some with few in-neighbours and hubs with more than
// a mask has bits. Original ids are a permutation.
func randomTopology(r *rand.Rand, n int) *Topology {
	g := graph.CSC{Indptr: []int64{0}}
	for range n {
		row := r.Perm(n)
		degree := [...]int{0, 1, 2, 5, 20, 64, 65, 150}[r.IntN(8)]
		for _, u := range row[:min(degree, n)] {
			g.Indices = append(g.Indices, graph.VertexID(u))
		}
		g.Indptr = append(g.Indptr, int64(len(g.Indices)))
	}
	original := make([]int32, n)
	for v, o := range r.Perm(n) {
		original[v] = int32(o)
	}
	return &Topology{Graph: g, Original: original}
}

// weigh gives the edges weights that no two of them share.
func weigh(r *rand.Rand, t *Topology) {
	t.Weights, t.WeightSums = make([]float32, len(t.Graph.Indices)),
		make([]float32, len(t.Original))
	for e, w := range r.Perm(len(t.Weights)) {
		t.Weights[e] = float32(w)
	}
	for v := range t.WeightSums {
		for _, w := range t.Weights[t.Graph.Indptr[v]:t.Graph.Indptr[v+1]] {
			t.WeightSums[v] += w
		}
	}
}

// someSeeds are distinct vertices.
func someSeeds(r *rand.Rand, n, count int) []graph.VertexID {
	var seeds []graph.VertexID
	for _, v := range r.Perm(n)[:min(count, n)] {
		seeds = append(seeds, graph.VertexID(v))
	}
	return seeds
}

func mustNew(t testing.TB, topology *Topology, o Options) *Fused {
	t.Helper()
	s, err := New(topology, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Free)
	return s.(*Fused)
}

// difference describes the first difference of two minibatches, or is empty.
func difference(got, want *Minibatch) string {
	if !slices.Equal(got.Seeds, want.Seeds) || !slices.Equal(got.Frontier, want.Frontier) ||
		!slices.Equal(got.Original, want.Original) {
		return fmt.Sprintf("seeds %v, frontier %v, original %v; want %v, %v, %v", got.Seeds,
			got.Frontier, got.Original, want.Seeds, want.Frontier, want.Original)
	}
	if len(got.Blocks) != len(want.Blocks) {
		return fmt.Sprintf("%d blocks, want %d", len(got.Blocks), len(want.Blocks))
	}
	for l := range got.Blocks {
		g, w := got.Blocks[l], want.Blocks[l]
		if g.NumSrc != w.NumSrc || g.NumDst != w.NumDst || !slices.Equal(g.Indptr, w.Indptr) ||
			!slices.Equal(g.Indices, w.Indices) || !slices.Equal(g.Weights, w.Weights) ||
			!slices.Equal(g.Targets, w.Targets) || !slices.Equal(g.Ends, w.Ends) {
			return fmt.Sprintf("block %d is %v, want %v", l, g, w)
		}
		if gt, wt := got.Transposes[l], want.Transposes[l]; !slices.Equal(gt.Indptr, wt.Indptr) ||
			!slices.Equal(gt.Indices, wt.Indices) || !slices.Equal(gt.Edges, wt.Edges) {
			return fmt.Sprintf("transpose %d is %v, want %v", l, gt, wt)
		}
	}
	if got.Digest() != want.Digest() {
		return "equal minibatches with different digests"
	}
	return ""
}
