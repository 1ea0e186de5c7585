package access_test

import (
	"fmt"

	"halognn/src/base/mem"
	"halognn/src/rows/access"
	"halognn/src/topology/graph"
)

// How likely is it that a minibatch reads the row of a vertex? Vertex 0 is a seed of every
// minibatch and draws one of its two neighbours, of which vertex 1 has a neighbour of its own.
func ExampleGraph_VIP() {
	g, err := graph.FromEdges(4, []graph.VertexID{1, 2, 3}, []graph.VertexID{0, 0, 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	a, err := access.New(g, access.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer a.Free()
	p, err := a.VIP([]graph.VertexID{0}, 1, []int{1, 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer mem.Free(p)
	fmt.Println("vertices 1 to 3:", p[1:])
	// Output:
	// vertices 1 to 3: [0.5 0.5 0.5]
}
