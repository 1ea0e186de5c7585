package dataset

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"halognn/src/data/dataset/table"
	"halognn/src/topology/graph"
)

// schemes are the usual pairs of names for the two ends of an edge.
var schemes = [][2]string{
	{"source", "target"}, {"src", "dst"}, {"from", "to"}, {"u", "v"}, {"start", "end"},
	{"id_1", "id_2"},
	{"id1", "id2"}, {"node_1", "node_2"}, {"node1", "node2"}, {"from_id", "to_id"},
	{"source_id", "target_id"},
	{"source", "destination"}, {"src", "dest"}, {"src_id", "dst_id"}, {"from_node", "to_node"},
	{"from_node_id", "to_node_id"}, {"fromnodeid", "tonodeid"}, {"source_node", "target_node"},
	{"start_id", "end_id"}, {"head", "tail"}, {"citing", "cited"},
}

// sourceNames and targetNames are the first and the second names of all schemes.
var sourceNames, targetNames = endNames(0), endNames(1)

func endNames(end int) (names []string) {
	for _, of := range schemes {
		names = append(names, of[end])
	}
	return names
}

// AreEnds reports whether two columns have names that mark them as the source and the target of
// edges.
func AreEnds(source, target string) bool {
	return slices.ContainsFunc(schemes, func(of [2]string) bool {
		return strings.EqualFold(of[0], source) && strings.EqualFold(of[1], target)
	})
}

// IDColumn returns the index of the first column that has a usual name of vertex ids, or -1 if
// there is none.
func IDColumn(names []string) int {
	for _, usual := range idNames {
		if k := slices.IndexFunc(names,
			func(n string) bool { return strings.EqualFold(n, usual) }); k >= 0 {
			return k
		}
	}
	return -1
}

// edgeTable is an edge table, with the indices of the columns that the import reads.
type edgeTable struct {
	*table.Named
	from, to, weight int // indices of columns; weight is -1 if edges have no weights
	// column that holds the words Directed and Undirected, which Gephi writes; -1 if there is none
	direction int
	// columns with the names that the method edgeColumns returns; -1 for a column that this table
	// lacks, because only tables of other relations have it
	features []int
	why      string
	// numbers of edges that the column of directions calls Directed (directed) and Undirected
	// (both)
	directed, both int
	undirected     bool // the current edge is undirected
}

// findEnds finds the columns of the ends of an edge, and of its weight.
func (t *edgeTable) findEnds(e *edgeSource) (err error) {
	o := &e.options.Table
	if t.weight, err = e.edgeColumn(t.Named, o.Weight, "--weight", weightNames...); err != nil {
		return err
	}
	if o.Weight == "" && t.weight >= 0 && slices.Contains(e.options.LinkLabels,
		t.Header[t.weight]) {
		t.weight = -1
	}
	if t.from, err = e.column(t.Named, o.Source, "--source"); err != nil {
		return err
	}
	if t.to, err = e.column(t.Named, o.Target, "--target"); err != nil {
		return err
	}
	if err := t.chooseEnds(e); err != nil {
		return err
	}
	switch {
	case len(t.Header) < 2:
		return t.Narrow("the ends of an edge")
	case !t.HasNames && t.from < 0 && t.to < 0 && t.triples():
		return t.Errorf("%w: the ends of an edge could be columns 0 and 1, or 0 and 2 with a "+
			"relation between them; name them by --source and --target, and leave out others by "+
			"--ignore; if there are several relations, make a table for each "+
			"(docs/guide/typed.md)", ErrValue)
	case !t.HasNames && t.from < 0 && t.to < 0:
		t.from, t.to = 0, 1
	case (t.from < 0 || t.to < 0) && t.Square():
		return t.Errorf("%w: this is an adjacency matrix, because its columns have the names of "+
			"its rows; in Python, halognn.write_dataset(DIR, "+
			"networkx.from_pandas_adjacency(pandas.read_csv(FILE, sep=%q, index_col=0))) imports "+
			"it", ErrValue, t.Between())
	case t.from < 0 || t.to < 0:
		return t.Errorf("%w: which columns are the ends of an edge? The columns are %s; name "+
			"them with --source and --target, or say --no-header if this row is an edge", ErrValue,
			strings.Join(t.Header, ", "))
	case t.from == t.to:
		return fmt.Errorf("%s: %w: --source and --target name the same column; name two columns",
			t.Path(), ErrValue)
	case e.from == e.to && e.from.kind == "" && twoSpaces(t.Header[t.from], t.Header[t.to]):
		return t.Errorf("%w: columns %s and %s name two kinds of vertices, and an id may occur "+
			"in both; use ids that differ between the kinds, or declare vertex types "+
			"(docs/guide/typed.md); if both columns name vertices of one kind, rename the columns",
			ErrValue, t.Header[t.from], t.Header[t.to])
	case t.weight >= 0 && (t.weight == t.from || t.weight == t.to):
		return fmt.Errorf("%s: %w: column %q holds edge ends, and --weight names it too; name "+
			"another column",
			t.Path(), ErrValue, t.Header[t.weight])
	}
	usual := o.Source != "" || o.Target != "" || t.from == 0 && t.to == 1
	cure := ", or name the ends with --source and --target"
	if err := askProse(t.Named, cure, usual); err != nil {
		return err
	}
	t.direction = -1
	for k, name := range t.Header {
		if err := e.refusal(t.Path()+": column "+name, name); err != nil {
			return err
		}
		if strings.EqualFold(plainName(name), "type") && !slices.Contains(e.options.Ignore, name) &&
			!slices.Contains(e.options.LinkLabels, name) && !slices.Contains(o.EdgeFeatures, name) {
			t.direction = k
		}
	}
	return nil
}

