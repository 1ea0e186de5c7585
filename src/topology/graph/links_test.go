package graph

import (
	"slices"
	"testing"
)

// A graph with further edges is that built of all edges at once, rows in the order of places: each
// edge is there once, though it comes both ways, twice or is there already.
func TestGraphWithLinks(t *testing.T) {
	place := []int32{3, 0, 4, 1, 2, 5}
	build := func(links []Link) CSC {
		var b Builder
		for _, l := range links {
			b.Add(l.Source, l.Target)
		}
		g, _, err := b.Build(len(place), CleanOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for v := range place {
			slices.SortFunc(g.InNeighbours(VertexID(v)), func(a, b VertexID) int {
				return int(place[a] - place[b])
			})
		}
		return *g
	}
	had := []Link{{0, 1}, {1, 0}, {2, 1}, {4, 1}, {3, 5}, {5, 3}}
	g := build(had)
	more := []Link{{5, 1}, {3, 1}, {2, 0}, {2, 4}, {4, 2}, {0, 2}, {3, 1}, {3, 5}}
	for _, both := range []bool{false, true} {
		all := append(slices.Clone(had), more...)
		for _, l := range more {
			if both {
				all = append(all, l.Reverse())
			}
		}
		want, got := build(all), g.With(more, both, place)
		if !slices.Equal(got.Indptr, want.Indptr) || !slices.Equal(got.Indices, want.Indices) {
			t.Errorf("both %v: %v %v, built %v %v", both, got.Indptr, got.Indices, want.Indptr,
				want.Indices)
		}
		for u := range VertexID(len(place)) {
			for v := range VertexID(len(place)) {
				l := Link{u, v}
				if got.FindBy(l, place) >= 0 != slices.Contains(all, l) {
					t.Errorf("both %v: %v is found: %v", both, l, got.FindBy(l, place) >= 0)
				}
			}
		}
		got.Free()
		want.Free()
	}
	g.Free()
}
