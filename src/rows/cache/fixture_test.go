package cache

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"halognn/src/topology/graph"
)

// randomTrace draws the remote sets of so many steps: up to most distinct ones of n vertices each,
// low ids more often the larger skew is.
func randomTrace(r *rand.Rand, n, steps, most int, skew float64) [][]graph.VertexID {
	trace := make([][]graph.VertexID, steps)
	hidden := r.Perm(n) // which vertices are hot has nothing to do with their ids
	for t := range trace {
		seen := map[graph.VertexID]bool{}
		for range r.IntN(most + 1) {
			x := r.Float64()
			for range int(skew) {
				x *= r.Float64()
			}
			v := graph.VertexID(hidden[int(x*float64(n))])
			if !seen[v] {
				seen[v] = true
				trace[t] = append(trace[t], v)
			}
		}
	}
	return trace
}

// table is what executes decisions: the vertices whose rows lie in the slots.
type table struct {
	row         []graph.VertexID
	transferred int
	misses      int
}

const nothing = graph.VertexID(-1)

// newTable holds the given rows at the start.
func newTable(slots int, initial []graph.VertexID) *table {
	x := &table{row: make([]graph.VertexID, slots)}
	for i := range x.row {
		x.row[i] = nothing
	}
	copy(x.row, initial)
	return x
}

// execute reads the rows of a step, then writes those that stay, and reports what is wrong with the
// decision.
func (x *table) execute(remote []graph.VertexID, d *Decision) error {
	if len(d.Slot) != len(remote) {
		return fmt.Errorf("%d slots for %d vertices", len(d.Slot), len(remote))
	}
	var fetched []graph.VertexID
	for i, v := range remote {
		switch slot := d.Slot[i]; {
		case slot < -1 || int(slot) >= len(x.row):
			return fmt.Errorf("slot %d of %d", slot, len(x.row))
		case slot == -1:
			fetched = append(fetched, v)
		case x.row[slot] != v:
			return fmt.Errorf("slot %d is said to hold vertex %d but holds %d", slot, v,
				x.row[slot])
		}
	}
	if len(fetched) != d.Misses {
		return fmt.Errorf("%d misses are counted as %d", len(fetched), d.Misses)
	}
	fetched = append(fetched, d.Early...)
	seen := map[graph.VertexID]bool{}
	for _, v := range fetched {
		if seen[v] {
			return fmt.Errorf("vertex %d is fetched twice in a step", v)
		}
		seen[v] = true
	}
	written, evictions := map[int]bool{}, 0
	for _, i := range d.Insert {
		if written[i.Slot()] {
			return fmt.Errorf("two rows go to slot %d", i.Slot())
		}
		written[i.Slot()] = true
		if x.row[i.Slot()] != nothing {
			evictions++
		}
		x.row[i.Slot()] = fetched[i.From()]
	}
	x.misses += d.Misses
	x.transferred += int(d.Counters().Remote)
	if evictions != d.Evictions {
		return fmt.Errorf("%d rows are overwritten, but %d are said to be evicted", evictions,
			d.Evictions)
	}
	return x.distinct()
}

func (x *table) distinct() error {
	seen := map[graph.VertexID]bool{}
	for slot, v := range x.row {
		if v != nothing && seen[v] {
			return fmt.Errorf("vertex %d lies in slot %d and in another", v, slot)
		}
		seen[v] = true
	}
	return nil
}

// run executes a policy on a trace, which it is fed as far ahead as it may be.
func run(
	t *testing.T, p Policy, initial []graph.VertexID, trace [][]graph.VertexID,
	each func(step int, remote []graph.VertexID, x *table),
) *table {
	t.Helper()
	x := newTable(p.Slots(), initial)
	var d Decision
	defer d.Free()
	feed := feeder(p, trace)
	for step, remote := range trace {
		feed(step)
		p.Step(remote, &d)
		if err := x.execute(remote, &d); err != nil {
			t.Fatalf("step %d: %v", step, err)
		}
		if each != nil {
			each(step, remote, x)
		}
	}
	return x
}

// feeder returns what feeds a policy before each step.
func feeder(p Policy, trace [][]graph.VertexID) func(step int) {
	fed := 0
	return func(step int) {
		for ; fed < len(trace) && fed <= step+p.Window(); fed++ {
			p.Feed(trace[fed], nil)
		}
	}
}

func must[T any](t testing.TB) func(T, error) T {
	return func(x T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
}
