package cache

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"halognn/src/topology/graph"
)

// rule is the definition of Savings, over sets.
type rule struct {
	capacity, window int
	trace            [][]graph.VertexID
	worth            [][]uint8
	fed              int
	waiting          []graph.VertexID // rows that wait for a known use
	spare            []graph.VertexID // and those without one, the oldest first
}

// uses returns the next known uses of a vertex after a step.
func (r *rule) uses(v graph.VertexID, step int) (steps []int, worth []int) {
	for s := step + 1; s < r.fed; s++ {
		if i := slices.Index(r.trace[s], v); i >= 0 {
			steps, worth = append(steps, s), append(worth, int(r.worth[s][i]))
		}
	}
	return steps[:min(len(steps), 4)], worth
}

// step returns which vertices of the step are at hand, and which of the others stay.
func (r *rule) step(step int) (hits, stay []graph.VertexID) {
	for ; r.fed < len(r.trace) && r.fed <= step+r.window; r.fed++ {
		for _, v := range r.trace[r.fed] {
			if i := slices.Index(r.spare, v); i >= 0 {
				r.spare, r.waiting = slices.Delete(r.spare, i, i+1), append(r.waiting, v)
			}
		}
	}
	type rated struct {
		v    graph.VertexID
		rate float32
	}
	var best []rated
	for i, v := range r.trace[step] {
		saved := int(r.worth[step][i]) - 255
		if at := slices.Index(r.waiting, v); at >= 0 {
			hits, saved = append(hits, v), 0
			r.waiting = slices.Delete(r.waiting, at, at+1)
		}
		rate := float32(0)
		steps, worth := r.uses(v, step)
		for j, s := range steps {
			saved += worth[j]
			rate = max(rate, float32(saved)/float32(s-step))
		}
		if rate > 0 {
			best = append(best, rated{v, rate})
		} else if slices.Contains(hits, v) && len(steps) == 0 {
			r.spare = append(r.spare, v)
		}
	}
	slices.SortStableFunc(best, func(a, b rated) int {
		switch {
		case a.rate > b.rate:
			return -1
		case a.rate < b.rate:
			return 1
		}
		return 0
	})
	best = best[:min(len(best), r.capacity-len(r.waiting))]
	for _, x := range best {
		r.waiting = append(r.waiting, x.v)
		if !slices.Contains(hits, x.v) {
			stay = append(stay, x.v)
		}
	}
	for len(r.waiting)+len(r.spare) > r.capacity {
		r.spare = r.spare[1:]
	}
	return hits, stay
}

// Savings decides by its definition, for any worths, windows and sizes.
func TestSavingsFollowTheirRule(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 11))
		n := 1 + rng.IntN(30)
		r := &rule{capacity: rng.IntN(8), window: rng.IntN(7),
			trace: randomTrace(rng, n, 1+rng.IntN(40), rng.IntN(min(n, 12)+1),
				float64(rng.IntN(3)))}
		for _, step := range r.trace {
			w := make([]uint8, len(step))
			for i := range w {
				w[i] = uint8(255 / (1 + rng.IntN(4)))
			}
			r.worth = append(r.worth, w)
		}
		p := must[*Savings](t)(NewSavings(LookaheadOptions{Vertices: n, Capacity: r.capacity,
			Window: r.window}))
		x, fed := newTable(r.capacity, nil), 0
		var d Decision
		for step, remote := range r.trace {
			for ; fed < len(r.trace) && fed <= step+r.window; fed++ {
				p.Feed(r.trace[fed], r.worth[fed])
			}
			p.Step(remote, &d)
			var hits, missed, stay []graph.VertexID
			for i, v := range remote {
				if d.Slot[i] >= 0 {
					hits = append(hits, v)
				} else {
					missed = append(missed, v)
				}
			}
			for _, i := range d.Insert {
				stay = append(stay, missed[i.From()])
			}
			wantHits, wantStay := r.step(step)
			slices.Sort(stay)
			slices.Sort(wantStay)
			if !slices.Equal(hits, wantHits) || !slices.Equal(stay, wantStay) {
				t.Fatalf("seed %d, step %d: %v at hand and %v stay, want %v and %v", seed, step,
					hits, stay, wantHits, wantStay)
			}
			if err := x.execute(remote, &d); err != nil {
				t.Fatal(fmt.Errorf("seed %d, step %d: %w", seed, step, err))
			}
		}
		d.Free()
		p.Free()
	}
}

// The memory is that of the formula, which takes the largest step for all.
func TestSavingsMemory(t *testing.T) {
	o := LookaheadOptions{Vertices: 4000, Capacity: 300, Window: 5, Index: IndexDense}
	p := must[*Savings](t)(NewSavings(o))
	defer p.Free()
	var d Decision
	defer d.Free()
	step := make([]graph.VertexID, 512)
	for i := range step {
		step[i] = graph.VertexID(i)
	}
	for range o.Window + 1 {
		p.Feed(step, nil)
	}
	p.Step(step, &d)
	if got, want := p.Bytes(), SavingsBytes(o, len(step)); got != want {
		t.Errorf("%d bytes, want %d", got, want)
	}
}
