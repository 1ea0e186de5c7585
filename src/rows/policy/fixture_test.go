package policy

import (
	"slices"
	"testing"

	"halognn/src/rows/access"
	"halognn/src/topology/graph"
	"halognn/src/topology/graph/graphtest"
	"halognn/src/topology/sample"
)

func mustNew(t testing.TB, g *graph.CSC, o access.Options) *access.Graph {
	t.Helper()
	m, err := access.New(g, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Free)
	return m
}

// reading is a reader of the first half of a graph: two streams, a quarter each.
func reading(t *testing.T, hops int) (*access.Graph, *access.Workload) {
	t.Helper()
	r := graphtest.Random(t)
	const n = 400
	g := graphtest.NewGraph(t, n, graphtest.Edges(r, n, 3000)...)
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
		Topology: &sample.Topology{Graph: *g, Original: original}, Epochs: 1,
		Reader: sample.Reader{Streams: streams, Count: 2, Seed: 3}, Workers: 2,
	}
}

// local reports whether v lies in the local ranges of r.
func local(r *access.Workload, v graph.VertexID) bool {
	return slices.ContainsFunc(r.Local,
		func(l access.Range) bool { return v >= l.First && v < l.End })
}
