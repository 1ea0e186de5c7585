package graph

import "math/bits"

// PartIndex finds the part of a vertex if each part is a contiguous range of vertices. It cuts the
// vertices into ranges of equal length, a power of two, and stores the part of the first vertex of
// each range. From that part, Find steps to the next until it reaches the part that holds the
// vertex. There are many more ranges than parts, so most ranges lie inside one part and need no
// step. A vertex costs two reads of tables that stay in the L1 cache, and a branch that is rarely
// mispredicted.
//
//	vertices  0 ......................... N
//	ranges    |    |    |    |    |    |         range of v = v >> shift
//	first     0    0    1    1    1    2         part of the range's first vertex
//	parts     |--- 0 ---|- 1 -----|-- 2 --|      then up while v >= end[part]
type PartIndex struct {
	vertices uint32
	shift    uint
	first    []uint16 // part of the first vertex of each range
	end      []uint32 // [P] one past the last vertex of each part
}

// NewPartIndex indexes parts: part k holds the vertices offsets[k] to offsets[k+1]-1. The offsets
// [P+1] must not decrease. Find never returns an empty part.
func NewPartIndex(offsets []int64) PartIndex {
	parts := len(offsets) - 1
	n := int(offsets[parts])
	ranges := max(1024, 16*parts)
	x := PartIndex{vertices: uint32(n), end: make([]uint32, parts)}
	x.shift = uint(max(0, bits.Len(uint(n))-bits.Len(uint(ranges))))
	for p := range parts {
		x.end[p] = uint32(offsets[p+1])
	}
	part := 0
	for first := 0; first < n; first += 1 << x.shift {
		for uint32(first) >= x.end[part] {
			part++
		}
		x.first = append(x.first, uint16(part))
	}
	return x
}

// Vertices returns how many vertices there are.
func (x *PartIndex) Vertices() uint32 { return x.vertices }

// End returns one past the last vertex of a part.
func (x *PartIndex) End(part int) uint32 { return x.end[part] }

// Find returns the part of v, which must be less than Vertices.
func (x *PartIndex) Find(v uint32) int {
	part := int(x.first[v>>x.shift])
	for v >= x.end[part] {
		part++
	}
	return part
}
