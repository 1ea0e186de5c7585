package partition_test

import (
	"fmt"

	"halognn/src/topology/graph"
	"halognn/src/topology/partition"
)

// Parts become ranges of new ids, in which the vertices that many read come first: the rows of a
// part are one piece of a file, and its hottest rows the beginning of the piece.
func ExampleOrder() {
	part := []int32{1, 0, 1, 0, 1}
	inDegree := []int64{2, 1, 9, 4, 5}
	newID, offsets := partition.Order(part, 2, inDegree)
	fmt.Println("new ids", newID)
	for k := range 2 {
		fmt.Printf("part %d: %d to %d\n", k, offsets[k], offsets[k+1]-1)
	}
	// Output:
	// new ids [4 1 2 0 3]
	// part 0: 0 to 1
	// part 1: 2 to 4
}

// Two squares that one edge joins: a cut of one edge, whose source is the halo of the part that
// reads it.
func ExampleMeasure() {
	var from, to []graph.VertexID
	edge := func(u, v graph.VertexID) { from, to = append(from, u), append(to, v) }
	for first := graph.VertexID(0); first < 8; first += 4 {
		for k := range graph.VertexID(4) {
			edge(first+k, first+(k+1)%4)
		}
	}
	edge(0, 4)
	g, err := graph.FromEdges(8, from, to)
	if err != nil {
		fmt.Println(err)
		return
	}
	r := partition.Measure(g, []int32{0, 0, 0, 0, 1, 1, 1, 1}, 2, graph.Split{})
	fmt.Printf("cut %.3f of the edges; halo of the parts %d and %d\n", r.CutFraction,
		r.Parts[0].Halo, r.Parts[1].Halo)
	// Output:
	// cut 0.111 of the edges; halo of the parts 0 and 1
}
