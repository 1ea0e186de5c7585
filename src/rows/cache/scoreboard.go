package cache

import (
	"math"
	"math/bits"

	"halognn/src/base/mem"
	"halognn/src/topology/graph"
)

// Layout is the memory layout of a Prefetch's scoreboard. Both layouts give the same decisions.
type Layout int

const (
	LayoutAuto    Layout = iota // the smaller one
	LayoutDense                 // 4 bytes a vertex of the graph
	LayoutCompact               // 8 bytes a candidate and a quarter of a byte a vertex
)

// scoreboard holds one entry for every vertex that may be buffered: its access score S_A or, if it
// is buffered, its slot. In the paper S_A is negative for buffered vertices; here a negative sign
// marks buffered vertices, and the other bits are the slot. So the scoreboard is also the index of
// the buffer, and looking up and scoring a vertex is one memory access.
//
//	entry < 0   buffered, in slot entry & slotMask
//	entry >= 0  not buffered; the bits of S_A as float32, which order like the numbers; unscored,
//	            a NaN, for vertices that are no candidates: adding 1 leaves it as it is, and it
//	            is never a best score
//
//	dense    entry [N]    the entry of vertex v is entry[v]
//	compact  entry [H+1]  the entry of the i-th candidate is entry[i]; entry[H], unscored, is
//	                      that of all other vertices
//	         vertex [H]   candidates, ascending
//	         rank [2W]    for every 64 vertices: a bit for each candidate, and how many candidates
//	                      come before. This finds the place of a vertex among the sorted
//	                      candidates as a binary search would, in one read
type scoreboard struct {
	entry  []int32
	vertex []graph.VertexID
	rank   []uint64
}

const (
	slotMask = math.MaxInt32
	buffered = math.MinInt32
	unscored = 0x7FC00000 // quiet NaN
	infinity = 0x7F800000 // larger than any score
	smallest = 0x00800000 // smallest normal float32; a smaller value is not a score
)

// newScoreboard makes a scoreboard for n vertices. Only vertices whose bit in candidates is set may
// be buffered. If candidates is nil, all may.
func newScoreboard(n int, candidates []uint64, layout Layout) *scoreboard {
	h := n
	if candidates != nil {
		h = 0
		for _, w := range candidates {
			h += bits.OnesCount64(w)
		}
	}
	words := (n + 63) / 64
	if layout == LayoutDense || layout == LayoutAuto && 4*n <= 8*h+16*words {
		return newDenseBoard(n, candidates)
	}
	s := &scoreboard{entry: mem.Make[int32](h + 1), vertex: mem.Make[graph.VertexID](h),
		rank: mem.Make[uint64](2 * words)}
	i := 0
	for w := range words {
		set := ^uint64(0)
		if candidates != nil {
			set = candidates[w]
		} else if w == n/64 {
			set = 1<<(n%64) - 1
		}
		s.rank[2*w], s.rank[2*w+1] = set, uint64(i)
		for ; set != 0; set &= set - 1 {
			s.vertex[i] = graph.VertexID(64*w + bits.TrailingZeros64(set))
			i++
		}
	}
	s.entry[h] = unscored
	return s
}

func newDenseBoard(n int, candidates []uint64) *scoreboard {
	s := &scoreboard{entry: mem.Make[int32](max(n, 1))}
	if candidates != nil {
		for v := range n {
			if candidates[v/64]>>(v%64)&1 == 0 {
				s.entry[v] = unscored
			}
		}
	}
	return s
}

// at returns the position of v's entry.
func (s *scoreboard) at(v graph.VertexID) int32 {
	if s.rank == nil {
		return int32(v)
	}
	word := uint(v) / 64 * 2
	set, before := s.rank[word], s.rank[word+1]
	bit := uint(v) % 64
	at := int32(before) + int32(bits.OnesCount64(set&(1<<bit-1)))
	if set>>bit&1 == 0 {
		at = int32(len(s.vertex))
	}
	return at
}

// id returns the vertex of an entry.
func (s *scoreboard) id(at int32) graph.VertexID {
	if s.rank == nil {
		return graph.VertexID(at)
	}
	return s.vertex[at]
}

// candidates returns the entries that may hold scores. In the dense layout these are the entries of
// all vertices.
func (s *scoreboard) candidates() []int32 {
	if s.rank == nil {
		return s.entry
	}
	return s.entry[:len(s.vertex)]
}

// count looks up the vertices and scores the misses: S_A += 1. slots[i] is set to the slot of
// ids[i], or -1. Each hit adds 1 to uses[slot]. It returns the number of misses.
func (s *scoreboard) count(ids []graph.VertexID, slots, uses []int32) (misses int) {
	var at [lookupBlock]int32
	for len(ids) > 0 {
		n := min(len(ids), lookupBlock)
		if s.rank == nil {
			misses += countAt(s.entry, ids[:n], slots[:n], uses)
		} else {
			for i, v := range ids[:n] {
				at[i] = s.at(v)
			}
			misses += countAt(s.entry, at[:n], slots[:n], uses)
		}
		ids, slots = ids[n:], slots[n:]
	}
	return misses
}

// countAt is count for a block of entries whose positions are known. All entries are read before
// any is written, because a processor delays a read that may depend on an earlier write. Hits and
// misses alternate unpredictably, so no branch depends on them: hits are listed first and counted
// afterwards.
func countAt[T ~int32](entry []int32, at []T, slots, uses []int32) (misses int) {
	touch(entry, at)
	var hits [lookupBlock + 1]int32
	n := 0
	slots = slots[:len(at)]
	for i, p := range at {
		e := entry[p]
		score, slot := e, int32(-1)
		if e < 0 {
			score = 0
		}
		next := int32(math.Float32bits(math.Float32frombits(uint32(score)) + 1))
		if e < 0 {
			next = e
		}
		if e < 0 {
			slot = e & slotMask
		}
		entry[p] = next
		slots[i] = slot
		hits[n] = slot
		n += int(uint32(e) >> 31)
	}
	for _, slot := range hits[:n] {
		uses[slot]++
	}
	return len(at) - n
}

func (s *scoreboard) bytes() int64 {
	return int64(len(s.entry))*4 + int64(len(s.vertex))*4 + int64(len(s.rank))*8
}

func (s *scoreboard) free() {
	mem.Free(s.entry)
	mem.Free(s.vertex)
	mem.Free(s.rank)
	*s = scoreboard{}
}
