package cache

import (
	"fmt"

	"halognn/src/graph"
	"halognn/src/mem"
)

// Optimum counts the rows that the best possible cache would transfer: one that knows all accesses in advance, keeps whole
// rows, and may fetch a row without keeping it (Belady with bypass). No policy transfers fewer. It makes no decisions, for it
// learns the accesses in order: the count after any step is the optimum for the steps so far.
//
// Time O(1) a vertex; memory 4 bytes a vertex of the graph and 8 to 16 a step.
type Optimum struct {
	bookings *bookings
	last     []int32 // [N] 1 + step of the last use, 0 for none
	filled   bool
}

// NewOptimum has room for capacity rows of a graph of n vertices. If filled, the cache may hold whichever rows it likes before
// the first step, without their being counted, as Static and Prefetch may.
func NewOptimum(n, capacity int, filled bool) (*Optimum, error) {
	if err := checkSize(n, capacity); err != nil {
		return nil, fmt.Errorf("optimum: %w", err)
	}
	return &Optimum{bookings: newBookings(capacity, 1<<10), last: mem.Make[int32](n), filled: filled}, nil
}

// Step adds a step and returns by how many rows its remote vertices, which are distinct, make the transfers grow.
func (o *Optimum) Step(remote []graph.VertexID) (transferred int) {
	step := o.bookings.open() // from 1: rows that are there before the first step are so from step 0
	for len(remote) > 0 {
		n := min(len(remote), lookupBlock)
		transferred += o.add(step, remote[:n])
		remote = remote[n:]
	}
	return transferred
}

// add is Step for a block of the remote vertices.
func (o *Optimum) add(step int, ids []graph.VertexID) (transferred int) {
	touch(o.last, ids)
	for _, v := range ids {
		from := int(o.last[v]) - 1
		if from < 0 && o.filled {
			from = 0
		}
		if from < 0 || !o.bookings.book(from, step) {
			transferred++
		}
		o.last[v] = int32(step) + 1
	}
	return transferred
}

// Bytes returns the memory in use.
func (o *Optimum) Bytes() int64 { return int64(len(o.last))*4 + o.bookings.bytes() }

// Free gives the memory back.
func (o *Optimum) Free() {
	mem.Free(o.last)
	o.bookings.release()
}
