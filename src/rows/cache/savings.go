package cache

import (
	"fmt"
	"math"

	"halognn/src/base/invariant"
	"halognn/src/base/mem"
	"halognn/src/topology/graph"
)

// Savings is the look-ahead cache for accesses of different worth. If owners send a sum instead of
// the rows of a group (package exchange, Sums), a cached row saves a vector only if all rows of its
// group are cached. A row that is to be kept must also come as a row, although a sum might have
// been enough.
//
// Of the rows that a step reads, it keeps those with the highest rates. The rate of a row is what
// it saves for each step that it stays in a slot, up to the best of its next uses in the window:
//
//	rate = max over j of (worth(use 1) + ... + worth(use j) - fee) / (step(use j) - this step)
//
// where the fee is the cost of fetching a missed row as a row: one vector minus the row's worth in
// this step. Rows with a booked use stay. A row without a known use stays until its slot is needed.
// Lookahead, for which all uses have the same worth, keeps the rows with the shortest waits.
//
// It has the options and inputs of Lookahead. It takes the same time, O(1) for each use, because it
// looks at only a few of a row's next uses. The memory is 17 to 34 bytes for each use in the window
// (the rings' lengths are powers of two), 16 bytes for each slot, and the index.
type Savings struct {
	slots
	index  *Index // vertex -> its last use in the window (position << 1), or entryOf(its slot)
	window int
	base   int // number of the step that is due
	end    int // number of steps that were fed

	first []uint32 // [steps, a ring] position of the step's first use
	head  uint32   // position after the last use
	// Rings of the uses; positions are as in Lookahead.
	ids   []graph.VertexID
	step  []int32
	next  []int32 // [uses] position of the vertex's next use; negative if none
	slot  []int32 // [uses] slot that holds the row when the step comes, or -1
	worth []uint8

	free  int       // number of slots whose rows wait for no use
	rates []float32 // [uses of a step] rate of each use
	best  []int32   // indices of the step's uses that are worth a slot
}

const wholeVector = math.MaxUint8 // worth of a row that is read as a row, not only in sums

// usesThatCount is how many of a row's next uses are considered. More of them would change almost
// nothing.
const usesThatCount = 4

// NewSavings makes a cache. All errors of the options are reported at once. It ignores Level.
func NewSavings(o LookaheadOptions) (*Savings, error) {
	index, slots, err := o.open()
	if err != nil {
		return nil, err
	}
	return &Savings{index: index, slots: slots, window: o.Window,
		first: mem.Make[uint32](powerOfTwo(o.Window + 2)), free: o.Capacity}, nil
}

// Window implements Policy.
func (c *Savings) Window() int { return c.window }

// Slots implements Policy.
func (c *Savings) Slots() int { return len(c.vertex) }

// Feed implements Policy. It panics if a step is fed before its turn.
func (c *Savings) Feed(remote []graph.VertexID, worth []uint8) {
	if c.end-c.base > c.window {
		panic(fmt.Sprintf("cache: a step was fed %d steps ahead of the one that is due, but the "+
			"window is %d steps", c.end-c.base, c.window))
	}
	c.reserve(len(remote))
	c.first[c.end&(len(c.first)-1)] = c.head
	mask := uint32(len(c.ids) - 1)
	for i, v := range remote {
		at := c.head & mask
		c.ids[at], c.step[at], c.next[at], c.slot[at] = v, int32(c.end), -1, -1
		if c.worth[at] = wholeVector; worth != nil {
			c.worth[at] = worth[i]
		}
		switch k := c.index.Get(v); {
		case k < 0:
		case k&1 != 0:
			c.unlink(k >> 1)
			c.slot[at] = k >> 1
			c.free--
		default:
			c.next[uint32(k>>1)&mask] = int32(c.head & (positions - 1))
		}
		c.index.Set(v, int32(c.head&(positions-1))<<1)
		c.head++
	}
	c.end++
}

// reserve makes room for n more uses.
func (c *Savings) reserve(n int) {
	tail := c.head
	if c.base < c.end {
		tail = c.first[c.base&(len(c.first)-1)]
	}
	need := int(c.head-tail) + n
	if need <= len(c.ids) {
		return
	}
	checkUses(need, c.window)
	c.ids = regrow(c.ids, tail, c.head, need)
	c.step = regrow(c.step, tail, c.head, need)
	c.next = regrow(c.next, tail, c.head, need)
	c.slot = regrow(c.slot, tail, c.head, need)
	c.worth = regrow(c.worth, tail, c.head, need)
}

