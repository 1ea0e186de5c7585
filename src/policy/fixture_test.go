package policy

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"halognn/src/access"
	"halognn/src/graph"
	"halognn/src/mem"
	"halognn/src/sample"
)

// newRandom returns a generator and prints its seed.
func newRandom(t *testing.T) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// fromEdges makes a graph of edges {from, to}: to samples from.
func fromEdges(t *testing.T, n int, edges ...[2]int) *graph.CSC {
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

// randomEdges draws edges; about one in ten ends in vertex 0, a hub, and a third of the vertices
// have none.
func randomEdges(r *rand.Rand, n, edges int) [][2]int {
	out := make([][2]int, edges)
	for i := range out {
		out[i] = [2]int{r.IntN(n*2/3 + 1), r.IntN(n*2/3 + 1)}
		if r.IntN(10) == 0 {
			out[i][r.IntN(2)] = 0
		}
	}
	return out
}

func mustNew(t testing.TB, g *graph.CSC, o access.Options) *access.Graph {
	t.Helper()
	m, err := access.New(g, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Free)
	return m
}

// must returns a result that lies outside the heap until the test ends.
func must[T mem.Number](t testing.TB) func(x []T, err error) []T {
	return func(x []T, err error) []T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { mem.Free(x) })
		return x
	}
}

func ids(vertices ...int) []graph.VertexID {
	out := make([]graph.VertexID, len(vertices))
	for i, v := range vertices {
		out[i] = graph.VertexID(v)
	}
	return out
}

// distances returns by how many hops of sampling each vertex is away from start: a plain
// breadth-first search.
func distances(g *graph.CSC, start []graph.VertexID) []int {
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

// reading is a reader of the first half of a graph: two streams, a quarter each.
func reading(t *testing.T, hops int) (*access.Graph, *access.Workload) {
	t.Helper()
	r := newRandom(t)
	const n = 400
	g := fromEdges(t, n, randomEdges(r, n, 3000)...)
	original := make([]int32, n)
	for v := range original {
		original[v] = int32(v)
	}
	var seeds [2][]graph.VertexID
	for v := range n / 2 {
		seeds[v*4/n] = append(seeds[v*4/n], graph.VertexID(v))
	}
	streams, err := sample.NewStreams(seeds[:], sample.StreamOptions{Batch: 8, Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(streams.Free)
	return mustNew(t, g, access.Options{}), &access.Workload{
		Local:   []access.Range{{First: 0, End: n / 4}, {First: n / 4, End: n / 2}},
		Sources: access.Sources(streams, 0, 2), Sample: sample.Neighbours(3, 2), Hops: hops,
		Topology: &sample.Topology{Graph: *g, Original: original}, Streams: streams, First: 0,
		Count: 2, Seed: 3, Epochs: 1, Workers: 2,
	}
}

// local reports whether v lies in the local ranges of r.
func local(r *access.Workload, v graph.VertexID) bool {
	return slices.ContainsFunc(r.Local, func(l access.Range) bool { return v >= l.First && v < l.End })
}