// triples reports whether the first three columns of a table without column names seem to be a
// source, a relation and a target: the first and the third hold words, or both hold numbers and the
// second holds words.
func (t *edgeTable) triples() bool {
	if len(t.Header) < 3 {
		return false
	}
	first, second := t.Number(0), t.Number(1)
	third := t.Number(2) || table.DecimalComma(t.Field(2)) != "" || isMoment(t.Field(2))
	return first == third && !(first && second)
}

// plainName rewrites the name of a column in the way in which the list schemes writes names: Source
// Node becomes Source_Node, :START_ID(Person) of Neo4j becomes START_ID, ~from of Neptune becomes
// from, and #node1, from a first line that is a comment, becomes node1.
func plainName(name string) string {
	name = strings.TrimLeft(name, ":~#")
	if at := strings.IndexByte(name, '('); at > 0 {
		name = name[:at]
	}
	return strings.NewReplacer(" ", "_", "-", "_", ".", "_").Replace(name)
}

// twoSpaces reports whether the brackets in the names of the two ends, as in :START_ID(Person) of
// Neo4j, show that equal ids at the two ends are different vertices.
func twoSpaces(source, target string) bool {
	_, from, one := strings.Cut(source, "(")
	_, to, other := strings.Cut(target, "(")
	return from != to && (one && other || strings.Contains(source+" "+target, "_ID("))
}

// likeNames reports whether the names of two columns differ as names of the two ends of an edge do:
// by the two words of a scheme (from_user, to_user), by 1 and 2 (drug1, drug2), or by 0 and 1.
func likeNames(source, target string) bool {
	source, target = strings.ToLower(plainName(source)), strings.ToLower(plainName(target))
	ways := append([][2]string{{"1", "2"}, {"0", "1"}}, schemes...)
	return slices.ContainsFunc(ways, func(of [2]string) bool {
		other, is := swapped(source, of)
		return is && other == target
	})
}

// swapped returns the name with the first word of the scheme replaced by the second word. The
// result ok is false if the name does not have the first word.
func swapped(name string, scheme [2]string) (other string, ok bool) {
	at := strings.LastIndex(name, scheme[0])
	if at < 0 {
		return "", false
	}
	return name[:at] + scheme[1] + name[at+len(scheme[0]):], true
}

