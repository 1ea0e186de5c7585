package dataset

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"halognn/src/dataset/table"
	"halognn/src/graph"
)

// TableOptions name the columns of the tables of format csv. Columns that are not named are found
// by their usual names.
type TableOptions struct {
	Nodes          string   // the node table; "": nodes.csv if In is a directory, else none
	Source, Target string   // columns of the edge table
	Weight         string   // column of the edge table with the weights of edges
	ID             string   // column of the node table; its first one if none has a usual name
	Labels         []string // one column of classes, or several of 0 and 1; or a .npy file
	Features       []string // columns; all others if empty; or a .npy file [vertices, columns]
	Split          string   // column of train, valid, test
	NoHeader       bool     // the first row is data: columns are called 0, 1, ...
}

// The usual names of columns.
var (
	sourceNames = []string{
		"source",
		"src",
		"from",
		"u",
		"id_1",
		"id1",
		"node_1",
		"node1",
		"start",
		"from_id",
		"source_id",
	}
	targetNames = []string{
		"target",
		"dst",
		"to",
		"v",
		"id_2",
		"id2",
		"node_2",
		"node2",
		"end",
		"to_id",
		"target_id",
		"destination",
	}
	idNames    = []string{"id", "node", "node_id", "vertex", "vertex_id", "nodeid", "name"}
	labelNames = []string{"label", "y", "class", "target", "labels"}
	splitNames = []string{"split", "part", "set"}
)

// readTables reads an edge table and, if there is one, a node table. Ids may be any words.
//
//	edges.csv   source,target[,...]                 a row an edge; other columns are named in the
//	                                                report
//	nodes.csv   id[,label][,split][,feature ...]    a row a vertex, in the order that vertices get
//	x.npy       [N, F]                              features in the order of the node table
//
// Without a node table vertices are numbered in the order of their ids: as numbers if all are
// integers, else by their bytes; with features in an array, ids are row numbers. The ids are kept
// in original_id.npy if all are integers (and not 0 to N-1 already), else in original_name.npy.
//
// Memory: the ids, and about 80 bytes for each of them.
func readTables(s *source) error {
	edges, err := s.tableFiles()
	if err != nil {
		return err
	}
	t := &s.options.Table
	x := arrayFile(t.Features)
	switch {
	case t.Nodes != "":
		err = s.readNodes(t.Nodes)
	case x != "":
		err = s.countRows(x)
	case len(t.Labels) > 0 || len(t.Features) > 0 || t.Split != "" || t.ID != "":
		err = fmt.Errorf(
			"%s: %w: --id, --label, --features and --split-column are columns of a node table; "+
				"name it with --nodes",
			edges,
			ErrValue,
		)
	default:
		err = s.collectIDs(edges)
	}
	if err != nil {
		return err
	}
	if x != "" {
		if err := s.setDenseFeatures(beside(x)); err != nil {
			return err
		}
	}
	if y := arrayFile(t.Labels); y != "" {
		if err := s.readLabels(beside(y)); err != nil {
			return err
		}
	}
	s.undirected = false
	return s.readEdgeTable(edges)
}

// arrayFile returns the path if words is a single path of a .npy file, else "".
func arrayFile(words []string) string {
	if len(words) == 1 && strings.HasSuffix(words[0], ".npy") {
		return words[0]
	}
	return ""
}

// beside returns the directory of a .npy file as a set of arrays, and the name of the file's array.
func beside(path string) (a arraySource, key string) {
	dir := filepath.Dir(path)
	return arraySource{npyDir(dir), dir}, strings.TrimSuffix(filepath.Base(path), ".npy")
}

// tableFiles finds the edge table and, in a directory, the node table.
func (s *source) tableFiles() (edges string, err error) {
	in := s.options.In
	if !isDir(in) {
		return in, nil
	}
	if edges = tableIn(in, "edges"); edges == "" {
		return "", fmt.Errorf(
			"%s: neither edges.csv nor edges.tsv is there; name the edge table with --in "+
				"and the node table with --nodes",
			in,
		)
	}
	if s.options.Table.Nodes == "" {
		s.options.Table.Nodes = tableIn(in, "nodes")
	}
	return edges, nil
}

func tableIn(dir, stem string) string {
	for _, ext := range []string{".csv", ".tsv"} {
		if p := either(dir, stem+ext); p != "" {
			return p
		}
	}
	return ""
}

// countRows sets the number of vertices to the rows of an array of features: ids are its row
// numbers.
func (s *source) countRows(path string) error {
	a, key := beside(path)
	r, err := a.open(key, 2)
	if err != nil {
		return err
	}
	return errors.Join(s.setVertices(int64(r.Shape[0]), path), r.Close())
}

