package sample

import (
	"math/rand/v2"
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
		l, ok := spec.Limits(seeds, n, topology.AllEdges())
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
			destinations, sources, any, known := l.Growth(first)
			for _, mb := range all {
				within := func(what string, n, first, limit int, growth float64) {
					t.Helper()
					if n > limit || known && float64(n) > growth*float64(first)*(1+1e-12) {
						t.Errorf("%v: %d %s, at most %d, and %g times %d, are expected", spec, n,
							what, limit, growth, first)
					}
				}
				within("seeds", len(mb.Seeds), len(first.Seeds), l.Vertices[0], any)
				for h := range l.Edges {
					at := len(mb.Blocks) - 1 - h
					b, of := &mb.Blocks[at], &first.Blocks[at]
					within("destinations", b.NumDst, of.NumDst, l.Vertices[h], any)
					within("sources", b.NumSrc, of.NumSrc, l.Vertices[h+1], any)
					within("edges", b.NumEdges(), of.NumEdges(), l.Edges[h], any)
				}
				within("destinations of the input layer", mb.Blocks[0].NumDst,
					first.Blocks[0].NumDst, n, destinations)
				within("rows", len(mb.Frontier), len(first.Frontier), n, sources)
			}
		}
	}
	topology := randomTopology(r, 50)
	l, _ := Neighbours(All, 3).Limits(99, 50, topology.AllEdges())
	if l.Vertices[0] != 50 || l.Vertices[2] != 50 || int64(l.Edges[0]) != topology.AllEdges() {
		t.Errorf("limits of a whole graph of %d edges: %+v", topology.AllEdges(), l)
	}
	for _, spec := range []Spec{{Kind: Poisson, Fanouts: []int{3}},
		{Kind: LADIES, Vertices: []int{9}}} {
		if _, ok := spec.Limits(5, 50, 100); ok {
			t.Errorf("%v has limits", spec)
		}
	}
}
