package dataset

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"halognn/src/data/dataset/table"
)

// TableOptions name the columns of the tables of format csv. Columns that are not named are found
// by their usual names. In a graph with types, a value may begin with NAME=. This value, and the
// values after it, are then for the type or relation called NAME.
type TableOptions struct {
	// path of the node table; if it is "" and In is a directory, the node table is nodes.csv in
	// that directory; if it is "" and In is a file, there is no node table
	Nodes          string
	Source, Target string   // columns of the edge table
	Weight         string   // column of the edge table with the weights of edges
	EdgeFeatures   []string // columns of the edge table that are features of edges
	// name of the id column of the node table; "" means a column with a usual name or, without such
	// a column, the first one
	ID string
	// columns of labels: one of classes, or several of 0 and 1; or one file of labels
	// (fileOfLabels)
	Labels []string
	// feature columns, or a .npy file [vertices, columns]; by default all other columns
	Features  []string
	Split     string // column whose words train, valid and test give the list of each vertex
	FirstRows bool   // if a vertex has several rows, the first counts; else this is an error
	NoHeader  bool   // the first row is data: columns are called 0, 1, ...
	Header    bool   // the first row is the names of the columns
}

// The names by which columns are found if no flag names them.
var (
	idNames    = []string{"id", "node", "node_id", "vertex", "vertex_id", "nodeid", "name"}
	labelNames = []string{"label", "y", "class", "target", "labels"}
	splitNames = []string{"split", "part", "set"}
)

// readTables reads an edge table and, if there is one, a node table. Ids may be any words:
//
//	edges.csv   source,target[,...]                 a row an edge; other columns are named in the
//	                                                report
//	nodes.csv   id[,label][,split][,feature ...]    a row a vertex, in the order that vertices get
//	x.npy       [N, F]                              features in the order of the node table
//
// Without a node table, vertices are numbered in ascending order of their ids: as numbers if all
// ids are integers, otherwise by bytes. If an array has the features, ids are row numbers instead.
// original_id.npy keeps the ids if all are integers (but not already 0 to N-1), otherwise
// original_name.npy does.
//
// Memory: the ids themselves, and about 80 bytes for each id.
func readTables(e *edgeSource) error {
	edges, err := tableFiles(e.from)
	if err == nil {
		err = refuseBipartite(edges)
	}
	if err == nil {
		err = readNodeFiles(e.from, edges, func() error { return collectIDs(e, edges) })
	}
	if err != nil {
		return err
	}
	return readEdgeTable(e, edges)
}

// readNodeFiles reads the vertices that the edges of a table join, and the arrays about vertices.
// The vertices come from the node table. Without a node table, there is a vertex for each row of an
// array of features. Without such an array, the function `collect` finds the vertices.
func readNodeFiles(s *source, edges string, collect func() error) (err error) {
	t := &s.options.Table
	x, y := arrayFile(t.Features), s.fileOfLabels()
	switch {
	case t.Nodes != "":
		err = readNodes(s, t.Nodes)
	case x != "":
		err = ofFlag("--features", x, countRows(s, x))
	case len(t.Labels) > 0 && (y == "" || arrayFile(t.Labels) != "") || len(t.Features) > 0 ||
		t.Split != "" || t.ID != "":
		err = fmt.Errorf("%s: %w: --id, --label, --features and --split-column are columns of a "+
			"node table; name it with --nodes", edges, ErrValue)
	default:
		err = collect()
	}
	if err == nil && x != "" {
		a, key := beside(x)
		err = ofFlag("--features", x, setDenseFeatures(s, a, key))
	}
	if err == nil && y != "" && !slices.Contains(s.header, y) {
		err = ofFlag("--label", y, readLabelFile(s, y))
	}
	return err
}

// ofFlag adds the name of the flag to an error about a file that the flag names.
func ofFlag(flag, path string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s %s: neither a column of the node table nor a file: %w", flag, path,
			err)
	}
	return fmt.Errorf("%s %w", flag, err)
}

// arrayFile returns the path if words is a single path of a .npy file, otherwise "".
func arrayFile(words []string) string {
	if len(words) == 1 && strings.HasSuffix(words[0], ".npy") {
		return words[0]
	}
	return ""
}

// fileOfLabels returns the value of --label if it is a single one and is the path of a file of
// labels. Otherwise it returns "". A value with the ending of an array or text table is a path. Any
// other value is a path if there is such a file. In a graph with vertex types, it is one only if
// the flag also names the type.
func (s *source) fileOfLabels() string {
	words := s.options.Table.Labels
	if len(words) != 1 {
		return ""
	}
	path, zipped := strings.CutSuffix(words[0], ".gz")
	switch ext := filepath.Ext(path); {
	case ext == ".csv", ext == ".tsv", ext == ".txt", ext == ".npy" && !zipped:
		return words[0]
	}
	if info, err := os.Stat(words[0]); err == nil && info.Mode().IsRegular() &&
		(s.own == nil || s.own["--label"]) {
		return words[0]
	}
	return ""
}

