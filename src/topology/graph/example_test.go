package graph_test

import (
	"fmt"

	"halognn/src/topology/graph"
)

// A graph is kept by the vertex that reads: column v lists the sources of the edges into v.
func ExampleFromEdges() {
	from := []graph.VertexID{1, 4, 0, 3, 4}
	to := []graph.VertexID{0, 0, 1, 1, 1}
	g, err := graph.FromEdges(5, from, to)
	if err != nil {
		fmt.Println(err)
		return
	}
	for v := range graph.VertexID(3) {
		fmt.Println(v, "reads", g.InNeighbours(v))
	}
	// Output:
	// 0 reads [1 4]
	// 1 reads [0 3 4]
	// 2 reads []
}

// An edge that is given twice stays once, and a vertex no longer reads itself.
func ExampleClean() {
	g, err := graph.FromEdges(3, []graph.VertexID{0, 0, 1, 2}, []graph.VertexID{1, 1, 1, 0})
	if err != nil {
		fmt.Println(err)
		return
	}
	clean, report := graph.Clean(g, graph.CleanOptions{})
	fmt.Println(report.Loops, "loop and", report.Duplicates, "repetition left out")
	fmt.Println("1 reads", clean.InNeighbours(1))
	// Output:
	// 1 loop and 1 repetition left out
	// 1 reads [0]
}
