package cache

import (
	"errors"
	"fmt"
	"math"
	"math/bits"

	"halognn/src/base/invariant"
	"halognn/src/base/mem"
	"halognn/src/topology/graph"
)

// PrefetchOptions sets the size and rounds of a prefetch buffer.
type PrefetchOptions struct {
	Vertices int // number of vertices of the graph
	Capacity int // number of rows

	// Initial lists the rows that the buffer holds at the start, fetched before the first step:
	// entry i in slot i. They must be candidates, at most Capacity of them. The first rounds fill
	// the remaining slots.
	Initial []graph.VertexID

	// Candidates is a set of bits: vertex v may be buffered if bit v%64 of word v/64 is set. An
	// example is the halo within some hops. If Candidates is nil, all vertices may be buffered.
	// Only NewPrefetch reads the bits.
	Candidates []uint64

	// Gamma, in (0, 1], multiplies the score of a buffered row in every step that does not use it.
	// With 1 no score decays, and no row leaves unless Unused is set.
	Gamma float64
	Delta int // number of steps between eviction rounds; 0 means no rounds

	// Unused lets rows leave if no step has used them since the last round, whatever their score.
	// This is equation 1 of the MassiveGNN paper if its threshold is computed from the score S_E
	// that the row had at that last round.
	Unused bool

	// Degree breaks ties between equal scores: higher is better.
	Degree func(graph.VertexID) int

	Layout Layout
}

// check returns all errors of the options, joined into one.
func (o PrefetchOptions) check() error {
	errs := []error{checkSize(o.Vertices, o.Capacity)}
	reject := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf(format, args...))
	}
	if !(o.Gamma > 0 && o.Gamma <= 1) {
		reject("cache.gamma is %v; it must be above 0 and at most 1", o.Gamma)
	}
	if o.Delta < 0 {
		reject("cache.delta is %d; it must be at least 1, or 0 to evict nothing", o.Delta)
	}
	if o.Degree == nil {
		reject("the function Degree, which breaks ties, is missing")
	}
	if len(o.Initial) > o.Capacity {
		reject("there are %d initial rows, but room for only %d", len(o.Initial), o.Capacity)
	}
	if words := (o.Vertices + 63) / 64; o.Candidates != nil {
		if len(o.Candidates) != words {
			reject("the bitmap of candidates has %d words, but %d vertices need %d words",
				len(o.Candidates), o.Vertices, words)
		} else if words > 0 && bits.Len64(o.Candidates[words-1]) > o.Vertices-64*(words-1) {
			reject("the bitmap names candidates beyond the last of %d vertices", o.Vertices)
		}
	}
	return errors.Join(errs...)
}

// Prefetch is a buffer whose rows are scored by use: every Delta steps it replaces unused rows by
// the vertices that were missed most.
//
//	S_E of a buffered vertex   1 at the start; times Gamma in every step that does not use it
//	S_A of any other           0 at the start; plus 1 for every miss
//
// A round is part of the step in which it is due, after that step's hits and misses have been
// scored. Rows with S_E <= Gamma^Delta may leave, lowest S_E first, then lower degree, then higher
// id. Vertices with S_A > 0 may enter, highest S_A first, then higher degree, then lower id. The
// number of rows exchanged is the length of the shorter of the two lists. A vertex that leaves gets
// its S_E as its S_A, and one that enters gets its S_A as its S_E. Entering rows that the step does
// not miss are fetched with its misses.
//
// With Gamma = 1 nothing decays, so nothing leaves: rounds only fill empty slots. (If only the
// comparison counted, every row that entered with S_E <= 1 could leave, even if it was used often.)
// With Unused, the rows that no step has used since the last round may leave instead.
//
// A step costs nothing for rows that it does not use: S_E is stored as a logarithm and the step
// since which it has decayed. A use adds one to that step, so that the row does not decay in the
// step of the use.
//
//	log S_E(t) = start - (t - since) * -log Gamma
//
// Time O(len(remote)) a step, and O(Capacity + candidates) a round. Memory: the scoreboard, 24
// bytes a slot and 256 KiB. S_A is a float32: it stops growing at 2^24. Source: MassiveGNN (Sarkar
// et al., CLUSTER 2024), algorithm 2 and section 3.2. Differences: a miss also counts in a step
// with a round; a row exactly at the threshold may leave, except with Gamma = 1; scores are swapped
// as the text says, while algorithm 2 shows only half of the swap.
type Prefetch struct {
	blind
	board  *scoreboard
	vertex []graph.VertexID // [C] vertex in each slot
	start  []float64        // [C] log S_E when the row entered
	since  []int32          // [C] step from which S_E has decayed
	filled int              // number of slots that hold a row
	degree func(graph.VertexID) int

	lambda float64 // -log Gamma
	delta  int
	unused bool // PrefetchOptions.Unused; if set, rounds reset start and since
	step   int  // number of steps so far

	// Two lists that are used only during a round: slots whose rows leave, and scoreboard entries
	// of vertices that enter.
	leaving []int32 // [C] slots
	coming  []int32 // [C] places of scoreboard entries
	digits  []uint32
}