// lead returns the number of leading columns that are no ends of edges: 1 if the first column has
// no name, like the row numbers that some tools write, otherwise 0.
func (t *edgeTable) lead() int {
	if len(t.Header) > 0 && isIndex(t.Header[0], 2) {
		return 1
	}
	return 0
}

// onlyPair reports whether the first two columns have matching names (likeNames) and no other two
// columns do. A first column without a name is skipped. The answer is false for times (valid_from,
// valid_to), for the first two columns of a series (V1, V2, V3), and if there are two pairs
// (score1, score2, drugA, drugB).
func (t *edgeTable) onlyPair() bool {
	header := t.Header[t.lead():]
	if !t.HasNames || len(header) < 2 || !likeNames(header[0], header[1]) || isWhen(header[0]) ||
		isWhen(header[1]) {
		return false
	}
	stem := func(name string) string {
		return strings.ToLower(strings.Trim(plainName(name), "0123456789"))
	}
	for k, name := range header[2:] {
		if stem(header[0]) == stem(header[1]) && stem(name) == stem(header[0]) {
			return false
		}
		for j, other := range header {
			last, ab := strings.CutSuffix(strings.ToLower(other), "a")
			if j != k+2 && !isWhen(name) && (likeNames(name, other) || likeNames(other, name) ||
				ab && j > 1 && last+"b" == strings.ToLower(name)) {
				return false
			}
		}
	}
	return true
}

// nodeFiles returns the names of the node tables of the two ends, for messages.
func (e *edgeSource) nodeFiles() string {
	from, to := filepath.Base(e.from.options.Table.Nodes), filepath.Base(e.to.options.Table.Nodes)
	if from == to {
		return from
	}
	return from + " and " + to
}

// In a table of two columns, the column with the index known holds one end of the edges. The method
// other returns the index of the second column if that holds the opposite end. It returns -1 in
// three cases: the node table lacks the column's first values; the name or a flag shows that the
// column is something else; or both columns are integers, which could be amounts.
func (e *edgeSource) other(t *edgeTable, known, end int) int {
	k, s := 1-known, [2]*source{e.from, e.to}[end]
	if len(t.Header) != 2 || !t.HasNames || s.options.Table.Nodes == "" || s.places == nil ||
		k == t.weight {
		return -1
	}
	name, values := t.Header[k], t.Sample(k)
	for _, names := range [][]string{e.options.Ignore, e.options.Table.EdgeFeatures,
		e.options.LinkLabels} {
		if slices.Contains(names, name) {
			return -1
		}
	}
	if e.usual(plainName(name)) || isWhen(name) || len(values) == 0 ||
		integersOf(values) != nil && integersOf(t.Sample(known)) != nil ||
		slices.ContainsFunc(values, func(id string) bool { _, is := s.places[id]; return !is }) {
		return -1
	}
	return k
}

// otherPair returns the names of two columns that are not used as the ends of the edges, although
// their names match like the names of ends. A table that names both vertices twice, by an id and by
// a name, has such columns. otherPair returns "" if there are none.
func (t *edgeTable) otherPair(e *edgeSource) string {
	named := slices.Concat(e.options.Ignore, e.options.Table.EdgeFeatures, e.options.LinkLabels)
	at := map[string]int{} // columns by their names in lower case
	for k, name := range t.Header {
		if k != t.from && k != t.to && k != t.weight && !isWhen(name) &&
			!slices.Contains(named, name) {
			at[strings.ToLower(plainName(name))] = k
		}
	}
	for k, name := range t.Header {
		source := strings.ToLower(plainName(name))
		if own, free := at[source]; !free || own != k {
			continue
		}
		for _, of := range schemes {
			if target, is := swapped(source, of); is {
				if other, free := at[target]; free && other != k {
					return name + " and " + t.Header[other]
				}
			}
		}
	}
	return ""
}

