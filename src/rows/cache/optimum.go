package cache

import (
	"fmt"
	"iter"

	"halognn/src/base/mem"
	"halognn/src/topology/graph"
)

// Optimum counts the rows that the best possible cache transfers: one that knows all accesses in
// advance, keeps whole rows, and may fetch a row without keeping it (Belady with bypass). It is
// given the accesses in order. It decides nothing and only counts: its count after any step is the
// optimum for the steps so far.
//
// Time O(1) a vertex; memory 4 bytes a vertex of the graph and 8 to 16 a step.
type Optimum struct {
	bookings *bookings
	last     []int32 // [N] 1 + step of the last use, 0 for none
	filled   bool
	held     int // number of rows cached before the first step
	// [<= C] Rows cached before the first step, in the order of their first use. Only Start needs
	// this list.
	start []graph.VertexID
}

// NewOptimum makes an Optimum with room for capacity rows of a graph of n vertices. If filled is
// set, the cache holds the best rows already before the first step, and their transfers do not
// count. The first rows of a Static or Prefetch do not count either, so the numbers can be
// compared.
func NewOptimum(n, capacity int, filled bool) (*Optimum, error) {
	if err := checkSize(n, capacity); err != nil {
		return nil, fmt.Errorf("optimum: %w", err)
	}
	return &Optimum{bookings: newBookings(capacity, 1<<10), last: mem.Make[int32](n),
		filled: filled}, nil
}

// Step adds a step with distinct remote vertices, and returns the increase of the total transfers.
func (o *Optimum) Step(remote []graph.VertexID) (transferred int) {
	step := o.bookings.open() // steps count from 1; rows of the first fill are held from step 0
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
		first := from < 0
		if first && o.filled {
			from = 0
		}
		if from < 0 || !o.bookings.book(from, step) {
			transferred++
		} else if first {
			o.held++
			if o.start != nil {
				o.start = append(o.start, v)
			}
		}
		o.last[v] = int32(step) + 1
	}
	return transferred
}

// Filled returns the number of rows that the cache holds before the first step. These rows are kept
// until their first use, and Step does not count them.
func (o *Optimum) Filled() int { return o.held }

// Start returns the best rows for a look-ahead cache to hold before the first step, if only the
// given steps are known. These are at most capacity rows, in order of first use: the rows that the
// best possible cache would hold. The caller frees the list with mem.Free.
func Start(n, capacity int, steps iter.Seq[[]graph.VertexID]) ([]graph.VertexID, error) {
	o, err := NewOptimum(n, capacity, true)
	if err != nil {
		return nil, fmt.Errorf("start of a look-ahead cache: %w", err)
	}
	defer o.Free()
	// A row held from the start takes its own slot until its first use.
	o.start = mem.Make[graph.VertexID](capacity)[:0]
	for remote := range steps {
		o.Step(remote)
	}
	start := o.start
	o.start = nil
	return start, nil
}

// Free gives the memory back.
func (o *Optimum) Free() {
	mem.Free(o.last)
	mem.Free(o.start)
	o.bookings.release()
}
