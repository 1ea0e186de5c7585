package metis

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync/atomic"
	"unsafe"

	"halognn/src/base/mem"
	"halognn/src/topology/graph"
	"halognn/src/topology/partition"
)

// ErrTooLarge is wrapped by the error for a graph with more edges than the integers of this
// libmetis can count.
var ErrTooLarge = errors.New("graph too large for this libmetis")

// index is the integer type of METIS, idx_t.
type index interface{ ~int32 | ~int64 }

func maxIndex[I index]() int64 {
	if unsafe.Sizeof(I(0)) == 4 {
		return math.MaxInt32
	}
	return math.MaxInt64
}

// Fits reports whether the libmetis of Debian, whose indices have 32 bits, can index a graph with
// the given number of stored edges.
func Fits(edges int64) bool { return edges < math.MaxInt32 }

// checkSize returns an error unless count is below limit, which is maxIndex (in tests, less). The
// error calls the things counted by the given name.
func checkSize(name string, count, limit int64) error {
	if count < limit {
		return nil
	}
	return fmt.Errorf("%w: %d %s, but its indices end at %d; use --method kaminpar or --method "+
		"ldg, or a libmetis built with IDXTYPEWIDTH 64", ErrTooLarge, count, name, limit)
}

// adjacency is an undirected graph in METIS's layout: every edge at both ends, no loops, no
// duplicates. The weight of an edge is the sum over both directions and all duplicates, which is
// what cutting it costs.
//
//	xadj   [N+1]  neighbours of v are adjncy[xadj[v]:xadj[v+1]]
//	adjncy [A]    A <= 2M
//	adjwgt [A]    >= 1
//
// The arrays lie outside the Go heap until free.
type adjacency[I index] struct {
	xadj, adjncy, adjwgt []I
}

func (a *adjacency[I]) free() {
	mem.Free(a.xadj)
	mem.Free(a.adjncy)
	mem.Free(a.adjwgt)
}

// undirected builds the adjacency of g. It returns an error if the adjacency would have limit
// entries or more. While it builds the adjacency, it needs another 4 bytes an edge (8 with edge
// weights), and 4 or 8 bytes a vertex for each CPU. Time O(N + M).
func undirected[I index](g *graph.CSC, edge []int32, limit int64) (adjacency[I], error) {
	n := g.NumVertices()
	if err := checkSize("vertices", int64(n), limit); err != nil {
		return adjacency[I]{}, err
	}
	in := partition.Edges{Indptr: g.Indptr, Indices: g.Indices, Weights: edge}
	out := in.Transpose()
	defer out.Free()

	// The first pass counts the distinct neighbours of every vertex, the second fills them in.
	ptr := mem.Make[int64](n + 1)
	defer mem.Free(ptr)
	overVertices[I](n, func(v int, last []I) {
		for _, list := range [][]graph.VertexID{in.Neighbours(v), out.Neighbours(v)} {
			for _, u := range list {
				if int(u) != v && last[u] != I(v)+1 { // u was not yet seen at this vertex
					last[u] = I(v) + 1
					ptr[v+1]++
				}
			}
		}
	})
	for v := range n {
		ptr[v+1] += ptr[v]
	}
	if err := checkSize("adjacency entries (each edge counts at both ends)", ptr[n],
		limit); err != nil {
		return adjacency[I]{}, err
	}
	a := adjacency[I]{mem.Make[I](n + 1), mem.Make[I](int(ptr[n])), mem.Make[I](int(ptr[n]))}
	for v, p := range ptr {
		a.xadj[v] = I(p)
	}
	scale := divisor(2*in.TotalWeight(), ptr[n], limit)
	overVertices[I](n, func(v int, slot []I) {
		begin := a.xadj[v]
		next := begin
		for _, d := range []partition.Edges{in, out} {
			for e := d.Indptr[v]; e < d.Indptr[v+1]; e++ {
				u := d.Indices[e]
				if int(u) == v {
					continue
				}
				// slot[u] is one past the last entry made for u. Vertices come in increasing order,
				// so that entry belongs to v exactly if slot[u] lies beyond begin.
				if slot[u] <= begin {
					a.adjncy[next] = I(u)
					next++
					slot[u] = next
				}
				a.adjwgt[slot[u]-1] += I(d.Weight(e) / scale)
			}
		}
		for i := begin; i < next; i++ {
			a.adjwgt[i] = max(a.adjwgt[i], 1)
		}
	})
	return a, nil
}

// divisor returns the number by which weights must be divided, so that METIS's sums of them do not
// overflow. The sum of the weights (`total`) and their number (`count`, below limit) are given.
// Quotients are rounded down, but are at least 1, and their sum is below limit. The divisor is 1 if
// the weights can stay as they are.
func divisor(total, count, limit int64) int64 {
	if total < limit {
		return 1
	}
	return total/(limit-count) + 1
}

// overVertices calls the function `work` for every vertex, on all CPUs. Each worker gets vertices
// in increasing order and has an array [n] of its own, which is zero at first.
func overVertices[I index](n int, work func(v int, own []I)) {
	const chunk = 4096
	var next atomic.Int64
	mem.Parallel(min(runtime.GOMAXPROCS(0), (n+chunk-1)/chunk), func(int) {
		own := mem.Make[I](n)
		defer mem.Free(own)
		for begin := int(next.Add(chunk)) - chunk; begin < n; begin = int(next.Add(chunk)) - chunk {
			for v := begin; v < min(begin+chunk, n); v++ {
				work(v, own)
			}
		}
	})
}
