package dataset

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"halognn/src/base/npy"
	"halognn/src/topology/graph"
)

// choose returns the words of a flag that are meant for one type or relation. After a word
// NAME=..., the words up to the next such word are meant for NAME. The argument `names` has the
// names of that type or relation. If no word begins with one of them, choose returns the words
// before the first NAME=, which are meant for all types or relations.
func (in *importer) choose(flag string, words, known []string, names ...string) (chosen []string) {
	current, general := "", []string(nil)
	in.known = known
	for _, w := range words {
		if name, rest, has := strings.Cut(w, "="); has && slices.Contains(known, name) {
			current, w = name, rest
		}
		switch {
		case current == "":
			general = append(general, w)
		case slices.Contains(names, current):
			chosen = append(chosen, w)
			in.own[flag] = true
		}
	}
	if in.own[flag] {
		return chosen
	}
	return general
}

// misnamed returns text for an error message if a word of a flag is neither a column nor a file,
// but begins with a NAME= that is no type or relation. Otherwise it returns "".
func (in *importer) misnamed(word string) string {
	name, _, has := strings.Cut(word, "=")
	if !has || in.own == nil {
		return ""
	}
	return fmt.Sprintf("; %q before = is not one of the names here, %s", name,
		strings.Join(in.known, ", "))
}

// expect records the columns that a flag about edges names for all relations. If in the end no edge
// table has such a column, the import fails.
func (g *graphSource) expect(flag string, words, known []string) {
	in := importer{own: map[string]bool{}}
	for _, w := range in.choose(flag, words, known) {
		if w != "" {
			g.seeColumn(flag, w, in.misnamed(w), false)
		}
	}
}

// seeColumn records that a flag names a column for all relations, and whether a table has it.
func (f *findings) seeColumn(flag, name, misnamed string, has bool) {
	if f.columns == nil {
		f.columns = map[string]bool{}
	}
	what := fmt.Sprintf("%q, which %s names%s", name, flag, misnamed)
	f.columns[what] = f.columns[what] || has
}

// chooseOne works like choose, for a flag of one word.
func (in *importer) chooseOne(flag, word string, known []string, names ...string) string {
	return strings.Join(in.choose(flag, strings.Split(word, ","), known, names...), ",")
}

// relation adds a relation whose name comes from the name of a file or array.
func (g *graphSource) relation(r graph.Relation, file string) (*edgeSource, error) {
	var names []string
	var from, to *source
	for _, s := range g.types {
		names = append(names, s.kind)
		if s.kind == r.Source {
			from = s
		}
		if s.kind == r.Target {
			to = s
		}
	}
	if from == nil || to == nil {
		lacking := r.Source
		if from != nil {
			lacking = r.Target
		}
		return nil, fmt.Errorf("%s: %w: relation %s joins a type that has no vertices here; the "+
			"types with vertices are %q; write nodes.%s.csv with a column id, or an array "+
			"num_nodes,%[5]s", file,
			ErrValue, r, names, lacking)
	}
	return g.addRelation(r, from, to), nil
}

// tablesIn returns the paths of the tables in a directory that are called STEM.REST.csv or
// STEM.REST.tsv, and the REST of each.
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

const typedTables = "nodes.TYPE.csv and edges.SOURCE.NAME.TARGET.csv"

// hasTypedTables reports whether a directory has tables nodes.TYPE.csv but no nodes.csv. Beside a
// nodes.csv, a file such as nodes.backup.csv is not the table of a type.
func hasTypedTables(o *ImportOptions) bool {
	paths, _ := tablesIn(o.In, "nodes")
	return len(paths) > 0 && tableIn(o.In, "nodes") == ""
}

// readTables reads the tables nodes.TYPE.csv and edges.SOURCE.NAME.TARGET.csv.
func (g *graphSource) readTables() error {
	paths, kinds := tablesIn(g.options.In, "nodes")
	for i, path := range paths {
		s := g.addType(kinds[i])
		of := &s.options.Table
		of.Nodes = path
		of.ID = s.chooseOne("--id", of.ID, kinds, s.kind)
		of.Split = s.chooseOne("--split-column", of.Split, kinds, s.kind)
		all := of.Labels
		of.Labels = s.choose("--label", all, kinds, s.kind)
		s.unlabelled = len(all) > 0 && len(of.Labels) == 0
		of.Features = s.choose("--features", of.Features, kinds, s.kind)
		for _, of := range [][2]string{{"--label", s.fileOfLabels()},
			{"--features", arrayFile(of.Features)}} {
			if flag, file := of[0], of[1]; file != "" && !s.own[flag] {
				if other := s.misnamed(file); other != "" {
					return badOption("%s %s%s", flag, file, strings.Replace(other, ";", ":", 1))
				}
				return badOption("%s %s: of which type are the rows? Say %[1]s TYPE=%[2]s", flag,
					file)
			}
		}
		if err := readNodeFiles(s, path, nil); err != nil {
			return err
		}
	}
	paths, names := tablesIn(g.options.In, "edges")
	known := slices.Clone(names) // flags may also name a relation by NAME alone
	for _, name := range names {
		if words := strings.Split(name, "."); len(words) > 2 {
			known = append(known, strings.Join(words[1:len(words)-1], "."))
		}
	}
	g.expect("--weight", strings.Split(g.options.Table.Weight, ","), known)
	g.expect("--edge-features", g.options.Table.EdgeFeatures, known)
	for i, path := range paths {
		words := strings.Split(names[i], ".")
		if len(words) < 3 {
			return fmt.Errorf("%s: %w: the table of a relation is called "+
				"edges.SOURCE.NAME.TARGET.csv", path, ErrValue)
		}
		last := len(words) - 1
		e, err := g.relation(graph.Relation{Source: words[0],
			Name: strings.Join(words[1:last], "."), Target: words[last]}, path)
		if err != nil {
			return err
		}
		of := &e.options.Table
		of.Source = e.chooseOne("--source", of.Source, known, names[i], e.Name)
		of.Target = e.chooseOne("--target", of.Target, known, names[i], e.Name)
		of.Weight = e.chooseOne("--weight", of.Weight, known, names[i], e.Name)
		of.EdgeFeatures = e.choose("--edge-features", of.EdgeFeatures, known, names[i], e.Name)
		if err := readEdgeTable(e, path); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(g.columns)) {
		if !g.columns[name] {
			return fmt.Errorf("%s: %w: no edge table has a column %s; correct the name",
				g.options.In, ErrValue, name)
		}
	}
	return nil
}

