package cache

import (
	"fmt"

	"halognn/src/base/invariant"
	"halognn/src/base/mem"
	"halognn/src/topology/graph"
)

// Feed takes the remote vertices of the next step in order. Every step must be fed once, before it
// is due, and at most Window steps before. All uses count the same, because Feed ignores their
// worth. It panics if a step is fed too early, because decisions depend on which steps are known.
func (l *Lookahead) Feed(remote []graph.VertexID, _ []uint8) {
	b := l.bookings
	if ahead := b.end - 1 - b.base; ahead > l.window {
		panic(fmt.Sprintf("cache: a step was fed %d steps ahead of the one that is due, but the "+
			"window is %d steps", ahead, l.window))
	}
	l.reserve(len(remote))
	step := b.open()
	l.first[step&b.mask()] = l.head
	for len(remote) > 0 {
		n := min(len(remote), lookupBlock)
		l.enter(step, remote[:n])
		remote = remote[n:]
	}
}

// enter is Feed for a block of the remote vertices. It first reads everything that it will change,
// so that the processor's cache misses overlap.
func (l *Lookahead) enter(step int, remote []graph.VertexID) {
	var known, last [lookupBlock]int32
	l.index.Lookup(remote, known[:])
	mask := uint32(len(l.ids) - 1)
	for i, k := range known[:len(remote)] {
		// If known[i] is not the position of a use, last[i] is an arbitrary position, and the value
		// read there is ignored.
		last[i] = k >> 1 & int32(mask)
	}
	touch(l.next, last[:len(remote)])
	for i, v := range remote {
		at := l.head & mask
		l.ids[at], l.next[at], l.slot[at] = v, ^int32(step), -1
		use := int32(l.head & (positions - 1))
		switch k := known[i]; {
		case k < 0:
		case k&1 != 0:
			l.slot[at] = l.claim(k>>1, step)
		default:
			if from := int(^l.next[last[i]]); l.bookings.book(from, step) {
				l.next[last[i]] = use
			} else {
				l.next[last[i]] = declined
			}
		}
		l.index.Set(v, use<<1)
		l.head++
	}
}

// claim books a row that stayed in its slot without a known use, for a use that is now known. It
// returns the slot, or -1 if other rows need the slot before that use.
func (l *Lookahead) claim(slot int32, step int) int32 {
	l.unlink(slot)
	if !l.bookings.book(l.bookings.base, step) {
		l.vacate(slot, dropped)
		return -1
	}
	l.hold(1)
	return slot
}

func (l *Lookahead) hold(n int) {
	l.held += n
	l.high = max(l.high, l.held)
}

// uses returns the position of a step's first use and the number of its uses.
func (l *Lookahead) uses(step int) (first uint32, n int) {
	b := l.bookings
	first, end := l.first[step&b.mask()], l.head
	if step+1 < b.end {
		end = l.first[(step+1)&b.mask()]
	}
	return first, int(end - first)
}

// reserve makes room for n more uses.
func (l *Lookahead) reserve(n int) {
	tail := l.head
	if b := l.bookings; b.base+1 < b.end {
		tail = l.first[(b.base+1)&b.mask()]
	}
	need := int(l.head-tail) + n
	if need <= len(l.ids) {
		return
	}
	checkUses(need, l.window)
	l.ids = regrow(l.ids, tail, l.head, need)
	l.next = regrow(l.next, tail, l.head, need)
	l.slot = regrow(l.slot, tail, l.head, need)
}

// checkUses panics if a window has more uses than there are positions. The argument `window` is its
// number of steps, which the message names.
func checkUses(uses, window int) {
	if uses > positions {
		panic(fmt.Sprintf("cache: a window of %d steps reads %d remote rows, but at most %d are "+
			"supported; lower cache.window", window, uses, positions))
	}
}

// regrow moves the elements at positions tail to head into a ring for n elements.
func regrow[T mem.Number](old []T, tail, head uint32, n int) []T {
	ring := mem.Make[T](powerOfTwo(n))
	for p := tail; p != head; p++ {
		ring[p&uint32(len(ring)-1)] = old[p&uint32(len(old)-1)]
	}
	mem.Free(old)
	return ring
}