// isWhen reports whether a column is named like a time, such as endTime, started_at or valid_from.
func isWhen(name string) bool {
	parts := strings.FieldsFunc(strings.ToLower(plainName(name)), func(r rune) bool {
		return r == '_' || r >= '0' && r <= '9'
	})
	return slices.ContainsFunc(parts, func(part string) bool {
		for _, end := range []string{"start", "end", "from", "to"} {
			for _, rest := range []string{part, strings.TrimPrefix(part, end),
				strings.TrimSuffix(part, end)} {
				if isTime(rest) || slices.Contains(whenNames, rest) {
					return true
				}
			}
		}
		return false
	})
}

var whenNames = []string{"year", "month", "week", "day", "hour", "minute", "second", "valid", "at",
	"on"}

const theOther = "one of the two columns has the name of an end, and the ids of the other are " +
	"in the node table"

// chooseEnds finds the ends that no flag names: two columns whose names are one of the schemes. If
// columns match several schemes, it takes none of them. If no columns match a scheme, it takes the
// first two columns if their names match each other (onlyPair).
func (t *edgeTable) chooseEnds(e *edgeSource) error {
	if t.from >= 0 && t.to >= 0 {
		return nil
	}
	at := func(name string) int {
		return slices.IndexFunc(t.Header, func(h string) bool {
			return strings.EqualFold(plainName(h), name) && !slices.Contains(e.options.Ignore, h)
		})
	}
	var pairs [][2]int
	// columns that have a name of the source, and columns that have a name of the target
	var ends [2][]int
	for _, names := range schemes {
		pair := [2]int{at(names[0]), at(names[1])}
		for i, k := range pair {
			if k >= 0 && k != t.weight && !slices.Contains(ends[i], k) {
				ends[i] = append(ends[i], k)
			}
		}
		if pair[0] >= 0 && pair[1] >= 0 && (t.from < 0 || pair[0] == t.from) &&
			(t.to < 0 || pair[1] == t.to) {
			pairs = append(pairs, pair)
		}
	}
	for i, k := range [2]int{t.from, t.to} {
		if k >= 0 {
			ends[i] = []int{k}
		}
	}
	switch {
	case len(pairs) == 1:
		t.from, t.to = pairs[0][0], pairs[0][1]
		if len(ends[0]) > 1 || len(ends[1]) > 1 {
			t.why = "its names are a pair"
		}
		if other := t.otherPair(e); other != "" && e.options.Table.Source == "" &&
			e.options.Table.Target == "" {
			t.why = "rather than " + other + ": --source and --target say which"
		}
	case len(pairs) > 1:
		return t.Errorf("%w: the ends of an edge could be %s and %s, or %s and %s; say which by "+
			"--source and --target", ErrValue, t.Header[pairs[0][0]], t.Header[pairs[0][1]],
			t.Header[pairs[1][0]], t.Header[pairs[1][1]])
	case len(ends[0]) == 1 && len(ends[1]) == 1:
		t.from, t.to = ends[0][0], ends[1][0]
	case len(ends[0])+len(ends[1]) == 0 && t.onlyPair() &&
		!slices.ContainsFunc(t.Header[t.lead():][:2],
			func(name string) bool { return slices.Contains(e.options.Ignore, name) }):
		t.from, t.to, t.why = t.lead(), t.lead()+1, "its names are a pair"
	case len(ends[0]) == 1 && len(ends[1]) == 0 && e.other(t, ends[0][0], 1) >= 0:
		t.from, t.to, t.why = ends[0][0], e.other(t, ends[0][0], 1), theOther
	case len(ends[1]) == 1 && len(ends[0]) == 0 && e.other(t, ends[1][0], 0) >= 0:
		t.from, t.to, t.why = e.other(t, ends[1][0], 0), ends[1][0], theOther
	case len(ends[0]) > 1 || len(ends[1]) > 1:
		var names []string
		for _, k := range slices.Concat(ends[0], ends[1]) {
			names = append(names, t.Header[k])
		}
		return t.Errorf("%w: which columns are the ends of an edge? It could be %s; say which by "+
			"--source and --target", ErrValue, strings.Join(names, ", "))
	}
	return nil
}

