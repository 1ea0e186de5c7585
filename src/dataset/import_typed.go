package dataset

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"halognn/src/graph"
	"halognn/src/npy"
)

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

// relation adds the relation of that name, of which file says.
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
		return nil, fmt.Errorf("%s: %w: relation %s joins a type that has no vertices here; there "+
			"are %q: write nodes.%s.csv with a column id, or an array num_nodes,%[5]s", file, ErrValue, r, names, lacking)
	}
	return g.addRelation(r, from, to), nil
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
func (g *graphSource) readTables() error {
	paths, kinds := tablesIn(g.options.In, "nodes")
	for i, path := range paths {
		s := g.addType(kinds[i])
		s.options.Table.Nodes = path
		if err := readNodeFiles(s, path, nil); err != nil {
			return err
		}
	}
	paths, names := tablesIn(g.options.In, "edges")
	for i, path := range paths {
		words := strings.Split(names[i], ".")
		if len(words) < 3 {
			return fmt.Errorf("%s: %w: the table of a relation is called edges.SOURCE.NAME.TARGET.csv",
				path, ErrValue)
		}
		last := len(words) - 1
		e, err := g.relation(graph.Relation{Source: words[0], Name: strings.Join(words[1:last], "."),
			Target: words[last]}, path)
		if err == nil {
			err = readEdgeTable(e, path)
		}
		if err != nil {
			return err
		}
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
		if err := errors.Join(readVertices(s, a), s.readTypedSplit(a), s.noteUnread(a)); err != nil {
			return err
		}
		if s.vertices == unknown {
			return fmt.Errorf("%s: %w: neither num_nodes,%[3]s nor x,%[3]s says how many vertices there are",
				in, ErrValue, kind)
		}
	}
	whole := arraySource{set, in}
	for _, key := range set.Names() {
		rest, ok := strings.CutPrefix(key, typedEdges)
		if !ok {
			if strings.Count(key, ",") != 1 { // else it is of a type
				g.notes = append(g.notes, unread(key))
				g.reading = append(g.reading, Reading{Of: filepath.Base(in), Name: key, As: asIgnored})
			}
			continue
		}
		words := strings.Split(rest, ",")
		if len(words) != 3 {
			return fmt.Errorf("%s: %w: the edges of a relation are called edge_index,SOURCE,NAME,TARGET",
				whole.name(key), ErrValue)
		}
		e, err := g.relation(graph.Relation{Source: words[0], Name: words[1], Target: words[2]}, whole.name(key))
		if err == nil {
			err = addPairs(e, whole, key)
		}
		if err != nil {
			return err
		}
		g.reading = append(g.reading, Reading{Of: filepath.Base(in), Name: key, As: asEdges})
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