// typedEdges returns the text with which the names of the arrays of edges begin.
func (o *ImportOptions) typedEdges() string {
	return cmp.Or(o.Keys["edge_index"], "edge_index") + ","
}

func hasTypedArrays(o *ImportOptions) bool {
	set, err := openArrays(o.In)
	if err != nil {
		return false // the reader will report the error
	}
	defer set.Close()
	return slices.ContainsFunc(set.Names(),
		func(n string) bool { return strings.HasPrefix(n, o.typedEdges()) })
}

// ofType is the set of the arrays of one vertex type. An array that the source calls NAME,TYPE is
// called NAME in this set.
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

// readArrays reads arrays whose names include a type or a relation.
func (g *graphSource) readArrays() error {
	in := g.options.In
	set, err := openArrays(in)
	if err != nil {
		return err
	}
	g.release = append(g.release, func() { _ = set.Close() })
	var kinds []string
	for _, n := range set.Names() {
		if words := strings.Split(n, ","); len(words) == 2 && !slices.Contains(kinds, words[1]) {
			kinds = append(kinds, words[1])
		}
	}
	slices.Sort(kinds)
	for _, kind := range kinds {
		s := g.addType(kind)
		a := arraySource{ofType{set, "," + kind}, in + " (" + kind + ")"}
		if err := s.refuseKeys(a); err != nil {
			return err
		}
		if err := errors.Join(readVertices(s, a), s.readTypedSplit(a),
			s.noteUnread(a)); err != nil {
			return err
		}
		if s.vertices == unknown {
			return fmt.Errorf("%s: %w: neither num_nodes,%[3]s nor x,%[3]s says how many "+
				"vertices there are", in, ErrValue, kind)
		}
	}
	whole := arraySource{set, in}
	if err := g.options.checkNames(whole, func(key string) bool {
		return slices.ContainsFunc(set.Names(),
			func(n string) bool { return strings.HasPrefix(n, key+",") })
	}); err != nil {
		return err
	}
	for _, key := range set.Names() {
		rest, ok := strings.CutPrefix(key, g.options.typedEdges())
		if !ok {
			// any other array belongs to a type
			if strings.Count(key, ",") != 1 && !g.ofEdges(set, key) {
				g.notes = append(g.notes, unread(key))
				g.reading = append(g.reading, Reading{Of: filepath.Base(in), Name: key,
					As: asIgnored})
			}
			continue
		}
		words := strings.Split(rest, ",")
		if len(words) != 3 {
			return fmt.Errorf("%s: %w: the edges of a relation are called "+
				"edge_index,SOURCE,NAME,TARGET", whole.name(key), ErrValue)
		}
		e, err := g.relation(graph.Relation{Source: words[0], Name: words[1], Target: words[2]},
			whole.name(key))
		if err == nil {
			err = addPairs(e, whole, key)
		}
		if err != nil {
			return err
		}
		g.reads(in, key, asEdges, "")
		a := arraySource{ofType{set, "," + rest}, in + " (" + rest + ")"}
		if weight := e.find(a, "edge_weight"); weight != "" {
			g.reads(in, weight+","+rest, asWeight, e.rival(a, weight))
			err = readWeights(e, a)
		}
		if rows := e.options.Keys["edge_attr"]; err == nil && a.Has(rows) {
			g.reads(in, rows+","+rest, asEdgeFeature, "")
			err = readEdgeArray(e, a, rows)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// ofEdges reports whether an array is read together with the edges of its relation. These are the
// weights, and the features if Keys name them (no model of relations reads features of edges).
func (g *graphSource) ofEdges(set arrays, key string) bool {
	name, rest, _ := strings.Cut(key, ",")
	in := importer{options: g.options}
	a := arraySource{arrays: ofType{set, "," + rest}}
	return set.Has(g.options.typedEdges()+rest) &&
		(in.find(a, "edge_weight") == name || g.options.Keys["edge_attr"] == name)
}

// unread returns a note that an array is not read. The argument `key` is the array's name, a comma,
// and its relation.
func unread(key string) string {
	name, _, _ := strings.Cut(key, ",")
	if isTime(name) {
		return "array " + key + " is ignored: it is " + noTime
	}
	return "array " + key + " is not read"
}

// readTypedSplit reads the split and the ids of the vertices of one type.
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

// Describe returns a line of text for each type and each relation.
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
