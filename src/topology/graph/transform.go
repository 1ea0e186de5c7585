package graph

import (
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"halognn/src/base/mem"
)

// Free frees the arrays of a graph that this package made. Arrays mapped from a file are freed when
// the file is closed.
func (g *CSC) Free() {
	mem.Free(g.Indptr)
	mem.Free(g.Indices)
	g.Indptr, g.Indices = nil, nil
}

// edges returns an edgeSource that yields the edges of g, in the order of their destinations. If
// `transposed` is true, it yields each edge reversed.
func (g *CSC) edges(transposed bool) edgeSource {
	return func(yield func([]Edge)) {
		batch := make([]Edge, 0, batchEdges)
		for v := range VertexID(g.NumVertices()) {
			for _, u := range g.InNeighbours(v) {
				e := MakeEdge(u, v)
				if transposed {
					e = MakeEdge(v, u)
				}
				if batch = append(batch, e); len(batch) == cap(batch) {
					yield(batch)
					batch = batch[:0]
				}
			}
		}
		yield(batch)
	}
}

// Transpose reverses every edge: the in-neighbours of v become the out-neighbours of v, in
// ascending order. O(N+M); the result is new memory.
func (g *CSC) Transpose() *CSC { return g.transpose(g.NumVertices()) }

// Transpose returns, for each of n vertices, the columns with an in-edge from that vertex, in
// ascending order. The argument `indices` has the sources of the in-edges: the Indices of the
// graph. The result is new memory.
func (c *Columns) Transpose(n int, indices []VertexID) *CSC {
	return (&CSC{Indptr: c.Indptr, Indices: indices}).transpose(n)
}

// transpose returns the transpose of g. All entries of g.Indices must be less than n, the number of
// rows of the result.
func (g *CSC) transpose(n int) *CSC {
	indptr, indices := countingSort(0, n, g.edges(true), false)
	return &CSC{Indptr: indptr, Indices: indices}
}

// CleanOptions sets what cleaning does besides sorting. The zero value drops loops and duplicates
// and keeps directions.
type CleanOptions struct {
	Undirected     bool // add the reverse of every edge that lacks it
	KeepLoops      bool // keep edges from a vertex to itself
	KeepDuplicates bool // keep repeated edges
	// for BuildWeighted: how the weights of an edge given several times become one
	Merge Merge
}

// CleanReport counts the edges that cleaning changed: After = Before - Loops - Duplicates +
// Reversed.
type CleanReport struct {
	Before     int64 `json:"before"`     // stored directed edges
	After      int64 `json:"after"`      // directed edges of the result
	Loops      int64 `json:"loops"`      // dropped edges from a vertex to itself
	Duplicates int64 `json:"duplicates"` // dropped repeats of an edge
	Reversed   int64 `json:"reversed"`   // edges added because only their reverse was there

	// Only BuildWeighted sets these. Unequal counts edges that were given several times with
	// weights that differ. Uneven counts pairs of edges made undirected that were given in both
	// directions with weights that differ.
	Unequal int64 `json:"unequal,omitempty"`
	Uneven  int64 `json:"uneven,omitempty"`
}

// Add adds the counts of other.
func (r *CleanReport) Add(other CleanReport) {
	r.Before += other.Before
	r.After += other.After
	r.Loops += other.Loops
	r.Duplicates += other.Duplicates
	r.Reversed += other.Reversed
	r.Unequal += other.Unequal
	r.Uneven += other.Uneven
}

// String prints the report in one line.
func (r CleanReport) String() string {
	return fmt.Sprintf("%d edges in, %d out: %d self-loops and %d duplicates dropped, %d reverse "+
		"edges added",
		r.Before, r.After, r.Loops, r.Duplicates, r.Reversed)
}

// Clean returns a copy of g in which each neighbour list is in ascending order. As the options o
// say, it drops loops and duplicates and adds missing reverse edges. With both KeepDuplicates and
// Undirected, an edge and its reverse must come equally often, so Clean repeats the less frequent
// of the two. Cleaning twice changes nothing. O(M log degree); the result is new memory.
func Clean(g *CSC, o CleanOptions) (*CSC, CleanReport) {
	return clean(0, g.NumVertices(), g.edges(false), func() {}, o)
}