// NewPrefetch makes a buffer. All errors of the options are reported at once.
func NewPrefetch(o PrefetchOptions) (*Prefetch, error) {
	if err := o.check(); err != nil {
		return nil, fmt.Errorf("prefetch buffer: %w", err)
	}
	p := &Prefetch{
		board:  newScoreboard(o.Vertices, o.Candidates, o.Layout),
		vertex: mem.Make[graph.VertexID](o.Capacity), start: mem.Make[float64](o.Capacity),
		since:  mem.Make[int32](o.Capacity),
		filled: len(o.Initial), degree: o.Degree, lambda: -math.Log(o.Gamma), delta: o.Delta,
		unused:  o.Unused,
		leaving: mem.Make[int32](o.Capacity), coming: mem.Make[int32](o.Capacity),
		digits: mem.Make[uint32](1 << digitBits),
	}
	if err := p.fill(o.Vertices, o.Initial); err != nil {
		p.Free()
		return nil, fmt.Errorf("prefetch buffer: %w", err)
	}
	return p, nil
}

// fill puts initial[i] into slot i.
func (p *Prefetch) fill(vertices int, initial []graph.VertexID) error {
	for i, v := range initial {
		if uint32(v) >= uint32(vertices) {
			return fmt.Errorf("entry %d of the initial rows is vertex %d: %w (the graph has %d "+
				"vertices)",
				i, v, graph.ErrVertexRange, vertices)
		}
		switch e := &p.board.entry[p.board.at(v)]; {
		case *e < 0:
			return fmt.Errorf("the initial rows name vertex %d twice: entries %d and %d", v,
				*e&slotMask, i)
		case *e == unscored:
			return fmt.Errorf("entry %d of the initial rows is vertex %d, which is not a candidate",
				i, v)
		default:
			*e = buffered | int32(i)
		}
	}
	copy(p.vertex, initial)
	return nil
}

// Step looks up and scores the vertices, and every Delta steps exchanges rows.
func (p *Prefetch) Step(remote []graph.VertexID, d *Decision) {
	d.begin(len(remote), 0, 0)
	d.Misses = p.board.count(remote, d.Slot, p.since)
	p.step++
	if p.delta > 0 && p.step%p.delta == 0 {
		p.round(remote, d)
	}
	if invariant.On {
		invariant.Holds(p.check())
	}
}

// score returns the logarithm of the S_E of a slot. (The conversion of the product to float64 keeps
// compilers from fusing multiplication and subtraction, which would give other bits on some
// machines.)
func (p *Prefetch) score(slot int32) float64 {
	return p.start[slot] - float64(float64(p.step-int(p.since[slot]))*p.lambda)
}

// ulps is the tolerance of the comparison with the threshold, as a difference of logarithms: a few
// units in the last place of S_E.
const ulps = 4 * 0x1p-52

// mayLeave reports whether S_E of the slot's row has decayed to Gamma^Delta or below. With Unused
// it reports whether no step has used the row since the last round. A row that entered with S_E = 1
// and was not used for Delta steps is exactly at the threshold.
func (p *Prefetch) mayLeave(slot int32) bool {
	if p.unused {
		return int(p.since[slot]) == p.step-p.delta
	}
	if p.lambda == 0 {
		return false
	}
	left := float64(p.delta - (p.step - int(p.since[slot])))
	return p.start[slot]+float64(left*p.lambda) <= ulps
}

// Slots returns the capacity.
func (p *Prefetch) Slots() int { return len(p.vertex) }

// Bytes returns the memory of scores and slots.
func (p *Prefetch) Bytes() int64 {
	return p.board.bytes() + int64(len(p.vertex))*(4+8+4+4+4) + int64(len(p.digits))*4
}

// Free gives the memory back.
func (p *Prefetch) Free() {
	p.board.free()
	mem.Free(p.vertex)
	mem.Free(p.start)
	mem.Free(p.since)
	mem.Free(p.leaving)
	mem.Free(p.coming)
	mem.Free(p.digits)
	*p = Prefetch{board: &scoreboard{}}
}
