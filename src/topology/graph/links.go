package graph

import (
	"cmp"
	"fmt"
	"slices"
	"unsafe"

	"halognn/src/base/mem"
)

// Link is a pair of vertices that a model is to rate.
type Link struct{ Source, Target VertexID }

// Reverse returns the link the other way round.
func (l Link) Reverse() Link { return Link{l.Target, l.Source} }

// Compare orders links by target, then by source: the order of a CSC.
func (l Link) Compare(m Link) int {
	return cmp.Or(cmp.Compare(l.Target, m.Target), cmp.Compare(l.Source, m.Source))
}

// Links views 2n ids (source, target, source, target, ...) as n links, without a copy.
func Links(ids []VertexID) []Link {
	return unsafe.Slice((*Link)(unsafe.Pointer(unsafe.SliceData(ids))), len(ids)/2)
}

// LinkIDs views n links as 2n ids (source, target, source, target, ...), without a copy.
func LinkIDs(links []Link) []VertexID {
	return unsafe.Slice((*VertexID)(unsafe.Pointer(unsafe.SliceData(links))), 2*len(links))
}

// SortLinks sorts links in place by the function `compare`, and returns their labels in the same
// order. All labels have the same number of bytes.
func SortLinks(links []Link, labels []byte, compare func(a, b Link) int) []byte {
	if len(labels) == 0 {
		slices.SortFunc(links, compare)
		return labels
	}
	order, given := make([]int, len(links)), slices.Clone(links)
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return compare(given[i], given[j]) })
	width := len(labels) / len(links)
	sorted := make([]byte, 0, len(labels))
	for i, from := range order {
		links[i] = given[from]
		sorted = append(sorted, labels[from*width:][:width]...)
	}
	return sorted
}

// LinkSplit lists the links for training, validation and test. Both directions of a pair, and all
// repetitions of a pair, are in the same list.
type LinkSplit struct{ Train, Valid, Test []Link }

// Lists returns the three lists.
func (s *LinkSplit) Lists() [3]*[]Link { return [3]*[]Link{&s.Train, &s.Valid, &s.Test} }

// SplitNames are the names of the lists of a split.
var SplitNames = [3]string{"train", "valid", "test"}

// Validate reports the first link with a vertex that g does not have, and the first link of
// validation or test that is also an edge of g: messages along that edge would tell a model the
// answer. It also reports the first pair of vertices that is in two lists of the split. O(n log n)
// for n links.
func (s *LinkSplit) Validate(g *CSC) error { return s.ValidateBy(g, g.Has) }

// ValidateBy is like Validate, but asks the function `isEdge` whether a link is an edge of g.
func (s *LinkSplit) ValidateBy(g *CSC, isEdge func(Link) bool) error {
	n := uint32(g.NumVertices())
	type sided struct {
		Link
		side int
	}
	var pairs []sided
	for side, list := range s.Lists() {
		for i, l := range *list {
			if uint32(l.Source) >= n || uint32(l.Target) >= n {
				return fmt.Errorf("%s links, entry %d: the link from %d to %d: %w (the graph has "+
					"%d vertices)", SplitNames[side], i, l.Source, l.Target, ErrVertexRange, n)
			}
			if side > 0 && (isEdge(l) || isEdge(l.Reverse())) {
				return fmt.Errorf("%s links, entry %d: the link from %d to %d is an edge of the "+
					"graph, so a model would be told it", SplitNames[side], i, l.Source, l.Target)
			}
			if l.Source > l.Target {
				l = l.Reverse()
			}
			pairs = append(pairs, sided{l, side})
		}
	}
	slices.SortFunc(pairs, func(a, b sided) int { return cmp.Or(a.Compare(b.Link), a.side-b.side) })
	for i := 1; i < len(pairs); i++ {
		if a, b := pairs[i-1], pairs[i]; a.Link == b.Link && a.side != b.side {
			return fmt.Errorf("the link between %d and %d is on two sides of the split, %s and %s",
				a.Source, a.Target, SplitNames[a.side], SplitNames[b.side])
		}
	}
	return nil
}

// Has reports whether the link is an edge. O(log degree): rows must be in ascending order.
func (g *CSC) Has(l Link) bool {
	return g.Find(l.Source, l.Target) >= 0
}

// DropEdges removes, in place, the edges for which the function `drop` returns true, and their
// weights if edges have weights. It returns the weights that are left.
func (g *CSC) DropEdges(weights []float32, drop func(Link) bool) []float32 {
	kept, begin := int64(0), int64(0)
	for v := range g.NumVertices() {
		end := g.Indptr[v+1]
		for e := begin; e < end; e++ {
			if drop(Link{g.Indices[e], VertexID(v)}) {
				continue
			}
			g.Indices[kept] = g.Indices[e]
			if weights != nil {
				weights[kept] = weights[e]
			}
			kept++
		}
		begin, g.Indptr[v+1] = end, kept
	}
	g.Indices = g.Indices[:kept]
	if weights != nil {
		weights = weights[:kept]
	}
	return weights
}

// FindBy returns the position of the edge l in Indices, or -1 if there is no such edge. It is for a
// graph whose rows are in ascending order of place[source].
func (g *CSC) FindBy(l Link, place []int32) int64 {
	row := g.InNeighbours(l.Target)
	at, _ := slices.BinarySearchFunc(row, l.Source,
		func(a, b VertexID) int { return cmp.Compare(place[a], place[b]) })
	if at == len(row) || row[at] != l.Source {
		return -1
	}
	return g.Indptr[l.Target] + int64(at)
}

// With returns a copy of the graph with the given links added as edges. If `reverses` is true, With
// adds the reverses of the links too. It does not repeat edges that g has. In each row of g,
// sources must be in ascending order of place[source]; the rows of the copy are in this order too.
// The copy takes 8 bytes a vertex and 4 an edge, until the caller calls Free.
func (g *CSC) With(links []Link, reverses bool, place []int32) CSC {
	more := slices.Clone(links)
	for _, l := range links {
		if reverses {
			more = append(more, l.Reverse())
		}
	}
	order := func(a, b VertexID) int { return cmp.Compare(place[a], place[b]) }
	slices.SortFunc(more, func(a, b Link) int {
		return cmp.Or(cmp.Compare(a.Target, b.Target), order(a.Source, b.Source))
	})
	more = slices.Compact(more)
	n := g.NumVertices()
	w := CSC{Indptr: mem.Make[int64](n + 1),
		Indices: mem.Make[VertexID](len(g.Indices) + len(more))}
	at := 0
	for v := range n {
		row := w.Indices[at:at]
		row = append(row, g.InNeighbours(VertexID(v))...)
		for ; len(more) > 0 && int(more[0].Target) == v; more = more[1:] {
			if i, found := slices.BinarySearchFunc(row, more[0].Source, order); !found {
				row = slices.Insert(row, i, more[0].Source)
			}
		}
		at += len(row)
		w.Indptr[v+1] = int64(at)
	}
	w.Indices = w.Indices[:at]
	return w
}
