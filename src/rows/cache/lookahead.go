package cache

import (
	"errors"
	"fmt"
	"math"
	"math/bits"

	"halognn/src/base/mem"
	"halognn/src/topology/graph"
)

// LookaheadOptions sets the size and window of a look-ahead cache.
type LookaheadOptions struct {
	Vertices int // number of vertices of the graph
	Capacity int // number of rows
	Window   int // steps known in advance; may exceed an epoch

	// Initial lists the rows that the cache holds at the start, fetched before the first step:
	// entry i in slot i. Start computes the best list from the first Window+1 steps. With it, a
	// cache whose window covers all steps transfers as few rows as an Optimum that starts filled.
	Initial []graph.VertexID

	// Level evens out misses: if the next step has more misses than this one, half of the
	// difference is fetched a step early, into slots without a booked row. Then fewer rows without
	// a known use can stay.
	Level bool

	Index IndexKind
}

// check returns all errors of the options.
func (o *LookaheadOptions) check() []error {
	errs := []error{checkSize(o.Vertices, o.Capacity)}
	if o.Window < 0 || o.Window > maxWindow {
		errs = append(errs,
			fmt.Errorf("the window has %d steps; it must have 0 to %d", o.Window, maxWindow))
	}
	if len(o.Initial) > o.Capacity {
		errs = append(errs,
			fmt.Errorf("there are %d initial rows, but room for only %d", len(o.Initial),
				o.Capacity))
	}
	return errs
}

// Lookahead keeps rows that it knows will be used again. Sampling is a pure function of its key, so
// the accesses of the next Window steps can be sampled before they are due. They are given to Feed.
//
//	         served │ window of fed steps                       fed next
//	steps   .. t-1  │  t       t+1      t+2   ...  t+Window   │
//	uses            │  a b c   d a e    c d
//	                │  └─────────┘                              an interval: keep a from t to t+1?
//
// A row that is used at two steps within the window, and not in between, is kept between them if a
// slot is free; all other rows are fetched when used and not kept (bypass). When the later use is
// fed, the cache decides for good whether the interval before this use gets a slot. The decisions
// keep the largest possible number of rows (see bookings). If the window covers all steps, the
// cache transfers as few rows as Optimum.
//
// Slots without a booked row keep rows whose next use is not known: rows after their last known use
// and, in slots that were never filled, misses. If such a row gets a known use in time, it is
// booked. The oldest of these rows are replaced first.
//
//	ids  [R]  ring of the uses in the window, step after step
//	next [R]  position of the use for which the row is kept; declined if it is not kept; if no
//	          later use is known, ^step, where step is that of this use
//	slot [R]  slot that holds the row when the step of the use comes, or -1
//	index     vertex -> its last use in the window (position << 1), or the slot where it stays for
//	          no known use (slot << 1 | 1)
//
// Each use takes O(1) time. The memory is 12 to 24 bytes for each use in the window (a ring's
// length is a power of two), 8 to 16 bytes for each step of the window, 12 bytes for each slot, and
// the index. LookaheadBytes predicts it. Source: Belady (1966), with bypass, over a window.
type Lookahead struct {
	index    *Index
	bookings *bookings
	window   int
	level    bool

	ids        []graph.VertexID
	next, slot []int32
	first      []uint32 // [steps, a ring as in bookings] position of each step's first use
	// Position after the last use. Positions count uses modulo 2^30; the lower bits of a position
	// are its place in the rings.
	head uint32

	slots
	held int // number of slots with a booked row now
	high int // largest value of held so far
}

const (
	positions  = 1 << 30 // most uses in a window; positions are modulo this
	declined   = math.MinInt32
	maxWindow  = 1 << 24
	entryBytes = 3 * 4 // bytes of a use in the rings
)

// open makes the index and the slots of a cache. All errors of the options are reported at once.
func (o *LookaheadOptions) open() (*Index, slots, error) {
	err := errors.Join(o.check()...)
	if err == nil {
		index := NewIndex(o.Vertices, o.Capacity, o.Index)
		var s slots
		if s, err = newSlots(index, o.Vertices, o.Capacity, o.Initial); err == nil {
			return index, s, nil
		}
		index.Free()
		s.free()
	}
	return nil, slots{}, fmt.Errorf("look-ahead cache: %w", err)
}

// NewLookahead makes a cache. All errors of the options are reported at once.
func NewLookahead(o LookaheadOptions) (*Lookahead, error) {
	index, slots, err := o.open()
	if err != nil {
		return nil, err
	}
	b := newBookings(o.Capacity, o.Window+2)
	return &Lookahead{index: index, slots: slots, bookings: b, window: o.Window, level: o.Level,
		first: mem.Make[uint32](len(b.free))}, nil
}

// Window returns the steps known in advance.
func (l *Lookahead) Window() int { return l.window }

// HighWater returns the largest number of rows that were held for a known use at any time,
// including early rows. If it is below the capacity, a wider window would keep more.
func (l *Lookahead) HighWater() int { return l.high }

// Slots returns the capacity.
func (l *Lookahead) Slots() int { return len(l.vertex) }

// Bytes returns the memory of the plan: window, bookings, index and slots.
func (l *Lookahead) Bytes() int64 {
	return l.index.Bytes() + l.bookings.bytes() + int64(len(l.first))*4 +
		int64(len(l.ids))*entryBytes + l.slots.bytes()
}

// LookaheadBytes predicts Bytes for a dense index. The argument `uses` is the largest number of
// uses in Window+1 successive steps.
func LookaheadBytes(o LookaheadOptions, uses int) int64 {
	steps, ring := powerOfTwo(o.Window+2), powerOfTwo(uses)
	return int64(o.Vertices)*4 + int64(steps)*12 + int64(ring)*entryBytes + int64(o.Capacity)*12 + 8
}

// powerOfTwo returns the smallest power of two that is at least n and at least 2.
func powerOfTwo(n int) int { return 1 << bits.Len(uint(max(n, 2)-1)) }

// Free gives the memory back.
func (l *Lookahead) Free() {
	l.index.Free()
	l.bookings.release()
	mem.Free(l.first)
	mem.Free(l.ids)
	mem.Free(l.next)
	mem.Free(l.slot)
	l.slots.free()
	*l = Lookahead{index: &Index{}, bookings: &bookings{}}
}
