package dataset

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"halognn/src/base/mem"
	"halognn/src/base/npy"
	"halognn/src/model/task"
	"halognn/src/topology/graph"
)

// linkTask returns the task if it is one that predicts labels of links, and otherwise "".
func (o *ImportOptions) linkTask() string {
	if of := task.Labelling(o.Task); of != nil {
		return of.Name
	}
	return ""
}

// linkFlag returns the flag that names the labels of links.
func (o *ImportOptions) linkFlag() string {
	if o.Task == task.LinkNumbers {
		return "--link-numbers"
	}
	return "--link-classes"
}

// checkLinkLabels returns an error if the options for labels of links are incomplete or contradict
// each other.
func (o *ImportOptions) checkLinkLabels() error {
	switch {
	case o.linkTask() == "":
		return nil
	case o.SplitLinks == "" || len(o.LinkLabels) == 0:
		return badOption("task %s needs --split-links, and the names of the labels by "+
			"--link-classes or --link-numbers", o.Task)
	case o.Task == task.LinkClasses && len(o.LinkLabels) > 1:
		return badOption("--link-classes %s: a link has one class; name one column",
			strings.Join(o.LinkLabels, ","))
	case len(o.Table.EdgeFeatures) > 0:
		return badOption("--edge-features: edges with features cannot be links; leave them out")
	case o.edgeLabels() != nil && o.Format != "csv" && o.Format != "npz":
		return badOption("%s: edges of format %s have no labels; use csv or npz, or give labels "+
			"beside the links, as --split-links DIR with train_%s.npy", o.linkFlag(), o.Format,
			o.LinkLabels[0])
	case o.edgeLabels() != nil && o.Format == "npz" && len(o.LinkLabels) > 1:
		return badOption("%s %s: name one array, of the shape [edges] or [edges, labels]",
			o.linkFlag(),
			strings.Join(o.LinkLabels, ","))
	}
	return nil
}

// labelFile returns the path of the file with the labels of one list of links. The file lies beside
// the list.
func (o *ImportOptions) labelFile(split int) string {
	return filepath.Join(o.SplitLinks, graph.SplitNames[split]+"_"+strings.Join(o.LinkLabels,
		",")+".npy")
}

// edgeLabels returns the names of the columns or the array with labels of edges. It is nil if links
// have no labels, or if files beside the lists of links have the labels.
func (o *ImportOptions) edgeLabels() []string {
	if _, err := os.Stat(o.labelFile(0)); o.linkTask() == "" || err == nil {
		return nil
	}
	return o.LinkLabels
}

// edgeColumns returns the columns of the edge table that hold labels or features of edges, and the
// flag that names the columns.
func (o *ImportOptions) edgeColumns() (names []string, flag string) {
	if o.linkTask() != "" {
		return o.edgeLabels(), o.linkFlag()
	}
	return o.Table.EdgeFeatures, "--edge-features"
}

// readLabelArray reads labels of edges from an array [E, C] or [E].
func readLabelArray(e *edgeSource, a arraySource, key string) error {
	if !a.Has(key) {
		return fmt.Errorf("%s: there is no array %q, which %s names; the arrays are %s",
			a.path, key,
			e.options.linkFlag(), strings.Join(a.Names(), ", "))
	}
	return readEdgeArray(e, a, e.used(key, asLinkLabel))
}

// placeLinkLabels brings the labels of the source's edges into the order of the edges of g. If an
// edge comes several times with different labels, or the two directions of an edge in a symmetric
// graph have different labels, it returns an error.
func placeLinkLabels(e *edgeSource, g *graph.CSC) (all []float32, err error) {
	cols := e.rows.cols
	if cols == 0 {
		return nil, nil
	}
	if e.options.KeepDuplicates {
		return nil, fmt.Errorf("%s: %w: repeated edges cannot be kept (--keep-duplicates) where "+
			"links have labels; leave it out", e.options.In, ErrMismatch)
	}
	all = mem.Make[float32](len(g.Indices) * cols)
	known := mem.Make[uint8](len(g.Indices))
	defer mem.Free(known)
	symmetric := e.from == e.to && g.Reciprocal() == g.NumEdges()
	i := 0
	e.edges.Each(func(edges []graph.Edge) {
		for _, edge := range edges {
			label := e.rows.data[i*cols:][:cols]
			i++
			put := func(at int64) {
				own := all[at*int64(cols):][:cols]
				if known[at] != 0 && !slices.Equal(own, label) && err == nil {
					err = fmt.Errorf("%s: the edges between %s and %s have two labels, %v and "+
						"%v: %w; a link has one label: leave one of the edges out",
						e.options.In, idOf(
							e.from, edge.Src()), idOf(e.from, edge.Dst()), own, label, ErrValue)
				}
				copy(own, label)
				known[at] = 1
			}
			at := g.Find(edge.Src(), edge.Dst())
			if at < 0 { // the edge was dropped, because it joins a vertex to itself
				continue
			}
			put(at)
			if symmetric && edge.Src() != edge.Dst() {
				put(g.Find(edge.Dst(), edge.Src()))
			}
		}
	})
	return all, err
}

