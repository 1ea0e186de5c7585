package access

import (
	"fmt"
	"slices"
	"testing"

	"halognn/src/cache"
	"halognn/src/graph"
	"halognn/src/mem"
	"halognn/src/sample"
)

// reading is a reader of the first half of a graph: two streams, a quarter each.
func reading(t *testing.T, hops int) (*Graph, *Reader) {
	t.Helper()
	r := newRandom(t)
	const n = 400
	g := fromEdges(t, n, randomEdges(r, n, 3000)...)
	original := make([]int32, n)
	for v := range original {
		original[v] = int32(v)
	}
	var seeds [2][]graph.VertexID
	for v := range n / 2 {
		seeds[v*4/n] = append(seeds[v*4/n], graph.VertexID(v))
	}
	streams, err := sample.NewStreams(seeds[:], sample.StreamOptions{Batch: 8, Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(streams.Free)
	return mustNew(t, g, Options{}), &Reader{
		Local: []Range{{0, n / 4}, {n / 4, n / 2}}, Sources: Sources(streams, 0, 2), Sample: sample.Neighbours(3, 2), Hops: hops,
		Topology: &sample.Topology{Graph: *g, Original: original}, Streams: streams, First: 0, Count: 2, Seed: 3, Epochs: 1, Workers: 2,
	}
}

// What is foreseen is what the plain sampler draws for the same keys.
func TestAheadIsWhatTrainingReads(t *testing.T) {
	_, r := reading(t, 0)
	each := r.Streams.Steps() * r.Count
	items := 2 * each // of epochs 2 and 3, the last one
	r.Epochs = 3
	for _, c := range []struct{ from, n int }{{0, items}, {3, 4}, {each - 2, 10}, {each - 2, 2 * each}, {0, 0}} {
		var fault error
		i := c.from
		for remote := range r.Ahead(2, c.from, c.n, &fault) {
			key := sample.Key{Seed: r.Seed, Epoch: 2 + i/each, Step: i % each / 2, Stream: i % 2}
			mb := sample.Reference(r.Topology, r.Sample.Fanouts, r.Streams.Piece(key.Epoch, key.Step, key.Stream, nil), key)
			want := slices.DeleteFunc(slices.Clone(mb.Frontier), func(v graph.VertexID) bool { return v < r.Local[1].End })
			if !slices.Equal(remote, want) || len(want) == 0 {
				t.Fatalf("item %d: remote vertices %v, want %v", i, remote, want)
			}
			mb.Free()
			i++
		}
		if want := min(c.from+c.n, items); i != want || fault != nil {
			t.Errorf("from %d on, %d: ended before item %d (%v), want %d", c.from, c.n, i, fault, want)
		}
	}
	var fault error
	r.Sample = sample.Neighbours(0)
	for range r.Ahead(1, 0, 3, &fault) {
		t.Error("a minibatch without fanouts")
	}
	if fault == nil {
		t.Error("no error")
	}
}

// Policies begin with remote candidates in the slots they say, and fit what they are asked for.
func TestNewPolicy(t *testing.T) {
	for _, hops := range []int{0, 1, 2} {
		m, r := reading(t, hops)
		halo := map[graph.VertexID]bool{}
		for v := graph.VertexID(0); v < r.Local[1].End; v++ {
			for _, u := range r.Topology.Graph.InNeighbours(v) {
				if !within(r.Local, u) {
					halo[u] = true
				}
			}
		}
		if size, err := m.HaloSize(r.Local); err != nil || size != len(halo) {
			t.Errorf("halo of %d vertices (%v), want %d", size, err, len(halo))
		}
		for _, d := range []Dynamic{
			{Policy: cache.NameSieve, Capacity: 30},
			{Policy: cache.NamePrefetch, Capacity: 30, Gamma: 0.9, Delta: 4, Initial: PolicyDegree},
			{Policy: cache.NamePrefetch, Capacity: 30, Gamma: 0.9, Delta: 4, Initial: PolicyVIP, Layout: cache.LayoutCompact},
			{Policy: cache.NameLookahead, Capacity: 30, Window: 3},
		} {
			name := fmt.Sprintf("%s by %q, %d hops", d.Policy, d.Initial, hops)
			var fault error
			p, held, err := m.NewPolicy(r, d, r.Ahead(1, 0, d.Window+1, &fault))
			if err != nil || fault != nil {
				t.Fatalf("%s: %v, %v", name, err, fault)
			}
			if p.Slots() != d.Capacity || (len(held) == 0) != (d.Policy == cache.NameSieve) {
				t.Errorf("%s: %d slots, %d rows at the start", name, p.Slots(), len(held))
			}
			at := map[graph.VertexID]int32{}
			for slot, v := range held {
				at[v] = int32(slot)
				if within(r.Local, v) || d.Policy == cache.NamePrefetch && hops == 1 && !halo[v] {
					t.Errorf("%s: begins with vertex %d, which is no candidate", name, v)
				}
			}
			step(t, name, p, r, at)
			mem.Free(held)
			p.Free()
		}
	}
	m, r := reading(t, 0)
	if _, _, err := m.NewPolicy(r, Dynamic{Policy: PolicyVIP}, nil); err == nil {
		t.Error("vip decides step by step")
	}
}

// step asks for the first decision, which must find what the policy begins with.
func step(t *testing.T, name string, p cache.Policy, r *Reader, at map[graph.VertexID]int32) {
	t.Helper()
	var fault error
	var first []graph.VertexID
	for remote := range r.Ahead(1, 0, 4, &fault) {
		if first == nil {
			first = slices.Clone(remote)
		}
		if l, ok := p.(*cache.Lookahead); ok {
			l.Feed(remote)
		}
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

// All that a look-ahead cache should see fits the epoch; the more it holds, the farther it should see.
func TestPlannedWindows(t *testing.T) {
	m, r := reading(t, 0)
	p := must[float32](t)(m.Reads(r))
	last := 0
	for _, capacity := range []int{0, 10, 50, 100, 150, 1000} {
		w, err := m.PlanWindow(r, p, capacity)
		if err != nil || w < max(last, 1) || w > 2*r.Streams.Steps()*r.Count {
			t.Errorf("capacity %d: window %d (%v) after %d, of %d minibatches", capacity, w, err, last, r.Streams.Steps()*r.Count)
		}
		last = w
	}
	if _, err := Reuse(p, []Range{{3, 1}}); err == nil {
		t.Error("ranges that fall were taken")
	}
}

// Of a few seeds, deep in the part: the buffer begins with the vertices of the halo that most others may sample, as far as minibatches
// reach. A halo of one hop fills it, though few of its vertices are one hop from a seed. A static cache by degree holds the same rows.
func TestFirstFillIsTheBestOfTheHalo(t *testing.T) {
	r := newRandom(t)
	const n, part = 400, 150
	g := fromEdges(t, n, randomEdges(r, n, 900)...)
	m := mustNew(t, g, Options{})
	seeds := ids(3, 30, 90, 120)
	var inside []graph.VertexID
	for v := range graph.VertexID(part) {
		inside = append(inside, v)
	}
	outDegrees := make([]int, n)
	for _, u := range g.Indices {
		outDegrees[u]++
	}
	fromPart, fromSeeds := distances(g, inside), distances(g, seeds)
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
		slices.SortStableFunc(best, func(a, b graph.VertexID) int { return outDegrees[b] - outDegrees[a] })
		reader := &Reader{Local: []Range{{0, part}}, Sources: []Source{{seeds, 2, 1}}, Sample: sample.Neighbours(2, 2, 2), Hops: hops}
		for _, capacity := range []int{1, 10, max(len(best)-1, 0), len(best), n} {
			want := slices.Clone(best[:min(capacity, len(best))])
			slices.Sort(want)
			p, held, err := m.NewPolicy(reader, Dynamic{
				Policy: cache.NamePrefetch, Capacity: capacity, Gamma: 0.9, Delta: 2, Initial: PolicyDegree,
			}, nil)
			if err != nil {
				t.Fatal(err)
			}
			p.Free()
			if !slices.Equal(held, want) {
				t.Errorf("%d hops, room for %d: the buffer begins with %d, want %d", hops, capacity, held, want)
			}
			mem.Free(held)
			static := must[graph.VertexID](t)(m.Top(must[float32](t)(m.Score(PolicyDegree, reader)), reader.Local, capacity))
			if !slices.Equal(static, want) {
				t.Errorf("%d hops, room for %d: a static cache by degree holds %d, want %d", hops, capacity, static, want)
			}
		}
		if hops == 1 && nearSeeds >= len(best) {
			t.Errorf("all %d vertices of the halo are next to a seed, which shows nothing", len(best))
		}
		paths := must[float32](t)(m.Score(PolicyPaths, reader))
		for v := part; v < n; v++ {
			if want := fromPart[v] <= within && fromSeeds[v] <= 3; want != (paths[v] > 0) {
				t.Errorf("%d hops: vertex %d has %g paths; to be kept: %t", hops, v, paths[v], want)
			}
		}
	}
}

// Scores of a buffer tie most of the time. Higher out-degree stays and comes first, then the lower id, also when the transpose that the
// degrees were read from is gone.
func TestTiesGoByOutDegree(t *testing.T) {
	r := newRandom(t)
	const n, part, capacity = 300, 60, 20
	g := fromEdges(t, n, randomEdges(r, n, 1500)...)
	outDegrees := make([]int, n)
	for _, u := range g.Indices {
		outDegrees[u]++
	}
	byDegree := func(vertices []graph.VertexID, degree func(graph.VertexID) int) []graph.VertexID {
		sorted := slices.Sorted(slices.Values(vertices))
		slices.SortStableFunc(sorted, func(a, b graph.VertexID) int { return degree(b) - degree(a) })
		return sorted
	}
	out := func(v graph.VertexID) int { return outDegrees[v] }
	reader := &Reader{Local: []Range{{0, part}}, Sources: []Source{{ids(1, 2, 3, 4, 5, 6, 7, 8), 2, 1}}, Sample: sample.Neighbours(3, 3, 3)}
	for _, layout := range []cache.Layout{cache.LayoutDense, cache.LayoutCompact} {
		for _, missed := range []int{7, 60} { // fewer than there is room for, and more
			before := mem.Allocated()
			m, err := New(g, Options{})
			if err != nil {
				t.Fatal(err)
			}
			p, held, err := m.NewPolicy(reader, Dynamic{
				Policy: cache.NamePrefetch, Capacity: capacity, Gamma: 0.5, Delta: 1, Initial: PolicyDegree, Layout: layout,
			}, nil)
			if err != nil || len(held) != capacity {
				t.Fatalf("%d rows to begin with (%v)", len(held), err)
			}
			if !m.Transposed() {
				t.Fatal("the graph is symmetric, which shows nothing")
			}
			m.Free()
			var misses []graph.VertexID
			for _, v := range r.Perm(n - part) {
				if u := graph.VertexID(v + part); !slices.Contains(held, u) && len(misses) < missed {
					misses = append(misses, u)
				}
			}
			var d cache.Decision
			p.Step(misses, &d)
			coming := byDegree(misses, out)[:min(missed, capacity)]
			want := append(byDegree(held, out)[:capacity-len(coming)], coming...)
			slices.Sort(want)
			if in := byDegree(misses, g.InDegree)[:len(coming)]; missed > capacity && slices.Equal(in, coming) {
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
