package dataset

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"halognn/src/graph"
	"halognn/src/npy"
	"halognn/src/task"
)

// LinksFile returns the file of one list of links, int32 [n, 2]: source and target.
func LinksFile(split string) string { return "links/" + split + ".npy" }

// pairWord is a random word that both directions of a pair have in common.
func pairWord(seed uint64, l graph.Link) uint64 {
	a, b := min(l.Source, l.Target), max(l.Source, l.Target)
	s := newStream(seed, keyLink, uint64(a)<<32|uint64(b))
	return s.next()
}

// SplitLinks makes links of the edges of g: shares of its pairs of vertices, at random by seed, for
// training, validation and test. It takes the edges of the last two out of the graph, which then
// passes messages by training links alone. A pair with edges both ways is one link if the graph is
// symmetric, in a direction drawn by seed; else every edge is a link. Edges from a vertex to itself
// are no links. Rows must be in ascending order; 8 bytes a pair.
func SplitLinks(g *graph.CSC, weights []float32, f Fractions, seed uint64, symmetric bool) (
	s graph.LinkSplit, left []float32) {
	each := func(do func(l graph.Link, first bool)) { // first: of its pair
		for v := range g.NumVertices() {
			row := g.InNeighbours(graph.VertexID(v))
			for i, u := range row {
				l := graph.Link{Source: u, Target: graph.VertexID(v)}
				if l.Source == l.Target || i > 0 && row[i-1] == u {
					continue
				}
				do(l, u < l.Target || !g.Has(l.Reverse()))
			}
		}
	}
	var words []uint64
	each(func(l graph.Link, first bool) {
		if first {
			words = append(words, pairWord(seed, l))
		}
	})
	slices.Sort(words)
	// side k has the words below bounds[k]; what rounding leaves goes to the training links
	const slack = 1e-9
	n := float64(len(words))
	test, valid := int(f[2]*n+slack), int(f[1]*n+slack)
	train := len(words) - test - valid
	if f[0]+f[1]+f[2] < 1-slack {
		train = min(train, int(f[0]*n+slack))
	}
	side := func(l graph.Link) int {
		at, _ := slices.BinarySearch(words, pairWord(seed, l))
		switch {
		case at < train:
			return 0
		case at < train+valid:
			return 1
		case at < train+valid+test:
			return 2
		}
		return 3 // neither, where shares leave some out: still an edge
	}
	lists := s.Lists()
	each(func(l graph.Link, first bool) {
		if symmetric && !first {
			return
		}
		k := side(l)
		if k == 3 {
			return
		}
		if symmetric && pairWord(seed+1, l)&1 != 0 {
			l = l.Reverse()
		}
		*lists[k] = append(*lists[k], l)
	})
	left = g.DropEdges(weights, func(l graph.Link) bool {
		if l.Source == l.Target {
			return false
		}
		k := side(l)
		return k == 1 || k == 2
	})
	for _, list := range lists {
		slices.SortFunc(*list, graph.Link.Compare)
	}
	return s, left
}

// linkEnds are the sources and the targets of links: of a type with vertices from first on.
type linkEnds [2]struct {
	of    *source
	first int64
}

// takeLinks makes the links of an import: by shares of the edges, or those of files, whose
// validation and test links are then no edges of the graph. There are training links, or it is an error.
func takeLinks(o *ImportOptions, ends linkEnds, g *graph.CSC, weights []float32, symmetric bool) (
	split graph.LinkSplit, left []float32, err error) {
	if shares, ok := parseShares(o.SplitLinks); ok {
		f := Fractions{shares[0] / 100, shares[1] / 100, shares[2] / 100}
		split, left = SplitLinks(g, weights, f, o.Seed, symmetric)
	} else if split, left, err = givenLinks(o, ends, g, weights, symmetric); err != nil {
		return split, left, err
	}
	if len(split.Train) == 0 {
		err = fmt.Errorf("%s: %w: there are no training links; give them a larger share", o.In, ErrValue)
	}
	return split, left, err
}