// readLabelFile reads the labels from an array or a text file. A text file has either one label in
// each row, in the order of the vertices, or rows of an id and its labels, in any order.
func readLabelFile(s *source, path string) error {
	if arrayFile([]string{path}) != "" {
		a, key := beside(path)
		return readLabels(s, a, key)
	}
	switch filepath.Ext(path) {
	case ".json", ".pt", ".pth", ".pkl", ".pickle", ".npz":
		return fmt.Errorf("%s: %w: labels must be a .npy or text file; load this one in Python, "+
			"and numpy.save(\"y.npy\", labels)", path, ErrValue)
	}
	o := &s.options.Table
	given := o.Header || o.NoHeader
	t, err := table.OpenNamed(path, table.Names{No: o.NoHeader, Yes: o.Header, Known: s.usual,
		Remark: true,
		Data: func(row []string, _ [][]string) bool {
			_, err := s.vertexNamed(row[0])
			// if there is only one column, rowsOfLabels decides
			return !given && (len(row) == 1 || err == nil)
		}, Either: asData})
	if err != nil {
		return err
	}
	defer t.Close()
	if len(t.Header) == 1 {
		if o.Nodes == "" && arrayFile(o.Features) == "" {
			return t.Errorf("%w: the table has one column; it needs two, the id of a vertex and "+
				"its label, because there is no node table", ErrValue)
		}
		labels, lines, err := s.rowsOfLabels(t, given)
		if err != nil {
			return err
		}
		c := nodeColumns{labels: []int{0}, use: map[int]columnUse{0: {asLabel, ""}}}
		s.readsColumns(t, c.use)
		return setTableLabels(s, t, c, func(v int) int { return lines[v] }, [][]string{labels})
	}
	id := 0
	if t.HasNames {
		if k, _ := s.column(t, "", "", idNames...); k >= 0 {
			id = k
		}
		// This is a guess: a row of data whose vertex is unknown may look like names.
		if !given && !slices.ContainsFunc(t.Header, s.usual) &&
			strings.ContainsAny(t.Header[0], "0123456789") {
			return t.Errorf(askedNames, ErrValue)
		}
	}
	if err := askProse(t, "", id == 0); err != nil {
		return err
	}
	c := nodeColumns{use: map[int]columnUse{id: {asID, ""}}}
	var labels [][]string
	label := -1 // index of the column that has a usual name of labels
	if t.HasNames {
		label, _ = s.column(t, "", "", labelNames...)
	}
	for k, name := range t.Header {
		switch {
		case k == id:
		case label >= 0 && label != id && k != label:
			s.note("column %s of %s is not read: %s is the label", name, filepath.Base(path),
				t.Header[label])
		default:
			c.labels, labels = append(c.labels, k), append(labels, make([]string, s.vertices))
			c.use[k] = columnUse{asLabel, ""}
		}
	}
	seen, lines := make([]bool, s.vertices), make([]int, s.vertices)
	for n := 0; ; n++ {
		row, err := t.Next()
		if err != nil {
			return err
		}
		if row == nil {
			break
		}
		v, err := s.vertexNamed(row[id])
		if _, number := table.ParseFloat([]byte(row[id])); err != nil && n == 0 && !number &&
			!t.HasNames && !given {
			return t.Errorf(askedNames, ErrValue)
		}
		if err != nil {
			return t.Errorf("%w; column %s was taken as the id: give only one column, or make "+
				"the id the first column, or call it id", err, t.Header[id])
		}
		if seen[v] {
			several := ""
			if len(c.labels) == 1 {
				several = "; if a vertex has a row for each of several labels, make columns of 0 " +
					"and 1: pandas.crosstab(df[0], df[1]).clip(upper=1)"
			}
			return t.Errorf("%w: vertex %.60q comes twice in column %s, which was taken as the "+
				"id; if vertices have several labels, make the id the first column, or name it "+
				"id%s", ErrValue, row[id],
				t.Header[id], several)
		}
		seen[v], lines[v] = true, t.Line()
		for i, k := range c.labels {
			labels[i][v] = strings.Clone(row[k])
		}
	}
	s.readsColumns(t, c.use)
	return setTableLabels(s, t, c, func(v int) int { return lines[v] }, labels)
}

const askedNames = "%w: is this row the names of the columns, or the label of a vertex that has " +
	"no row in the node table? --header reads it as the names, and --no-header as data"

