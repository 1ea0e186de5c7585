package dataset

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"halognn/src/graph"
	"halognn/src/mem"
	"halognn/src/npy"
	"halognn/src/task"
)

// typedSource is the result of reading a graph with vertex types: a source without edges for the
// vertices of each type, and the edges of each relation.
type typedSource struct {
	names []string // of the types
	of    []*source
	edges []TypedEdges
	notes []string // on the edges; those on vertices are of their source
	// of the edges
	reading []Reading
	close   func() // what features are streamed from; nil: nothing
}

// typedReaders has for each format how a source with vertex types is recognised, and how it is
// read. Tables and arrays of a type are as those of graphs without types; arrays are called x,TYPE
// y,TYPE ids,TYPE train_mask,TYPE ...
var typedReaders = map[string]struct {
	has   func(in string) bool
	files string
	read  func(*typedSource, ImportOptions) error
}{
	"csv": {hasTypedTables, "nodes.TYPE.csv and edges.SOURCE.NAME.TARGET.csv", (*typedSource).readTables},
	"npz": {hasTypedArrays, "arrays num_nodes,TYPE or x,TYPE and edge_index,SOURCE,NAME,TARGET",
		(*typedSource).readArrays},
	"ogb": {hasTypedOGB, "raw/num-node-dict.csv.gz and raw/relations/SOURCE___NAME___TARGET",
		(*typedSource).readOGB},
}

func (o *ImportOptions) typed() bool {
	r, ok := typedReaders[o.Format]
	return ok && o.Table.Nodes == "" && r.has(o.In) // --nodes names the one table there is
}

// importTyped reads a graph with vertex types and writes it.
func importTyped(o ImportOptions) (ImportReport, error) {
	if err := refuseOfTyped(&o); err != nil {
		return ImportReport{}, err
	}
	t := new(typedSource)
	defer func() {
		for _, s := range t.of {
			s.free()
		}
		if t.close != nil {
			t.close()
		}
	}()
	o.Name = cmp.Or(o.Name, baseName(o.In))
	if err := typedReaders[o.Format].read(t, o); err != nil {
		return ImportReport{}, err
	}
	if o.Reverse {
		t.edges = reversed(t.edges)
	}
	if o.linkTask() != "" {
		return ImportReport{}, badOption("labels of links are of graphs without vertex types: leave --link-classes " +
			"and --link-numbers out, or import the relation alone as such a graph")
	}
	if o.SplitLinks == "" {
		return t.write(o, nil, graph.LinkSplit{})
	}
	of, links, err := t.takeLinks(&o)
	if err != nil {
		return ImportReport{}, err
	}
	return t.write(o, of, links)
}

// refuseOfTyped returns an error that names the given options that graphs with vertex types do not
// read.
func refuseOfTyped(o *ImportOptions) error {
	var given []string
	for _, option := range []struct {
		name  string
		given bool
	}{
		{"--standardize", o.Standardize},
		{"--standardize-as", o.StandardizeAs != ""},
		{"--undirected (--reverse adds the reverse of every relation)", o.Undirected == Yes},
		{"--keys", len(o.Keys) > 0},
		{"an array as --label", arrayFile(o.Table.Labels) != ""},
		{"an array as --features", arrayFile(o.Table.Features) != ""},
		{"--weight", o.Table.Weight != ""},
		{"--edge-features", len(o.Table.EdgeFeatures) > 0},
	} {
		if option.given {
			given = append(given, option.name)
		}
	}
	if given == nil {
		return nil
	}
	return badOption("the graph has vertex types, for which these options are not read: %s; leave "+
		"them out", strings.Join(given, ", "))
}

// add adds a type, whose source is to be filled.
func (t *typedSource) add(name string, o ImportOptions) *source {
	s := &source{options: o, vertices: unknown, name: o.Name, typed: true}
	t.names, t.of = append(t.names, name), append(t.of, s)
	return s
}

// typesOf returns the sources of both ends of a relation.
func (t *typedSource) typesOf(r graph.Relation, file string) (source, target *source, err error) {
	i, j := slices.Index(t.names, r.Source), slices.Index(t.names, r.Target)
	if i < 0 || j < 0 {
		lacking := r.Source
		if i >= 0 {
			lacking = r.Target
		}
		return nil, nil, fmt.Errorf("%s: %w: relation %s joins a type that has no vertices here; there "+
			"are %q: write nodes.%s.csv with a column id, or an array num_nodes,%[5]s", file, ErrValue, r, t.names, lacking)
	}
	return t.of[i], t.of[j], nil
}