// nodeColumns are the indices of a node table's columns.
type nodeColumns struct {
	id, split        int
	labels, features []int
}

// readNodes reads ids, labels and split, and registers the features, which are read when they are
// written.
func (s *source) readNodes(path string) error {
	t, err := openTable(path, s.options.Table.NoHeader)
	if err != nil {
		return err
	}
	defer t.close()
	c, err := s.nodeColumns(t)
	if err != nil {
		return err
	}
	var ids []string
	labels := make([][]string, len(c.labels))
	p := &splitSource{
		from: "column " + t.header[max(0, c.split)] + " of " + filepath.Base(path),
		path: path,
		read: true,
	}
	s.places = make(map[string]graph.VertexID)
	for {
		row, err := t.next()
		if err != nil {
			return err
		}
		if row == nil {
			break
		}
		v := graph.VertexID(len(ids))
		id := strings.Clone(row[c.id])
		if _, twice := s.places[id]; twice {
			return t.errorf(
				"%w: vertex %.60q comes twice; want a row for each vertex",
				ErrValue,
				id,
			)
		}
		if id == "" || strings.ContainsRune(id, '\n') {
			return t.errorf("%w: vertex %.60q: want an id, on one line", ErrValue, id)
		}
		if len(ids) == graph.MaxVertices {
			return t.errorf("more than the %d vertices that are supported", graph.MaxVertices)
		}
		s.places[id] = v
		ids = append(ids, id)
		for i, k := range c.labels {
			labels[i] = append(labels[i], strings.Clone(row[k]))
		}
		if c.split >= 0 {
			text := strings.ToLower(row[c.split])
			part, ok := partNames[text]
			switch {
			case ok:
				*p.lists()[part] = append(*p.lists()[part], v)
			case !noLabel(text) && text != "-1" && text != "unused":
				return t.errorf("%w: column %s holds %.40q; want train, valid, test or nothing",
					ErrValue, t.header[c.split], row[c.split])
			}
		}
	}
	if err := s.setVertices(int64(len(ids)), path); err != nil {
		return err
	}
	s.keepIDs(ids)
	if c.split >= 0 {
		s.given = p
	}
	if err := s.setTableLabels(t, c, labels); err != nil {
		return err
	}
	return s.setColumnFeatures(t, c.features)
}

// nodeColumns finds the columns of a node table, and notes those that are not read.
func (s *source) nodeColumns(t *csvTable) (c nodeColumns, err error) {
	o := &s.options.Table
	for _, name := range t.header {
		if err := s.refusal(t.path+": column "+name, name); err != nil {
			return c, err
		}
	}
	if c.id, err = t.column(o.ID, "--id", idNames...); err != nil {
		return c, err
	}
	c.id = max(0, c.id)
	if c.split, err = t.column(o.Split, "--split-column", splitNames...); err != nil {
		return c, err
	}
	if arrayFile(o.Labels) == "" {
		for _, name := range o.Labels {
			k, err := t.column(name, "--label")
			if err != nil {
				return c, err
			}
			c.labels = append(c.labels, k)
		}
		if k, _ := t.column("", "", labelNames...); len(o.Labels) == 0 && k >= 0 && k != c.id {
			c.labels = []int{k}
		}
	}
	taken := append([]int{c.id, c.split}, c.labels...)
	switch {
	case arrayFile(o.Features) != "":
	case len(o.Features) > 0:
		for _, name := range o.Features {
			k, err := t.column(name, "--features")
			if err != nil {
				return c, err
			}
			if slices.Contains(taken, k) {
				return c, fmt.Errorf(
					"%s: %w: column %q is the id, the label or the split, and --features "+
						"names it too",
					t.path,
					ErrValue,
					name,
				)
			}
			c.features = append(c.features, k)
		}
	default:
		for k, name := range t.header {
			if !slices.Contains(taken, k) && !slices.Contains(s.options.Ignore, name) {
				c.features = append(c.features, k)
			}
		}
		return c, nil
	}
	for k, name := range t.header {
		if !slices.Contains(taken, k) && !slices.Contains(c.features, k) {
			s.notes = append(s.notes, "column "+name+" of "+filepath.Base(t.path)+" is not read")
		}
	}
	return c, nil
}

