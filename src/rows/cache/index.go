package cache

import (
	"math/bits"

	"halognn/src/base/mem"
	"halognn/src/topology/graph"
)

// IndexKind is the memory layout of an Index. Both layouts give the same answers.
type IndexKind int

const (
	IndexAuto  IndexKind = iota // dense if that takes at most denseBytes a key, otherwise a hash
	IndexDense                  // 4 bytes for each vertex of the graph; a look-up is one read
	IndexHash                   // 16 to 32 bytes for each key; open addressing
)

// denseBytes is the most that a dense index may cost for each key. This is little compared with a
// feature row of hundreds of bytes.
const denseBytes = 64

// Index maps vertices to slots, or other numbers of 31 bits.
//
//	dense  [N]  slot+1, 0 for none
//	table  [T]  vertex+1 << 32 | slot, 0 for none; T is a power of two and at least twice the
//	            keys; a key lies at its home, the upper bits of vertex*golden, or after it with no
//	            empty entry in between
type Index struct {
	dense []int32
	table []uint64
	shift int // the home of key v is v*golden >> shift
	keys  int // number of keys in table
}

// dense reports whether an index for the given number of keys is dense.
func (k IndexKind) dense(vertices, keys int) bool {
	return k == IndexDense || k == IndexAuto && vertices*4 <= keys*denseBytes
}

// tableBits returns log2 of the number of entries of a hash with room for this number of keys.
func tableBits(keys int) int { return bits.Len(uint(max(2*keys, 64) - 1)) }

// IndexBytes returns the memory of an index that NewIndex makes by IndexAuto.
func IndexBytes(vertices, keys int) int64 {
	if IndexAuto.dense(vertices, keys) {
		return int64(max(vertices, 1)) * 4
	}
	return 8 << tableBits(keys)
}

// NewIndex makes an empty index for a graph with the given number of vertices, with room for the
// given number of keys; a hash grows as needed.
func NewIndex(vertices, keys int, kind IndexKind) *Index {
	if kind.dense(vertices, keys) {
		return &Index{dense: mem.Make[int32](max(vertices, 1))}
	}
	x := &Index{}
	x.resize(keys)
	return x
}

// resize moves the keys to a table with room for the given number of keys.
func (x *Index) resize(keys int) {
	old := x.table
	size := tableBits(keys)
	x.table, x.shift, x.keys = mem.Make[uint64](1<<size), 64-size, 0
	for _, e := range old {
		if e != 0 {
			x.put(vertexOf(e), int32(e))
		}
	}
	mem.Free(old)
}

const golden = 0x9E3779B97F4A7C15 // 2^64 / golden ratio

func (x *Index) home(v graph.VertexID) uint64 { return uint64(v) * golden >> (x.shift & 63) }

func vertexOf(e uint64) graph.VertexID { return graph.VertexID(e>>32 - 1) }

// find returns the position of v in the table, or the position at which to insert it.
func (x *Index) find(v graph.VertexID) uint64 {
	table, key := x.table, uint64(v)+1
	last := uint64(len(table) - 1)
	at := x.home(v)
	for {
		e := table[at&last]
		if e == 0 || e>>32 == key {
			return at & last
		}
		at++
	}
}

// Get returns the slot of v, or -1.
func (x *Index) Get(v graph.VertexID) int32 {
	if x.dense != nil {
		return x.dense[v] - 1
	}
	e := x.table[x.find(v)]
	if e == 0 {
		return -1
	}
	return int32(e)
}

// lookupBlock is the number of keys whose entries are read before any result is used. A branch on
// each result would often be mispredicted, and the processor would then discard the reads that it
// has begun.
const lookupBlock = 256

// Lookup sets slots[i] to the slot of ids[i], or -1, and returns how many are -1. For many vertices
// it is faster than Get, because its memory reads overlap.
func (x *Index) Lookup(ids []graph.VertexID, slots []int32) (misses int) {
	if x.dense == nil {
		for len(ids) > 0 {
			n := min(len(ids), lookupBlock)
			misses += x.lookup(ids[:n], slots[:n])
			ids, slots = ids[n:], slots[n:]
		}
		return misses
	}
	dense := x.dense
	slots = slots[:len(ids)]
	for i, v := range ids {
		slot := dense[v] - 1
		slots[i] = slot
		misses += int(uint32(slot) >> 31)
	}
	return misses
}

// lookup is Lookup in the hash, for a block of keys. It first reads the entries at the homes of all
// keys. Then it searches on for keys that are not at their homes.
func (x *Index) lookup(ids []graph.VertexID, slots []int32) (misses int) {
	var home [lookupBlock]uint64
	table := x.table
	last := uint64(len(table) - 1)
	for i, v := range ids {
		home[i%lookupBlock] = table[x.home(v)&last]
	}
	slots = slots[:len(ids)]
	for i, v := range ids {
		e := home[i%lookupBlock]
		if (e>>32^(uint64(v)+1))*(e>>32) != 0 { // the entry is neither v's nor empty
			e = table[x.find(v)]
		}
		slot := int32(e)
		if e == 0 {
			slot = -1
		}
		slots[i] = slot
		misses += int(uint32(slot) >> 31)
	}
	return misses
}

// touch reads array at the given positions into the processor's cache. The result has no meaning.
//
//go:noinline
func touch[E, T ~int32](array []E, at []T) (any E) {
	for _, i := range at {
		any |= array[i]
	}
	return any
}

// Set maps v to the slot, which must not be negative.
func (x *Index) Set(v graph.VertexID, slot int32) {
	if x.dense != nil {
		x.dense[v] = slot + 1
		return
	}
	x.put(v, slot)
}

func (x *Index) put(v graph.VertexID, slot int32) {
	at := x.find(v)
	if x.table[at] == 0 {
		if 2*(x.keys+1) > len(x.table) {
			x.resize(2 * x.keys)
			at = x.find(v)
		}
		x.keys++
	}
	x.table[at] = (uint64(v)+1)<<32 | uint64(slot)
}

// Remove deletes v, if present. In the hash, later keys move into the gap, so that a search still
// finds all keys, and no entry has to be marked as deleted.
func (x *Index) Remove(v graph.VertexID) {
	if x.dense != nil {
		x.dense[v] = 0
		return
	}
	gap := x.find(v)
	if x.table[gap] == 0 {
		return
	}
	x.keys--
	last := uint64(len(x.table) - 1)
	for at := gap; ; {
		at = (at + 1) & last
		e := x.table[at]
		if e == 0 {
			break
		}
		if (at-x.home(vertexOf(e)))&last >= (at-gap)&last { // its home is not after the gap
			x.table[gap] = e
			gap = at
		}
	}
	x.table[gap] = 0
}

// Bytes returns the memory of the index.
func (x *Index) Bytes() int64 { return int64(len(x.dense))*4 + int64(len(x.table))*8 }

// Free gives the memory back.
func (x *Index) Free() {
	mem.Free(x.dense)
	mem.Free(x.table)
	*x = Index{}
}
