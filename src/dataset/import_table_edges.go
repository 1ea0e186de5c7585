package dataset

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"halognn/src/dataset/table"
	"halognn/src/graph"
)

// edgeTable is a table of edges, and the columns that are read of it.
type edgeTable struct {
	*csvTable
	from, to, weight int   // weight: -1 for none
	features         []int // of edgeColumns
}

// findEnds finds the ends of an edge and its weight.
func (t *edgeTable) findEnds(s *source) (err error) {
	o := &s.options.Table
	if t.weight, err = s.column(t.csvTable, o.Weight, "--weight", weightNames...); err != nil {
		return err
	}
	if o.Weight == "" && t.weight >= 0 && slices.Contains(s.options.LinkLabels, t.header[t.weight]) {
		t.weight = -1
	}
	if t.from, err = s.column(t.csvTable, o.Source, "--source", sourceNames...); err != nil {
		return err
	}
	if t.to, err = s.column(t.csvTable, o.Target, "--target", targetNames...); err != nil {
		return err
	}
	switch {
	case len(t.header) < 2:
		return fmt.Errorf("%s: line 1: %w: one column; want two at least, the ends of an edge, "+
			"apart by commas, tabs or semicolons", t.path, ErrValue)
	case !t.named && t.from < 0 && t.to < 0:
		t.from, t.to = 0, 1
	case t.from < 0 || t.to < 0:
		return fmt.Errorf("%s: line 1: %w: which columns are the ends of an edge? The columns are "+
			"%s: name them with --source and --target, or say --no-header if this row is an edge",
			t.path, ErrValue, strings.Join(t.header, ", "))
	case t.from == t.to:
		return fmt.Errorf("%s: %w: --source and --target are the same column", t.path, ErrValue)
	case t.weight >= 0 && (t.weight == t.from || t.weight == t.to):
		return fmt.Errorf("%s: %w: column %q is an end of the edges, and --weight names it too",
			t.path, ErrValue, t.header[t.weight])
	}
	for _, name := range t.header {
		if err := s.refusal(t.path+": column "+name, name); err != nil {
			return err
		}
		if strings.EqualFold(name, "type") && !slices.Contains(s.options.Ignore, name) &&
			!slices.Contains(s.options.LinkLabels, name) {
			return fmt.Errorf("%s: column %s: %w: %s; --ignore %s imports the rest",
				t.path, name, ErrValue, edgeTypes, name)
		}
	}
	return nil
}

// findFeatures finds the columns of --edge-features, or of labels of links.
func (t *edgeTable) findFeatures(s *source) error {
	names, flag := s.options.edgeColumns()
	for _, name := range names {
		k, err := s.column(t.csvTable, name, flag)
		switch {
		case err != nil:
			return err
		case slices.Contains(t.features, k):
			return fmt.Errorf("%s: %w: %s names column %s twice", t.path, ErrValue, flag, name)
		case k == t.from || k == t.to:
			return fmt.Errorf("%s: %w: column %s is an end of the edges, and %s names it too", t.path,
				ErrValue, name, flag)
		case slices.Contains(s.options.Ignore, name):
			return fmt.Errorf("%s: %w: %s and --ignore both name column %s", t.path,
				ErrValue, flag, name)
		}
		t.features = append(t.features, k)
	}
	return nil
}

// noteColumns says which columns of the edges are not read.
func noteColumns(s *source, t *edgeTable, read ...int) {
	for k, name := range t.header {
		if slices.Contains(read, k) {
			continue
		}
		if note := ignoredWeights(name); note != "" {
			s.notes = append(s.notes, note)
		} else {
			s.notes = append(s.notes, "column "+name+" of "+filepath.Base(t.path)+" is not read")
		}
	}
}

// eachNamedEdge calls visit with the ends of every edge and its weight, "" without such a column,
// and its features. They are valid until it returns.
func eachNamedEdge(s *source,
	path string,
	visit func(t *edgeTable, u, v, weight string, features []string) error,
) (*edgeTable, error) {
	opened, err := openTable(path, s.options.Table.NoHeader)
	if err != nil {
		return nil, err
	}
	defer opened.close()
	t := &edgeTable{csvTable: opened}
	if err := t.findEnds(s); err != nil {
		return nil, err
	}
	if err := t.findFeatures(s); err != nil {
		return nil, err
	}
	features := make([]string, len(t.features))
	for {
		row, err := t.next()
		if err != nil || row == nil {
			return t, err
		}
		if row[t.from] == "" || row[t.to] == "" {
			return nil, t.errorf("%w: an edge has no %s; remove the row or fill it in", ErrValue,
				map[bool]string{true: "source", false: "target"}[row[t.from] == ""])
		}
		weight := ""
		if t.weight >= 0 {
			weight = row[t.weight]
		}
		if t.weight >= 0 && weight == "" {
			return nil, t.notANumber(t.weight, weight)
		}
		for i, k := range t.features {
			features[i] = row[k]
		}
		if err := visit(t, row[t.from], row[t.to], weight, features); err != nil {
			return nil, err
		}
	}
}

