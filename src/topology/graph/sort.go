package graph

import (
	"runtime"
	"sort"

	"halognn/src/base/mem"
)

// edgeSource yields all edges in batches, always in the same order. Several goroutines may walk it
// at a time.
type edgeSource func(yield func([]Edge))

// batchEdges is the batch size of sources that pack their edges on the fly.
const batchEdges = 4096

// countingSort sorts the edges into vertices [first, end) by destination, and keeps the order of
// edges with the same destination: indptr [end-first+1], indices [edges]. If both is set, every
// edge except loops also counts as an in-edge of its source; indices then hold tagged sources (see
// tag), for which VertexID leaves a bit.
//
// Every worker walks all edges and handles the destinations of its own range: sequential reading is
// cheap, needs no atomics, and gives the result of one worker.
func countingSort(first, end int, edges edgeSource, both bool) ([]int64, []VertexID) {
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
				if both && src-uint32(lo) < width && src != dst {
					indptr[src+1]++
				}
			}
		})
	})
	for v := range n {
		indptr[v+1] += indptr[v]
	}
	indices := mem.Make[VertexID](int(indptr[n]))
	// indptr[v] serves as the write position of v and in the end is the beginning of v+1; one shift
	// restores it.
	forRanges(n, func(v int) int64 { return indptr[v] + int64(v) }, func(lo, hi int) {
		width := uint32(hi - lo)
		edges(func(batch []Edge) {
			for _, e := range batch {
				src, dst := uint32(e>>32)-base, uint32(e)-base
				if dst-uint32(lo) < width {
					entry := src + base
					if both {
						entry = tag(entry, false)
					}
					indices[indptr[dst]] = VertexID(entry)
					indptr[dst]++
				}
				if both && src-uint32(lo) < width && src != dst {
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

// tag marks whether an entry comes from an edge as given or from a reversed one. Tagged entries
// sort by vertex, given edges first.
func tag(v uint32, reversed bool) uint32 {
	if reversed {
		return v<<1 | 1
	}
	return v << 1
}

// maxWorkers bounds the walks over the edges in countingSort; beyond it they would only contend for
// memory bandwidth.
const maxWorkers = 16

// forRanges cuts [0,n) into one range per CPU, of about equal weight, and runs f on all of them at
// a time. The function weight is the running sum: weight(v) is the weight of [0,v).
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