// Step decides about the step that is due. It panics unless remote is the list that was fed for
// that step.
func (l *Lookahead) Step(remote []graph.VertexID, d *Decision) {
	step := l.bookings.base + 1
	if step == l.bookings.end {
		panic("cache: the step that is due was not fed")
	}
	first, n := l.uses(step)
	if n != len(remote) {
		panic(fmt.Sprintf("cache: a step has %d remote vertices, but %d were fed for it",
			len(remote), n))
	}
	d.begin(n, 0, min(n, len(l.vertex)))
	l.serve(first, remote, d)
	l.keep(first, d)
	if l.level {
		l.fetchEarly(step+1, d)
	}
	l.stay(first, d)
	l.bookings.pass()
	if invariant.On {
		invariant.Holds(l.check())
	}
}

// serve looks up the rows in the slots, and releases slots whose row has no booked use after this
// step.
func (l *Lookahead) serve(first uint32, remote []graph.VertexID, d *Decision) {
	mask := uint32(len(l.ids) - 1)
	for i, v := range remote {
		at := (first + uint32(i)) & mask
		if l.ids[at] != v {
			panic(fmt.Sprintf("cache: entry %d of a step's remote vertices is vertex %d, but "+
				"vertex %d was fed for it", i,
				v, l.ids[at]))
		}
		slot, next := l.slot[at], l.next[at]
		d.Slot[i] = slot
		switch {
		case slot < 0:
			d.Misses++
		case next >= 0:
			l.slot[uint32(next)&mask] = slot
		case next == declined:
			l.held--
			l.vacate(slot, dropped)
		default:
			l.held--
			l.link(slot)
			l.index.Set(v, entryOf(slot))
		}
	}
}

// keep gives slots to the booked misses. There are enough, because bookings never exceed the slots.
func (l *Lookahead) keep(first uint32, d *Decision) {
	mask := uint32(len(l.ids) - 1)
	miss, held := 0, 0
	for i, slot := range d.Slot {
		if slot >= 0 {
			continue
		}
		at := (first + uint32(i)) & mask
		if next := l.next[at]; next >= 0 {
			l.slot[uint32(next)&mask] = l.take(l.index, l.ids[at], miss, d)
			held++
		}
		miss++
	}
	l.hold(held)
}

// fetchEarly fetches rows that the next step will miss, if the next step misses more rows than this
// one. It puts the rows into slots that are not booked in this step. Later bookings do not depend
// on these slots.
func (l *Lookahead) fetchEarly(step int, d *Decision) {
	if step == l.bookings.end {
		return
	}
	mask := uint32(len(l.ids) - 1)
	first, n := l.uses(step)
	misses := 0
	for i := range uint32(n) {
		misses += int(uint32(l.slot[(first+i)&mask]) >> 31)
	}
	want := max(0, min((misses-d.Misses)/2, len(l.vertex)-l.held))
	d.Early = mem.Grow(d.Early, want)[:0]
	d.Insert = mem.Grow(d.Insert, len(d.Slot)+want)[:len(d.Insert)]
	for i := uint32(0); len(d.Early) < want; i++ {
		at := (first + i) & mask
		if l.slot[at] < 0 {
			l.slot[at] = l.take(l.index, l.ids[at], d.Misses+len(d.Early), d)
			d.Early = append(d.Early, l.ids[at])
		}
	}
	l.hold(len(d.Early))
}

// stay gives empty slots to misses without a known use. If no slot is empty, such misses are not
// kept.
func (l *Lookahead) stay(first uint32, d *Decision) {
	mask := uint32(len(l.ids) - 1)
	miss := 0
	for i, slot := range d.Slot {
		if slot >= 0 {
			continue
		}
		at := (first + uint32(i)) & mask
		if next := l.next[at]; next < 0 && next != declined {
			v := l.ids[at]
			if l.vacant > 0 {
				slot := l.take(l.index, v, miss, d)
				l.link(slot)
				l.index.Set(v, entryOf(slot))
			} else {
				l.index.Remove(v)
			}
		}
		miss++
	}
}
