package cache

// These tests execute the decisions of every policy on random traces.

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/topology/graph"
)

type maker struct {
	name    string
	initial []graph.VertexID
	make    func() Policy
}

// makers lists one policy of each kind, and more where settings change what it does.
func makers(t testing.TB, n, capacity, steps int, initial []graph.VertexID) []maker {
	initial = initial[:min(len(initial), capacity)]
	list := []maker{
		{"none", nil, func() Policy { return must[*Static](t)(NewStatic(n, nil)) }},
		{"static", initial, func() Policy { return must[*Static](t)(NewStatic(n, initial)) }},
		{"sieve", nil, func() Policy { return must[*Sieve](t)(NewSieve(n, capacity)) }},
	}
	for _, delta := range []int{0, 1, 4} {
		for _, layout := range []Layout{LayoutDense, LayoutCompact} {
			list = append(list, maker{fmt.Sprintf("prefetch delta=%d layout=%d", delta, layout),
				initial, func() Policy {
					return must[*Prefetch](t)(NewPrefetch(PrefetchOptions{
						Vertices: n, Capacity: capacity, Initial: initial, Gamma: 0.95,
						Delta:  delta,
						Degree: degreeOf, Layout: layout,
					}))
				}})
		}
	}
	for _, window := range []int{0, 1, 2, 5, steps} {
		for _, kind := range []IndexKind{IndexDense, IndexHash} {
			for _, level := range []bool{false, true} {
				list = append(list,
					maker{fmt.Sprintf("lookahead window=%d level=%t index=%d", window, level, kind),
						nil, func() Policy {
							return must[*Lookahead](t)(NewLookahead(LookaheadOptions{
								Vertices: n, Capacity: capacity, Window: window, Level: level,
								Index: kind,
							}))
						}})
			}
		}
	}
	for _, window := range []int{0, 1, 3, steps} {
		list = append(list, maker{fmt.Sprintf("savings window=%d", window), initial, func() Policy {
			return must[*Savings](t)(NewSavings(LookaheadOptions{
				Vertices: n, Capacity: capacity, Window: window, Initial: initial,
			}))
		}})
	}
	return list
}

// degreeOf gives vertices degrees with many ties, some above 2^16.
func degreeOf(v graph.VertexID) int { return int(v) % 5 * 40_000 }

// Every policy on random traces, executed on a table: a slot holds the row it is said to hold, hits
// and misses are the remote vertices, rows are fetched once a step, no row lies in two slots, and
// nothing beats the optimum.
func TestPoliciesAreExecutable(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 7))
		n, capacity := 1+r.IntN(40), r.IntN(12)
		trace := randomTrace(r, n, 1+r.IntN(60), r.IntN(min(n, 15)+1), float64(r.IntN(3)))
		initial := make([]graph.VertexID, 0, n)
		for _, v := range r.Perm(n)[:r.IntN(n+1)] {
			initial = append(initial, graph.VertexID(v))
		}
		remote, cold, filled := 0, 0, 0
		optimum := must[*Optimum](t)(NewOptimum(n, capacity, false))
		optimumFilled := must[*Optimum](t)(NewOptimum(n, capacity, true))
		for _, step := range trace {
			remote += len(step)
			cold += optimum.Step(step)
			filled += optimumFilled.Step(step)
		}
		optimum.Free()
		optimumFilled.Free()
		for _, m := range makers(t, n, capacity, len(trace), initial) {
			p := m.make()
			t.Run(fmt.Sprintf("seed=%d/%s", seed, m.name), func(t *testing.T) {
				x := run(t, p, m.initial, trace, nil)
				floor := cold
				if m.initial != nil {
					floor = filled
				}
				if x.transferred < floor {
					t.Errorf("%d rows transferred, but the optimum is %d", x.transferred, floor)
				}
				if m.name == "none" && x.transferred != remote {
					t.Errorf("no cache transfers %d of %d remote rows", x.transferred, remote)
				}
				if _, early := p.(*Lookahead); early && x.transferred > remote {
					t.Errorf("looking ahead transfers %d rows where %d are read", x.transferred,
						remote)
				}
			})
			p.Free()
		}
	}
}

// Callers tell a vertex that the graph lacks from other faults.
func TestAVertexThatTheGraphLacks(t *testing.T) {
	for _, v := range []graph.VertexID{-1, 5} {
		if _, err := NewStatic(5, []graph.VertexID{v}); !errors.Is(err, graph.ErrVertexRange) {
			t.Errorf("%v is not ErrVertexRange", err)
		}
	}
}

func TestStepsAllocateNothing(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	const n, capacity = 2000, 300
	trace := randomTrace(r, n, 40, 400, 1)
	initial := make([]graph.VertexID, 0, capacity)
	for _, v := range r.Perm(n)[:capacity] {
		initial = append(initial, graph.VertexID(v))
	}
	for _, m := range makers(t, n, capacity, len(trace), initial) {
		p := m.make()
		var d Decision
		step, fed := 0, 0
		one := func() {
			for ; fed <= step+p.Window(); fed++ {
				p.Feed(trace[fed%len(trace)], nil)
			}
			p.Step(trace[step%len(trace)], &d)
			step++
		}
		for range 3 * len(trace) { // grow the arrays
			one()
		}
		if got := testing.AllocsPerRun(2*len(trace), one); got != 0 {
			t.Errorf("%s: %v allocations a step", m.name, got)
		}
		d.Free()
		p.Free()
	}
}

// What Bytes says is what the process holds, but for the rest of each array's last page.
func TestBytesAreThoseHeld(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	const n, capacity, most = 40_000, 5000, 3000
	trace := randomTrace(r, n, 12, most, 1)
	initial := make([]graph.VertexID, 0, capacity)
	for _, v := range r.Perm(n)[:capacity] {
		initial = append(initial, graph.VertexID(v))
	}
	for _, m := range makers(t, n, capacity, len(trace), initial) {
		before := mem.Allocated()
		p := m.make()
		run(t, p, m.initial, trace, nil)
		held := mem.Allocated() - before
		if rest := held - p.Bytes(); rest < 0 || rest > 12*4096 {
			t.Errorf("%s: %d bytes are held, but it says %d", m.name, held, p.Bytes())
		}
		if l, ok := p.(*Lookahead); ok && l.index.dense != nil {
			o := LookaheadOptions{Vertices: n, Capacity: capacity, Window: l.Window()}
			if most := LookaheadBytes(o, min(l.Window()+1, len(trace))*most); p.Bytes() > most {
				t.Errorf("%s: %d bytes, more than the %d predicted", m.name, p.Bytes(), most)
			}
		}
		p.Free()
		if left := mem.Allocated() - before; left != 0 {
			t.Errorf("%s: %d bytes are still held after Free", m.name, left)
		}
	}
}
