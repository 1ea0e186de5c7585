package cache

import (
	"math/rand/v2"
	"slices"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/topology/graph"
)

// A cache of several kinds of rows decides of each kind as the kind's policy alone does, in slots
// of the kind, and numbers misses and early rows in the order of all.
func TestByKindDecidesAsEachKindAlone(t *testing.T) {
	const n, kinds, steps, window = 90, 3, 60, 3
	of := func(v graph.VertexID) int { return int(v) * kinds / n }
	before := mem.Allocated()
	policies := func() []Policy { // of kind 2 nothing is kept
		ahead, err := NewLookahead(LookaheadOptions{Vertices: n, Capacity: 9, Window: window,
			Level: true})
		if err != nil {
			t.Fatal(err)
		}
		buffer, err := NewPrefetch(PrefetchOptions{Vertices: n, Capacity: 6, Gamma: 0.8, Delta: 4,
			Degree: func(v graph.VertexID) int { return int(v) % 5 }})
		if err != nil {
			t.Fatal(err)
		}
		return []Policy{ahead, buffer, nil}
	}
	rng := rand.New(rand.NewPCG(5, 6))
	var minibatches [][]graph.VertexID
	for range steps {
		var remote []graph.VertexID
		for _, v := range rng.Perm(n) {
			if rng.IntN(1+v%9) == 0 {
				remote = append(remote, graph.VertexID(v))
			}
		}
		minibatches = append(minibatches, remote)
	}
	c, alone := NewByKind(of, policies()), policies()
	if c.Window() != window || c.Slots() != 15 || !slices.Equal(c.SlotsOf(), []int{9, 6, 0}) {
		t.Errorf("window %d, slots %v", c.Window(), c.SlotsOf())
	}
	var held [kinds][]graph.VertexID // by slot
	for k, slots := range c.SlotsOf() {
		held[k] = slices.Repeat([]graph.VertexID{-1}, slots)
	}
	var d, one Decision
	early, replaced := 0, 0
	fed := 0
	for step, remote := range minibatches {
		for ; fed < min(steps, step+window+1); fed++ {
			c.Feed(minibatches[fed], nil)
			for k, p := range alone {
				if p != nil {
					p.Feed(ofKind(minibatches[fed], of, k), nil)
				}
			}
		}
		c.Step(remote, &d)
		var misses []graph.VertexID
		for i, v := range remote {
			switch slot := d.Slot[i]; {
			case slot < 0:
				misses = append(misses, v)
			case held[of(v)][slot] != v:
				t.Fatalf("step %d: slot %d has %d, not %d", step, slot, held[of(v)][slot], v)
			}
		}
		if d.Misses != len(misses) {
			t.Errorf("step %d: %d misses of %d", step, d.Misses, len(misses))
		}
		want := Decision{}
		for k, p := range alone {
			if p == nil {
				continue
			}
			own := ofKind(remote, of, k)
			p.Step(own, &one)
			got := slotsOf(remote, d.Slot, of, k)
			if !slices.Equal(got, one.Slot) {
				t.Errorf("step %d, kind %d: slots %v, want %v", step, k, got, one.Slot)
			}
			want.Early = append(want.Early, one.Early...)
			want.Evictions += one.Evictions
			want.Replacements += one.Replacements
			replaced += len(one.Insert)
		}
		if !slices.Equal(d.Early, want.Early) || d.Evictions != want.Evictions ||
			d.Replacements != want.Replacements {
			t.Errorf("step %d: %+v, want %+v", step, d, want)
		}
		early += len(d.Early)
		fetched := append(misses, d.Early...)
		for _, i := range d.Insert {
			v := fetched[i.From()]
			held[of(v)][i.Slot()] = v
		}
	}
	if early == 0 || replaced == 0 {
		t.Errorf("%d early rows and %d inserts test nothing", early, replaced)
	}
	for _, p := range append(alone, c) {
		if p != nil {
			p.Free()
		}
	}
	d.Free()
	one.Free()
	if after := mem.Allocated(); after != before {
		t.Errorf("%d bytes were not given back", after-before)
	}
}

// ofKind returns the vertices of one kind, and slotsOf their entries of slot.
func ofKind(remote []graph.VertexID, of func(graph.VertexID) int, kind int) (own []graph.VertexID) {
	for _, v := range remote {
		if of(v) == kind {
			own = append(own, v)
		}
	}
	return own
}

func slotsOf(remote []graph.VertexID, slot []int32, of func(graph.VertexID) int,
	kind int) (own []int32) {
	for i, v := range remote {
		if of(v) == kind {
			own = append(own, slot[i])
		}
	}
	return own
}
