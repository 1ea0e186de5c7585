package sample

import (
	"math/bits"
	"sync/atomic"

	"halognn/src/base/mem"
	"halognn/src/base/random"
	"halognn/src/topology/graph"
)

// hash is an open-addressing table, at most half full: an entry is version | vertex (31 bits) |
// value (shift bits). The table grows with the largest minibatch so far. When it grows, the
// vertices of the frontier, the only ones that it holds, are inserted into the larger table.
type hash struct {
	table   []uint64
	shift   int
	version uint64
	// the slot of a vertex is vertex * random.Golden, shifted right by this number of bits
	slots int
}

const vertexBits = 31

func newHash(valueBits int) *hash {
	m := &hash{shift: valueBits}
	m.resize(1 << 10)
	return m
}

// resize makes an empty table for n vertices.
func (m *hash) resize(n int) {
	size := bits.Len(uint(max(2*n, 64) - 1))
	mem.Free(m.table)
	m.table, m.slots, m.version = mem.Make[uint64](1<<size), 64-size, 1
}

func (m *hash) reset() {
	if m.version++; m.version == 1<<(64-vertexBits-m.shift) {
		clear(m.table)
		m.version = 1
	}
}

func (m *hash) forget() {
	clear(m.table)
	m.version = 0
}

func (m *hash) reserve(frontier []graph.VertexID, more int) {
	if need := len(frontier) + more; 2*need > len(m.table) {
		m.resize(need + need/2)
		m.settle(frontier, 0)
	}
}

// tag is the smallest entry of this minibatch; entries below it are empty.
func (m *hash) tag() uint64 { return m.version << (vertexBits + m.shift) }

func (m *hash) slot(v graph.VertexID) uint64 { return uint64(v) * random.Golden >> (m.slots & 63) }

func (m *hash) touch(ids []graph.VertexID) (any uint64) {
	table := m.table
	last := uint64(len(table) - 1)
	for _, v := range ids {
		any |= table[m.slot(v)&last]
	}
	return any
}

// number branches only in its loop for collisions, which runs only if two vertices hash to the same
// entry.
func (m *hash) number(ids []graph.VertexID, rows []int32, frontier []graph.VertexID, n int) int {
	m.reserve(frontier[:n], len(ids))
	table, tag, shift := m.table, m.tag(), m.shift&63
	last := uint64(len(table) - 1)
	rows = rows[:len(ids)]
	for i, v := range ids {
		own := tag | uint64(v)<<shift
		slot := m.slot(v)
		entry := table[slot&last]
		_, empty := bits.Sub64(entry, tag, 0)
		for (entry^own)>>shift&(empty-1) != 0 { // another vertex has the entry
			slot++
			entry = table[slot&last]
			_, empty = bits.Sub64(entry, tag, 0)
		}
		number, next := own|uint64(n), n+1
		if empty == 0 {
			number = entry
		}
		if empty == 0 {
			next = n
		}
		table[slot&last] = number
		frontier[n] = v
		rows[i] = int32(number - own)
		n = next
	}
	return n
}

func (m *hash) claim(ids []graph.VertexID, first int) {
	m.touchShared(ids)
	for i, v := range ids {
		m.offer(v, uint64(first+i))
	}
}

// touchShared is like touch, but may run while other goroutines write.
func (m *hash) touchShared(ids []graph.VertexID) {
	table := m.table
	last := uint64(len(table) - 1)
	for _, v := range ids {
		atomic.LoadUint64(&table[m.slot(v)&last])
	}
}

// offer sets the value of v to value if that is lower; it inserts v if v is missing.
func (m *hash) offer(v graph.VertexID, value uint64) {
	tag, last := m.tag(), uint64(len(m.table)-1)
	entry := tag | uint64(v)<<m.shift
	for slot := m.slot(v); ; {
		at := &m.table[slot&last]
		old := atomic.LoadUint64(at)
		switch {
		case old >= tag && old>>m.shift != entry>>m.shift:
			slot++
		case old >= tag && old <= entry|value:
			return
		case atomic.CompareAndSwapUint64(at, old, entry|value):
			return
		}
	}
}

func (m *hash) resolve(ids []graph.VertexID, values []uint32, first int) int {
	won := 0
	last, tag := uint64(len(m.table)-1), m.tag()
	for i, v := range ids {
		entry := tag | uint64(v)<<m.shift
		slot := m.slot(v)
		for m.table[slot&last]>>m.shift != entry>>m.shift {
			slot++
		}
		values[i] = uint32(m.table[slot&last] - entry)
		if values[i] == uint32(first+i) {
			won++
		}
	}
	return won
}

// settle inserts or overwrites entries. Its loads and stores are atomic, because other goroutines
// may write the entries that it reads.
func (m *hash) settle(vertices []graph.VertexID, first int) {
	m.touchShared(vertices)
	last, tag := uint64(len(m.table)-1), m.tag()
	for i, v := range vertices {
		entry := tag | uint64(v)<<m.shift
		slot := m.slot(v)
		for {
			old := atomic.LoadUint64(&m.table[slot&last])
			if old < tag || old>>m.shift == entry>>m.shift {
				break
			}
			slot++
		}
		atomic.StoreUint64(&m.table[slot&last], entry|uint64(first+i))
	}
}

func (m *hash) capacity() int { return 1 << m.shift }
func (m *hash) bytes() int64  { return int64(len(m.table)) * 8 }
func (m *hash) free()         { mem.Free(m.table) }
