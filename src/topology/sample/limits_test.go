package sample

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// No minibatch exceeds the limits, in a graph with hubs and isolated vertices, nor is any number of
// one larger than that of another by more than the growth of this. Limits are no larger than the
// graph.
func TestLimits(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, spec := range []Spec{Neighbours(3, 2, 4), Neighbours(All), Neighbours(5, All),
		labor(4, 3), {}} {
		n := 40 + r.IntN(400)
		topology := randomTopology(r, n)
		const seeds = 12
		l, ok := spec.Limits(seeds, n, int64(len(topology.Graph.Indices)))
		if !ok || len(l.Edges) != spec.Hops() || len(l.Vertices) != spec.Hops()+1 {
			t.Fatalf("%v: %+v, %t", spec, l, ok)
		}
		if spec.Hops() == 0 {
			continue
		}
		s := mustNew(t, topology, Options{Spec: spec, MaxSeeds: seeds, Workers: 1})
		var all []*Minibatch
		for step := range 30 {
			mb := new(Minibatch)
			defer mb.Free()
			some := someSeeds(r, n, 1+r.IntN(seeds))
			if err := s.Sample(mb, some, Key{Seed: 1, Step: step}); err != nil {
				t.Fatal(err)
			}
			all = append(all, mb)
		}
		for _, first := range all {
			blocks, ofSeeds, known := l.Growth(first)
			for _, mb := range all {
				within := func(what string, n, first, limit int, growth float64) {
					t.Helper()
					if n > limit || known && float64(n) > growth*float64(first)*(1+1e-12) {
						t.Errorf("%v: %d %s, at most %d, and %g times %d, are expected", spec, n,
							what, limit, growth, first)
					}
				}
				within("seeds", len(mb.Seeds), len(first.Seeds), l.Vertices[0], ofSeeds)
				for h := range l.Edges {
					at := len(mb.Blocks) - 1 - h
					b, of, growth := &mb.Blocks[at], &first.Blocks[at], Growth{}
					if known {
						growth = blocks[at]
					}
					within("destinations", b.NumDst, of.NumDst, l.Vertices[h], growth.Destinations)
					within("sources", b.NumSrc, of.NumSrc, l.Vertices[h+1], growth.Sources)
					within("edges", b.NumEdges(), of.NumEdges(), l.Edges[h], growth.Edges)
				}
			}
		}
	}
	const edges = 700
	for _, c := range []struct {
		spec     Spec
		edges    int64
		vertices []int
		most     []int64
	}{
		{Neighbours(All, 3), edges, []int{50, 50, 50}, []int64{edges, 150}},
		{Neighbours(All, 10), math.MaxInt64, []int{50, 50, 50}, []int64{math.MaxInt64, 500}},
		{Neighbours(math.MaxInt, 2), edges, []int{50, 50, 50}, []int64{edges, 100}},
	} {
		l, _ := c.spec.Limits(99, 50, c.edges)
		for h, most := range c.most {
			if int64(l.Edges[h]) != most || !slices.Equal(l.Vertices, c.vertices) {
				t.Errorf("limits of a whole graph of %d edges: %+v", c.edges, l)
			}
		}
	}
	for _, spec := range []Spec{{Kind: Poisson, Fanouts: []int{3}},
		{Kind: LADIES, Vertices: []int{9}}} {
		if _, ok := spec.Limits(5, 50, 100); ok {
			t.Errorf("%v has limits", spec)
		}
	}
}
