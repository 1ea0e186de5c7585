package main

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
)

// measure draws the requested minibatches, and says why if it cannot.
func TestMeasure(t *testing.T) {
	const vertices, degree = 300, 12
	random := rand.New(rand.NewPCG(1, 2))
	topology := &sample.Topology{Graph: graph.CSC{Indptr: make([]int64, vertices+1)},
		Original: make([]int32, vertices)}
	var seeds []graph.VertexID
	for v := range vertices {
		topology.Original[v], seeds = int32(v), append(seeds, graph.VertexID(v))
		topology.Graph.Indptr[v+1] = int64((v + 1) * degree)
		for range degree {
			topology.Graph.Indices = append(topology.Graph.Indices,
				graph.VertexID(random.IntN(vertices)))
		}
	}
	edges, rate, err := measure(topology, seeds, 40, []int{5, 3}, 3)
	if err != nil || edges < 40*5+40*3 || edges > 40*5+40*6*3 || rate <= 0 {
		t.Errorf("%g edges, %g, %v", edges, rate, err)
	}
	if _, _, err := measure(topology, seeds, 301, []int{5}, 1); err == nil {
		t.Error("more seeds than there are training vertices: no error")
	}
}

func TestParse(t *testing.T) {
	var c job
	c.count = 1
	if err := c.parse([]string{"P"}, "10,20", "5,3 2"); err != nil ||
		fmt.Sprint(c.batches, c.fanouts) != "[10 20] [[5 3] [2]]" || c.parts != "P" {
		t.Errorf("%+v, %v", c, err)
	}
	for _, wrong := range [][3]string{{"", "1", "1"}, {"P", "0", "1"}, {"P", "1", "5,x"}} {
		if err := c.parse([]string{wrong[0]}[:min(1, len(wrong[0]))], wrong[1],
			wrong[2]); err == nil {
			t.Errorf("%q: no error", wrong)
		}
	}
}
