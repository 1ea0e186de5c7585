package cache

import (
	"halognn/src/graph"
	"halognn/src/mem"
)

// slots are those of a look-ahead cache. The ones without a booked row are in a list, the oldest
// first.
type slots struct {
	vertex []graph.VertexID // [C] row in the slot, or unused or dropped
	// [C+1] slots without a booked row, in a ring; that after C is the oldest
	older, newer []int32
	vacant       int // slots that are unused or dropped
}

// newSlots makes slots of which the first ones hold rows without a booked use: row initial[i] in
// slot i, which index maps to entryOf(i).
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

// entryOf is the entry in the index of a row that stays in a slot for no known use; that of a use is
// even.
func entryOf(slot int32) int32 { return slot<<1 | 1 }

func (l *slots) bytes() int64 { return int64(len(l.vertex))*4 + int64(len(l.older))*8 }

func (l *slots) free() {
	mem.Free(l.vertex)
	mem.Free(l.older)
	mem.Free(l.newer)
}

// link adds a slot to the list of slots without a booked row, as the newest.
func (l *slots) link(slot int32) { l.linkAfter(l.older[len(l.vertex)], slot) }

// Values in place of a vertex, for slots whose row may be replaced at once.
const (
	unused  = graph.VertexID(-1) // never filled
	dropped = graph.VertexID(-2)
)

// vacate links a slot as the oldest, so that slots with a useless row are taken first.
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

// take gives the oldest slot without a booked row to vertex v, for a fetched row.
func (l *slots) take(index *Index, v graph.VertexID, from int, d *Decision) int32 {
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
	d.Insert = append(d.Insert, makeInsert(from, slot))
	return slot
}
