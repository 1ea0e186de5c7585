package sample

import (
	"math/bits"
	"sync/atomic"

	"halognn/src/graph"
	"halognn/src/mem"
)

// vertexMap gives the vertices of one minibatch their local numbers. It has two implementations with identical results.
// Entries carry the version of the minibatch that wrote them, so forgetting all of them is counting the version up.
//
// One worker numbers in one pass. Several go through four passes with a barrier after each, so that "first
// seen" means the first edge and not the first thread: claim keeps for every vertex the smaller of its value and the
// offered one, where a vertex of the frontier has its local number and a new one frontier length + edge position, which
// is always more; resolve reads the winners back; the caller numbers them in edge order; settle stores the numbers.
type vertexMap interface {
	// reset forgets everything.
	reset()
	// reserve makes room for more vertices beside those of the frontier.
	reserve(frontier []graph.VertexID, more int)
	// touch reads the entries of ids into the cache. What it returns means nothing; it keeps the reads from being optimised away.
	touch(ids []graph.VertexID) uint64
	// number sets rows[i] to the local number of ids[i]; unseen vertices are appended to frontier[:n] in the order seen. It
	// returns the new n. rows may be the memory of ids; frontier has room for one entry beyond the last new one.
	number(ids []graph.VertexID, rows []int32, frontier []graph.VertexID, n int) int
	// claim offers value first+i for ids[i], a block of them. Callable from many goroutines.
	claim(ids []graph.VertexID, first int)
	// resolve sets values[i] to the value of ids[i] and returns how many claims it finds to have won: values[i] == first+i.
	resolve(ids []graph.VertexID, values []uint32, first int) int
	// settle sets the value of vertices[i], a block of them, to first+i. Callable from many goroutines on disjoint vertices.
	settle(vertices []graph.VertexID, first int)
	// capacity is the number of values an entry can tell apart.
	capacity() int
	bytes() int64
	free()
}

// touchBlock is how many vertices are looked up before anything is done with the entries. Numbering writes where the number of
// the vertex before tells, so the misses of the cache would follow one another; reading a block of entries first lets
// them overlap, and its cache lines are still there when numbering comes to them.
const touchBlock = 512

// renumber is vertexMap.number for any number of ids.
func renumber(m vertexMap, ids []graph.VertexID, rows []int32, frontier []graph.VertexID, n int) int {
	for len(ids) > 0 {
		block := min(len(ids), touchBlock)
		m.touch(ids[:block])
		n = m.number(ids[:block], rows[:block], frontier, n)
		ids, rows = ids[block:], rows[block:]
	}
	return n
}

// blocks calls f with blocks of vertices, and the position of each.
func blocks(vertices []graph.VertexID, f func(block []graph.VertexID, at int)) {
	for at := 0; at < len(vertices); at += touchBlock {
		f(vertices[at:min(at+touchBlock, len(vertices))], at)
	}
}

// dense is a table over all N vertices: entry v is version<<shift | value. Four bytes a vertex.
type dense struct {
	table   []uint32
	shift   int
	version uint32
}

func newDense(vertices, valueBits int) *dense {
	return &dense{table: mem.Make[uint32](vertices), shift: valueBits}
}

// reset refills the table only when the version wraps: with 2^20 values, once in 4095 minibatches.
func (m *dense) reset() {
	if m.version++; m.version == 1<<(32-m.shift) {
		clear(m.table)
		m.version = 1
	}
}

func (m *dense) reserve([]graph.VertexID, int) {}

func (m *dense) touch(ids []graph.VertexID) (any uint64) {
	table := m.table
	for _, v := range ids {
		any |= uint64(table[v])
	}
	return any
}

// number has no branch that depends on the data, for whether a vertex is new cannot be predicted: it always stores to the
// table and to frontier[n], and moves n on where the vertex was new. Versions only grow, so an entry is of this minibatch if it
// is not less than the tag.
func (m *dense) number(ids []graph.VertexID, rows []int32, frontier []graph.VertexID, n int) int {
	table, tag := m.table, m.version<<m.shift
	rows = rows[:len(ids)]
	for i, v := range ids {
		entry := table[v]
		number, next := tag|uint32(n), n+1
		if entry >= tag {
			number = entry
		}
		if entry >= tag {
			next = n
		}
		table[v] = number
		frontier[n] = v
		rows[i] = int32(number - tag)
		n = next
	}
	return n
}

func (m *dense) claim(ids []graph.VertexID, first int) {
	table, tag := m.table, m.version<<m.shift
	for _, v := range ids {
		atomic.LoadUint32(&table[v]) // touch: a compare-and-swap waits for all before it
	}
	for i, v := range ids {
		offer := tag | uint32(first+i)
		for {
			entry := atomic.LoadUint32(&table[v])
			if entry >= tag && entry <= offer || atomic.CompareAndSwapUint32(&table[v], entry, offer) {
				break
			}
		}
	}
}

func (m *dense) resolve(ids []graph.VertexID, values []uint32, first int) int {
	table, tag := m.table, m.version<<m.shift
	values = values[:len(ids)]
	won := 0
	for i, v := range ids {
		value := table[v] - tag
		values[i] = value
		if value == uint32(first+i) {
			won++
		}
	}
	return won
}

func (m *dense) settle(vertices []graph.VertexID, first int) {
	m.touch(vertices)
	tag := m.version << m.shift
	for i, v := range vertices {
		m.table[v] = tag | uint32(first+i)
	}
}

func (m *dense) capacity() int { return 1 << m.shift }
func (m *dense) bytes() int64  { return int64(len(m.table)) * 4 }
func (m *dense) free()         { mem.Free(m.table) }

// hash is an open-addressing table, at most half full: an entry is version | vertex (31 bits) | value (shift bits). It grows with
// the largest minibatch seen, and since the frontier lists its content, growing is filling it anew.
type hash struct {
	table   []uint64
	shift   int
	version uint64
	slots   int // slot = top bits of a product: vertex * golden >> slots
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

func (m *hash) reserve(frontier []graph.VertexID, more int) {
	if need := len(frontier) + more; 2*need > len(m.table) {
		m.resize(need + need/2)
		m.settle(frontier, 0)
	}
}

// tag is the smallest entry of this minibatch; entries below it are empty.
func (m *hash) tag() uint64 { return m.version << (vertexBits + m.shift) }

func (m *hash) slot(v graph.VertexID) uint64 { return uint64(v) * golden >> (m.slots & 63) }

func (m *hash) touch(ids []graph.VertexID) (any uint64) {
	table := m.table
	last := uint64(len(table) - 1)
	for _, v := range ids {
		any |= table[m.slot(v)&last]
	}
	return any
}

// number is that of dense: one branch, taken again only where two vertices want one slot.
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
		for (entry^own)>>shift&(empty-1) != 0 { // of this minibatch, and of another vertex
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

// touchShared is touch while others write.
func (m *hash) touchShared(ids []graph.VertexID) {
	table := m.table
	last := uint64(len(table) - 1)
	for _, v := range ids {
		atomic.LoadUint64(&table[m.slot(v)&last])
	}
}

// offer lowers the value of v to value, inserting v with it if need be.
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

// settle inserts or overwrites. It reads past entries that others settle, hence the atomic loads and stores.
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
