package cache

import "halognn/src/base/mem"

// bookings decides whether a row can be kept from one step to another. A use and the next use of a
// vertex form an interval. Keeping the row over the interval takes one slot, which is free again
// from the step of the later use on. Intervals arrive in the order of their ends. The largest
// possible number of intervals is kept if each one gets the free slot that has been free for the
// shortest time (interval scheduling on identical machines).
//
// Bookings only count the slots in use. Which slot a row gets is decided when the row arrives.
//
//	free [ring]   for step s: number of slots whose last booking ends at s; for step base:
//	              number of slots that are free at base or before
//	below [ring]  for step s, if free[s] is 0: an earlier step at which to look for free slots
//
// Source: Faigle and Nawijn (1995), Carlisle and Lloyd (1995). Belady's rule (1966) evicts the row
// with the farthest next use, and does not cache a row whose next use is farther than all others.
// This rule keeps the same number of intervals, but must revise its decisions.
type bookings struct {
	free  []int32
	below []int32
	base  int // first step at which an interval may still begin
	end   int // first step that has not been opened
}

// newBookings returns bookings with the given number of slots free at step 0 and room for the given
// number of open steps; this room grows when needed.
func newBookings(slots, steps int) *bookings {
	size := powerOfTwo(steps)
	b := &bookings{free: mem.Make[int32](size), below: mem.Make[int32](size)}
	b.open()
	b.free[0] = int32(slots)
	return b
}

func (b *bookings) mask() int { return len(b.free) - 1 }

// open adds the next step and returns its number.
func (b *bookings) open() int {
	if b.end-b.base == len(b.free) {
		b.grow()
	}
	at := b.end & b.mask()
	b.free[at], b.below[at] = 0, int32(b.end-1)
	b.end++
	return b.end - 1
}

func (b *bookings) grow() {
	old := *b
	b.free, b.below = mem.Make[int32](2*len(old.free)), mem.Make[int32](2*len(old.free))
	for s := b.base; s < b.end; s++ {
		b.free[s&b.mask()], b.below[s&b.mask()] = old.free[s&old.mask()], old.below[s&old.mask()]
	}
	old.release()
}

// book keeps a row from step begin to step end, and reports whether a slot was free for it. The
// argument end must be the step that was opened last.
func (b *bookings) book(begin, end int) bool {
	s := b.latest(begin)
	if b.free[s&b.mask()] == 0 {
		return false
	}
	b.free[s&b.mask()]--
	b.free[end&b.mask()]++
	return true
}

// latest returns the latest step with free slots that is no later than limit. If there is none, it
// returns b.base. It stores the answer in b.below, so that later calls skip the steps between the
// answer and limit. These have no free slots and will not get any, because slots become free only
// at b.base and at steps after limit.
func (b *bookings) latest(limit int) int {
	mask := b.mask()
	s := limit
	for s > b.base && b.free[s&mask] == 0 {
		s = max(int(b.below[s&mask]), b.base)
	}
	for at := limit; at > s; {
		next := max(int(b.below[at&mask]), b.base)
		b.below[at&mask] = int32(s)
		at = next
	}
	return s
}

// pass closes step b.base, so that no later interval may begin at it. Its free slots count for the
// next step, which must be open.
func (b *bookings) pass() {
	b.free[(b.base+1)&b.mask()] += b.free[b.base&b.mask()]
	b.base++
}

func (b *bookings) bytes() int64 { return int64(len(b.free)) * 8 }

func (b *bookings) release() {
	mem.Free(b.free)
	mem.Free(b.below)
}
