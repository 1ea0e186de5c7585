package cache

import (
	"errors"
	"fmt"

	"halognn/src/base/invariant"
	"halognn/src/base/mem"
	"halognn/src/topology/graph"
)

// Sieve is the general-purpose cache that dynamic policies are compared with. Rows leave in the
// order in which they came, except that a row stays if it was read since the hand last passed it.
//
//	head (newest) ─ v7 ─ v3* ─ v9 ─ v1* ─ v4 ─ tail (oldest)      * visited
//	                           ^hand, going towards the head: clears marks, evicts the first
//	                            vertex without one
//
// A step marks its hits, then inserts its misses in order, each at the head; if all slots are
// taken, it evicts a row first. A miss that a later miss of the same step evicts again is not
// inserted. Memory: the index and 17 bytes a slot. Source: SIEVE (Zhang et al., NSDI 2024),
// algorithm 1, applied to steps instead of single reads.
type Sieve struct {
	blind
	index  *Index
	vertex []graph.VertexID // [C] vertex in each slot
	newer  []int32          // [C] next newer slot in the list; -1 at the head
	older  []int32          // [C] next older slot in the list; -1 at the tail
	// [C] 1 + index in Decision.Insert of the step's insert into this slot; 0 for none
	insert  []int32
	visited []uint8 // [C] 1 if the slot is marked
	used    int32   // number of slots used so far
	head    int32
	tail    int32
	hand    int32 // slot at the hand; -1 if the hand is at the tail
}

// NewSieve makes an empty cache of the given number of rows for a graph of n vertices.
func NewSieve(n, capacity int) (*Sieve, error) {
	if err := checkSize(n, capacity); err != nil {
		return nil, fmt.Errorf("sieve: %w", err)
	}
	return &Sieve{
		index: NewIndex(n, capacity, IndexAuto), vertex: mem.Make[graph.VertexID](capacity),
		newer: mem.Make[int32](capacity), older: mem.Make[int32](capacity),
		insert:  mem.Make[int32](capacity),
		visited: mem.Make[uint8](capacity), head: -1, tail: -1, hand: -1,
	}, nil
}

// maxCapacity is the largest number of slots. A word that holds a slot number then has bits left
// for other uses.
const maxCapacity = 1<<30 - 1

// checkSize returns an error if the number of vertices or the capacity of a policy is out of range.
func checkSize(vertices, capacity int) error {
	var errs []error
	if vertices < 0 || vertices > graph.MaxVertices {
		errs = append(errs,
			fmt.Errorf("the number of vertices is %d; it must be 0 to %d",
				vertices, graph.MaxVertices))
	}
	if capacity < 0 || capacity > maxCapacity {
		errs = append(errs,
			fmt.Errorf("the capacity is %d rows; it must be 0 to %d rows", capacity, maxCapacity))
	}
	return errors.Join(errs...)
}

// Step marks the hits and inserts the misses.
func (s *Sieve) Step(remote []graph.VertexID, d *Decision) {
	d.begin(len(remote), 0, min(len(remote), len(s.vertex)))
	d.Misses = s.index.Lookup(remote, d.Slot)
	for _, slot := range d.Slot {
		if slot >= 0 {
			s.visited[slot] = 1
		}
	}
	if len(s.vertex) == 0 {
		return
	}
	miss := 0
	for i, slot := range d.Slot {
		if slot < 0 {
			s.admit(remote[i], miss, d)
			miss++
		}
	}
	for _, i := range d.Insert {
		s.insert[i.Slot()] = 0
	}
	if invariant.On {
		invariant.Holds(s.check())
	}
}

// admit puts v at the head.
func (s *Sieve) admit(v graph.VertexID, miss int, d *Decision) {
	slot := s.used
	if int(s.used) < len(s.vertex) {
		s.used++
	} else if slot = s.evict(); s.insert[slot] == 0 {
		d.Evictions++
	}
	s.vertex[slot] = v
	s.index.Set(v, slot)
	s.older[slot], s.newer[slot] = s.head, -1
	if s.head >= 0 {
		s.newer[s.head] = slot
	} else {
		s.tail = slot
	}
	s.head = slot
	// The row that leaves the slot is itself a miss of this step, so the insert of v replaces its
	// insert.
	if at := s.insert[slot]; at > 0 {
		d.Insert[at-1] = makeInsert(miss, slot)
		return
	}
	d.Insert = append(d.Insert, makeInsert(miss, slot))
	s.insert[slot] = int32(len(d.Insert))
}

// evict moves the hand to an unmarked vertex, removes it and returns its slot.
func (s *Sieve) evict() int32 {
	slot := s.hand
	if slot < 0 {
		slot = s.tail
	}
	for s.visited[slot] != 0 {
		s.visited[slot] = 0
		if slot = s.newer[slot]; slot < 0 {
			slot = s.tail
		}
	}
	newer, older := s.newer[slot], s.older[slot]
	s.hand = newer
	if newer >= 0 {
		s.older[newer] = older
	} else {
		s.head = older
	}
	if older >= 0 {
		s.newer[older] = newer
	} else {
		s.tail = newer
	}
	s.index.Remove(s.vertex[slot])
	return slot
}

// Slots returns the capacity.
func (s *Sieve) Slots() int { return len(s.vertex) }

// Bytes returns the memory of index and list.
func (s *Sieve) Bytes() int64 { return s.index.Bytes() + int64(len(s.vertex))*(4*4+1) }

// Free gives the memory back.
func (s *Sieve) Free() {
	s.index.Free()
	mem.Free(s.vertex)
	mem.Free(s.newer)
	mem.Free(s.older)
	mem.Free(s.insert)
	mem.Free(s.visited)
	*s = Sieve{}
}
