package policy

import (
	"fmt"
	"slices"
	"testing"

	"halognn/src/base/mem"
	"halognn/src/base/mem/memtest"
	"halognn/src/rows/access"
	"halognn/src/rows/cache"
	"halognn/src/topology/graph"
	"halognn/src/topology/graph/graphtest"
	"halognn/src/topology/sample"
)

// Policies begin with remote candidates in the slots that they return, and keep to the capacity.
func TestNewPolicy(t *testing.T) {
	for _, hops := range []int{0, 1, 2} {
		m, r := reading(t, hops)
		halo := map[graph.VertexID]bool{}
		for v := graph.VertexID(0); v < r.Local[1].End; v++ {
			for _, u := range r.Topology.Graph.InNeighbours(v) {
				if !local(r, u) {
					halo[u] = true
				}
			}
		}
		for _, c := range []struct {
			o      Settings
			window int
		}{
			{Settings{Policy: Sieve}, 0},
			{Settings{Policy: Prefetch, Gamma: 0.9, Delta: 4, Evict: true, Initial: Degree}, 0},
			{Settings{
				Policy: Prefetch, Gamma: 0.9, Delta: 4, Evict: true, Initial: VIP,
				Layout: cache.LayoutCompact,
			}, 0},
			{Settings{Policy: Lookahead}, 3},
		} {
			const capacity = 30
			name := fmt.Sprintf("%s by %q, %d hops", c.o.Policy, c.o.Initial, hops)
			var fault error
			p, held, err := Find(c.o.Policy).Open(&Setup{
				Graph: m, Workload: r, Settings: &c.o, Capacity: capacity, Window: c.window,
				Ahead: r.Ahead(1, 0, c.window+1, &fault),
			})
			if err != nil || fault != nil {
				t.Fatalf("%s: %v, %v", name, err, fault)
			}
			if p.Slots() != capacity || (len(held) == 0) != (c.o.Policy == Sieve) ||
				p.Window() != c.window {
				t.Errorf("%s: %d slots, %d rows at the start, window %d", name, p.Slots(),
					len(held), p.Window())
			}
			at := map[graph.VertexID]int32{}
			for slot, v := range held {
				at[v] = int32(slot)
				if local(r, v) || c.o.Policy == Prefetch && hops == 1 && !halo[v] {
					t.Errorf("%s: begins with vertex %d, which is no candidate", name, v)
				}
			}
			step(t, name, p, r, at)
			mem.Free(held)
			p.Free()
		}
	}
}

// step makes the first decision, which must find the rows with which the policy begins.
func step(t *testing.T, name string, p cache.Policy, r *access.Workload,
	at map[graph.VertexID]int32) {
	t.Helper()
	var fault error
	var first []graph.VertexID
	for remote := range r.Ahead(1, 0, 4, &fault) {
		if first == nil {
			first = slices.Clone(remote)
		}
		p.Feed(remote, nil)
	}
	var d cache.Decision
	defer d.Free()
	p.Step(first, &d)
	for i, v := range first {
		if slot, there := at[v]; there != (d.Slot[i] >= 0) || there && slot != d.Slot[i] {
			t.Errorf("%s: vertex %d is in slot %d, want %d", name, v, d.Slot[i], slot)
		}
	}
}

