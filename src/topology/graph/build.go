package graph

import (
	"fmt"

	"halognn/src/base/mem"
)

// Edge is a directed edge packed into 8 bytes.
type Edge uint64

// MakeEdge packs the edge src -> dst.
func MakeEdge(src, dst VertexID) Edge { return Edge(uint32(src))<<32 | Edge(uint32(dst)) }

// Src returns the vertex the edge leaves.
func (e Edge) Src() VertexID { return VertexID(e >> 32) }

// Dst returns the vertex the edge enters.
func (e Edge) Dst() VertexID { return VertexID(uint32(e)) }

// firstChunk is the number of edges of the first chunk of a Builder, and largestChunk is the number
// of edges of its largest chunk. Each chunk is twice as long as the one before, up to 64 MiB, so
// that little memory goes unused.
const (
	firstChunk   = 1 << 12
	largestChunk = 1 << 23
)

// Builder collects edges in any order and makes a cleaned graph of them.
//
//	Add ──> chunks of packed edges, 8 bytes each, off the heap ──Build──> count by destination,
//	        scatter, sort rows, drop
//
// Beyond the result, building from E edges needs at most 8 E bytes for the chunks and, with
// CleanOptions.Undirected, another 8 E for both directions of each edge. The zero value is ready
// for use by one goroutine at a time. Several goroutines each fill a Builder of their own, and
// Merge joins the Builders.
type Builder struct {
	chunks [][]Edge
	last   []Edge // the chunk that Add fills
}

// Add appends the edge src -> dst. It does not check the vertices; Build does.
func (b *Builder) Add(src, dst VertexID) {
	if len(b.last) == cap(b.last) {
		size := min(max(firstChunk, 2*cap(b.last)), largestChunk)
		b.seal()
		b.last = mem.Make[Edge](size)[:0]
	}
	b.last = append(b.last, MakeEdge(src, dst))
}

// seal appends the last chunk to the full ones.
func (b *Builder) seal() {
	if cap(b.last) > 0 {
		b.chunks = append(b.chunks, b.last)
		b.last = nil
	}
}

// Merge moves all edges of the Builder other to b.
func (b *Builder) Merge(other *Builder) {
	b.seal()
	other.seal()
	b.chunks = append(b.chunks, other.chunks...)
	other.chunks = nil
}

// NumEdges returns the number of edges added.
func (b *Builder) NumEdges() int64 {
	n := int64(len(b.last))
	for _, c := range b.chunks {
		n += int64(len(c))
	}
	return n
}

// Free drops all edges and frees their memory.
func (b *Builder) Free() {
	for _, c := range b.chunks {
		mem.Free(c)
	}
	mem.Free(b.last)
	b.chunks, b.last = nil, nil
}

// Each passes all edges to the function `yield`, a chunk at a time, in the order of Add.
func (b *Builder) Each(yield func([]Edge)) {
	for _, c := range b.chunks {
		yield(c)
	}
	yield(b.last)
}

// Build makes a graph of n vertices from the edges added, cleans it as Clean does, and leaves the
// builder empty. If n is negative, the graph has one vertex more than the largest id of an edge.
// Neighbour lists are in ascending order, whatever the order of Add. An edge with a vertex outside
// [0, n) is an error that wraps ErrVertexRange.
func (b *Builder) Build(n int, o CleanOptions) (*CSC, CleanReport, error) {
	defer b.Free()
	n, err := b.count(n)
	if err != nil {
		return nil, CleanReport{}, err
	}
	g, report := clean(0, n, b.Each, b.Free, o)
	return g, report, nil
}

// BuildRows is like Build, but builds only the neighbour lists of vertices [first, end) of a graph
// of n vertices: row v of the result is the list of vertex first+v. The builder only needs the
// edges from and to these vertices. If a whole graph is built in this way, range by range, the
// reports add up to the report of Build.
func (b *Builder) BuildRows(n, first, end int, o CleanOptions) (*CSC, CleanReport, error) {
	defer b.Free()
	if _, err := b.count(n); err != nil {
		return nil, CleanReport{}, err
	}
	g, report := clean(first, end, b.Each, b.Free, o)
	return g, report, nil
}

// count returns the number of vertices: n or, if n is negative, the largest id plus one. It also
// checks the ends of the edges.
func (b *Builder) count(n int) (int, error) {
	// largest vertex id, read as unsigned, so that a negative id counts as too large
	top := Edge(0)
	b.Each(func(edges []Edge) {
		for _, e := range edges {
			top = max(top, e>>32, Edge(uint32(e)))
		}
	})
	if n < 0 {
		n = 0
		if b.NumEdges() > 0 {
			n = int(top) + 1
		}
	}
	if n > MaxVertices || b.NumEdges() > 0 && int(top) >= n {
		return 0, fmt.Errorf("an edge names vertex %d: %w (the graph has %d vertices)",
			VertexID(top), ErrVertexRange, n)
	}
	return n, nil
}

// FromEdges makes a graph of n vertices from the edges src[i] -> dst[i]. In-neighbours keep the
// order of the edges. A vertex outside [0, n) is an error that wraps ErrVertexRange.
func FromEdges(n int, src, dst []VertexID) (*CSC, error) {
	if len(src) != len(dst) {
		return nil, fmt.Errorf("%d sources but %d destinations", len(src), len(dst))
	}
	edges := make([]Edge, len(src))
	for i := range src {
		if v := max(uint32(src[i]), uint32(dst[i])); v >= uint32(n) {
			return nil, fmt.Errorf("edge %d names vertex %d: %w (the graph has %d vertices)", i,
				VertexID(v), ErrVertexRange, n)
		}
		edges[i] = MakeEdge(src[i], dst[i])
	}
	indptr, indices := countingSort(0, n, func(yield func([]Edge)) { yield(edges) }, false)
	return &CSC{Indptr: indptr, Indices: indices}, nil
}
