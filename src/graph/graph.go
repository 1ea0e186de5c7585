// Package graph holds graph topology in compressed sparse column (CSC) form, and the small
// bipartite graphs, called blocks, that sampling cuts from it.
//
// A graph of N vertices and M stored directed edges is two arrays:
//
//	Indptr  [N+1]  in-edges of v are Indices[Indptr[v]:Indptr[v+1]]
//	Indices [M]    source vertex of each in-edge
//
//	        Indptr   0     2        5  5
//	                 |     |        |
//	        Indices  1  4  0  3  4
//	                 \__/  \_____/
//	                 v=0     v=1      v=2 has none
//
// Columns are in-neighbours because a GNN layer pulls: vertex v reads every u with an edge u -> v.
// The package does no I/O and knows of no ranks, devices or features.
package graph

import (
	"errors"
	"fmt"
)

// VertexID names a vertex of the whole graph. Rows of one part, one block or one buffer are plain
// int32 or int, so the compiler keeps global and local numbers apart. Graphs have fewer than 2^31 vertices.
type VertexID int32

// MaxVertices is the largest vertex count a VertexID can name.
const MaxVertices = 1<<31 - 1

// ErrVertexRange is wrapped by errors about a vertex that the graph does not have.
var ErrVertexRange = errors.New("vertex out of range")

// CSC is a directed graph by in-neighbours; see the package comment for the layout. The arrays may be
// memory-mapped and must then not be written.
type CSC struct {
	Indptr  []int64
	Indices []VertexID
}

// NumVertices returns N.
func (g *CSC) NumVertices() int { return len(g.Indptr) - 1 }

// NumEdges returns M, the number of stored directed edges.
func (g *CSC) NumEdges() int64 { return g.Indptr[len(g.Indptr)-1] }

// InDegree returns the number of in-neighbours of v.
func (g *CSC) InDegree(v VertexID) int { return int(g.Indptr[v+1] - g.Indptr[v]) }

// InNeighbours returns the in-neighbours of v in stored order, as a view.
func (g *CSC) InNeighbours(v VertexID) []VertexID { return g.Indices[g.Indptr[v]:g.Indptr[v+1]] }

// Validate reports the first broken rule of the layout: Indptr starts at 0, never falls and ends at
// len(Indices); every index is a vertex. One pass over both arrays.
func (g *CSC) Validate() error {
	if len(g.Indptr) == 0 {
		return errors.New("indptr is empty; it needs one entry more than there are vertices")
	}
	n := g.NumVertices()
	if n > MaxVertices {
		return fmt.Errorf("%d vertices; at most %d are supported", n, MaxVertices)
	}
	if g.Indptr[0] != 0 {
		return fmt.Errorf("indptr[0] is %d, want 0", g.Indptr[0])
	}
	for v := range n {
		if g.Indptr[v+1] < g.Indptr[v] {
			return fmt.Errorf("indptr falls from %d to %d at vertex %d", g.Indptr[v], g.Indptr[v+1], v)
		}
	}
	if got := int64(len(g.Indices)); g.Indptr[n] != got {
		return fmt.Errorf("indptr ends at %d but there are %d indices", g.Indptr[n], got)
	}
	for e, u := range g.Indices {
		if uint32(u) >= uint32(n) {
			return fmt.Errorf("edge %d comes from vertex %d: %w (the graph has %d vertices)", e, u, ErrVertexRange, n)
		}
	}
	return nil
}