// For a few seeds deep in the part, the buffer begins with the halo vertices of highest out-degree
// that minibatches reach. A halo of one hop fills it, though few of its vertices are one hop from a
// seed. A static cache by degree holds the same rows.
func TestFirstFillIsTheBestOfTheHalo(t *testing.T) {
	r := graphtest.Random(t)
	const n, part = 400, 150
	g := graphtest.NewGraph(t, n, graphtest.Edges(r, n, 900)...)
	m := mustNew(t, g, access.Options{})
	seeds := graphtest.IDs(3, 30, 90, 120)
	var inside []graph.VertexID
	for v := range graph.VertexID(part) {
		inside = append(inside, v)
	}
	outDegrees := make([]int, n)
	for _, u := range g.Indices {
		outDegrees[u]++
	}
	fromPart, fromSeeds := graphtest.Distances(g, inside), graphtest.Distances(g, seeds)
	nearSeeds := 0
	for hops := range 5 {
		within := hops
		if hops == 0 {
			within = 3
		}
		var best []graph.VertexID // of all vertices, in order
		for v := graph.VertexID(part); v < n; v++ {
			if fromPart[v] <= within && fromSeeds[v] <= 3 {
				best = append(best, v)
			}
			if hops == 1 && fromPart[v] <= 1 && fromSeeds[v] <= 1 {
				nearSeeds++
			}
		}
		slices.SortStableFunc(best,
			func(a, b graph.VertexID) int { return outDegrees[b] - outDegrees[a] })
		reader := &access.Workload{Local: []access.Range{{First: 0, End: part}},
			Sources: []access.Source{{Seeds: seeds, PerBatch: 2, Minibatches: 1}},
			Sample:  sample.Neighbours(2, 2, 2), Hops: hops}
		for _, capacity := range []int{1, 10, max(len(best)-1, 0), len(best), n} {
			want := slices.Clone(best[:min(capacity, len(best))])
			slices.Sort(want)
			p, held, err := Find(Prefetch).Open(&Setup{
				Graph: m, Workload: reader, Capacity: capacity,
				Settings: &Settings{Evict: true, Gamma: 0.9, Delta: 2, Initial: Degree},
			})
			if err != nil {
				t.Fatal(err)
			}
			p.Free()
			if !slices.Equal(held, want) {
				t.Errorf("%d hops, room for %d: the buffer begins with %d, want %d", hops, capacity,
					held, want)
			}
			mem.Free(held)
			static := memtest.Must[graph.VertexID](t)(m.Top(
				memtest.Must[float32](t)(Find(Degree).Rank(m, reader)),
				reader.Local, capacity))
			if !slices.Equal(static, want) {
				t.Errorf("%d hops, room for %d: a static cache by degree holds %d, want %d", hops,
					capacity, static, want)
			}
		}
		if hops == 1 && nearSeeds >= len(best) {
			t.Errorf("all %d vertices of the halo are next to a seed, which shows nothing",
				len(best))
		}
		paths := memtest.Must[float32](t)(Find(Paths).Rank(m, reader))
		for v := part; v < n; v++ {
			if want := fromPart[v] <= within && fromSeeds[v] <= 3; want != (paths[v] > 0) {
				t.Errorf("%d hops: vertex %d has %g paths; to be kept: %t", hops, v, paths[v], want)
			}
		}
	}
}

// Scores of a buffer tie most of the time. Higher out-degree stays and comes first, then the lower
// id, also after the transpose with the degrees has been freed.
func TestTiesGoByOutDegree(t *testing.T) {
	r := graphtest.Random(t)
	const n, part, capacity = 300, 60, 20
	g := graphtest.NewGraph(t, n, graphtest.Edges(r, n, 1500)...)
	outDegrees := make([]int, n)
	for _, u := range g.Indices {
		outDegrees[u]++
	}
	byDegree := func(vertices []graph.VertexID, degree func(graph.VertexID) int) []graph.VertexID {
		sorted := slices.Sorted(slices.Values(vertices))
		slices.SortStableFunc(sorted, func(a, b graph.VertexID) int {
			return degree(b) - degree(a)
		})
		return sorted
	}
	out := func(v graph.VertexID) int { return outDegrees[v] }
	reader := &access.Workload{Local: []access.Range{{First: 0, End: part}},
		Sources: []access.Source{{Seeds: graphtest.IDs(1, 2, 3, 4, 5, 6, 7, 8), PerBatch: 2,
			Minibatches: 1}},
		Sample: sample.Neighbours(3, 3, 3)}
	for _, layout := range []cache.Layout{cache.LayoutDense, cache.LayoutCompact} {
		for _, missed := range []int{7, 60} { // fewer than the capacity, and more
			before := mem.Allocated()
			m, err := access.New(g, access.Options{})
			if err != nil {
				t.Fatal(err)
			}
			p, held, err := Find(Prefetch).Open(&Setup{
				Graph: m, Workload: reader, Capacity: capacity,
				Settings: &Settings{Evict: true, Gamma: 0.5, Delta: 1, Initial: Degree,
					Layout: layout},
			})
			if err != nil || len(held) != capacity {
				t.Fatalf("%d rows to begin with (%v)", len(held), err)
			}
			if !m.Transposed() {
				t.Fatal("the graph is symmetric, which shows nothing")
			}
			m.Free()
			var misses []graph.VertexID
			for _, v := range r.Perm(n - part) {
				if u := graph.VertexID(v + part); !slices.Contains(held, u) &&
					len(misses) < missed {
					misses = append(misses, u)
				}
			}
			var d cache.Decision
			p.Step(misses, &d)
			coming := byDegree(misses, out)[:min(missed, capacity)]
			want := append(byDegree(held, out)[:capacity-len(coming)], coming...)
			slices.Sort(want)
			if in := byDegree(misses, g.InDegree)[:len(coming)]; missed > capacity &&
				slices.Equal(in, coming) {
				t.Error("the order of in-degrees is the same, which shows nothing")
			}
			var remote, got []graph.VertexID
			for v := graph.VertexID(part); v < n; v++ {
				remote = append(remote, v)
			}
			p.Step(remote, &d)
			for i, slot := range d.Slot {
				if slot >= 0 {
					got = append(got, remote[i])
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("%d missed, layout %d: holds %d, want %d", missed, layout, got, want)
			}
			d.Free()
			p.Free()
			mem.Free(held)
			if left := mem.Allocated() - before; left != 0 {
				t.Errorf("%d bytes were not given back", left)
			}
		}
	}
}