// findFeatures finds the columns of --edge-features, or the columns with the labels of links.
func (t *edgeTable) findFeatures(e *edgeSource) error {
	names, flag := e.options.edgeColumns()
	for _, name := range names {
		k, err := e.edgeColumn(t.Named, name, flag)
		if err == nil {
			err = notEmpty(name, flag)
		}
		switch {
		case err != nil:
			return err
		case k < 0: // only tables of other relations have this column
		case slices.Contains(t.features, k):
			return fmt.Errorf("%s: %w: %s names column %s twice; leave one out",
				t.Path(), ErrValue, flag, name)
		case k == t.from || k == t.to:
			return fmt.Errorf("%s: %w: column %s holds edge ends, and %s names it too; leave it "+
				"out there",
				t.Path(), ErrValue, name, flag)
		case slices.Contains(e.options.Ignore, name):
			return fmt.Errorf("%s: %w: %s and --ignore both name column %s; leave out one",
				t.Path(),
				ErrValue, flag, name)
		}
		t.features = append(t.features, k)
	}
	return nil
}

// edgeColumn finds a column as the method column does, with one difference. It is no error if the
// table of this relation lacks a column that other relations have, unless the flag names this
// relation.
func (e *edgeSource) edgeColumn(t *table.Named, asked, flag string, usual ...string) (int, error) {
	if asked == "" || e.own == nil || e.own[flag] {
		return e.column(t, asked, flag, usual...)
	}
	k := slices.Index(t.Header, asked)
	e.seeColumn(flag, asked, e.misnamed(asked), k >= 0)
	return k, nil
}

// noteColumns adds to the report what the columns of an edge table were read as.
func noteColumns(e *edgeSource, t *edgeTable) {
	of := map[int]columnUse{t.from: {asSource, t.why}, t.to: {asTarget, t.why}}
	file := filepath.Base(t.Path())
	use := func(k int, as string) {
		name := columnName(t.Header[k], k)
		of[k] = columnUse{as, e.tellTime("column "+name+" of "+file, as,
			timeOf(t.Header[k], t.Sample(k)))}
	}
	for _, k := range t.features {
		if k < 0 {
			continue
		}
		as := asEdgeFeature
		if e.options.linkTask() != "" {
			as = asLinkLabel
		}
		use(k, as)
	}
	if t.weight >= 0 {
		use(t.weight, asWeight)
	}
	if t.direction >= 0 {
		of[t.direction] = columnUse{asDirection,
			fmt.Sprintf("%d directed, %d undirected", t.directed, t.both)}
	}
	for k, name := range t.Header {
		switch _, read := of[k]; {
		case read:
		case isTime(name) && timeOf(name, t.Sample(k)) != "":
			of[k] = columnUse{asTime, ""}
			e.note("column %s of %s is ignored: it is %s", name, file, noTime)
		case timeOf(name, t.Sample(k)) != "":
			of[k] = columnUse{asTime, "as its numbers or dates show"}
			e.note("column %s of %s, such as %.40q, is ignored: it seems to be %s",
				columnName(name, k), file, t.Field(k), noTime)
		case ignoredWeights(name) != "":
			e.notes = append(e.notes, ignoredWeights(name))
		case name == "Label" && t.Header[t.from] == "Source" && display(t.Sample(k)):
			of[k] = columnUse{asIgnored, forDisplay}
			e.note("column Label of %s is not read: it seems to be for display, as Gephi writes "+
				"it; if it has classes, --task links --link-classes Label predicts them", file)
		case slices.ContainsFunc(labelNames,
			func(n string) bool { return strings.EqualFold(n, name) }):
			e.note("column %s of %s is not read; --task links --link-classes %[1]s, or "+
				"--link-numbers, predicts it", name, file)
		case !t.HasNames && k == 2 && t.weight < 0 && table.DecimalComma(t.Field(k)) != "":
			e.note("column 2 of %s is not read; if it is the weight of an edge, write a point in "+
				"place of its decimal comma and give --weight 2", file)
		case !t.HasNames && k == 2 && t.weight < 0 && weighs(t.Field(k)):
			e.note("column 2 of %s is not read; if it is the weight of an edge, --weight 2 reads "+
				"it", file)
		default:
			e.note("column %s of %s is not read", columnName(name, k), file)
		}
	}
	e.readsColumns(t.Named, of)
}