// collectIDs numbers the ids that the edges name.
func collectIDs(s *source, path string) error {
	seen := make(map[string]graph.VertexID)
	if _, err := eachNamedEdge(s, path, func(t *edgeTable, u, v, _ string, _ []string) error {
		for _, id := range [2]string{u, v} {
			if _, ok := seen[id]; ok {
				continue
			}
			if strings.ContainsRune(id, '\n') {
				return t.errorf("%w: vertex %.60q: want an id on one line", ErrValue, id)
			}
			seen[strings.Clone(id)] = 0
		}
		return nil
	}); err != nil {
		return err
	}
	ids := slices.Collect(maps.Keys(seen))
	if numbers := integersOf(ids); numbers != nil {
		slices.Sort(numbers)
		for i, x := range numbers {
			ids[i] = strconv.FormatInt(x, 10)
		}
	} else {
		slices.Sort(ids)
	}
	for v, id := range ids {
		seen[id] = graph.VertexID(v)
	}
	s.places = seen
	if err := s.setVertices(int64(len(ids)), path); err != nil {
		return err
	}
	keepIDs(s, ids)
	return nil
}

// integersOf returns ids as integers if all are, in their usual form; else nil.
func integersOf(ids []string) []int64 {
	numbers := make([]int64, len(ids))
	for i, id := range ids {
		x, err := strconv.ParseInt(id, 10, 64)
		if err != nil || strconv.FormatInt(x, 10) != id {
			return nil
		}
		numbers[i] = x
	}
	return numbers
}

// keepIDs keeps the ids of the source in the order of the vertices, unless they equal the vertex
// numbers.
func keepIDs(s *source, ids []string) {
	numbers := integersOf(ids)
	if numbers == nil {
		s.names = ids
		s.notes = append(s.notes,
			fmt.Sprintf("%d ids are words; original_name.npy has them", len(ids)))
		return
	}
	for v, x := range numbers {
		if int64(v) != x {
			s.originals = numbers
			s.notes = append(s.notes,
				fmt.Sprintf("%d ids were renumbered; original_id.npy has them", len(ids)))
			return
		}
	}
}

// placeOf returns the vertex of an id of the edge table t.
func placeOf(s *source, t *edgeTable, id string) (int64, error) {
	if s.places == nil {
		x, ok := table.ParseInt([]byte(id))
		if !ok {
			return 0, t.errorf("%w: vertex %.60q: without a node table, features in an array are "+
				"those of vertices 0 to %d; name the node table with --nodes", ErrValue, id,
				s.vertices-1)
		}
		return x, nil
	}
	v, ok := s.places[id]
	if ok {
		return int64(v), nil
	}
	if s.options.Table.Nodes == "" {
		return 0, t.errorf("vertex %.60q was not there before: the file changed; import it again",
			id)
	}
	return 0, t.errorf("vertex %.60q: %w: %s has no row for it; add one, or remove the edge",
		id, graph.ErrVertexRange, filepath.Base(s.options.Table.Nodes))
}

// readEdgeTable adds the edges.
func readEdgeTable(s *source, path string) error {
	names, _ := s.options.edgeColumns()
	s.edgeRows.cols = len(names)
	t, err := eachNamedEdge(s, path, func(t *edgeTable, from, to, weight string, features []string) error {
		u, err := placeOf(s, t, from)
		if err != nil {
			return err
		}
		v, err := placeOf(s, t, to)
		if err != nil {
			return err
		}
		if err := s.addEdge(u, v); err != nil {
			return t.errorf("%w", err)
		}
		for i, text := range features {
			x, ok := table.ParseFloat([]byte(text))
			if !ok || !finite(float32(x)) {
				return t.errorf("%w: %s of an edge is %.40q, which is no finite number", ErrValue,
					names[i], text)
			}
			s.edgeRows.data = appended(s.edgeRows.data, float32(x))
		}
		if weight == "" {
			return nil
		}
		w, ok := table.ParseFloat([]byte(weight))
		if !ok {
			return t.errorf("%w: an edge has weight %.40q, which is not a number", ErrValue, weight)
		}
		if err := s.addWeight(w); err != nil {
			return t.errorf("%w", err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	noteColumns(s, t, append(t.features, t.from, t.to, t.weight)...)
	return nil
}
