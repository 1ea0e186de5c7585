package dataset

import (
	"fmt"
	"slices"

	"halognn/src/base/mem"
	"halognn/src/topology/graph"
)

// linked returns the relation whose edges are the links.
func (g *graphSource) linked(s *graph.Schema) (int, error) {
	switch name := g.options.LinksOf; {
	case !g.named:
		return 0, nil
	case name == "":
		return 0, badOption("--task links: the graph has relations; say whose edges are the "+
			"links: --relation %s", s.Relations[0])
	default:
		of, err := s.Relation(name)
		if err != nil {
			return 0, badOption("--relation: %w", err)
		}
		return of, nil
	}
}

// takeLinks turns the edges of a relation into links. It returns them, and the numbers of the
// relations that graph.Schema.Links lists: this one, and the others that hold the same pairs. It
// takes the validation and test links out of all these relations, in both directions. Another
// relation holds the same pairs if it is named as the reverse or if most of its pairs (leak) are
// links in either direction, whatever its name: so does a reverse with an edge more or less, and
// the reverse of a reverse. Other relations keep their edges, which is noted; with KeepLeaks all
// do. It is an error if there are no training links. Memory: 16 bytes a vertex, and 8 an edge of
// other relations between the same types.
func (g *graphSource) takeLinks(all []relationRows, r int) (links graph.LinkSplit, of []int,
	err error) {
	o, own, starts := &g.options, g.relations[r], g.starts()
	first := func(s *source) int64 { return starts[slices.Index(g.types, s)] }
	wide := wideRows(all[r].g, first(own.to), starts)
	defer freeWide(wide, all[r].g)
	symmetric := own.from == own.to && wide.Reciprocal() == wide.NumEdges()
	of = []int{r}
	pairs := map[int][]graph.Link{} // pairs of each other relation between the same types
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
			g.note("%d edges of %s join the ends of validation and test links and stay "+
				"in the graph, so a model reads them: leave the relation out if its edges give "+
				"the links away", stay, g.relations[k])
		}
	}
	return links, of, nil
}

// A relation gives the links away if at least the share leak of its pairs are links. That leaves
// room for a reverse with an edge more or less.
const leak = 0.8

// wideRows turns rows of the vertices from number first on into rows of all; it shares the edges.
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

// freeWide frees what wideRows made of g.
func freeWide(wide graph.CSC, g *graph.CSC) {
	if len(wide.Indptr) > 0 && &wide.Indptr[0] != &g.Indptr[0] {
		mem.Free(wide.Indptr)
	}
}

// pairs returns the distinct edges of all targets, whose numbers begin at first.
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

// samePairs counts the pairs that are edges of g, in either direction.
func samePairs(g *graph.CSC, pairs []graph.Link) (same float64) {
	for _, l := range pairs {
		if g.Has(l) || g.Has(l.Reverse()) {
			same++
		}
	}
	return same
}
