//go:build cgo

package cpu

/*
#cgo noescape halognn_draw_least
#cgo nocallback halognn_draw_least
#include "halognn_cpu.h"
*/
import "C"

import "unsafe"

func (n *Numbers) forC() C.halognn_numbers {
	return C.halognn_numbers{
		table: uint32s(n.Table), original: int32s(n.Original), vertices: C.int64_t(len(n.Original)),
		now: C.uint64_t(n.Now), next: C.uint64_t(n.Next), phases: C.uint64_t(n.Phases),
		turn: C.uint64_t(n.Turn), lasts: C.uint64_t(n.Lasts),
	}
}

// DrawsLeast reports whether DrawLeast is faster than plain Go and supports the fanout.
func (h *Host) DrawsLeast(fanout int64) bool {
	return h.vectors && fanout <= C.HALOGNN_CANDIDATES/2
}

// DrawLeast draws neighbours for each destination i, whose neighbours are
// indices[begin[i]:][:degree[i]]. It draws the fanout neighbours with the smallest random numbers.
// If numbers are equal, the neighbour that comes first is drawn. If there are at most fanout
// neighbours, it draws all. It writes the neighbours to drawn, in the order of the row, one
// destination after the other. Unless positions is nil, it writes the position in indices of each
// drawn neighbour to positions. It returns the number of destinations for which it has drawn. It
// stops before a destination whose row or neighbours are out of range. It also stops before rare
// cases that it does not support; the caller must draw for these. It prefetches the rows, and reads
// one random number for each neighbour.
func (h *Host) DrawLeast(drawn []int32, positions, begin, degree []int64, fanout int,
	indices []int32, n *Numbers) int {
	var done C.int64_t
	panicOnFault(C.halognn_draw_least(h.level, &done, int32s(drawn), C.int64_t(len(drawn)),
		int64s(positions), C.int64_t(len(begin)), int64s(begin), int64s(degree), C.int64_t(fanout),
		int32s(indices), C.int64_t(len(indices)), n.forC()))
	return int(done)
}

func uint32s(x []uint32) *C.uint32_t { return (*C.uint32_t)(unsafe.SliceData(x)) }