// display reports whether the first values of a column look like names of the edges, which serve
// for display only: nearly all differ, or are empty.
func display(values []string) bool {
	seen, n := map[string]bool{}, 0
	for _, f := range values {
		if f != "" {
			seen[f] = true
			n++
		}
	}
	return 10*len(seen) >= 9*n
}

// weighs reports whether a field may be the weight of an edge: a number of at least 0.
func weighs(field string) bool {
	w, is := table.ParseFloat([]byte(field))
	return is && w >= 0
}

// openEdges opens an edge table and decides whether its first row is an edge or the names of the
// columns. Usual names of columns are names. A row without them is an edge if a node table has its
// ids. Otherwise it may be names if its first two fields match as names of the two ends of an edge
// do.
func (e *edgeSource) openEdges(path string) (*table.Named, error) {
	o := &e.options.Table
	names, why := e.namesOf(o.NoHeader, e.options.ofEdges()...), ""
	if e.from.options.Table.Nodes != "" && e.from.places != nil && e.to.places != nil {
		ends := [2]int{0, 1} // columns of the ends, in a table without names
		for i, name := range [2]string{o.Source, o.Target} {
			if k, is := table.ParseInt([]byte(name)); is && k >= 0 {
				ends[i] = int(k)
			}
		}
		ids := func(row []string) (n int) {
			for i, s := range [2]*source{e.from, e.to} {
				if ends[i] < len(row) {
					if _, is := s.places[row[ends[i]]]; is {
						n++
					}
				}
			}
			return n
		}
		file := e.nodeFiles()
		names.Data = func(row []string, after [][]string) bool {
			usual := slices.ContainsFunc(row, func(f string) bool { return f != "" && e.usual(f) })
			if len(row) < 2 || ids(row) < 2 || usual || table.Counting(row) ||
				table.OverNumbers(row, after) {
				return false
			}
			why = "both ends have a row in " + file
			return true
		}
		names.Either = func(row []string, after [][]string) (named, known bool) {
			if len(row) < 2 || !likeNames(row[0], row[1]) || ids(row) > 0 || len(after) == 0 ||
				slices.ContainsFunc(after, func(r []string) bool { return ids(r) < 2 }) {
				return false, false
			}
			why = "it names no vertex of " + file + ", as the next rows do"
			return true, true
		}
	}
	t, err := table.OpenNamed(path, names)
	if err == nil && !o.Header && !o.NoHeader {
		t.Why = why
	}
	return t, err
}

// eachNamedEdge calls the function `visit` with every edge: the ids of its ends, its weight (""
// without a column of weights) and its features. The features are valid only until visit returns.
func eachNamedEdge(e *edgeSource,
	path string,
	visit func(t *edgeTable, u, v, weight string, features []string) error,
) (*edgeTable, error) {
	opened, err := e.openEdges(path)
	if err != nil {
		return nil, err
	}
	defer opened.Close()
	t := &edgeTable{Named: opened}
	if err := t.findEnds(e); err != nil {
		return nil, err
	}
	if err := t.findFeatures(e); err != nil {
		return nil, err
	}
	features := make([]string, len(t.features))
	// true as long as all values are 0 or 1, in a table without column names
	marks := !t.HasNames && e.options.Table.Source == ""
	for rows := 0; ; rows++ {
		row, err := t.Next()
		if err == nil && row == nil && marks && rows == len(t.Header) && rows > 2 {
			err = fmt.Errorf("%s: %w: %d rows with as many columns of 0 and 1 are an adjacency "+
				"matrix; in Python, halognn.write_dataset(DIR, "+
				"scipy.sparse.csr_matrix(numpy.loadtxt(FILE, delimiter=%q))) imports it",
				path, ErrValue, rows, t.Between())
		}
		if err != nil && !t.HasNames && t.Columns() > len(t.Header) {
			err = fmt.Errorf("%w; if a row lists the neighbours of its first vertex, import it "+
				"in Python by halognn.write_dataset(DIR, networkx.read_adjlist(FILE, "+
				"delimiter=%q))", err, t.Between())
		}
		if err != nil || row == nil {
			return t, err
		}
		marks = marks && !slices.ContainsFunc(row,
			func(f string) bool { return f != "0" && f != "1" })
		if row[t.from] == "" || row[t.to] == "" {
			return nil, t.Errorf("%w: an edge has no %s; remove the row or fill it in", ErrValue,
				map[bool]string{true: "source", false: "target"}[row[t.from] == ""])
		}
		weight := ""
		if t.weight >= 0 {
			weight = row[t.weight]
		}
		if t.weight >= 0 && weight == "" {
			return nil, notANumber(t.Named, t.weight, weight)
		}
		if t.direction >= 0 {
			if err := t.direct(row[t.direction]); err != nil {
				return nil, err
			}
		}
		for i, k := range t.features {
			if features[i] = "0"; k >= 0 {
				features[i] = row[k]
			}
		}
		if err := visit(t, row[t.from], row[t.to], weight, features); err != nil {
			return nil, err
		}
	}
}

