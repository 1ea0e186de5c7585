package dataset

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"halognn/src/base/mem"
	"halognn/src/model/task"
	"halognn/src/topology/graph"
)

// graphSource is a graph that is being imported: the vertices of each type and the edges of each
// relation. A graph without types has one type and one relation, without names. All graphs take the
// same steps:
//
//	read ─> reverse ─> build ─> links, or labels and split ─> scale ─> write
//
// Before build makes in-edge rows from the edges, an edge names each of its vertices by the number
// within the vertex's type.
type graphSource struct {
	options   ImportOptions
	named     bool // types and relations have names
	types     []*source
	relations []*edgeSource
	*findings          // findings about the edges of all relations
	release   []func() // functions that free the sources of streamed features
}

func (g *graphSource) free() {
	for _, s := range g.types {
		s.free()
	}
	for _, e := range g.relations {
		e.free()
	}
	for _, f := range g.release {
		f()
	}
}

// read reads all types and relations.
func (g *graphSource) read() error {
	o, f := &g.options, formats[g.options.Format]
	// with --nodes there is only one node table, so there are no types
	if f.typed != nil && o.Table.Nodes == "" && f.typed(o) {
		if o.linkTask() != "" {
			return badOption("labels of links are supported only in graphs without vertex types; " +
				"leave out --link-classes and --link-numbers, or import the relation alone as " +
				"such a graph")
		}
		if o.Reverse && o.Undirected == Yes {
			return badOption("--reverse and --undirected exclude each other; give one. If a " +
				"relation joins a type to itself, --undirected adds the reverse edges to that " +
				"relation, and --reverse makes a new relation of them")
		}
		g.named = true
		return f.readTyped(g)
	}
	if o.LinksOf != "" {
		return badOption("--relation %s: the graph has no relations; leave it out", o.LinksOf)
	}
	if o.Reverse {
		needs := ""
		if f.files != "" {
			needs = "; a graph with types has " + f.files
		}
		return badOption("%s: --reverse adds the reverses of relations, but the graph has no "+
			"vertex types and relations%s; use --undirected, which adds the reverse of every edge",
			o.In, needs)
	}
	s := g.addType("")
	return f.read(g.addRelation(graph.Relation{}, s, s))
}

// addType adds a vertex type with the given name. It returns the type's source, which the caller
// then fills.
func (g *graphSource) addType(kind string) *source {
	in := &importer{options: g.options, findings: g.findings}
	if g.named {
		in.own, in.findings = map[string]bool{}, new(findings)
	}
	s := &source{importer: in, kind: kind, vertices: unknown,
		name: cmp.Or(g.options.Name, baseName(g.options.In))}
	g.types = append(g.types, s)
	return s
}

// addRelation adds a relation between two types. The caller adds its edges.
func (g *graphSource) addRelation(r graph.Relation, from, to *source) *edgeSource {
	in := from.importer
	if g.named {
		in = &importer{options: g.options, own: map[string]bool{}, findings: g.findings}
	}
	e := &edgeSource{importer: in, Relation: r, from: from, to: to}
	g.relations = append(g.relations, e)
	return e
}

// schema returns the names of types and relations. For a graph without types it returns the zero
// Schema.
func (g *graphSource) schema() (s graph.Schema) {
	if !g.named {
		return s
	}
	for _, t := range g.types {
		s.Types = append(s.Types, t.kind)
	}
	for _, e := range g.relations {
		s.Relations = append(s.Relations, e.Relation)
	}
	return s
}

// tables describes the feature rows of each type. For a graph without types it returns nil.
func (g *graphSource) tables() (tables []Table) {
	for _, s := range g.types {
		t := Table{Vertices: int64(s.vertices), FeatureType: Float32}
		if f := s.features; f != nil {
			t.Features, t.FeatureType, t.Names = f.cols, f.stored, f.names
		}
		tables = append(tables, t)
	}
	if !g.named {
		return nil
	}
	return tables
}

// starts returns the number of the first vertex of each type among all vertices, [T+1].
func (g *graphSource) starts() []int64 {
	starts := []int64{0}
	for i, s := range g.types {
		starts = append(starts, starts[i]+int64(s.vertices))
	}
	return starts
}