// tablesIn returns the tables of a directory that are called STEM.REST.csv or .tsv, and the RESTs.
func tablesIn(dir, stem string) (paths, rests []string) {
	for _, name := range filesIn(dir, "") {
		rest, begins := strings.CutPrefix(strings.TrimSuffix(name, ".gz"), stem+".")
		rest, isCSV := strings.CutSuffix(rest, ".csv")
		if !isCSV {
			rest, isCSV = strings.CutSuffix(rest, ".tsv")
		}
		if begins && isCSV {
			paths, rests = append(paths, filepath.Join(dir, name)), append(rests, rest)
		}
	}
	return paths, rests
}

// hasTypedTables reports whether there are tables of types and none without: beside nodes.csv,
// nodes.backup.csv is of no type.
func hasTypedTables(in string) bool {
	paths, _ := tablesIn(in, "nodes")
	return len(paths) > 0 && tableIn(in, "nodes") == ""
}

// readTables reads nodes.TYPE.csv and edges.SOURCE.NAME.TARGET.csv.
func (t *typedSource) readTables(o ImportOptions) error {
	paths, types := tablesIn(o.In, "nodes")
	for i, path := range paths {
		o.Table.Nodes = path
		if err := readNodes(t.add(types[i], o), path); err != nil {
			return err
		}
	}
	paths, names := tablesIn(o.In, "edges")
	for i, path := range paths {
		words := strings.Split(names[i], ".")
		if len(words) < 3 {
			return fmt.Errorf("%s: %w: the table of a relation is called edges.SOURCE.NAME.TARGET.csv",
				path, ErrValue)
		}
		last := len(words) - 1
		e := TypedEdges{Relation: graph.Relation{Source: words[0], Name: strings.Join(words[1:last], "."),
			Target: words[last]}}
		from, to, err := t.typesOf(e.Relation, path)
		if err != nil {
			return err
		}
		of := &source{options: o, typed: true} // has the notes
		table, err := eachNamedEdge(of, path, func(table *edgeTable, u, v, weight string,
			_ []string) error {
			if weight != "" {
				return table.Errorf("%w: column %s: edges of relations have no weights; --ignore %[2]s "+
					"leaves them out", ErrValue, table.Header[table.weight])
			}
			if table.undirected {
				return table.Errorf("%w: column %s: edges of relations have a direction; --ignore %[2]s leaves "+
					"it out, and --reverse adds the reverse of every relation", ErrValue,
					table.Header[table.direction])
			}
			source, err := placeOf(from, table, u)
			if err != nil {
				return err
			}
			target, err := placeOf(to, table, v)
			e.Sources, e.Targets = append(e.Sources, int32(source)), append(e.Targets, int32(target))
			return err
		})
		if err != nil {
			return err
		}
		noteColumns(of, table, false)
		t.notes, t.reading = append(t.notes, of.notes...), append(t.reading, of.reading...)
		t.edges = append(t.edges, e)
	}
	return nil
}

const typedEdges = "edge_index,"

func hasTypedArrays(in string) bool {
	set, err := openArrays(in)
	if err != nil {
		return false // told by what reads it
	}
	defer set.Close()
	return slices.ContainsFunc(set.Names(), func(n string) bool { return strings.HasPrefix(n, typedEdges) })
}

// ofType gives the arrays of one vertex type, which are called NAME,TYPE, under their names without
// the type.
type ofType struct {
	arrays
	suffix string
}

func (a ofType) Has(name string) bool                    { return a.arrays.Has(name + a.suffix) }
func (a ofType) Reader(name string) (*npy.Reader, error) { return a.arrays.Reader(name + a.suffix) }
func (a ofType) Names() (names []string) {
	for _, n := range a.arrays.Names() {
		if name, ok := strings.CutSuffix(n, a.suffix); ok && !strings.Contains(name, ",") {
			names = append(names, name)
		}
	}
	return names
}