// idOf returns the id that a vertex has in the source.
func idOf(s *source, v graph.VertexID) string {
	switch {
	case s.names != nil:
		return s.names[v]
	case s.originals != nil:
		return strconv.FormatInt(s.originals[v], 10)
	}
	return strconv.Itoa(int(v))
}

// labelLinks gives links their labels, if the options ask for it. The labels are those of the edges
// of g, or come from files beside the lists of links.
func labelLinks(e *edgeSource, g *graph.CSC, links *graph.LinkSplit) error {
	of := task.Labelling(e.from.task())
	if of == nil {
		return nil
	}
	cols := e.rows.cols
	var values [3][]float32
	for k, list := range links.Lists() {
		var err error
		width := cols
		if e.options.edgeLabels() == nil {
			values[k], width, err = readLinkLabels(e.options.labelFile(k), len(*list))
		} else {
			values[k], err = edgeLabelsOf(e, g, *list)
		}
		if err == nil && of.Class != nil {
			err = checkLinkClasses(values[k], width)
		}
		if err == nil && k > 0 && width != cols {
			err = fmt.Errorf("%d columns, but the labels of training links have %d: %w; give the "+
				"labels of all lists the same number of columns", width, cols, ErrMismatch)
		}
		cols = width
		if err != nil {
			return fmt.Errorf("%s: labels of %s links: %w", e.options.In, graph.SplitNames[k], err)
		}
	}
	for c := range cols {
		if err := varies(values, c, cols); err != nil {
			return fmt.Errorf("%s: %s: %w", e.options.In, e.options.linkFlag(), err)
		}
	}
	e.linkOutputs = cols
	for k := range values {
		e.linkLabels[k] = mem.Bytes(values[k])
		if of.Class == nil {
			continue
		}
		e.linkLabels[k] = nil
		if k == 0 {
			e.linkOutputs = 0
		}
		for _, y := range values[k] {
			e.linkOutputs = max(e.linkOutputs, int(y)+1)
			e.linkLabels[k] = binary.LittleEndian.AppendUint32(e.linkLabels[k], uint32(y))
		}
	}
	return nil
}

// edgeLabelsOf returns the labels of links. The label of a link is that of the edge between its
// ends.
func edgeLabelsOf(e *edgeSource, g *graph.CSC, links []graph.Link) (values []float32, err error) {
	cols := int64(e.rows.cols)
	for _, l := range links {
		at := g.Find(l.Source, l.Target)
		if at < 0 {
			return nil, fmt.Errorf("the link from %s to %s has no edge with a label; put the "+
				"labels of all links into files beside the lists, such as %s",
				idOf(e.from, l.Source), idOf(e.to, l.Target),
				filepath.Base(e.options.labelFile(0)))
		}
		values = append(values, e.placed[at*cols:(at+1)*cols]...)
	}
	return values, nil
}

// readLinkLabels reads the labels of n links, [n] or [n, C].
func readLinkLabels(path string, n int) (values []float32, cols int, err error) {
	r, err := npy.OpenReader(path)
	if err != nil {
		return nil, 0, fmt.Errorf("%w; give each list of links such a file", err)
	}
	defer r.Close()
	if cols = 1; len(r.Shape) == 2 {
		cols = r.Shape[1]
	}
	if len(r.Shape) < 1 || len(r.Shape) > 2 || r.Shape[0] != n || cols < 1 {
		return nil, 0, fmt.Errorf("%s: %w: shape %s for %d links; want one label for each", path,
			ErrMismatch, npy.ShapeString(r.Shape), n)
	}
	values, err = npy.ReadAll[float32](r)
	if i := slices.IndexFunc(values, func(x float32) bool { return !finite(x) }); err == nil &&
		i >= 0 {
		err = fmt.Errorf("%s: link %d has %g: %w; each link needs a finite number", path, i/cols,
			values[i], ErrValue)
	}
	return values, cols, err
}

// mostLinkClasses is the largest number of classes of links, because a model has an output for each
// class.
const mostLinkClasses = 1 << 16

// checkLinkClasses returns an error for a label that is not a class.
func checkLinkClasses(values []float32, cols int) error {
	if cols != 1 {
		return fmt.Errorf("%d columns: %w; a link has one class", cols, ErrValue)
	}
	for _, y := range values {
		if !(y >= 0 && y < mostLinkClasses) || y != float32(int(y)) {
			return fmt.Errorf("a link has %g: %w; want a class, 0 to %d at most; --link-numbers "+
				"trains a model to predict numbers", y, ErrValue, mostLinkClasses-1)
		}
	}
	return nil
}

// varies returns an error if all links have the same label in a column, because there would be
// nothing to learn. The argument `values` has the labels of the three lists of links, in rows of
// cols numbers.
func varies(values [3][]float32, column, cols int) error {
	least, most := math.Inf(1), math.Inf(-1)
	for _, list := range values {
		for i := column; i < len(list); i += cols {
			least, most = min(least, float64(list[i])), max(most, float64(list[i]))
		}
	}
	if least >= most {
		return fmt.Errorf("column %d is %g for every link: %w: there is nothing to learn; name "+
			"another", column, least, ErrValue)
	}
	return nil
}
