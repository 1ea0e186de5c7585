package cache

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"halognn/src/topology/graph"
)

// The settings of MassiveGNN's table 6, and the ends of what is allowed.
var (
	gammas = []float64{0.5, 0.95, 0.995, 0.9995, 1}
	deltas = []int{1, 16, 32, 64, 128, 256, 512, 1024}
)

// plain is the buffer written down from the algorithm: maps, every score touched in every step,
// sorts.
type plain struct {
	gamma     float64
	delta     int
	unused    bool // leaves
	capacity  int
	step      int
	evicting  map[graph.VertexID]float64 // S_E
	access    map[graph.VertexID]float32 // S_A; no entry: no candidate
	used      map[graph.VertexID]bool    // since the last round
	evictions int
}

func newPlain(o PrefetchOptions) *plain {
	p := &plain{
		gamma: o.Gamma, delta: o.Delta, unused: o.Unused, capacity: o.Capacity,
		used:     map[graph.VertexID]bool{},
		evicting: map[graph.VertexID]float64{}, access: map[graph.VertexID]float32{},
	}
	for v := range o.Vertices {
		if o.Candidates == nil || o.Candidates[v/64]>>(v%64)&1 != 0 {
			p.access[graph.VertexID(v)] = 0
		}
	}
	for _, v := range o.Initial {
		p.evicting[v], p.access[v] = 1, -1
	}
	return p
}

// advance returns the hits of a step and what comes in its round.
func (p *plain) advance(remote []graph.VertexID) (hits, come []graph.VertexID) {
	sampled := map[graph.VertexID]bool{}
	for _, v := range remote {
		sampled[v] = true
		if _, hit := p.evicting[v]; hit {
			hits, p.used[v] = append(hits, v), true
		} else if _, candidate := p.access[v]; candidate {
			p.access[v]++
		}
	}
	for v := range p.evicting {
		if !sampled[v] {
			p.evicting[v] *= p.gamma
		}
	}
	p.step++
	if p.delta == 0 || p.step%p.delta != 0 {
		return hits, nil
	}
	var leave []graph.VertexID
	threshold := math.Pow(p.gamma, float64(p.delta)) * (1 + 1e-9)
	for v, score := range p.evicting {
		if p.unused && !p.used[v] || !p.unused && score <= threshold && p.gamma < 1 {
			leave = append(leave, v)
		}
	}
	clear(p.used)
	for v, score := range p.access {
		if score > 0 {
			come = append(come, v)
		}
	}
	slices.SortFunc(leave, func(v, u graph.VertexID) int {
		return cmp.Or(cmp.Compare(p.evicting[v], p.evicting[u]),
			cmp.Compare(degreeOf(v), degreeOf(u)), cmp.Compare(u, v))
	})
	slices.SortFunc(come, func(v, u graph.VertexID) int {
		return cmp.Or(cmp.Compare(p.access[u], p.access[v]), cmp.Compare(degreeOf(u), degreeOf(v)),
			cmp.Compare(v, u))
	})
	empty := p.capacity - len(p.evicting)
	come = come[:min(len(come), empty+len(leave))]
	leave = leave[:max(0, len(come)-empty)]
	for _, v := range leave {
		p.access[v] = float32(p.evicting[v])
		delete(p.evicting, v)
	}
	for _, v := range come {
		p.evicting[v], p.access[v] = float64(p.access[v]), -1
	}
	p.evictions = len(leave)
	return hits, come
}

// compare runs buffers of both layouts beside the plain one, step for step.
func compare(t *testing.T, o PrefetchOptions, trace [][]graph.VertexID) (rounds int) {
	t.Helper()
	want := newPlain(o)
	var got []*Prefetch
	var tables []*table
	for _, layout := range []Layout{LayoutDense, LayoutCompact} {
		o.Layout = layout
		got = append(got, must[*Prefetch](t)(NewPrefetch(o)))
		tables = append(tables, newTable(o.Capacity, o.Initial))
		defer got[len(got)-1].Free()
	}
	decisions := make([]Decision, len(got))
	for step, remote := range trace {
		hits, come := want.advance(remote)
		if len(come) > 0 {
			rounds++
		}
		for i, p := range got {
			d := &decisions[i]
			p.Step(remote, d)
			if err := tables[i].execute(remote, d); err != nil {
				t.Fatalf("layout %d, step %d: %v", i, step, err)
			}
			if have := slices.Sorted(maps.Keys(want.evicting)); !slices.Equal(held(tables[i]),
				have) {
				t.Fatalf("layout %d, step %d: holds %v, want %v", i, step, held(tables[i]), have)
			}
			if d.Misses != len(remote)-len(hits) || d.Replacements != len(come) || len(come) > 0 &&
				d.Evictions != want.evictions {
				t.Fatalf(
					"layout %d, step %d: %d misses, %d evictions, %d replacements; want %d, %d, %d",
					i, step, d.Misses, d.Evictions, d.Replacements, len(remote)-len(hits),
					want.evictions, len(come))
			}
			if !slices.IsSorted(d.Early) {
				t.Fatalf("layout %d, step %d: early rows %v are not in order", i, step, d.Early)
			}
		}
		if !slices.Equal(decisions[0].Insert, decisions[1].Insert) ||
			!slices.Equal(decisions[0].Slot, decisions[1].Slot) {
			t.Fatalf("step %d: the layouts decide differently", step)
		}
	}
	for i := range decisions {
		decisions[i].Free()
	}
	return rounds
}