// readArrays reads arrays whose names say of which type or relation they are.
func (t *typedSource) readArrays(o ImportOptions) error {
	set, err := openArrays(o.In)
	if err != nil {
		return err
	}
	t.close = func() { _ = set.Close() }
	var types []string
	for _, n := range set.Names() {
		if words := strings.Split(n, ","); len(words) == 2 && !slices.Contains(types, words[1]) {
			types = append(types, words[1])
		}
	}
	slices.Sort(types)
	for _, name := range types {
		s := t.add(name, o)
		a := arraySource{ofType{set, "," + name}, o.In + " (" + name + ")"}
		if err := s.refuseKeys(a); err != nil {
			return err
		}
		if err := errors.Join(readVertices(s, a), s.readTypedSplit(a), s.noteUnread(a)); err != nil {
			return err
		}
		if s.vertices == unknown {
			return fmt.Errorf("%s: %w: neither num_nodes,%[3]s nor x,%[3]s says how many vertices there are",
				o.In, ErrValue, name)
		}
	}
	whole := arraySource{set, o.In}
	for _, key := range set.Names() {
		rest, ok := strings.CutPrefix(key, typedEdges)
		if !ok {
			if strings.Count(key, ",") != 1 { // else it is of a type
				t.notes = append(t.notes, unread(key))
				t.reading = append(t.reading, Reading{Of: filepath.Base(o.In), Name: key, As: asIgnored})
			}
			continue
		}
		words := strings.Split(rest, ",")
		if len(words) != 3 {
			return fmt.Errorf("%s: %w: the edges of a relation are called edge_index,SOURCE,NAME,TARGET",
				whole.name(key), ErrValue)
		}
		e := TypedEdges{Relation: graph.Relation{Source: words[0], Name: words[1], Target: words[2]}}
		if _, _, err := t.typesOf(e.Relation, whole.name(key)); err != nil {
			return err
		}
		pairs := &source{options: o, vertices: unknown}
		if err := addPairs(pairs, whole, key); err != nil {
			pairs.free()
			return err
		}
		pairs.edges.Each(func(all []graph.Edge) {
			for _, edge := range all {
				e.Sources, e.Targets = append(e.Sources, int32(edge.Src())), append(e.Targets, int32(edge.Dst()))
			}
		})
		pairs.free()
		t.reading = append(t.reading, Reading{Of: filepath.Base(o.In), Name: key, As: asEdges})
		t.edges = append(t.edges, e)
	}
	return nil
}

// unread is the note on an array that is not read, of which the relation follows the name.
func unread(key string) string {
	name, _, _ := strings.Cut(key, ",")
	if isTime(name) {
		return "array " + key + " is ignored: " + noTime
	}
	return "array " + key + " is not read"
}

// readTypedSplit reads split and ids of the vertices of a type.
func (s *source) readTypedSplit(a arraySource) error {
	p := &splitSource{from: filepath.Base(a.path), path: a.path, read: true}
	found, err := s.splitArrays(a, p)
	if found {
		s.given = p
	}
	if ids := s.find(a, "ids"); err == nil && ids != "" {
		err = readIDs(s, a, ids)
	}
	return err
}

// labelled returns the type that has labels, or -1.
func (t *typedSource) labelled() (int, error) {
	at := -1
	for i, s := range t.of {
		switch {
		case s.task() == task.None:
		case at >= 0:
			return 0, fmt.Errorf("%w: vertices of types %s and %s have labels, and a model is trained on "+
				"those of one; leave the others out", ErrValue, t.names[at], t.names[i])
		default:
			at = i
		}
	}
	return at, nil
}

// write writes the graph as a dataset. Unless of is nil, links are the task, of the relations that it
// numbers as graph.Schema.Links does, and labels are left out.
func (t *typedSource) write(o ImportOptions, of []int, links graph.LinkSplit) (ImportReport, error) {
	at, err := -1, error(nil)
	if of == nil {
		at, err = t.labelled()
	}
	if err == nil && at < 0 && o.Task == task.Regression {
		err = errNoTargets
	}
	if err != nil {
		return ImportReport{}, fmt.Errorf("%s: %w", o.In, err)
	}
	r := ImportReport{Name: o.Name, Format: o.Format, FeatureType: Float32, SparseEntries: -1,
		Task: task.None, Split: "none, for there are no labels"}
	m := Meta{Name: o.Name, Task: task.None, Schema: graph.Schema{Types: t.names, Links: of}}
	split, labels := new(splitSource), &source{options: o}
	switch {
	case at >= 0:
		labels, m.LabelType = t.of[at], t.names[at]
		if split, err = labels.settle(&r); err != nil {
			return r, err
		}
	case of != nil:
		r.Task, r.Links = task.Links, describeLinks(&links)+" of "+t.edges[of[0]].String()
		r.Split = "of links of " + t.edges[of[0]].String() + ": " + o.SplitLinks
		for _, k := range of[1:] {
			r.Links += "; the edges of " + t.edges[k].String() + " are these pairs, too, and leave with them"
		}
	}
	m.Task, m.Classes = r.Task, r.Classes
	for i, s := range t.of {
		for _, note := range s.notes {
			r.Notes = append(r.Notes, t.names[i]+": "+note)
		}
		r.Reading = append(r.Reading, s.reading...)
	}
	r.Notes, r.Reading = append(r.Notes, t.notes...), append(r.Reading, t.reading...)
	m.Provenance = labels.provenance(&r)
	if o.DryRun {
		return t.rehearse(r)
	}
	w, err := Create(o.Out, m)
	if err != nil {
		return r, err
	}
	defer w.Abort()
	var counts []int64
	for _, s := range t.of {
		counts = append(counts, int64(s.vertices))
	}
	if r.Cleaning, err = w.TypedTopology(counts, t.edges, graph.CleanOptions{KeepLoops: o.KeepLoops,
		KeepDuplicates: o.KeepDuplicates}); err != nil {
		return r, fmt.Errorf("%s: %w", o.In, err)
	}
	if o.Reverse { // half the relations are reverses, which came of edges that are counted already
		c := &r.Cleaning
		c.Reversed, c.Before, c.Loops, c.Duplicates = c.After/2, c.Before/2, c.Loops/2, c.Duplicates/2
	}
	w.Meta.Provenance.Cleaning = &r.Cleaning
	for i := range t.of {
		if err := t.writeFeatures(w, i); err != nil {
			return r, err
		}
	}
	if err = t.writeLabels(w, at, split); err == nil && of != nil {
		err = w.Links(links)
	}
	if err != nil {
		return r, err
	}
	if err := t.writeIDs(w); err != nil {
		return r, err
	}
	r.Vertices, r.Edges, r.Types = w.Meta.Vertices, w.Meta.Edges, w.Meta.Describe()
	return r, w.Close()
}