// givenLinks reads the links of a directory.
func givenLinks(o *ImportOptions, ends linkEnds, g *graph.CSC, weights []float32, symmetric bool) (
	graph.LinkSplit, []float32, error) {
	how := o.SplitLinks
	var split graph.LinkSplit
	for k, list := range split.Lists() {
		path := filepath.Join(how, graph.SplitNames[k]+".npy")
		links, err := readLinks(ends, path)
		switch {
		case k == 0 && errors.Is(err, os.ErrNotExist): // all that is left
		case err != nil:
			return split, nil, fmt.Errorf("%w; --split-links is shares such as 85/5/10, or a directory "+
				"with train.npy, valid.npy and test.npy, each [n, 2]", err)
		default:
			*list = links
		}
	}
	judged := slices.Concat(split.Valid, split.Test)
	for i, l := range judged {
		judged[i] = graph.Link{Source: min(l.Source, l.Target), Target: max(l.Source, l.Target)}
	}
	slices.SortFunc(judged, graph.Link.Compare)
	left := g.DropEdges(weights, func(l graph.Link) bool {
		l = graph.Link{Source: min(l.Source, l.Target), Target: max(l.Source, l.Target)}
		_, found := slices.BinarySearchFunc(judged, l, graph.Link.Compare)
		return found
	})
	if split.Train == nil {
		rest, _ := SplitLinks(g, nil, Fractions{1}, o.Seed, symmetric)
		split.Train = rest.Train
	}
	if err := split.Validate(g); err != nil {
		return split, left, fmt.Errorf("%s: %w", how, err)
	}
	return split, left, nil
}

// readLinks reads ids of the source, [n, 2].
func readLinks(ends linkEnds, path string) ([]graph.Link, error) {
	r, err := npy.OpenReader(path)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if len(r.Shape) != 2 || r.Shape[1] != 2 {
		return nil, fmt.Errorf("%s: %w: shape %s; links are [n, 2]", path, ErrMismatch,
			npy.ShapeString(r.Shape))
	}
	ids, err := npy.ReadAll[int64](r)
	if err != nil {
		return nil, err
	}
	of := func(end int, id int64) (graph.VertexID, error) {
		s, first := ends[end].of, graph.VertexID(ends[end].first)
		if s.originals == nil {
			if id < 0 || id >= int64(s.vertices) {
				return 0, fmt.Errorf("%s: a link of vertex %d: %w (the graph has %d vertices)", path, id,
					graph.ErrVertexRange, s.vertices)
			}
			return first + graph.VertexID(id), nil
		}
		v, found := slices.BinarySearch(s.originals, id)
		if !found {
			return 0, fmt.Errorf("%s: a link of vertex %d: %w: the source has no such id", path, id,
				graph.ErrVertexRange)
		}
		return first + graph.VertexID(v), nil
	}
	links := make([]graph.Link, len(ids)/2)
	for i := range links {
		var faults [2]error
		links[i].Source, faults[0] = of(0, ids[2*i])
		links[i].Target, faults[1] = of(1, ids[2*i+1])
		if err := errors.Join(faults[:]...); err != nil {
			return nil, err
		}
	}
	return links, nil
}

// Links writes the links of the task, each list by target and source.
func (w *Writer) Links(s graph.LinkSplit) error {
	if err := os.MkdirAll(filepath.Join(w.tmp, "links"), 0o777); err != nil {
		return err
	}
	for k, list := range s.Lists() {
		sorted := slices.SortedFunc(slices.Values(*list), graph.Link.Compare)
		if err := put(w, LinksFile(graph.SplitNames[k]), graph.LinkIDs(sorted), len(sorted), 2); err != nil {
			return err
		}
	}
	return nil
}

// linkLayout adds the files of links to those that a dataset must have.
func (m *Meta) linkLayout(files map[string]npy.Info) {
	for _, name := range graph.SplitNames {
		if m.Task == task.Links {
			files[LinksFile(name)] = npy.Info{DType: "<i4", Shape: []int{-1, 2}}
		}
	}
}

func (d *Dataset) mapLinks() error {
	if d.Meta.Task != task.Links {
		return nil
	}
	var faults []error
	for k, list := range d.Links.Lists() {
		var ids []graph.VertexID
		faults = append(faults, mapInto(d, LinksFile(graph.SplitNames[k]), &ids))
		*list = graph.Links(ids)
	}
	return errors.Join(faults...)
}

// describeLinks is a line of a report.
func describeLinks(s *graph.LinkSplit) string {
	var b strings.Builder
	for k, list := range s.Lists() {
		if k > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%d %s", len(*list), graph.SplitNames[k])
	}
	return b.String()
}