func held(x *table) []graph.VertexID {
	have := slices.DeleteFunc(slices.Clone(x.row),
		func(v graph.VertexID) bool { return v == nothing })
	slices.Sort(have)
	return have
}

func TestPrefetchIsTheAlgorithm(t *testing.T) {
	for _, gamma := range gammas {
		for _, delta := range append([]int{0, 3}, deltas...) {
			t.Run(fmt.Sprintf("gamma=%v/delta=%d", gamma, delta), func(t *testing.T) {
				rounds := 0
				for seed := range uint64(4) {
					r := rand.New(rand.NewPCG(seed, uint64(delta)))
					const n = 90
					o := PrefetchOptions{Vertices: n, Capacity: r.IntN(20), Gamma: gamma,
						Delta: delta, Degree: degreeOf, Unused: seed/2 == 1}
					if seed%2 == 1 {
						o.Candidates = make([]uint64, (n+63)/64)
					}
					for _, v := range r.Perm(n) {
						if o.Candidates != nil && r.IntN(4) > 0 {
							o.Candidates[v/64] |= 1 << (v % 64)
						} else if o.Candidates != nil {
							continue
						}
						if len(o.Initial) < o.Capacity && r.IntN(8) > 0 {
							o.Initial = append(o.Initial, graph.VertexID(v))
						}
					}
					rounds += compare(t, o, randomTrace(r, n, 60+3*delta, 15, 2))
				}
				// without decay a full buffer exchanges nothing
				if (rounds > 0) != (delta > 0) {
					t.Errorf("%d rounds exchanged rows", rounds)
				}
			})
		}
	}
}

// MassiveGNN, equation 1. A row not used for exactly Delta steps may leave, one used once may not.
// With a threshold that was rounded to three decimals, nothing ever left at gamma 0.95 and Delta >=
// 256.
func TestUnusedForDeltaStepsQualifies(t *testing.T) {
	for _, gamma := range append([]float64{1 - 1e-9, 1e-3}, gammas...) {
		for _, delta := range deltas {
			p := must[*Prefetch](t)(NewPrefetch(PrefetchOptions{
				Vertices: 10, Capacity: 2, Initial: []graph.VertexID{0, 1}, Gamma: gamma,
				Delta: delta, Degree: degreeOf,
			}))
			var d Decision
			for step := range delta {
				remote := []graph.VertexID{2, 3} // come if they can
				if step == delta/2 {
					remote = append(remote, 1) // used once: S_E = gamma^(Delta-1)
				}
				p.Step(remote, &d)
			}
			want := 1
			if gamma == 1 { // no decay, no eviction
				want = 0
			}
			if d.Evictions != want || d.Replacements != want || len(d.Early) != 0 {
				t.Errorf("gamma %v, Delta %d: %d evictions, %d replacements, %d rows fetched for "+
					"them; want %d, %d, 0",
					gamma, delta, d.Evictions, d.Replacements, len(d.Early), want, want)
			}
			d.Free()
			p.Free()
		}
	}
}

func TestSelectFirst(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 3))
		n := r.IntN(60)
		key := make([]int, n)
		items := make([]int32, n)
		for i := range items {
			items[i], key[i] = int32(i), r.IntN(1+r.IntN(20))
		}
		before := func(a, b int32) bool {
			return cmp.Or(cmp.Compare(key[a], key[b]),
				cmp.Compare(a, b)) < 0
		}
		want := slices.Clone(items)
		slices.SortFunc(want,
			func(a, b int32) int { return cmp.Or(cmp.Compare(key[a], key[b]), cmp.Compare(a, b)) })
		k := r.IntN(n + 1)
		selectFirst(items, k, before)
		slices.Sort(items[:k])
		slices.Sort(want[:k])
		if !slices.Equal(items[:k], want[:k]) {
			t.Fatalf("seed %d: the first %d of %v are %v, want %v", seed, k, key, items[:k],
				want[:k])
		}
	}
}