// rehearse reads the features, and counts what would be written.
func (t *typedSource) rehearse(r ImportReport) (ImportReport, error) {
	r.DryRun = true
	for i, s := range t.of {
		if err := s.checkFeatures(); err != nil {
			return r, err
		}
		cols := "no features"
		if s.features != nil {
			cols = fmt.Sprintf("%d features", s.features.cols)
		}
		r.Vertices += int64(s.vertices)
		r.Types = append(r.Types, fmt.Sprintf("type      %s: %d vertices, %s", t.names[i], s.vertices, cols))
	}
	for _, e := range t.edges {
		r.Edges += int64(len(e.Sources))
		r.Types = append(r.Types, fmt.Sprintf("relation  %s", e.Relation))
	}
	r.Cleaning.Before, r.Cleaning.After = r.Edges, r.Edges
	return r, nil
}

func (t *typedSource) writeFeatures(w *Writer, i int) error {
	f := t.of[i].features
	if f == nil {
		return nil
	}
	w.Meta.Tables[i].Names = f.names
	rows, err := w.TypeFeatures(i, f.cols, f.stored)
	if err == nil {
		err = f.write(rows)
	}
	if err != nil {
		return f.fault(err)
	}
	return rows.Close()
}

// writeLabels writes the labels of one type, none if at is -1, and the split.
func (t *typedSource) writeLabels(w *Writer, at int, split *splitSource) error {
	if at < 0 {
		return nil
	}
	of := t.of[at].truths()
	labels := mem.Make[uint8](int(w.Meta.Vertices) * of.Width)
	t.of[at].release = append(t.of[at].release, func() { mem.Free(labels) }) // after Close
	if w.Meta.Task != task.Multilabel {
		for i := range labels {
			labels[i] = 0xff // class -1, number NaN: none
		}
	}
	first := w.Meta.Starts()[at]
	copy(labels[int(first)*of.Width:], of.Data)
	for _, one := range split.all() {
		for _, list := range one.Lists() {
			for i := range *list {
				(*list)[i] += graph.VertexID(first)
			}
		}
	}
	if err := w.Labels(labels); err != nil {
		return err
	}
	return w.Splits(split.Split, split.more...)
}

// writeIDs keeps the ids of the source: of each vertex its type, a slash, and its id.
func (t *typedSource) writeIDs(w *Writer) error {
	var text []byte
	for i, s := range t.of {
		for v := range s.vertices {
			text = append(append(text, t.names[i]...), '/')
			switch {
			case s.names != nil:
				text = append(text, s.names[v]...)
			case s.originals != nil:
				text = fmt.Append(text, s.originals[v])
			default:
				text = fmt.Append(text, v)
			}
			text = append(text, '\n')
		}
	}
	return put(w, "original_name.npy", text, len(text))
}

// Describe returns a line for each type and relation.
func (m *Meta) Describe() (lines []string) {
	for t, name := range m.Schema.Types {
		of := m.Tables[t]
		rows := "no features"
		if of.Features > 0 {
			rows = fmt.Sprintf("%d features (%s)", of.Features, of.FeatureType)
		}
		lines = append(lines, fmt.Sprintf("type      %s: %d vertices, %s", name, of.Vertices, rows))
	}
	for _, r := range m.Schema.Relations {
		lines = append(lines, fmt.Sprintf("relation  %s", r))
	}
	return lines
}