func (s *source) setTableLabels(t *csvTable, c nodeColumns, labels [][]string) error {
	name := func(i int) string { return t.path + ": column " + t.header[c.labels[i]] }
	switch len(labels) {
	case 0:
		return nil
	case 1:
		if err := s.nameClasses(labels[0]); err != nil {
			return fmt.Errorf("%s: %w", name(0), err)
		}
		return nil
	}
	if err := s.makeMarks(len(labels), t.path); err != nil {
		return err
	}
	for i, column := range labels {
		s.classNames = append(s.classNames, t.header[c.labels[i]])
		for v, text := range column {
			y, ok := number(text)
			if !ok {
				return fmt.Errorf(
					"%s: vertex %d is %.40q: %w: with several label columns each must be 0 or 1",
					name(i),
					v,
					text,
					ErrValue,
				)
			}
			if err := s.setMark(v, i, float64(y)); err != nil {
				return fmt.Errorf("%s: %w", name(i), err)
			}
		}
	}
	return nil
}

// number reads a field as a number; true and false are 1 and 0.
func number(text string) (x float32, ok bool) {
	switch text {
	case "true", "True", "TRUE":
		return 1, true
	case "false", "False", "FALSE":
		return 0, true
	}
	wide, ok := table.ParseFloat([]byte(text))
	return float32(wide), ok
}

// setColumnFeatures registers columns of a node table as features.
func (s *source) setColumnFeatures(t *csvTable, columns []int) error {
	if len(columns) == 0 {
		return nil
	}
	noHeader := !t.named
	return s.setFeatures(t.path, len(columns), Float32, -1, func(w *RowWriter) error {
		t, err := openTable(t.path, noHeader)
		if err != nil {
			return err
		}
		defer t.close()
		values := make([]float32, len(columns))
		for v := 0; ; v++ {
			row, err := t.next()
			if err != nil {
				return err
			}
			if row == nil {
				if v != s.vertices {
					return fmt.Errorf(
						"%d rows, but %d before; the file changed: import it again",
						v,
						s.vertices,
					)
				}
				return nil
			}
			if v == s.vertices {
				return t.errorf(
					"more than %d rows now; the file changed: import it again",
					s.vertices,
				)
			}
			for i, k := range columns {
				x, ok := number(row[k])
				if !ok {
					return t.notANumber(k, row[k])
				}
				values[i] = x
			}
			if err := w.Check(v, values); err != nil {
				return t.errorf("%w", err)
			}
			if err := w.WriteChecked(values); err != nil {
				return err
			}
		}
	})
}

func (t *csvTable) notANumber(column int, text string) error {
	name := t.header[column]
	if noLabel(text) {
		return t.errorf(
			"%w: column %s is empty; fill it in, for example with the column's mean, or leave it "+
				"out: "+
				"--ignore %s",
			ErrValue,
			name,
			name,
		)
	}
	return t.errorf(
		"%w: column %s holds %.40q, which is not a number; name the feature columns with "+
			"--features, "+
			"leave this one out with --ignore %s, or make a column of 0 and 1 for each word",
		ErrValue,
		name,
		text,
		name,
	)
}

// edgeColumns finds the ends of an edge and its weight, -1 for none.
func (s *source) edgeColumns(t *csvTable) (from, to, weight int, err error) {
	o := &s.options.Table
	if weight, err = t.column(o.Weight, "--weight", weightNames...); err != nil {
		return 0, 0, 0, err
	}
	if o.Weight == "" && weight >= 0 && slices.Contains(s.options.Ignore, t.header[weight]) {
		weight = -1
	}
	if from, err = t.column(o.Source, "--source", sourceNames...); err != nil {
		return 0, 0, 0, err
	}
	if to, err = t.column(o.Target, "--target", targetNames...); err != nil {
		return 0, 0, 0, err
	}
	switch {
	case len(t.header) < 2:
		return 0, 0, 0, fmt.Errorf(
			"%s: line 1: %w: one column; want two at least, the ends of an edge, apart by "+
				"commas, tabs or semicolons",
			t.path,
			ErrValue,
		)
	case !t.named && from < 0 && to < 0:
		from, to = 0, 1
	case from < 0 || to < 0:
		return 0, 0, 0, fmt.Errorf(
			"%s: line 1: %w: which columns are the ends of an edge? The columns are %s: "+
				"name them with --source and --target, or say --no-header if this row is an edge",
			t.path,
			ErrValue,
			strings.Join(t.header, ", "),
		)
	case from == to:
		return 0, 0, 0, fmt.Errorf(
			"%s: %w: --source and --target are the same column",
			t.path,
			ErrValue,
		)
	case weight >= 0 && (weight == from || weight == to):
		return 0, 0, 0, fmt.Errorf(
			"%s: %w: column %q is an end of the edges, and --weight names it too",
			t.path,
			ErrValue,
			t.header[weight],
		)
	}
	for _, name := range t.header {
		if err := s.refusal(t.path+": column "+name, name); err != nil {
			return 0, 0, 0, err
		}
		if strings.EqualFold(name, "type") && !slices.Contains(s.options.Ignore, name) {
			return 0, 0, 0, fmt.Errorf("%s: column %s: %w: %s; --ignore %s imports the rest",
				t.path, name, ErrValue, edgeTypes, name)
		}
	}
	return from, to, weight, nil
}