// write writes the graph as a dataset.
func (g *graphSource) write() (r ImportReport, err error) {
	if err := g.count(); err != nil {
		return r, err
	}
	o := &g.options
	if err := g.reverse(); err != nil {
		return r, err
	}
	schema := g.schema()
	if err := schema.Check(); err != nil {
		return r, fmt.Errorf("%s: %w", o.In, err)
	}
	of := -1 // index of the relation whose edges are links; -1 if there is none
	if o.SplitLinks != "" {
		if of, err = g.linked(&schema); err != nil {
			return r, err
		}
	}
	first := g.types[0]
	r = ImportReport{Name: first.name, Format: cmp.Or(first.origin.Format, o.Format),
		merge: o.Weights, DryRun: o.DryRun, Undirected: o.Undirected == Yes, FeatureType: Float32,
		SparseEntries: -1, Task: task.None, Split: "none, for there are no labels"}
	all, err := g.build(&r)
	defer func() {
		for _, rows := range all {
			rows.free()
		}
	}()
	if err != nil {
		return r, err
	}
	labels, split, links := first, new(splitSource), graph.LinkSplit{}
	if of >= 0 {
		if links, schema.Links, err = g.takeLinks(all, of); err == nil {
			g.describeLinks(&r, &links, schema.Links)
		}
	} else if labels, err = g.labelled(); err == nil && labels != nil {
		split, err = labels.settle(&r)
	}
	if err != nil {
		return r, err
	}
	for _, s := range g.types {
		over := graph.Split{}
		if s == labels {
			over = split.Split
		}
		if err := s.scale(over); err != nil {
			return r, err
		}
	}
	if o.DryRun { // a dry run reads the feature rows too, to note what is unusual in them
		for _, s := range g.types {
			if err := s.checkFeatures(); err != nil {
				return r, err
			}
		}
	}
	g.tell(&r)
	for _, rows := range all {
		r.Edges += rows.g.NumEdges()
	}
	m := Meta{Name: r.Name, Task: r.Task, Classes: r.Classes,
		Provenance: g.provenance(&r, cmp.Or(labels, first))}
	if g.named {
		m.Schema, m.Tables = schema, g.tables()
		if of < 0 && labels != nil {
			m.LabelType = labels.kind
		}
	} else {
		if !r.Undirected {
			r.Reciprocal = all[0].g.Reciprocal()
		}
		if f := first.features; f != nil {
			r.Features, r.FeatureType, r.SparseEntries = f.cols, f.stored, f.entries
		}
		m.FeatureType = r.FeatureType
	}
	r.Types = m.Describe()
	if o.DryRun {
		return r, nil
	}
	w, err := Create(o.Out, m)
	if err != nil {
		return r, err
	}
	defer w.Abort()
	if err := g.writeFiles(w, all, labels, split, links); err != nil {
		return r, err
	}
	r.Notes = slices.Concat(r.Notes, w.notes)
	if t := w.Meta.Table(0); t.Type().IsSparse() {
		r.FeatureType, r.SparseEntries, r.featureBytes = t.FeatureType, t.Entries,
			t.Bytes()+8*(t.Vertices+1)
	}
	return r, w.Close()
}

// count checks the number of vertices. If the files do not give that number, it is the largest id
// in the edges plus 1.
func (g *graphSource) count() error {
	if g.named {
		return checkVertices(g.starts()[len(g.types)])
	}
	s, e := g.types[0], g.relations[0]
	if s.vertices == 0 || s.vertices == unknown && e.edges.NumEdges() == 0 {
		return fmt.Errorf("%s: %w: there are no vertices; is it the right file, and the right "+
			"--format?", g.options.In, ErrValue)
	}
	if s.vertices == unknown {
		return s.setVertices(e.largest+1, g.options.In)
	}
	return nil
}

// reverse adds the reverses of relations as new relations. If Reverse is set, all relations get
// one. Otherwise only those relations get one that join two types and whose edges have no
// direction. If a relation joins a type to itself and its edges have no direction, no relation is
// added: the reverse edges become edges of the relation itself. A new relation is empty until the
// original relation is built, and gets its edges then.
func (g *graphSource) reverse() error {
	for _, e := range slices.Clone(g.relations) {
		all := e.options.Reverse || e.from != e.to && e.isUndirected()
		if !all && (e.from == e.to || len(e.both) == 0) {
			continue
		}
		reverse := e.Relation.Reverse()
		if slices.ContainsFunc(g.relations,
			func(e *edgeSource) bool { return e.Relation == reverse }) {
			cure := "say --directed"
			switch o := &e.options; {
			case o.Reverse:
				cure = "leave --reverse out"
			case o.Undirected == Yes:
				cure = "leave --undirected out"
			}
			return fmt.Errorf("%s: %w: relation %s would come twice, because the source already "+
				"has the reverses of %s; %s, or take that relation out of the source",
				g.options.In, ErrValue,
				reverse, e, cure)
		}
		to := g.addRelation(reverse, e.to, e.from)
		to.reverses, to.rows.cols = true, e.rows.cols
		if e.reverse = to; all {
			e.both = nil
		}
	}
	return nil
}

