package dataset

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"halognn/src/base/npy"
	"halognn/src/model/task"
	"halognn/src/topology/graph"
)

// LinksFile returns the file of one list of links, int32 [n, 2]: source and target.
func LinksFile(split string) string { return "links/" + split + ".npy" }

// LinkLabelsFile returns the file of the labels of one list of links.
func LinkLabelsFile(split string) string { return "links/" + split + "_labels.npy" }

// pairWord returns a random number for the pair of vertices of a link. The number is the same for
// the link and its reverse.
func pairWord(seed uint64, l graph.Link) uint64 {
	a, b := min(l.Source, l.Target), max(l.Source, l.Target)
	s := newStream(seed, keyLink, uint64(a)<<32|uint64(b))
	return s.next()
}

// SplitLinks turns edges of g into links. It distributes the pairs of vertices at random over the
// training, validation and test lists, in proportion to the fractions f. If symmetric is set, a
// pair with edges in both directions is one link, in a random direction; otherwise every edge is a
// link. Edges from a vertex to itself are no links. Rows must be in ascending order. Memory: 8
// bytes for each pair.
func SplitLinks(g *graph.CSC, f Fractions, seed uint64, symmetric bool) (s graph.LinkSplit) {
	// first is true for the first link of a pair of vertices
	each := func(do func(l graph.Link, first bool)) {
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
	// The training list gets the pairs with the smallest random words, the validation list the next
	// ones, and the test list those after them. Pairs that rounding leaves over go to the training
	// list.
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
		return 3 // 3 means in no list: the shares add up to less than 1, so some pairs stay edges
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
	for _, list := range lists {
		slices.SortFunc(*list, graph.Link.Compare)
	}
	return s
}

// Judged returns a function that reports whether an edge, or its reverse, is a validation or test
// link.
func Judged(s *graph.LinkSplit) func(l graph.Link) bool {
	judged := slices.Concat(s.Valid, s.Test)
	forward := func(l graph.Link) graph.Link {
		return graph.Link{Source: min(l.Source, l.Target), Target: max(l.Source, l.Target)}
	}
	for i, l := range judged {
		judged[i] = forward(l)
	}
	slices.SortFunc(judged, graph.Link.Compare)
	return func(l graph.Link) bool {
		_, found := slices.BinarySearchFunc(judged, forward(l), graph.Link.Compare)
		return found
	}
}

// linkEnds describes the two ends of all links: [0] the sources, and [1] the targets. All sources
// have one vertex type, and so have all targets. For each end, the field of holds the vertices of
// the end's type, and first is the number of that type's first vertex among all vertices.
type linkEnds [2]struct {
	of    *source
	first int64
}

// chooseLinks turns edges of g, which has a row for every vertex, into links. The option SplitLinks
// gives shares, or files that list the links.
func chooseLinks(o *ImportOptions, ends linkEnds, g *graph.CSC,
	symmetric bool) (split graph.LinkSplit, err error) {
	// the method check has reported its errors
	if shares, dealt, _ := sharesOf(o.SplitLinks); dealt {
		f := Fractions{shares[0] / 100, shares[1] / 100, shares[2] / 100}
		return SplitLinks(g, f, o.Seed, symmetric), nil
	}
	for k, list := range split.Lists() {
		path := filepath.Join(o.SplitLinks, graph.SplitNames[k]+".npy")
		links, err := readLinks(ends, path)
		switch {
		case k == 0 && errors.Is(err, os.ErrNotExist):
			// without a file of training links, all remaining edges are training links
		case err != nil:
			return split, fmt.Errorf("%w; --split-links must be shares such as 85/5/10, or a "+
				"directory with train.npy, valid.npy and test.npy, each of shape [n, 2]", err)
		default:
			*list = links
		}
	}
	if split.Train == nil {
		split.Train = slices.DeleteFunc(SplitLinks(g, Fractions{1}, o.Seed, symmetric).Train,
			Judged(&split))
	}
	return split, nil
}

// readLinks reads links from an array [n, 2] of ids of the source.
func readLinks(ends linkEnds, path string) ([]graph.Link, error) {
	r, err := npy.OpenReader(path)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if len(r.Shape) != 2 || r.Shape[1] != 2 {
		return nil, fmt.Errorf("%s: %w: shape %s; links must have the shape [n, 2]",
			path, ErrMismatch,
			npy.ShapeString(r.Shape))
	}
	ids, err := npy.ReadAll[int64](r)
	if err != nil {
		return nil, err
	}
	links := make([]graph.Link, len(ids)/2)
	for i := range links {
		for k, end := range [2]*graph.VertexID{&links[i].Source, &links[i].Target} {
			v, err := ends[k].of.vertexOf(ids[2*i+k])
			if err != nil {
				return nil, fmt.Errorf("%s: a link has a wrong end: %w", path, err)
			}
			*end = graph.VertexID(ends[k].first) + v
		}
	}
	return links, nil
}

// Links writes the links of the task, and the labels of each list if links have labels. Each list
// must be sorted by target, then by source.
func (w *Writer) Links(s graph.LinkSplit, labels ...[]byte) error {
	of := task.Labelling(w.Meta.Task)
	if of == nil {
		labels = make([][]byte, 3)
	}
	if err := os.MkdirAll(filepath.Join(w.tmp, "links"), 0o777); err != nil {
		return err
	}
	for k, list := range s.Lists() {
		sorted, name := slices.Clone(*list), graph.SplitNames[k]
		labels := graph.SortLinks(sorted, labels[k], graph.Link.Compare)
		if err := put(w, LinksFile(name), graph.LinkIDs(sorted), len(sorted), 2); err != nil {
			return err
		}
		if of == nil {
			continue
		}
		if err := CheckLinkLabels(w.Meta.Task, w.Meta.Classes, k, sorted, task.Labels{Data: labels,
			Width: of.LabelBytes(w.Meta.Classes)}); err != nil {
			return err
		}
		layout := of.Layout(len(sorted), w.Meta.Classes)
		if err := w.put(LinkLabelsFile(name), labels, layout.DType, layout.Shape...); err != nil {
			return err
		}
	}
	return nil
}

// linkLayout adds the files of links to those that a dataset must have.
func (m *Meta) linkLayout(files map[string]npy.Info) {
	for _, name := range graph.SplitNames {
		if task.Stored(m.Task).Embeds {
			files[LinksFile(name)] = npy.Info{DType: "<i4", Shape: []int{-1, 2}}
		}
		if of := task.Labelling(m.Task); of != nil {
			files[LinkLabelsFile(name)] = of.Layout(-1, m.Classes)
		}
	}
}

// CheckLinkLabels reports the first link of a list that has no label or an impossible one, or that
// is in the list twice with different labels.
func CheckLinkLabels(name string, outputs, split int, links []graph.Link,
	labels task.Labels) error {
	of := task.Labelling(name)
	if of == nil {
		return nil
	}
	fault := func(i int, format string, args ...any) error {
		return fmt.Errorf("%s links, the link from %d to %d %w: %w", graph.SplitNames[split],
			links[i].Source, links[i].Target, fmt.Errorf(format, args...), ErrValue)
	}
	if n := len(links) * labels.Width; n != len(labels.Data) {
		return fmt.Errorf("%w: there are %d bytes of labels, but %d %s links need %d bytes",
			ErrMismatch,
			len(labels.Data), len(links), graph.SplitNames[split], n)
	}
	if err := of.Check(labels, outputs); err != nil {
		return fmt.Errorf("%s links, %w: %w", graph.SplitNames[split], err, ErrValue)
	}
	for i := range links {
		switch {
		case !of.Truth(labels.Row(i), nil):
			return fault(i, "has no label, but each link needs one")
		case i > 0 && links[i] == links[i-1] && !bytes.Equal(labels.Row(i), labels.Row(i-1)):
			return fault(i, "comes twice with two labels; leave one out")
		}
	}
	return nil
}

func (d *Dataset) mapLinks() error {
	if !task.Stored(d.Meta.Task).Embeds {
		return nil
	}
	var faults []error
	for k, list := range d.Links.Lists() {
		var ids []graph.VertexID
		faults = append(faults, mapInto(d, LinksFile(graph.SplitNames[k]), &ids))
		*list = graph.Links(ids)
		if of := task.Labelling(d.Meta.Task); of != nil {
			f, err := d.open(LinkLabelsFile(graph.SplitNames[k]))
			if err == nil {
				d.LinkLabels[k], err = of.ReadLabels(f, d.Meta.Classes)
			}
			faults = append(faults, err)
		}
	}
	return errors.Join(faults...)
}

// describeLinks describes the links in one line, for a report.
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
