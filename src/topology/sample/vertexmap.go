package sample

import (
	"sync/atomic"

	"halognn/src/base/mem"
	"halognn/src/topology/graph"
)

// vertexMap gives the vertices of one minibatch their local numbers. It has two implementations
// with identical results. Each entry has the version of the minibatch that wrote it, so raising the
// version forgets all entries.
//
// One worker numbers vertices in one pass. Several workers make four passes with a barrier after
// each, so that "first seen" means the first edge and not the first thread. In pass 1, claim offers
// a value for each edge's vertex, and the vertex keeps its smallest value. A vertex of the frontier
// has its local number already. It keeps that number, because the value offered is the length of
// the frontier plus the edge's position, which is greater than any local number of the frontier. In
// pass 2, resolve reads the winners back. In pass 3, the caller numbers the winners in edge order,
// and settle stores these numbers. In pass 4, the caller gives the other edges the number of their
// winner.
type vertexMap interface {
	// reset forgets everything.
	reset()
	// forget is like reset, for a map whose entries may hold anything, as after invalid vertices.
	forget()
	// reserve makes room for the given number of vertices, in addition to the frontier.
	reserve(frontier []graph.VertexID, more int)
	// touch reads the entries of ids into the cache. The result has no meaning; it keeps the reads
	// from being optimised away.
	touch(ids []graph.VertexID) uint64
	// number sets rows[i] to the local number of ids[i]; unseen vertices are appended to
	// frontier[:n] in the order seen. It returns the new n. rows may be the memory of ids; frontier
	// has room for one entry beyond the last new one.
	number(ids []graph.VertexID, rows []int32, frontier []graph.VertexID, n int) int
	// claim offers the value first+i to ids[i]; the smallest offer to a vertex wins. The ids are
	// one block. Many goroutines may call it at a time.
	claim(ids []graph.VertexID, first int)
	// resolve sets values[i] to the value of ids[i] and returns how many claims have won: values[i]
	// == first+i.
	resolve(ids []graph.VertexID, values []uint32, first int) int
	// settle sets the value of vertices[i] to first+i. The vertices are one block. Many goroutines
	// may call it at a time, on disjoint vertices.
	settle(vertices []graph.VertexID, first int)
	// capacity is the number of values that an entry can tell apart.
	capacity() int
	bytes() int64
	free()
}

// touchBlock is the number of entries read before they are used. While vertices are numbered, each
// write depends on the vertex before, so cache misses would not overlap. If a block of entries is
// read first, the misses do overlap, and the lines are still in the cache when numbering uses them.
const touchBlock = 512

// renumber calls vertexMap.number for any number of ids, a block at a time.
func renumber(m vertexMap, ids []graph.VertexID, rows []int32, frontier []graph.VertexID,
	n int) int {
	for len(ids) > 0 {
		block := min(len(ids), touchBlock)
		m.touch(ids[:block])
		n = m.number(ids[:block], rows[:block], frontier, n)
		ids, rows = ids[block:], rows[block:]
	}
	return n
}

// blocks calls the function f with each block of vertices and its position.
func blocks(vertices []graph.VertexID, f func(block []graph.VertexID, at int)) {
	for at := 0; at < len(vertices); at += touchBlock {
		f(vertices[at:min(at+touchBlock, len(vertices))], at)
	}
}

// dense is a table with an entry of four bytes for each of all N vertices. The entry of vertex v is
// version<<shift | value.
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

func (m *dense) forget() {
	clear(m.table)
	m.version = 0
}

func (m *dense) reserve([]graph.VertexID, int) {}

func (m *dense) touch(ids []graph.VertexID) (any uint64) {
	table := m.table
	for _, v := range ids {
		any |= uint64(table[v])
	}
	return any
}

// number has no branch that depends on the data, because the processor cannot predict whether a
// vertex is new: it always stores to the table and to frontier[n], and adds 1 to n if the vertex
// was new. Versions only grow: an entry belongs to this minibatch if it is at least the tag.
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
		atomic.LoadUint32(&table[v]) // touch: a compare-and-swap waits for all earlier reads
	}
	for i, v := range ids {
		offer := tag | uint32(first+i)
		for {
			entry := atomic.LoadUint32(&table[v])
			if entry >= tag && entry <= offer ||
				atomic.CompareAndSwapUint32(&table[v], entry, offer) {
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
