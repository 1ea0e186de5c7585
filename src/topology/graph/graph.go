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
// The package does no I/O and knows no ranks, devices or features.
package graph

import (
	"errors"
	"fmt"
)

// VertexID is the number of a vertex in the whole graph. Numbers of rows in a part, a block or a
// buffer are plain int32 or int, so that the compiler tells global numbers from local ones. Graphs
// have fewer than 2^31 vertices.
type VertexID int32

// MaxVertices is the largest vertex count a VertexID can name.
const MaxVertices = 1<<31 - 1

// ErrVertexRange is wrapped by errors about a vertex that the graph does not have.
var ErrVertexRange = errors.New("vertex out of range")

// CSC is a directed graph by in-neighbours; see the package comment for the layout. The arrays may
// be memory-mapped and must then not be written.
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

// NextChunk rounds the number of vertices of a chunk down to a multiple of chunkMultiple, if that
// number is larger than chunkMultiple. The reason is that matrix products on CPUs are computed in
// tiles of 256 rows, and chunks of whole tiles can be multiplied together.
const chunkMultiple = 256

// NextChunk returns hi, the end of the chunk [lo, hi) of vertices; hi is at most end. The vertices
// of the chunk and their in-edges together number at most budget, unless the chunk is a single
// vertex. A chunk of more than chunkMultiple vertices that does not reach end has a multiple of
// chunkMultiple vertices.
func (g *CSC) NextChunk(lo, end, budget int64) int64 {
	hi := lo + 1
	for hi < end && hi+1-lo+g.Indptr[hi+1]-g.Indptr[lo] <= budget {
		hi++
	}
	if n := hi - lo; hi < end && n > chunkMultiple {
		hi -= n % chunkMultiple
	}
	return hi
}

// InNeighbours returns the in-neighbours of v in stored order, as a view of Indices, not a copy.
func (g *CSC) InNeighbours(v VertexID) []VertexID { return g.Indices[g.Indptr[v]:g.Indptr[v+1]] }

// Validate reports the first broken rule of the layout: Indptr starts at 0, never falls and ends at
// len(Indices); every index is a vertex. An error in one of the arrays is a LayoutError. One pass
// over both arrays.
func (g *CSC) Validate() error {
	if len(g.Indptr) == 0 {
		return errors.New("indptr is empty; it needs one entry more than there are vertices")
	}
	n := g.NumVertices()
	if n > MaxVertices {
		return fmt.Errorf("there are %d vertices, but at most %d are supported", n, MaxVertices)
	}
	if g.Indptr[0] != 0 {
		return layoutError(Indptr, "indptr[0] is %d, want 0", g.Indptr[0])
	}
	for v := range n {
		if g.Indptr[v+1] < g.Indptr[v] {
			return layoutError(Indptr, "indptr falls from %d to %d at vertex %d", g.Indptr[v],
				g.Indptr[v+1], v)
		}
	}
	if got := int64(len(g.Indices)); g.Indptr[n] != got {
		return layoutError(Indptr, "indptr ends at %d but there are %d indices", g.Indptr[n], got)
	}
	return checkSources(g.Indices, 0, n)
}

// CheckRow reports the first broken rule of one row: the row lies within Indices, its end is not
// before its begin, and each in-neighbour is less than `vertices`. The graph may have fewer rows
// than vertices. O(in-degree).
func (g *CSC) CheckRow(row VertexID, vertices int) error {
	begin, end := g.Indptr[row], g.Indptr[row+1]
	switch {
	case end < begin:
		return layoutError(Indptr, "indptr falls from %d to %d at row %d", begin, end, row)
	case begin < 0 || end > int64(len(g.Indices)):
		return layoutError(Indptr,
			"indptr places row %d at edges %d to %d, but there are %d indices", row, begin, end,
			len(g.Indices))
	}
	return checkSources(g.Indices[begin:end], begin, vertices)
}

// checkSources reports the first source that is not among the n vertices. The argument `first` is
// the position of sources[0] among the edges of the graph.
func checkSources(sources []VertexID, first int64, n int) error {
	for e, u := range sources {
		if uint32(u) >= uint32(n) {
			return layoutError(Indices,
				"edge %d comes from vertex %d: %w (the graph has %d vertices)", first+int64(e), u,
				ErrVertexRange, n)
		}
	}
	return nil
}

// Names of the arrays of a CSC, for LayoutError.Array.
const (
	Indptr  = "indptr"
	Indices = "indices"
)

// LayoutError says which array of a CSC breaks a rule of the layout, and how.
type LayoutError struct {
	Array  string // Indptr or Indices
	Reason error
}

func (e *LayoutError) Error() string { return e.Reason.Error() }
func (e *LayoutError) Unwrap() error { return e.Reason }

func layoutError(array, format string, args ...any) error {
	return &LayoutError{array, fmt.Errorf(format, args...)}
}