// Step implements Policy. It panics unless remote is the list that was fed for the step.
func (c *Savings) Step(remote []graph.VertexID, d *Decision) {
	if c.base == c.end {
		panic("cache: the step that is due was not fed")
	}
	first, end := c.first[c.base&(len(c.first)-1)], c.head
	if c.base+1 < c.end {
		end = c.first[(c.base+1)&(len(c.first)-1)]
	}
	if int(end-first) != len(remote) {
		panic(fmt.Sprintf("cache: a step has %d remote vertices, but %d were fed for it",
			len(remote), end-first))
	}
	d.begin(len(remote), 0, min(len(remote), len(c.vertex)))
	c.rate(first, remote, d)
	if len(c.best) > c.free {
		selectFirst(c.best, c.free, func(a, b int32) bool {
			return c.rates[a] > c.rates[b] || c.rates[a] == c.rates[b] && a < b
		})
		for _, i := range c.best[c.free:] {
			c.rates[i] = 0
		}
	}
	c.serve(first, d)
	c.keep(first, d)
	c.base++
	if invariant.On {
		invariant.Holds(c.check())
	}
}

// rate looks up which rows of the step are cached, and computes the rates of all its rows.
func (c *Savings) rate(first uint32, remote []graph.VertexID, d *Decision) {
	mask := uint32(len(c.ids) - 1)
	c.rates = mem.Grow(c.rates[:0], len(remote))
	c.best = mem.Grow(c.best[:0], len(remote))[:0]
	for i, v := range remote {
		at := (first + uint32(i)) & mask
		if c.ids[at] != v {
			panic(fmt.Sprintf("cache: entry %d of a step's remote vertices is vertex %d, but "+
				"vertex %d was fed for it", i,
				v, c.ids[at]))
		}
		d.Slot[i] = c.slot[at]
		saved := 0
		if c.slot[at] < 0 {
			d.Misses++
			saved = int(c.worth[at]) - wholeVector
		} else {
			c.free++ // the slot counts as free until serve finds that the row stays
		}
		best := float32(0)
		next := c.next[at]
		for range usesThatCount {
			if next < 0 {
				break
			}
			use := uint32(next) & mask
			saved += int(c.worth[use])
			best = max(best, float32(saved)/float32(int(c.step[use])-c.base))
			next = c.next[use]
		}
		if c.rates[i] = best; best > 0 {
			c.best = append(c.best, int32(i))
		}
	}
}

// serve decides which cached rows stay.
func (c *Savings) serve(first uint32, d *Decision) {
	mask := uint32(len(c.ids) - 1)
	for i, slot := range d.Slot {
		at := (first + uint32(i)) & mask
		switch next := c.next[at]; {
		case slot < 0:
		case c.rates[i] > 0:
			c.slot[uint32(next)&mask] = slot
			c.free--
		case next < 0:
			c.link(slot)
			c.index.Set(c.ids[at], entryOf(slot))
		default:
			c.vacate(slot, dropped)
		}
	}
}

// keep gives slots to the missed rows that are worth a slot, and removes rows without a known use
// from the index.
func (c *Savings) keep(first uint32, d *Decision) {
	mask := uint32(len(c.ids) - 1)
	miss := 0
	for i, slot := range d.Slot {
		if slot >= 0 {
			continue
		}
		at := (first + uint32(i)) & mask
		if next := c.next[at]; next < 0 {
			c.index.Remove(c.ids[at])
		} else if c.rates[i] > 0 {
			c.slot[uint32(next)&mask] = c.take(c.index, c.ids[at], miss, d)
			c.free--
		}
		miss++
	}
}

// Bytes implements Policy.
func (c *Savings) Bytes() int64 {
	return c.index.Bytes() + c.slots.bytes() + int64(len(c.first))*4 + int64(len(c.ids))*useBytes +
		int64(cap(c.rates)+cap(c.best))*4
}

const useBytes = 4*4 + 1 // bytes of a use in the rings

// SavingsBytes predicts Bytes for a dense index. The argument `uses` is the largest number of uses
// in a step.
func SavingsBytes(o LookaheadOptions, uses int) int64 {
	return int64(o.Vertices)*4 + int64(o.Capacity)*12 + 8 + int64(powerOfTwo(o.Window+2))*4 +
		int64(powerOfTwo(uses*(o.Window+1)))*useBytes + int64(uses+uses/8)*8
}

// Free implements Policy.
func (c *Savings) Free() {
	c.index.Free()
	c.slots.free()
	mem.Free(c.first)
	mem.Free(c.ids)
	mem.Free(c.step)
	mem.Free(c.next)
	mem.Free(c.slot)
	mem.Free(c.worth)
	mem.Free(c.rates)
	mem.Free(c.best)
	*c = Savings{index: &Index{}}
}
