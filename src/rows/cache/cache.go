// Package cache decides which remote feature rows a rank caches. It holds and moves no rows: step
// by step it is given the remote vertices that a minibatch reads, and answers with slots of a table
// that the caller keeps.
//
//	step t   remote   v0  v1  v2  v3  v4 ...      distinct vertices, in frontier order
//	                   │ Policy.Step
//	         Slot      3  -1   7  -1  -1 ...      row at hand in this slot, or -1: a miss
//	         misses        0       1   2          fetched in this step, numbered in order
//	         Early                         3   4  fetched in the same exchange, numbered on
//	         Insert    1 ─> slot 7,  3 ─> slot 0  fetched rows that stay
//
// Slots describe the table before the step: all rows of step t are read, then the inserts of step t
// are written, then rows of step t+1 are read. So an insert may overwrite a row that the same step
// reads.
//
//	policy     knows                               keeps
//	Static     nothing                             a fixed set
//	Sieve      the past                            what was read again since the hand came by
//	Prefetch   the past                            what scores best, exchanged every Delta steps
//	Lookahead  the past and the next Window steps  what is read again, shortest wait first
//	Savings    the same as Lookahead               what saves most, where rows may come as sums
//	Optimum    everything                          (only counts: the floor for all of these)
//
// Place divides rows among devices that can read each other's memory, once, before the first step.
//
// Decisions are pure functions of the accesses and the options, so a simulation and a training run
// decide alike. All arrays lie outside the Go heap; in steady state a step allocates nothing. The
// package knows no ranks, transports, feature types or access probabilities.
package cache

import (
	"halognn/src/base/mem"
	"halognn/src/base/trace"
	"halognn/src/topology/graph"
)

// Policy decides, once a step and in step order, which rows are cached. One goroutine at a time
// uses it.
type Policy interface {
	// Window returns how many minibatches the policy knows in advance.
	Window() int
	// Feed gives the policy the remote vertices of the next minibatch in order. For each vertex,
	// the list `worth` says how much of a vector the cached row saves, in units of 1/255 vector. If
	// it is nil, each row saves a whole vector. Before Step is called for a minibatch, Feed must
	// have been called for the next Window minibatches after it. If fewer remain in the run, it
	// must have been called for all of them. A policy without a window ignores what it is fed.
	Feed(remote []graph.VertexID, worth []uint8)
	// Step decides for the remote vertices of the next step, which are distinct. It overwrites d.
	Step(remote []graph.VertexID, d *Decision)
	// Slots returns the number of rows of the table.
	Slots() int
	// Bytes returns the memory of the policy's own arrays, without the rows.
	Bytes() int64
	// Free gives the arrays back.
	Free()
}

// blind is embedded in policies that know no minibatch in advance.
type blind struct{}

// Window implements Policy.
func (blind) Window() int { return 0 }

// Feed implements Policy.
func (blind) Feed([]graph.VertexID, []uint8) {}

// Decision is what a policy decides about one step; the package comment has an example. The zero
// value is ready. Its arrays are reused from step to step.
type Decision struct {
	Slot   []int32          // [remote] slot that holds the row, or -1
	Early  []graph.VertexID // further rows to fetch, which are no misses; mostly ascending
	Insert []Insert         // at most one for each slot

	Misses    int // number of entries of Slot that are -1
	Evictions int // number of rows that are overwritten
	// Number of rows that enter in an eviction round; each is a miss or an early row.
	Replacements int
}

// Counters returns the counts of the decision: hits, rows fetched for this step, and rows replaced
// in the cache.
func (d *Decision) Counters() trace.Counters {
	return trace.Counters{
		Cached: int64(len(d.Slot) - d.Misses), Remote: int64(d.Misses + len(d.Early)),
		Early:     int64(len(d.Early)),
		Evictions: int64(d.Evictions), Replacements: int64(d.Replacements),
	}
}

// begin empties d for a step of n remote vertices. It makes room for the given numbers of early
// rows and of inserts.
func (d *Decision) begin(n, early, inserts int) {
	d.Slot = mem.Grow(d.Slot[:0], n)
	d.Early = mem.Grow(d.Early[:0], early)[:0]
	d.Insert = mem.Grow(d.Insert[:0], inserts)[:0]
	d.Misses, d.Evictions, d.Replacements = 0, 0, 0
}

// Clear makes d the decision of a step that reads nothing.
func (d *Decision) Clear() { d.begin(0, 0, 0) }

// Kept returns, for each fetched row that stays in the cache, its number among the fetched rows
// (Insert.From). It reuses the memory of dst.
func (d *Decision) Kept(dst []int32) []int32 {
	dst = mem.Grow(dst[:0], len(d.Insert))
	for k, i := range d.Insert {
		dst[k] = int32(i.From())
	}
	return dst
}

// Bytes returns the memory of the arrays.
func (d *Decision) Bytes() int64 {
	return int64(cap(d.Slot))*4 + int64(cap(d.Early))*4 + int64(cap(d.Insert))*8
}

// Free gives the arrays back.
func (d *Decision) Free() {
	mem.Free(d.Slot)
	mem.Free(d.Early)
	mem.Free(d.Insert)
	*d = Decision{}
}

// Insert says which fetched row is copied to which slot. It is a plain number, so that arrays of it
// can lie outside the Go heap.
type Insert uint64

func makeInsert(from int, slot int32) Insert { return Insert(from)<<32 | Insert(uint32(slot)) }

// From returns the number of the fetched row: the step's misses in order, then Early.
func (i Insert) From() int { return int(i >> 32) }

// Slot returns the slot that the row is copied to.
func (i Insert) Slot() int { return int(uint32(i)) }