// direct reads whether the current edge is directed.
func (t *edgeTable) direct(text string) error {
	switch strings.ToLower(text) {
	case "undirected", "mutual":
		t.undirected = true
		t.both++
	case "directed", "":
		t.undirected = false
		t.directed++
	default:
		name := t.Header[t.direction]
		return t.Errorf("column %s: %w: %.40q is neither Directed nor Undirected; %s; --ignore "+
			"%s imports the graph without the column", name, ErrValue, text, edgeTypes, name)
	}
	return nil
}

// collectIDs numbers the ids in an edge table, which become the vertices.
func collectIDs(e *edgeSource, path string) error {
	s := e.from
	// for each id, 1 if it was a source, 2 if it was a target, 3 if both
	seen := make(map[string]graph.VertexID)
	var odd oddIDs
	both := 0
	t, err := eachNamedEdge(e, path, func(t *edgeTable, u, v, _ string, _ []string) error {
		for end, id := range [2]string{u, v} {
			as, before := seen[id]
			more := as | 1<<end
			if more == as {
				continue
			}
			// id is part of the row, which is overwritten, so the map needs a copy of it; the
			// assignment also replaces the key of an id that the map has
			id = strings.Clone(id)
			seen[id] = more
			if before {
				both++
				continue
			}
			if strings.ContainsRune(id, '\n') {
				return t.Errorf("%w: the id %.60q has a line break; give an id on one line",
					ErrValue, id)
			}
			odd.see(id, t.Line())
		}
		return nil
	})
	if err != nil {
		return err
	}
	if from, to := t.Header[t.from], t.Header[t.to]; both > 0 && t.HasNames &&
		!likeNames(from, to) && !AreEnds(plainName(from), plainName(to)) {
		s.note("%d of %d ids are in both columns, %s and %s, and each is taken as one vertex. If "+
			"the columns name two kinds of vertices, give the kinds types (docs/guide/typed.md), "+
			"or ids of their own", both, len(seen), from, to)
	}
	if err := odd.tell(s, path, seen); err != nil {
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

// placeOf returns the number of the vertex whose id in the edge table t is id.
func placeOf(s *source, t *edgeTable, id string) (int64, error) {
	if s.places == nil {
		x, ok := table.ParseInt([]byte(id))
		if !ok {
			return 0, t.Errorf("%w: vertex %.60q: without a node table, an array of features has "+
				"the vertices 0 to %d; name the node table with --nodes", ErrValue, id,
				s.vertices-1)
		}
		return x, nil
	}
	v, ok := s.places[id]
	if ok {
		return int64(v), nil
	}
	nodes := filepath.Base(s.options.Table.Nodes)
	if s.options.Table.Nodes == "" {
		return 0, t.Errorf("vertex %.60q was not there when the file was first read, so the file "+
			"has changed; import it again",
			id)
	}
	switch alike, number := s.alike(id); {
	case number:
		return 0, t.Errorf("vertex %.60q: %w: %s calls it %s; write ids alike, in pandas by "+
			"df[column].astype(\"int64\")", id, graph.ErrVertexRange, nodes, alike)
	case alike != "":
		return 0, t.Errorf("vertex %.60q: %w: %s has %.60q, which differs from it in capitals "+
			"only; write ids alike", id, graph.ErrVertexRange, nodes, alike)
	}
	if !s.unnamed && slices.Contains(s.header, id) {
		return 0, t.Errorf("vertex %.60q: %w: %s has no row for it, but has a column with that "+
			"name; if its first row is data, give --no-header", id, graph.ErrVertexRange, nodes)
	}
	return 0, t.Errorf("vertex %.60q: %w: %s has no row for it in column %s, which is the id%s; "+
		"add a row, or remove the edge, or name the column of the ids with --id%s", id,
		graph.ErrVertexRange, nodes, s.idColumn, s.otherIDs, s.noID)
}

// readEdgeTable reads all edges of a table.
func readEdgeTable(e *edgeSource, path string) error {
	names, _ := e.options.edgeColumns()
	e.rows.cols = len(names)
	var both []int64 // numbers of the edges that are called Undirected
	var absent error // error about the first edge whose vertex does not exist
	lost := 0        // number of edges with a vertex that does not exist
	t, err := eachNamedEdge(e, path,
		func(t *edgeTable, from, to, weight string, features []string) error {
			if absent != nil { // after that first error, the loop only counts further such edges
				_, one := e.from.places[from]
				if _, other := e.to.places[to]; !one || !other {
					lost++
					return nil
				}
			}
			u, err := placeOf(e.from, t, from)
			v, other := placeOf(e.to, t, to)
			if err = cmp.Or(err, other); err != nil && e.from.places != nil &&
				errors.Is(err, graph.ErrVertexRange) {
				absent = cmp.Or(absent, err)
				lost++
				return nil
			}
			if err != nil {
				return err
			}
			if t.undirected {
				both = append(both, e.edges.NumEdges())
			}
			if err := e.addEdge(u, v); err != nil {
				return t.Errorf("%w", err)
			}
			for i, text := range features {
				x, ok := table.ParseFloat([]byte(text))
				if !ok || !finite(float32(x)) {
					return t.Errorf("%w: %s of an edge is %.40q, which is no finite number%s",
						ErrValue, names[i], text, cmp.Or(table.DecimalComma(text), dated(text)))
				}
				e.rows.data = appended(e.rows.data, float32(x))
			}
			if weight == "" {
				return nil
			}
			w, ok := table.ParseFloat([]byte(weight))
			if !ok {
				return t.Errorf("%w: an edge has weight %.40q, which is not a number%s", ErrValue,
					weight, cmp.Or(table.DecimalComma(weight), dated(weight)))
			}
			if err := e.addWeight(w); err != nil {
				return t.Errorf("%w", err)
			}
			return nil
		})
	if lost > 1 {
		absent = fmt.Errorf("%w; %d edges name such vertices", absent, lost)
	}
	if err = cmp.Or(err, absent); err != nil {
		return err
	}
	e.turn(t, both)
	noteColumns(e, t)
	return nil
}

// turn handles the edges that the column of directions calls undirected. If it calls all edges
// undirected, the whole relation becomes undirected. Otherwise the reverse of each such edge is
// added. If the reverses of all relations are added anyway, there is nothing to do.
func (e *edgeSource) turn(t *edgeTable, both []int64) {
	if len(both) == 0 || e.options.Undirected != AsFormat || e.options.Reverse {
		return
	}
	if t.directed == 0 {
		if e.undirected = true; e.nameSuffix() != "" {
			e.note("the edges%s are undirected, as column %s of %s says: the reverse of each was "+
				"added", e.nameSuffix(), t.Header[t.direction], filepath.Base(t.Path()))
		}
		return
	}
	if e.both = both; e.from == e.to {
		e.addReverses(e, both)
	}
	e.note("%d edges%s are undirected, as column %s says: the reverse of each was added", len(both),
		e.nameSuffix(), t.Header[t.direction])
}
