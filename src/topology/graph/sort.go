package graph

import (
	"runtime"
	"sort"

	"halognn/src/base/mem"
)

// edgeSource calls the function `yield` with all edges, in batches, always in the same order.
// Several goroutines may call one edgeSource at the same time.
type edgeSource func(yield func([]Edge))

// batchEdges is the number of edges in a batch of CSC.edges, which packs edges as it goes.
const batchEdges = 4096

// countingSort sorts the edges that end in vertices [first, end) by destination. Edges with the
// same destination keep their order. It returns indptr [end-first+1], and indices with the source
// of each edge. If undirected is set, each edge except loops also counts as an in-edge of its
// source. In that case each entry of indices is a source with a tag (function tag), which fits
// because a vertex takes 31 of 32 bits.
//
// Every worker walks all edges and handles those that end in its own range of vertices. That reads
// memory in sequence, which is cheap. It needs no atomic operations, and gives the same result as
// one worker would.
func countingSort(first, end int, edges edgeSource, undirected bool) ([]int64, []VertexID) {
	n, base := end-first, uint32(first)
	indptr := mem.Make[int64](n + 1)
	forRanges(n, func(v int) int64 { return int64(v) }, func(lo, hi int) {
		width := uint32(hi - lo)
		edges(func(batch []Edge) {
			for _, e := range batch {
				src, dst := uint32(e>>32)-base, uint32(e)-base
				if dst-uint32(lo) < width {
					indptr[dst+1]++
				}
				if undirected && src-uint32(lo) < width && src != dst {
					indptr[src+1]++
				}
			}
		})
	})
	for v := range n {
		indptr[v+1] += indptr[v]
	}
	indices := mem.Make[VertexID](int(indptr[n]))
	// indptr[v] is where the next edge of v is written. At the end it is where the edges of v+1
	// begin, so moving all entries up by one restores indptr.
	forRanges(n, func(v int) int64 { return indptr[v] + int64(v) }, func(lo, hi int) {
		width := uint32(hi - lo)
		edges(func(batch []Edge) {
			for _, e := range batch {
				src, dst := uint32(e>>32)-base, uint32(e)-base
				if dst-uint32(lo) < width {
					entry := src + base
					if undirected {
						entry = tag(entry, false)
					}
					indices[indptr[dst]] = VertexID(entry)
					indptr[dst]++
				}
				if undirected && src-uint32(lo) < width && src != dst {
					indices[indptr[src]] = VertexID(tag(dst+base, true))
					indptr[src]++
				}
			}
		})
	})
	copy(indptr[1:], indptr[:n])
	indptr[0] = 0
	return indptr, indices
}

// tag returns vertex v with a low bit that is set if the edge is reversed. Tagged entries sort by
// vertex, and edges as given come before reversed ones.
func tag(v uint32, reversed bool) uint32 {
	if reversed {
		return v<<1 | 1
	}
	return v << 1
}

// maxWorkers is the largest number of workers that walk the edges at a time in countingSort. More
// would only contend for memory bandwidth.
const maxWorkers = 16

// forRanges cuts [0,n) into ranges of about equal weight, one for each worker, and runs f on all of
// them in parallel. The function weight is the running sum: weight(v) is the weight of [0,v).
func forRanges(n int, weight func(v int) int64, f func(lo, hi int)) {
	workers := min(runtime.GOMAXPROCS(0), maxWorkers, n/1024+1)
	cut := make([]int, workers+1)
	for w := 1; w < workers; w++ {
		goal := weight(n) / int64(workers) * int64(w)
		cut[w] = sort.Search(n, func(v int) bool { return weight(v) >= goal })
	}
	cut[workers] = n
	mem.Parallel(workers, func(w int) { f(cut[w], cut[w+1]) })
}

// Members lists the vertices of each of n groups, in increasing order. The vertices of group k are
// members[first[k]:first[k+1]].
func Members(group []int32, n int) (members []int32, first []int64) {
	first = make([]int64, n+1)
	for _, k := range group {
		first[k+1]++
	}
	for k := range n {
		first[k+1] += first[k]
	}
	next := append([]int64{}, first[:n]...)
	members = make([]int32, len(group))
	for v, k := range group {
		members[next[k]] = int32(v)
		next[k]++
	}
	return members, first
}