// addReverses adds to e the reverses of edges of the given relation, which may be e itself. The
// argument `numbers` lists these edges in ascending order; nil means all edges. An edge from a
// vertex to itself has no reverse.
func (e *edgeSource) addReverses(relation *edgeSource, numbers []int64) {
	// a copy of the list of chunks, so that the loop does not visit the edges that it adds
	edges, n, cols := relation.edges, int64(0), int64(relation.rows.cols)
	edges.Each(func(edges []graph.Edge) {
		for _, edge := range edges {
			at := n
			n++
			if numbers != nil {
				if len(numbers) == 0 || numbers[0] != at {
					continue
				}
				numbers = numbers[1:]
			}
			if e == relation && edge.Src() == edge.Dst() {
				continue
			}
			e.edges.Add(edge.Dst(), edge.Src())
			if relation.weights != nil {
				e.weights = appended(e.weights, relation.weights[at])
			}
			if cols > 0 {
				e.rows.data = appended(e.rows.data,
					slices.Clone(relation.rows.data[at*cols:][:cols])...)
			}
		}
	})
}

// isUndirected reports whether each edge stands for both directions.
func (e *edgeSource) isUndirected() bool {
	return e.options.Undirected == Yes || e.options.Undirected == AsFormat && e.undirected
}

// symmetric reports whether the relation also has the reverse of every edge.
func (e *edgeSource) symmetric() bool { return e.from == e.to && e.isUndirected() }

// build makes the in-edge rows of all relations.
func (g *graphSource) build(r *ImportReport) (all []relationRows, err error) {
	starts := g.starts()
	r.Vertices = starts[len(g.types)]
	r.Undirected = len(g.relations) > 0 && !slices.ContainsFunc(g.relations,
		func(e *edgeSource) bool {
			return !e.reverses && !e.isUndirected()
		})
	for _, e := range g.relations {
		rows, cleaning, err := e.build()
		if err != nil {
			return all, err
		}
		all = append(all, rows)
		if first := starts[slices.Index(g.types, e.from)]; first > 0 {
			for i := range rows.g.Indices {
				rows.g.Indices[i] += graph.VertexID(first)
			}
		}
		r.Weighted = r.Weighted || rows.weights != nil
		if rows.cols > 0 && r.EdgeFeatures > 0 && rows.cols != r.EdgeFeatures {
			return all, fmt.Errorf("%s: %w: edges of %s have %d columns of features, but others "+
				"have %d; name the same number of columns for each relation in --edge-features, "+
				"or leave edge_attr out of --keys",
				g.options.In, ErrMismatch, e, rows.cols, r.EdgeFeatures)
		}
		r.EdgeFeatures = max(r.EdgeFeatures, rows.cols)
		if e.reverses { // the original relation counted these edges already
			cleaning = graph.CleanReport{After: cleaning.After, Reversed: cleaning.After}
		}
		r.Cleaning.Add(cleaning)
	}
	g.tellDefaults(all)
	return all, nil
}