// rowsOfLabels reads one label from each row, in the order of the vertices. If the options say
// whether the first row is a name, `given` is true. If they do not say, the first row is a name if
// there is one row more than there are vertices, and if no other row is like it.
func (s *source) rowsOfLabels(t *table.Named, given bool) (labels []string, lines []int,
	err error) {
	tooMany := func() error {
		return t.Errorf("%w: more rows than the %d vertices; remove some, or give --header if "+
			"the first row is a name", ErrMismatch, s.vertices)
	}
	for {
		row, err := t.Next()
		if err != nil {
			return nil, nil, err
		}
		if row == nil {
			break
		}
		if len(labels) > s.vertices || len(labels) == s.vertices && given {
			return nil, nil, tooMany()
		}
		labels, lines = append(labels, strings.Clone(row[0])), append(lines, t.Line())
	}
	n := len(labels)
	if n > 0 && !given {
		first, rest := labels[0], labels[1:]
		isNumber := func(text string) bool { _, ok := table.ParseFloat([]byte(text)); return ok }
		own := !isNumber(first) && !slices.Contains(rest, first) // the first row may be a name
		switch {
		case n == s.vertices+1 && own:
			t.HasNames, t.Header[0] = true, first
			labels, lines, n = rest, lines[1:], n-1
		case n > s.vertices:
			return nil, nil, tooMany()
		case n == s.vertices && own && n > 1 && (s.usual(first) || !slices.ContainsFunc(rest,
			func(text string) bool {
				return !isNumber(text)
			})):
			return nil, nil, fmt.Errorf("%s: line 1: %w: %.60q may be a name or the label of the "+
				"first of %d vertices: --header reads it as a name, and --no-header as a label",
				t.Path(), ErrMismatch, first, n)
		}
	}
	if n > 1 && !given && !t.HasNames && !slices.Contains(labels[1:], labels[0]) {
		s.note("%s: the label of line 1, %q, comes in no other row; if it is a name, --header "+
			"says so", filepath.Base(t.Path()), labels[0])
	}
	if n != s.vertices {
		return nil, nil, fmt.Errorf("%s: %w: %d rows for %d vertices; want a label for each, in "+
			"the order of the node table (if the first row is a label, give --no-header; if it "+
			"is a name, --header), or rows of an id and a label", t.Path(), ErrMismatch, n,
			s.vertices)
	}
	return labels, lines, nil
}

// beside returns the directory of a .npy file as a set of arrays, and the name under which the set
// has the file's array.
func beside(path string) (a arraySource, key string) {
	dir := filepath.Dir(path)
	return arraySource{npyDir(dir), path}, strings.TrimSuffix(filepath.Base(path), ".npy")
}

// tableFiles finds the edge table. If In is a directory, it also finds the node table.
func tableFiles(s *source) (edges string, err error) {
	in := s.options.In
	if !isDir(in) {
		return in, nil
	}
	if edges = tableIn(in, "edges"); edges == "" {
		names := filesIn(in, "")
		if slices.ContainsFunc(names,
			func(n string) bool { return strings.HasPrefix(n, "part-") }) {
			return "", fmt.Errorf("%s: a table in parts, as Spark writes it; join them, with the "+
				"names of the columns once: awk 'FNR > 1 || NR == 1' %[1]s/part-* > NEW.csv", in)
		}
		return "", fmt.Errorf("%s: neither edges.csv nor edges.tsv is there; it has %s; name the "+
			"edge table with --in and the node table with --nodes; with vertex types the tables "+
			"are %s", in, few(names), typedTables)
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

// countRows sets the number of vertices to the number of rows of an array of features. The id of a
// vertex is then its row number in that array.
func countRows(s *source, path string) error {
	a, key := beside(path)
	r, err := a.open(key, 2)
	if err != nil {
		return err
	}
	return errors.Join(s.setVertices(int64(r.Shape[0]), path), r.Close())
}

// checkTables returns an error for options of tables that the format does not use.
func (o *ImportOptions) checkTables() error {
	t := &o.Table
	if o.Format != "csv" {
		if t.Nodes != "" || t.Source != "" || t.Target != "" || t.Weight != "" ||
			len(t.EdgeFeatures) > 0 || t.ID != "" ||
			len(t.Labels) > 0 ||
			len(t.Features) > 0 || t.Split != "" || t.NoHeader || t.Header || t.FirstRows {
			return badOption("options for columns and for a node table need --format csv, but "+
				"the format is %s",
				o.Format)
		}
		return nil
	}
	others := []string{".csv", ".tsv", ".txt", ".npz", ".gz"}
	if len(t.Features) == 1 && slices.Contains(others, filepath.Ext(t.Features[0])) &&
		exists(t.Features[0]) {
		load := "numpy.loadtxt(FILE)"
		switch filepath.Ext(strings.TrimSuffix(t.Features[0], ".gz")) {
		case ".csv":
			load = `numpy.loadtxt(FILE, delimiter=",")`
		case ".tsv":
			load = `numpy.loadtxt(FILE, delimiter="\t")`
		case ".npz":
			load = "numpy.load(FILE)[NAME]"
		}
		return badOption("--features %s: a file with rows of features must be a .npy file; make "+
			"one by numpy.save(\"x.npy\", %s)", t.Features[0], load)
	}
	if t.Header && t.NoHeader {
		return badOption("--header and --no-header exclude each other; leave one out")
	}
	if t.Nodes != "" {
		return foreign(t.Nodes, o.Format)
	}
	return nil
}
