package presample

import (
	"fmt"
	"slices"
	"sync/atomic"

	"halognn/src/base/mem"
	"halognn/src/topology/graph"
	"halognn/src/topology/partition"
	"halognn/src/topology/sample"
)

// Counts holds how often sampling touched each vertex and each edge of a graph. The arrays lie
// outside the Go heap.
type Counts struct {
	// [N] number of pairs of a minibatch and one of its layers in which the vertex appears. A
	// minibatch with L hops has L+1 layers, from the seeds to the input frontier. In each layer,
	// the part that owns the vertex draws its neighbours and computes its row, or loads its
	// features.
	Vertices []int32
	// [M] number of times that the in-edge was drawn, in the order of graph.CSC.Indices.
	Edges       []int32
	Minibatches int
}

// Free frees the arrays.
func (c *Counts) Free() {
	mem.Free(c.Vertices)
	mem.Free(c.Edges)
	*c = Counts{}
}

// Count samples epochs from the training seeds of g and counts what they touch. The in-neighbours
// of a vertex must be in ascending order, as in a dataset. If the graph holds an edge twice, both
// are counted at the place of the first.
//
// Its time is that of sampling, and of a binary search for each drawn edge. The result takes 4 (N +
// M) bytes. While Count runs, it needs another 4 N bytes, and for each goroutine 4 N bytes and the
// memory of a minibatch. If there is less memory, it returns ErrMemory. The counts do not depend on
// the number of goroutines.
func Count(g *graph.CSC, train []graph.VertexID, o Options) (*Counts, error) {
	s, err := o.start(g, train, 4*(int64(g.NumVertices())+g.NumEdges()))
	if err != nil {
		return nil, fmt.Errorf("presampling: %w", err)
	}
	defer s.free()
	c := &Counts{
		Vertices: mem.Make[int32](g.NumVertices()), Edges: mem.Make[int32](int(g.NumEdges())),
		Minibatches: s.minibatches(),
	}
	err = s.run(firstCounted, func() (func(sample.Key, *sample.Minibatch) error, func()) {
		return func(_ sample.Key, mb *sample.Minibatch) error { return c.add(g, mb) }, func() {}
	})
	if err != nil {
		c.Free()
		return nil, fmt.Errorf("presampling: %w", err)
	}
	return c, nil
}

// add counts one minibatch. Several goroutines may call it at the same time.
func (c *Counts) add(g *graph.CSC, mb *sample.Minibatch) error {
	layers := len(mb.Blocks)
	// The sources of a block begin with its destinations. So a vertex that is new in the h-th
	// frontier, counted from the seeds, is also in all later frontiers.
	begin, end := 0, len(mb.Seeds)
	for h := 0; ; h++ {
		for _, v := range mb.Frontier[begin:end] {
			atomic.AddInt32(&c.Vertices[v], int32(layers+1-h))
		}
		if h == layers {
			break
		}
		begin, end = end, mb.Blocks[layers-1-h].NumSrc
	}
	for l := range mb.Blocks {
		b := &mb.Blocks[l]
		for d, v := range mb.Frontier[:b.NumDst] {
			row := g.InNeighbours(v)
			for _, s := range b.Indices[b.Indptr[d]:b.Indptr[d+1]] {
				i, found := slices.BinarySearch(row, mb.Frontier[s])
				if !found {
					return fmt.Errorf("the in-neighbours of vertex %d are not in ascending order; "+
						"import the dataset again", v)
				}
				atomic.AddInt32(&c.Edges[g.Indptr[v]+int64(i)], 1)
			}
		}
	}
	return nil
}

// Drawn returns the edges of g that were drawn, with their counts as weights. A partitioner that
// cuts an edge of this graph then pays the number of times that minibatches draw it. Edges that
// were never drawn are left out, because METIS requires weights above 0; METIS adds the weights of
// both directions. The arrays lie outside the Go heap and take 8 N bytes, and 8 for each edge.
func (c *Counts) Drawn(g *graph.CSC) (drawn *graph.CSC, weights []int32) {
	n := g.NumVertices()
	edges := 0
	for _, x := range c.Edges {
		if x > 0 {
			edges++
		}
	}
	drawn = &graph.CSC{Indptr: mem.Make[int64](n + 1), Indices: mem.Make[graph.VertexID](edges)}
	weights = mem.Make[int32](edges)
	at := int64(0)
	for v := range n {
		for e := g.Indptr[v]; e < g.Indptr[v+1]; e++ {
			if x := c.Edges[e]; x > 0 {
				drawn.Indices[at], weights[at] = g.Indices[e], x
				at++
			}
		}
		drawn.Indptr[v+1] = at
	}
	return drawn, weights
}

// Partition cuts g by the given method, so that the counts of the vertices have nearly the same sum
// in all parts. The method must be one that balances weights. If edges is set, a cut edge costs its
// count; otherwise every edge costs the same (GSplit's baseline Node).
//
// A vertex that no minibatch drew has no weight. It goes to the part that has most of its
// in-neighbours, if that part has room. If edges is set, Partition takes the memory of Drawn in
// addition to the memory of the method.
func (c *Counts) Partition(method partition.Func, g *graph.CSC, o partition.Options, edges bool) (
	[]int32, error,
) {
	w := partition.Weights{Vertex: [][]int32{c.Vertices}}
	cut := g
	if edges {
		cut, w.Edge = c.Drawn(g)
		defer cut.Free()
		defer mem.Free(w.Edge)
	}
	part, err := method(cut, w, o)
	if err != nil {
		return nil, err
	}
	for v, x := range c.Vertices {
		if x == 0 {
			part[v] = -1
		}
	}
	partition.Complete(g, o, part)
	return part, nil
}
