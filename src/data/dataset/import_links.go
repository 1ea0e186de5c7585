package dataset

import (
	"fmt"
	"slices"

	"halognn/src/base/mem"
	"halognn/src/topology/graph"
)

// linked returns the index of the relation whose edges are the links.
func (g *graphSource) linked(s *graph.Schema) (int, error) {
	switch name := g.options.LinksOf; {
	case !g.named:
		return 0, nil
	case name == "":
		return 0, badOption("--task links: the graph has several relations; name the one whose "+
			"edges are the links, such as --relation %s", s.Relations[0])
	default:
		of, err := s.Relation(name)
		if err != nil {
			return 0, badOption("--relation: %w", err)
		}
		return of, nil
	}
}

// takeLinks turns the edges of relation r into links. It returns the links, and the indices of the
// relations that hold the links: r, and each relation that holds the same pairs of vertices, in
// either direction. graph.Schema.Links lists these relations. takeLinks takes the validation and
// test links out of all of them, in both directions, because a model could read a link from the
// edge.
//
// A relation holds the same pairs as r if its name is that of the reverse of r, or if most of its
// pairs (leak) are links in either direction. So takeLinks also finds a reverse that has an edge
// more or less, and the reverse of a reverse. With KeepLeaks, no relation but r counts. The
// relations that do not count keep their edges; the report notes how many of these join the
// vertices of validation or test links.
//
// If there are no training links, takeLinks returns an error. It takes 16 bytes of memory for each
// vertex, and 8 for each edge of other relations between the same types.
func (g *graphSource) takeLinks(all []relationRows, r int) (links graph.LinkSplit, of []int,
	err error) {
	o, own, starts := &g.options, g.relations[r], g.starts()
	first := func(s *source) int64 { return starts[slices.Index(g.types, s)] }
	wide := wideRows(all[r].g, first(own.to), starts)
	defer freeWide(wide, all[r].g)
	symmetric := own.from == own.to && wide.Reciprocal() == wide.NumEdges()
	of = []int{r}
	// the pairs of each relation besides r that joins the same types
	pairs := map[int][]graph.Link{}
	for k, other := range g.relations {
		if k == r || !(other.from == own.to && other.to == own.from || other.from == own.from &&
			other.to == own.to) {
			continue
		}
		pairs[k] = all[k].pairs(first(other.to))
		byName := other.Relation == own.Reverse() || own.Relation == other.Reverse()
		if same := samePairs(&wide, pairs[k]); !o.KeepLeaks &&
			(byName || same > 0 && same >= leak*float64(len(pairs[k]))) {
			of = append(of, k)
		}
	}
	ends := linkEnds{{own.from, first(own.from)}, {own.to, first(own.to)}}
	if links, err = chooseLinks(o, ends, &wide, symmetric); err == nil {
		err = labelLinks(own, &wide, &links)
	}
	if err != nil {
		return links, of, err
	}
	judged := Judged(&links)
	for _, k := range of {
		to := graph.VertexID(first(g.relations[k].to))
		all[k].weights = all[k].g.DropEdges(all[k].weights, func(l graph.Link) bool {
			l.Target += to
			return judged(l)
		})
	}
	if _, dealt, _ := sharesOf(o.SplitLinks); !dealt {
		left := wideRows(all[r].g, first(own.to), starts)
		defer freeWide(left, all[r].g)
		if err := links.Validate(&left); err != nil {
			return links, of, fmt.Errorf("%s: %w", o.SplitLinks, err)
		}
	}
	if len(links.Train) == 0 {
		return links, of, fmt.Errorf("%s: %w: there are no training links; give them a larger "+
			"share", o.In, ErrValue)
	}
	for k := range g.relations {
		stay := 0
		for _, l := range pairs[k] {
			if judged(l) {
				stay++
			}
		}
		if stay > 0 && !slices.Contains(of, k) {
			g.note("%d edges of %s join the same vertices as validation or test links and stay "+
				"in the graph, so a model reads them; leave that relation out if its edges give "+
				"the links away", stay, g.relations[k])
		}
	}
	return links, of, nil
}

// A relation gives the links away if at least the share leak of its pairs are links. The share is
// below 1, so that a reverse with an edge more or less is found too.
const leak = 0.8

// wideRows returns a graph with a row for every vertex of all types. The graph g has the rows of
// consecutive vertices, the first of which has the number first. All other rows of the result are
// empty. Both graphs share the edges.
func wideRows(g *graph.CSC, first int64, starts []int64) graph.CSC {
	if len(starts) == 2 { // with one type, g has the rows of all vertices
		return *g
	}
	wide := graph.CSC{Indptr: mem.Make[int64](int(starts[len(starts)-1]) + 1), Indices: g.Indices}
	end := copy(wide.Indptr[first:], g.Indptr) + int(first)
	for v := end; v < len(wide.Indptr); v++ {
		wide.Indptr[v] = g.NumEdges()
	}
	return wide
}

// freeWide frees the memory that wideRows took for g.
func freeWide(wide graph.CSC, g *graph.CSC) {
	if len(wide.Indptr) > 0 && &wide.Indptr[0] != &g.Indptr[0] {
		mem.Free(wide.Indptr)
	}
}

// pairs returns the distinct edges of the relation. The number of a target is its row in r plus
// first.
func (r *relationRows) pairs(first int64) (pairs []graph.Link) {
	for v := range r.g.NumVertices() {
		row := r.g.InNeighbours(graph.VertexID(v))
		for i, u := range row {
			if i == 0 || row[i-1] != u {
				pairs = append(pairs, graph.Link{Source: u,
					Target: graph.VertexID(first) + graph.VertexID(v)})
			}
		}
	}
	return pairs
}

// samePairs counts how many of the pairs are edges of g, in either direction.
func samePairs(g *graph.CSC, pairs []graph.Link) (same float64) {
	for _, l := range pairs {
		if g.Has(l) || g.Has(l.Reverse()) {
			same++
		}
	}
	return same
}
