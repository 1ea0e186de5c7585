// Package graphtest makes small graphs for tests, and searches them by plain loops.
package graphtest

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/topology/graph"
)

// Random returns a random generator and logs its seed, so that a failure can be repeated.
func Random(t testing.TB) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// NewGraph makes a graph of n vertices from edges {source, destination}. It is freed when the test
// ends.
func NewGraph(t testing.TB, n int, edges ...[2]int) *graph.CSC {
	t.Helper()
	var src, dst []graph.VertexID
	for _, e := range edges {
		src, dst = append(src, graph.VertexID(e[0])), append(dst, graph.VertexID(e[1]))
	}
	g, err := graph.FromEdges(n, src, dst)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Free)
	return g
}

// Edges draws random edges. One in ten begins or ends in vertex 0, a hub. A third of the vertices
// have no edges.
func Edges(r *rand.Rand, n, edges int) [][2]int {
	out := make([][2]int, edges)
	for i := range out {
		out[i] = [2]int{r.IntN(n*2/3 + 1), r.IntN(n*2/3 + 1)}
		if r.IntN(10) == 0 {
			out[i][r.IntN(2)] = 0
		}
	}
	return out
}

// Relabel gives vertex v the number newID[v], where newID is a permutation. It keeps the order of
// in-neighbours, so that drawing by position finds the same vertices.
func Relabel(g *graph.CSC, newID []graph.VertexID) *graph.CSC {
	old := make([]graph.VertexID, len(newID))
	for v, w := range newID {
		old[w] = graph.VertexID(v)
	}
	out := &graph.CSC{Indptr: mem.Make[int64](len(old) + 1),
		Indices: mem.Make[graph.VertexID](len(g.Indices))[:0]}
	for w, v := range old {
		for _, u := range g.InNeighbours(v) {
			out.Indices = append(out.Indices, newID[u])
		}
		out.Indptr[w+1] = int64(len(out.Indices))
	}
	return out
}

// IDs returns the given numbers of vertices as VertexIDs.
func IDs(vertices ...int) []graph.VertexID {
	out := make([]graph.VertexID, len(vertices))
	for i, v := range vertices {
		out[i] = graph.VertexID(v)
	}
	return out
}

// Distances returns the distance of each vertex from the nearest vertex of start, in hops along
// in-edges as in sampling, or math.MaxInt if no path leads there. It is a plain breadth-first
// search.
func Distances(g *graph.CSC, start []graph.VertexID) []int {
	far := make([]int, g.NumVertices())
	for v := range far {
		far[v] = math.MaxInt
	}
	queue := slices.Clone(start)
	for _, v := range start {
		far[v] = 0
	}
	for ; len(queue) > 0; queue = queue[1:] {
		for _, u := range g.InNeighbours(queue[0]) {
			if far[u] == math.MaxInt {
				far[u] = far[queue[0]] + 1
				queue = append(queue, u)
			}
		}
	}
	return far
}