// build makes the in-edge rows of one relation. If edges have weights, features or labels, it keeps
// the edges in the order in which they were added, so that the weight, features or label of each
// edge can be found.
func (e *edgeSource) build() (rows relationRows, report graph.CleanReport, err error) {
	o := graph.CleanOptions{Undirected: e.symmetric(), KeepLoops: e.options.KeepLoops ||
		e.from != e.to, KeepDuplicates: e.options.KeepDuplicates, Merge: e.options.Weights}
	if e.reverse != nil {
		e.reverse.addReverses(e, e.both)
	}
	n := max(e.from.vertices, e.to.vertices)
	switch {
	case e.weights != nil:
		rows.g, rows.weights, report, err = e.edges.BuildWeighted(n, o, e.weights)
		if errors.Is(err, graph.ErrKeptDuplicates) {
			err = fmt.Errorf("%w; leave out --keep-duplicates, so that the weights of an edge "+
				"that comes several times are added up, or leave out the weights, with --ignore",
				err)
		}
		if err == nil {
			err = e.checkSums(rows.g, rows.weights)
		}
	case e.rows.cols > 0:
		rows.g, report, err = e.edges.BuildKept(n, o)
	default:
		rows.g, report, err = e.edges.BuildRows(n, 0, e.to.vertices, o)
	}
	if err != nil {
		rows.free()
		return relationRows{}, report, fmt.Errorf("%s: %w", e.options.In, err)
	}
	e.tellMerged(report)
	if e.options.edgeLabels() != nil {
		e.placed, err = placeLinkLabels(e, rows.g)
	} else {
		rows.cols = e.rows.cols
		rows.rows, err = e.placeEdgeRows(rows.g)
	}
	e.edges.Free()
	if err != nil {
		rows.free()
		return relationRows{}, report, err
	}
	// rows are rows of in-edges, so only vertices of the target type have one
	if to := e.to.vertices; to < rows.g.NumVertices() {
		indptr := mem.Make[int64](to + 1)
		copy(indptr, rows.g.Indptr)
		mem.Free(rows.g.Indptr)
		rows.g.Indptr = indptr
	}
	return rows, report, nil
}

// nameSuffix returns the text " of NAME", where NAME is the name of the relation, for a report. It
// returns "" for a graph without types.
func (e *edgeSource) nameSuffix() string {
	if e.from.kind == "" {
		return ""
	}
	return " of " + e.String()
}

// tellDefaults notes the relations that have no weights or no features, if other relations have
// some.
func (g *graphSource) tellDefaults(all []relationRows) {
	for i, rows := range all {
		if e := g.relations[i]; e.reverses {
			continue
		} else if rows.weights == nil && slices.ContainsFunc(all,
			func(r relationRows) bool { return r.weights != nil }) {
			g.note("the edges%s have no weights, unlike those of other relations; each gets the "+
				"weight 1", e.nameSuffix())
		}
		if rows.cols == 0 && slices.ContainsFunc(all,
			func(r relationRows) bool { return r.cols > 0 }) {
			g.note("the edges%s have no features, unlike those of other relations; each gets zeros",
				g.relations[i].nameSuffix())
		}
	}
}

// tellMerged notes that several weights of an edge became one.
func (e *edgeSource) tellMerged(c graph.CleanReport) {
	of := e.nameSuffix()
	if e.reverses { // the original relation reports its merged weights
		return
	}
	if c.Unequal > 0 {
		e.note("%d edges%s come several times with weights that differ; each gets their %s; "+
			"--merge-weights chooses sum, mean, max, min or first", c.Unequal, of,
			cmp.Or(e.options.Weights, graph.MergeSum))
	}
	if c.Uneven > 0 {
		e.note("%d pairs of edges%s were given in both directions with weights that differ; each "+
			"direction keeps its own weight", c.Uneven, of)
	}
}

// labelled returns the type whose vertices have labels, or nil if there is none. In a graph without
// types it returns the only type.
func (g *graphSource) labelled() (labels *source, err error) {
	if !g.named {
		return g.types[0], nil
	}
	for _, s := range g.types {
		switch {
		case s.task() == task.None:
		case labels != nil:
			return nil, fmt.Errorf("%s: %w: vertices of types %s and %s have labels, but a "+
				"model is trained on the labels of one type; choose it by --label TYPE=COLUMN, "+
				"or leave the labels of other types out by --ignore", g.options.In,
				ErrValue, labels.kind, s.kind)
		default:
			labels = s
		}
	}
	if labels == nil && g.options.Task == task.Regression {
		return nil, fmt.Errorf("%s: %w", g.options.In, errNoTargets)
	}
	return labels, nil
}

// nameSuffix returns the text " of NAME", where NAME is the name of the type, for a report. It
// returns "" for a graph without types.
func (s *source) nameSuffix() string {
	if s.kind == "" {
		return ""
	}
	return " of " + s.kind
}

// scale computes the scaling of the features over the training vertices, if the options ask for it.
func (s *source) scale(split graph.Split) error {
	switch {
	case s.options.StandardizeAs != "":
		return s.standardizeAs(s.options.StandardizeAs)
	case s.options.Standardize && s.features != nil:
		return s.standardize(split)
	}
	return nil
}

