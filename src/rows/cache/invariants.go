package cache

// The functions of this file check what must hold for a policy between two steps (see package
// invariant). Each reads the whole state of the policy.

import (
	"fmt"

	"halognn/src/topology/graph"
)

// check returns an error unless looking up each key of a hash finds the entry in which the key
// lies.
func (x *Index) check() error {
	keys := 0
	for at, e := range x.table {
		if e == 0 {
			continue
		}
		keys++
		if found := x.find(vertexOf(e)); found != uint64(at) {
			return fmt.Errorf("index: vertex %d lies at %d, but is found at %d", vertexOf(e), at,
				found)
		}
	}
	if x.dense == nil && keys != x.keys {
		return fmt.Errorf("index: holds %d keys, but its counter says %d", keys, x.keys)
	}
	return nil
}

// check returns an error unless the index maps each vertex to the slot that holds it, and the list
// contains every used slot once.
func (s *Sieve) check() error {
	if err := s.index.check(); err != nil {
		return err
	}
	listed, newer := int32(0), int32(-1)
	hand := s.hand < 0
	for slot := s.head; slot >= 0; slot = s.older[slot] {
		if listed++; listed > s.used {
			return fmt.Errorf("sieve: more than %d slots in the list", s.used)
		}
		if s.newer[slot] != newer {
			return fmt.Errorf("sieve: slot %d says that it follows slot %d, but it follows slot "+
				"%d", slot, s.newer[slot], newer)
		}
		if at := s.index.Get(s.vertex[slot]); at != slot {
			return fmt.Errorf("sieve: vertex %d is in slot %d, but the index says %d",
				s.vertex[slot], slot, at)
		}
		if s.insert[slot] != 0 {
			return fmt.Errorf("sieve: slot %d still waits for an insert", slot)
		}
		hand = hand || slot == s.hand
		newer = slot
	}
	if listed != s.used || newer != s.tail || !hand {
		return fmt.Errorf("sieve: %d slots are listed, but %d are used; the list ends at slot "+
			"%d, but the tail is slot %d; the hand is at slot %d",
			listed, s.used, newer, s.tail, s.hand)
	}
	return nil
}

// check returns the number of slots without a booked row. It returns an error unless the ring of
// these slots is closed and no vertex is in two slots.
func (l *slots) check(index *Index) (unbooked int, err error) {
	if err := index.check(); err != nil {
		return 0, err
	}
	end, vacant := int32(len(l.vertex)), 0
	for slot := l.newer[end]; slot != end; slot = l.newer[slot] {
		if unbooked++; unbooked > len(l.vertex) || l.newer[l.older[slot]] != slot {
			return 0, fmt.Errorf("slots: the ring is broken at slot %d", slot)
		}
		switch v := l.vertex[slot]; {
		case v < 0:
			vacant++
		case index.Get(v) != entryOf(slot):
			return 0, fmt.Errorf("slots: vertex %d is in slot %d, but the index says %d", v, slot,
				index.Get(v))
		}
	}
	if vacant != l.vacant {
		return 0, fmt.Errorf("slots: %d are vacant, but the counter says %d", vacant, l.vacant)
	}
	in := map[graph.VertexID]int{}
	for slot, v := range l.vertex {
		if other, twice := in[v]; twice && v >= 0 {
			return 0, fmt.Errorf("slots: vertex %d is in slots %d and %d", v, other, slot)
		}
		in[v] = slot
	}
	return unbooked, nil
}

// checkUses returns an error if a use waits for a slot that holds the row of another vertex, or if
// the index does not lead from a vertex to its last use. The function entryAt returns the entry of
// the index for the use at a position.
func (l *slots) checkUses(index *Index, tail, head uint32, ids []graph.VertexID, slot []int32,
	entryAt func(at uint32) int32) error {
	mask := uint32(len(ids) - 1)
	uses := map[graph.VertexID]uint32{}
	for at := tail; at != head; at++ {
		v, in := ids[at&mask], slot[at&mask]
		if in >= 0 && l.vertex[in] != v {
			return fmt.Errorf("a use of vertex %d waits for slot %d, but the slot has vertex %d",
				v, in,
				l.vertex[in])
		}
		uses[v] = at
	}
	for v, at := range uses {
		if got := index.Get(v); got != entryAt(at) {
			return fmt.Errorf("the index has %d for vertex %d, whose last use is %d", got, v, at)
		}
	}
	return nil
}

// check returns an error unless slots, bookings and the window of uses agree.
func (l *Lookahead) check() error {
	unbooked, err := l.slots.check(l.index)
	if err != nil {
		return err
	}
	if unbooked+l.held != len(l.vertex) {
		return fmt.Errorf("look-ahead: %d slots without and %d with a booked row do not add up "+
			"to %d slots", unbooked,
			l.held, len(l.vertex))
	}
	b, free := l.bookings, 0
	for s := b.base; s < b.end; s++ {
		free += int(b.free[s&b.mask()])
	}
	if free != len(l.vertex) {
		return fmt.Errorf("look-ahead: the bookings have %d slots, but the cache has %d",
			free, len(l.vertex))
	}
	if b.base+1 == b.end {
		return nil
	}
	return l.checkUses(l.index, l.first[(b.base+1)&b.mask()], l.head, l.ids, l.slot,
		func(at uint32) int32 { return int32(at&(positions-1)) << 1 })
}

// check returns an error unless slots and the window of uses agree.
func (c *Savings) check() error {
	unbooked, err := c.slots.check(c.index)
	if err != nil {
		return err
	}
	if unbooked != c.free {
		return fmt.Errorf("savings: %d slots have no row that waits, but the counter says %d",
			unbooked,
			c.free)
	}
	if c.base == c.end {
		return nil
	}
	return c.checkUses(c.index, c.first[c.base&(len(c.first)-1)], c.head, c.ids, c.slot,
		func(at uint32) int32 { return int32(at&(positions-1)) << 1 })
}

// check returns an error unless the scoreboard maps each buffered vertex to the slot that holds it.
func (p *Prefetch) check() error {
	for slot, v := range p.vertex[:p.filled] {
		if e := p.board.entry[p.board.at(v)]; e != buffered|int32(slot) {
			return fmt.Errorf("prefetch: vertex %d is in slot %d, and the scoreboard has %#x", v,
				slot, uint32(e))
		}
		if s := p.since[slot]; s < 0 || int(s) > p.step {
			return fmt.Errorf("prefetch: slot %d decays since step %d of %d", slot, s, p.step)
		}
	}
	n := 0
	for _, e := range p.board.candidates() {
		if e < 0 {
			n++
		}
	}
	if n != p.filled {
		return fmt.Errorf("prefetch: %d entries are buffered, but %d slots are filled", n, p.filled)
	}
	return nil
}
