package cache

import (
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/topology/graph"
)

// fewest tries every way to run a cache on a trace of few vertices and returns the fewest rows it
// can transfer. After a step it may hold any rows that it had, fetched for the step, or fetches
// early, up to its capacity.
func fewest(n, capacity int, trace [][]graph.VertexID, filled bool) int {
	const never = 1 << 20
	cost := make([]int, 1<<n) // by set of rows held before the step
	for held := range cost {
		if held != 0 && (!filled || bits.OnesCount(uint(held)) > capacity) {
			cost[held] = never
		}
	}
	for _, step := range trace {
		need := 0
		for _, v := range step {
			need |= 1 << v
		}
		next := slices.Repeat([]int{never}, 1<<n)
		for held, paid := range cost {
			if paid == never {
				continue
			}
			paid += bits.OnesCount(uint(need &^ held))
			for then := range next {
				if bits.OnesCount(uint(then)) <= capacity {
					early := bits.OnesCount(uint(then &^ (held | need)))
					next[then] = min(next[then], paid+early)
				}
			}
		}
		cost = next
	}
	return slices.Min(cost)
}

// Optimum, and Lookahead over all steps, compared with an exhaustive search.
func TestOptimumIsTheBestOfAllWays(t *testing.T) {
	for seed := range uint64(1500) {
		r := rand.New(rand.NewPCG(seed, 8))
		n, capacity := 1+r.IntN(5), r.IntN(4)
		trace := randomTrace(r, n, 1+r.IntN(9), r.IntN(n)+1, float64(r.IntN(2)))
		for _, filled := range []bool{false, true} {
			want := fewest(n, capacity, trace, filled)
			if got := optimum(t, n, capacity, trace, filled); got != want {
				t.Fatalf("seed %d: capacity %d, filled %t, trace %v: %d transfers, the fewest "+
					"are %d", seed, capacity, filled, trace, got, want)
			}
		}
		start := must[[]graph.VertexID](t)(Start(n, capacity, slices.Values(trace)))
		best := must[*Optimum](t)(NewOptimum(n, capacity, true))
		for _, step := range trace {
			best.Step(step)
		}
		if best.Filled() != len(start) {
			t.Fatalf("seed %d: capacity %d, trace %v: %d rows held at the start, which are %v",
				seed, capacity, trace, best.Filled(), start)
		}
		best.Free()
		for _, level := range []bool{false, true} {
			for _, initial := range [][]graph.VertexID{nil, start} {
				l := must[*Lookahead](t)(NewLookahead(LookaheadOptions{
					Vertices: n, Capacity: capacity, Window: len(trace), Level: level,
					Initial: initial,
				}))
				got, want := run(t, l, initial, trace, nil).transferred,
					fewest(n, capacity, trace, initial != nil)
				if got != want {
					t.Fatalf("seed %d: capacity %d, level %t, trace %v, holding %v: looking "+
						"ahead transfers %d, the fewest are %d",
						seed, capacity, level, trace, initial, got, want)
				}
				l.Free()
			}
		}
		mem.Free(start)
	}
}

func optimum(t *testing.T, n, capacity int, trace [][]graph.VertexID,
	filled bool) (transferred int) {
	o := must[*Optimum](t)(NewOptimum(n, capacity, filled))
	defer o.Free()
	for _, step := range trace {
		transferred += o.Step(step)
	}
	return transferred
}

// belady is the textbook rule: after each step the rows with the nearest next uses within the
// window stay; the others are dropped or bypassed.
func belady(capacity, window int, trace [][]graph.VertexID) (transferred int) {
	held := map[graph.VertexID]bool{}
	for t, remote := range trace {
		for _, v := range remote {
			if !held[v] {
				transferred++
			}
			held[v] = true
		}
		type use struct {
			step int
			v    graph.VertexID
		}
		var uses []use
		for u := t + 1; u < len(trace) && u <= t+window; u++ {
			for _, v := range trace[u] {
				if held[v] {
					uses = append(uses, use{u, v})
					delete(held, v)
				}
			}
		}
		clear(held)
		for _, u := range uses[:min(capacity, len(uses))] {
			held[u.v] = true
		}
	}
	return transferred
}

// With the same window Lookahead transfers no more than Belady's rule; rows without a known use can
// only help.
func TestWindowIsUsedAsBeladyUsesIt(t *testing.T) {
	saved, better := 0, 0
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 9))
		n, capacity := 2+r.IntN(60), r.IntN(15)
		trace := randomTrace(r, n, 1+r.IntN(80), r.IntN(min(n, 20)), float64(r.IntN(3)))
		for _, window := range []int{0, 1, 2, 3, 7, 20, len(trace)} {
			l := must[*Lookahead](t)(NewLookahead(LookaheadOptions{Vertices: n, Capacity: capacity,
				Window: window}))
			got, want := run(t, l, nil, trace, nil).transferred, belady(capacity, window, trace)
			if got > want || window == len(trace) && got != want {
				t.Fatalf("seed %d: capacity %d, window %d: %d transfers, Belady has %d", seed,
					capacity, window, got, want)
			}
			if l.HighWater() > capacity {
				t.Fatalf("seed %d: %d rows held, capacity %d", seed, l.HighWater(), capacity)
			}
			saved += want - got
			if got < want {
				better++
			}
			l.Free()
		}
	}
	t.Logf("rows that stayed for no known use saved %d transfers, in %d runs", saved, better)
	if better == 0 {
		t.Error("rows that stayed for no known use never helped")
	}
}

// A wider window may cost more on a single trace; over all traces it transfers less.
func TestWiderWindowsTransferLess(t *testing.T) {
	windows := []int{0, 1, 2, 4, 8, 16, 32}
	total := make([]int, len(windows))
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 10))
		const n, capacity = 400, 60
		trace := randomTrace(r, n, 60, 60, 1)
		for i, window := range windows {
			l := must[*Lookahead](t)(NewLookahead(LookaheadOptions{Vertices: n, Capacity: capacity,
				Window: window}))
			total[i] += run(t, l, nil, trace, nil).transferred
			l.Free()
		}
	}
	t.Logf("transfers with windows of %v: %v", windows, total)
	if !slices.IsSortedFunc(total, func(a, b int) int { return b - a }) {
		t.Errorf("transfers with windows of %v: %v", windows, total)
	}
}

// Positions of uses wrap around; the result must not depend on them.
func TestWindowSurvivesWrapping(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 11))
	const n, capacity, window = 80, 20, 5
	trace := randomTrace(r, n, 200, 30, 1)
	var want *table
	for _, start := range []uint32{0, positions - 1000, 1<<32 - 1000} {
		l := must[*Lookahead](t)(NewLookahead(LookaheadOptions{Vertices: n, Capacity: capacity,
			Window: window}))
		l.head = start
		got := run(t, l, nil, trace, nil)
		if want == nil {
			want = got
		} else if got.transferred != want.transferred || !slices.Equal(got.row, want.row) {
			t.Errorf("from position %d: %d transfers, want %d", start, got.transferred,
				want.transferred)
		}
		l.Free()
	}
}