// noteColumns says which columns of the edges are not read.
func (s *source) noteColumns(t *csvTable, read ...int) {
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

// eachNamedEdge calls visit with the ends of every edge and its weight, "" without such a column.
// They are valid until it returns.
func (s *source) eachNamedEdge(
	path string,
	visit func(t *csvTable, u, v, weight string) error,
) (*csvTable, error) {
	t, err := openTable(path, s.options.Table.NoHeader)
	if err != nil {
		return nil, err
	}
	defer t.close()
	from, to, weighs, err := s.edgeColumns(t)
	if err != nil {
		return nil, err
	}
	for {
		row, err := t.next()
		if err != nil || row == nil {
			return t, err
		}
		if row[from] == "" || row[to] == "" {
			return nil, t.errorf("%w: an edge has no %s; remove the row or fill it in", ErrValue,
				map[bool]string{true: "source", false: "target"}[row[from] == ""])
		}
		weight := ""
		if weighs >= 0 {
			weight = row[weighs]
		}
		if weighs >= 0 && weight == "" {
			return nil, t.notANumber(weighs, weight)
		}
		if err := visit(t, row[from], row[to], weight); err != nil {
			return nil, err
		}
	}
}

// collectIDs numbers the ids that the edges name.
func (s *source) collectIDs(path string) error {
	seen := make(map[string]graph.VertexID)
	if _, err := s.eachNamedEdge(path, func(t *csvTable, u, v, _ string) error {
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
	s.keepIDs(ids)
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
func (s *source) keepIDs(ids []string) {
	numbers := integersOf(ids)
	if numbers == nil {
		s.names = ids
		s.notes = append(
			s.notes,
			fmt.Sprintf("%d ids are words; original_name.npy has them", len(ids)),
		)
		return
	}
	for v, x := range numbers {
		if int64(v) != x {
			s.originals = numbers
			s.notes = append(
				s.notes,
				fmt.Sprintf("%d ids were renumbered; original_id.npy has them", len(ids)),
			)
			return
		}
	}
}

// readEdgeTable adds the edges.
func (s *source) readEdgeTable(path string) error {
	vertex := func(t *csvTable, id string) (int64, error) {
		if s.places == nil {
			x, ok := table.ParseInt([]byte(id))
			if !ok {
				return 0, t.errorf(
					"%w: vertex %.60q: without a node table, features in an array are those of "+
						"vertices 0 to %d; name the node table with --nodes",
					ErrValue,
					id,
					s.vertices-1,
				)
			}
			return x, nil
		}
		v, ok := s.places[id]
		if ok {
			return int64(v), nil
		}
		if s.options.Table.Nodes == "" {
			return 0, t.errorf(
				"vertex %.60q was not there before: the file changed; import it again",
				id,
			)
		}
		return 0, t.errorf("vertex %.60q: %w: %s has no row for it; add one, or remove the edge",
			id, graph.ErrVertexRange, filepath.Base(s.options.Table.Nodes))
	}
	t, err := s.eachNamedEdge(path, func(t *csvTable, from, to, weight string) error {
		u, err := vertex(t, from)
		if err != nil {
			return err
		}
		v, err := vertex(t, to)
		if err != nil {
			return err
		}
		if err := s.addEdge(u, v); err != nil {
			return t.errorf("%w", err)
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
	from, to, weight, err := s.edgeColumns(t)
	if err == nil {
		s.noteColumns(t, from, to, weight)
	}
	return err
}

// checkTables returns an error for options that the format does not use.
func (o *ImportOptions) checkTables() error {
	t := &o.Table
	if o.Format != "csv" {
		if t.Nodes != "" || t.Source != "" || t.Target != "" || t.Weight != "" || t.ID != "" ||
			len(t.Labels) > 0 ||
			len(t.Features) > 0 || t.Split != "" || t.NoHeader {
			return fmt.Errorf(
				"columns and a node table are those of the format csv, not of %s",
				o.Format,
			)
		}
		return nil
	}
	if t.Nodes != "" {
		return foreign(t.Nodes, o.Format)
	}
	return nil
}