// clean makes the cleaned rows of vertices [first, end) from the edges. It calls the function
// release when it no longer needs the edges.
func clean(first, end int, edges edgeSource, release func(), o CleanOptions) (*CSC, CleanReport) {
	indptr, entries := countingSort(first, end, edges, o.Undirected)
	n := end - first
	release()
	kept := mem.Make[int64](n + 1) // kept[v+1] is the number of entries of v that stay
	defer mem.Free(kept)
	var total CleanReport
	var mu sync.Mutex
	forRanges(n, func(v int) int64 { return indptr[v] + int64(v) }, func(lo, hi int) {
		var r CleanReport
		for v := lo; v < hi; v++ {
			row := entries[indptr[v]:indptr[v+1]]
			slices.Sort(unsigned(row))
			kept[v+1] = int64(cleanRow(VertexID(first+v), row, o, &r))
		}
		mu.Lock()
		defer mu.Unlock()
		total.Before += r.Before
		total.Loops += r.Loops
		total.Duplicates += r.Duplicates
		total.Reversed += r.Reversed
	})
	entries = compact(indptr, kept, entries)
	total.After = int64(len(entries))
	return &CSC{Indptr: indptr, Indices: entries}, total
}

// unsigned views entries as unsigned numbers, because the top bit of a tagged entry may be set.
func unsigned(entries []VertexID) []uint32 {
	return unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(entries))), len(entries))
}

// cleanRow cleans the sorted row of vertex v. It moves the entries that stay to the front of the
// row, without tags, and returns their number. It counts its changes in r.
func cleanRow(v VertexID, row []VertexID, o CleanOptions, r *CleanReport) int {
	out := 0
	for i := 0; i < len(row); {
		u, begin, given := row[i], i, 0
		if o.Undirected {
			u = VertexID(uint32(row[i]) >> 1)
			for ; i < len(row) && uint32(row[i]) == tag(uint32(u), false); i++ {
				given++
			}
			for ; i < len(row) && uint32(row[i]) == tag(uint32(u), true); i++ {
			}
		} else {
			for ; i < len(row) && row[i] == u; i++ {
				given++
			}
		}
		reversed := i - begin - given
		r.Before += int64(given)
		if u == v && !o.KeepLoops {
			r.Loops += int64(given)
			continue
		}
		stay := max(given, reversed)
		if !o.KeepDuplicates {
			stay = 1
			r.Duplicates += int64(max(given-1, 0))
			r.Reversed += int64(max(1-given, 0))
		} else {
			r.Reversed += int64(stay - given)
		}
		for range stay {
			row[out] = u
			out++
		}
	}
	return out
}

// compact closes the gaps that cleaning has left between rows; kept[v+1] entries of row v stay. If
// few entries were dropped, it works in place. Otherwise it copies the entries to new, smaller
// memory and frees the old.
func compact(indptr, kept []int64, entries []VertexID) []VertexID {
	n := len(indptr) - 1
	for v := range n {
		kept[v+1] += kept[v]
	}
	stay := kept[n]
	to := entries
	if stay < int64(len(entries))*7/8 {
		to = mem.Make[VertexID](int(stay))
		forRanges(n, func(v int) int64 { return indptr[v] + int64(v) }, func(lo, hi int) {
			for v := lo; v < hi; v++ {
				copy(to[kept[v]:kept[v+1]], entries[indptr[v]:])
			}
		})
		mem.Free(entries)
	} else {
		// rows move only to the left, so in ascending order no row is overwritten before it has
		// moved
		for v := range n {
			copy(to[kept[v]:kept[v+1]], entries[indptr[v]:])
		}
	}
	copy(indptr, kept)
	return to[:stay]
}

// Reciprocal counts the edges u -> v whose reverse v -> u also exists; a loop is its own reverse.
// Neighbour lists must be ascending, as cleaning leaves them. O(N+M), with 8 bytes a vertex.
//
// Destinations v come in ascending order. So the search for v among the in-neighbours of u begins
// at next[u], where the search for the previous destination ended.
func (g *CSC) Reciprocal() (count int64) {
	next := mem.Make[int64](g.NumVertices())
	defer mem.Free(next)
	copy(next, g.Indptr)
	for v := range VertexID(g.NumVertices()) {
		for _, u := range g.InNeighbours(v) {
			i, end := next[u], g.Indptr[u+1]
			for i < end && g.Indices[i] < v {
				i++
			}
			if next[u] = i; i < end && g.Indices[i] == v {
				count++
			}
		}
	}
	return count
}
