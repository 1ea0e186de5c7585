package cache

import (
	"halognn/src/base/mem"
	"halognn/src/topology/graph"
)

// slots are the slots of a look-ahead cache. Those without a booked row are in a list, the oldest
// first.
type slots struct {
	// [C] vertex whose row is in the slot; unused or dropped if there is none
	vertex []graph.VertexID
	// [C+1] ring of the slots without a booked row; the slot after entry C is the oldest.
	older, newer []int32
	vacant       int // number of slots that are unused or dropped
}

// newSlots makes the slots of a cache that begins with the rows of the vertices initial: slot i
// holds the row of initial[i], which has no booked use. It maps these vertices to entryOf(i) in
// index.
func newSlots(index *Index, vertices, capacity int, initial []graph.VertexID) (slots, error) {
	l := slots{vertex: mem.Make[graph.VertexID](capacity), older: mem.Make[int32](capacity + 1),
		newer: mem.Make[int32](capacity + 1)}
	end := int32(capacity)
	l.older[end], l.newer[end] = end, end
	for slot := end - 1; slot >= int32(len(initial)); slot-- {
		l.vacate(slot, unused)
	}
	if err := fill(index, vertices, initial, entryOf); err != nil {
		return l, err
	}
	for slot, v := range initial {
		l.vertex[slot] = v
		l.link(int32(slot))
	}
	return l, nil
}

// entryOf is the index entry of a row that stays in a slot without a known use. It is odd; the
// entry of a use is even.
func entryOf(slot int32) int32 { return slot<<1 | 1 }

func (l *slots) bytes() int64 { return int64(len(l.vertex))*4 + int64(len(l.older))*8 }

func (l *slots) free() {
	mem.Free(l.vertex)
	mem.Free(l.older)
	mem.Free(l.newer)
}

// link adds a slot to the list of slots without a booked row, as the newest.
func (l *slots) link(slot int32) { l.linkAfter(l.older[len(l.vertex)], slot) }

// Values that slots.vertex holds instead of a vertex, for slots that have no row.
const (
	unused  = graph.VertexID(-1) // the slot never had a row
	dropped = graph.VertexID(-2) // the row that the slot had is no longer needed
)

// vacate makes a slot the oldest in the list, so that slots without a useful row are used first.
// The slot notes why it has no such row: unused or dropped (`because`).
func (l *slots) vacate(slot int32, because graph.VertexID) {
	l.vertex[slot] = because
	l.vacant++
	l.linkAfter(int32(len(l.vertex)), slot)
}

func (l *slots) linkAfter(older, slot int32) {
	newer := l.newer[older]
	l.older[slot], l.newer[slot] = older, newer
	l.newer[older], l.older[newer] = slot, slot
}

func (l *slots) unlink(slot int32) {
	older, newer := l.older[slot], l.newer[slot]
	l.newer[older], l.older[newer] = newer, older
}

// take gives the oldest slot without a booked row to vertex v. Among the fetched rows, the vertex's
// row has the index `row`.
func (l *slots) take(index *Index, v graph.VertexID, row int, d *Decision) int32 {
	slot := l.newer[len(l.vertex)]
	l.unlink(slot)
	old := l.vertex[slot]
	if old >= 0 {
		index.Remove(old)
	} else {
		l.vacant--
	}
	if old != unused {
		d.Evictions++
	}
	l.vertex[slot] = v
	d.Insert = append(d.Insert, makeInsert(row, slot))
	return slot
}