// describeLinks adds a description of the links to the report r. The argument `relations` lists the
// indices of the relations whose edges are the links.
func (g *graphSource) describeLinks(r *ImportReport, links *graph.LinkSplit, relations []int) {
	e := g.relations[relations[0]]
	r.Task, r.Classes, r.Links = e.from.task(), e.linkOutputs, describeLinks(links)
	if !g.named {
		if t := task.Find(r.Task); !t.Ranks {
			r.Links += fmt.Sprintf("; %d %s", r.Classes, t.Outputs())
		}
		r.Split = "of links: " + g.options.SplitLinks
		return
	}
	r.Links += " of " + e.String()
	r.Split = "of links of " + e.String() + ": " + g.options.SplitLinks
	for _, k := range relations[1:] {
		r.Links += "; the edges of " + g.relations[k].String() +
			" are the same pairs, so they lose the validation and test links too"
	}
}

// tell adds what was found in the files to a report. If there are types, notes begin with the name
// of the type.
func (g *graphSource) tell(r *ImportReport) {
	for _, s := range g.types {
		if s.kind == "" {
			continue
		}
		for _, note := range s.notes {
			r.Notes = append(r.Notes, s.kind+": "+note)
		}
		r.Reading = append(r.Reading, s.reading...)
	}
	r.Notes, r.Reading = append(r.Notes, g.notes...), append(r.Reading, g.reading...)
}

func (g *graphSource) writeFiles(w *Writer, all []relationRows, labels *source, split *splitSource,
	links graph.LinkSplit) error {
	if err := w.putRelations(g.starts(), all); err != nil {
		return err
	}
	if err := g.writeIDs(w); err != nil {
		return err
	}
	if task.Stored(w.Meta.Task).Embeds {
		if err := w.Links(links, g.relations[0].linkLabels[:]...); err != nil {
			return err
		}
	} else if w.Meta.Task != task.None {
		if err := g.writeLabels(w, labels, split); err != nil {
			return err
		}
	}
	for t := range g.types {
		if err := g.writeFeatures(w, t); err != nil {
			return err
		}
	}
	return w.Splits(split.Split, split.more...)
}

// writeFeatures writes the feature rows of a type, and how they were scaled.
func (g *graphSource) writeFeatures(w *Writer, t int) error {
	s := g.types[t]
	if f := s.scaling; f != nil {
		both := slices.Concat(f.shift, f.factor)
		if err := put(w, scalingFile(&w.Meta.Schema, t), both, 2, len(f.shift)); err != nil {
			return err
		}
	}
	f := s.features
	if f == nil {
		return nil
	}
	if !g.named {
		w.Meta.FeatureNames = f.names
		return f.fault(w.WriteFeatures(f.cols, f.stored, s.scaling, f.write))
	}
	rows, err := w.TypeFeatures(t, f.cols, f.stored)
	if err == nil {
		rows.scaling = s.scaling
		err = f.write(rows)
	}
	if err != nil {
		return f.fault(err)
	}
	return rows.Close()
}

// writeLabels writes the labels of one type, and "no label" for the vertices of all other types. It
// turns the split, which numbers vertices within the type, into a split of all vertices.
func (g *graphSource) writeLabels(w *Writer, s *source, split *splitSource) error {
	of := s.truths()
	if len(g.types) == 1 {
		return w.Labels(of.Data)
	}
	labels := mem.Make[uint8](int(w.Meta.Vertices) * of.Width)
	g.release = append(g.release, func() { mem.Free(labels) }) // the labels are needed until Close
	if w.Meta.Task != task.Multilabel {
		for i := range labels {
			labels[i] = 0xff // all bits set means no label: class -1, or a number that is NaN
		}
	}
	first := g.starts()[slices.Index(g.types, s)]
	copy(labels[int(first)*of.Width:], of.Data)
	for _, one := range split.all() {
		for _, list := range one.Lists() {
			for i := range *list {
				(*list)[i] += graph.VertexID(first)
			}
		}
	}
	return w.Labels(labels)
}

// writeIDs keeps the ids of the source, unless each equals the number of its vertex. With types,
// the id of a vertex is its type, a slash, and its id within the type.
func (g *graphSource) writeIDs(w *Writer) error {
	if s := g.types[0]; !g.named {
		if s.originals != nil {
			return put(w, "original_id.npy", s.originals, len(s.originals))
		}
		if s.names == nil {
			return nil
		}
		text := []byte(strings.Join(s.names, "\n") + "\n")
		return put(w, "original_name.npy", text, len(text))
	}
	var text []byte
	for _, s := range g.types {
		for v := range s.vertices {
			text = append(append(text, s.kind...), '/')
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
