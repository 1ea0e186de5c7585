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

// schemes are the names of the two ends of an edge, in the ways in which people name them.
var schemes = [][2]string{
	{"source", "target"}, {"src", "dst"}, {"from", "to"}, {"u", "v"}, {"start", "end"}, {"id_1", "id_2"},
	{"id1", "id2"}, {"node_1", "node_2"}, {"node1", "node2"}, {"from_id", "to_id"}, {"source_id", "target_id"},
	{"source", "destination"}, {"src", "dest"}, {"src_id", "dst_id"}, {"from_node", "to_node"},
	{"from_node_id", "to_node_id"}, {"fromnodeid", "tonodeid"}, {"source_node", "target_node"},
	{"start_id", "end_id"}, {"head", "tail"}, {"citing", "cited"},
}

// sourceNames and targetNames are those of schemes.
var sourceNames, targetNames = endNames(0), endNames(1)

func endNames(end int) (names []string) {
	for _, of := range schemes {
		names = append(names, of[end])
	}
	return names
}

// AreEnds reports whether two columns of these names are the source and the target of edges.
func AreEnds(source, target string) bool {
	return slices.ContainsFunc(schemes, func(of [2]string) bool {
		return strings.EqualFold(of[0], source) && strings.EqualFold(of[1], target)
	})
}

// edgeTable is a table of edges, and the columns that are read of it.
type edgeTable struct {
	*table.Named
	from, to, weight int   // weight: -1 for none
	direction        int   // a column of Directed and Undirected, as Gephi writes it; -1 for none
	features         []int // of edgeColumns; -1 for a column that other relations have
	why              string
	directed, both   int  // edges that are said to be Directed, and Undirected
	undirected       bool // the current one is
}

// findEnds finds the ends of an edge and its weight.
func (t *edgeTable) findEnds(e *edgeSource) (err error) {
	o := &e.options.Table
	if t.weight, err = e.edgeColumn(t.Named, o.Weight, "--weight", weightNames...); err != nil {
		return err
	}
	if o.Weight == "" && t.weight >= 0 && slices.Contains(e.options.LinkLabels, t.Header[t.weight]) {
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
		return t.Errorf("%w: one column; want two at least, the ends of an edge, apart by commas, tabs, "+
			"semicolons or blanks", ErrValue)
	case !t.HasNames && t.from < 0 && t.to < 0:
		t.from, t.to = 0, 1
	case t.from < 0 || t.to < 0:
		return t.Errorf("%w: which columns are the ends of an edge? The columns are %s: name them with "+
			"--source and --target, or say --no-header if this row is an edge", ErrValue,
			strings.Join(t.Header, ", "))
	case t.from == t.to:
		return fmt.Errorf("%s: %w: --source and --target are the same column", t.Path(), ErrValue)
	case t.weight >= 0 && (t.weight == t.from || t.weight == t.to):
		return fmt.Errorf("%s: %w: column %q is an end of the edges, and --weight names it too",
			t.Path(), ErrValue, t.Header[t.weight])
	}
	t.direction = -1
	for k, name := range t.Header {
		if err := e.refusal(t.Path()+": column "+name, name); err != nil {
			return err
		}
		if strings.EqualFold(name, "type") && !slices.Contains(e.options.Ignore, name) &&
			!slices.Contains(e.options.LinkLabels, name) && !slices.Contains(o.EdgeFeatures, name) {
			t.direction = k
		}
	}
	return nil
}

// chooseEnds finds the ends that the options do not name: both of one scheme. Of several schemes, none
// is taken.
func (t *edgeTable) chooseEnds(e *edgeSource) error {
	if t.from >= 0 && t.to >= 0 {
		return nil
	}
	// Source Node is source_node, too
	plain := strings.NewReplacer(" ", "_", "-", "_", ".", "_")
	at := func(name string) int {
		return slices.IndexFunc(t.Header, func(h string) bool {
			return strings.EqualFold(plain.Replace(h), name) && !slices.Contains(e.options.Ignore, h)
		})
	}
	var pairs [][2]int
	var ends [2][]int // columns that are called like an end
	for _, names := range schemes {
		pair := [2]int{at(names[0]), at(names[1])}
		for i, k := range pair {
			if k >= 0 && k != t.weight && !slices.Contains(ends[i], k) {
				ends[i] = append(ends[i], k)
			}
		}
		if pair[0] >= 0 && pair[1] >= 0 && (t.from < 0 || pair[0] == t.from) && (t.to < 0 || pair[1] == t.to) {
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
	case len(pairs) > 1:
		return t.Errorf("%w: the ends of an edge could be %s and %s, or %s and %s: say which by --source and "+
			"--target", ErrValue, t.Header[pairs[0][0]], t.Header[pairs[0][1]], t.Header[pairs[1][0]],
			t.Header[pairs[1][1]])
	case len(ends[0]) == 1 && len(ends[1]) == 1:
		t.from, t.to = ends[0][0], ends[1][0]
	case len(ends[0]) > 1 || len(ends[1]) > 1:
		var names []string
		for _, k := range slices.Concat(ends[0], ends[1]) {
			names = append(names, t.Header[k])
		}
		return t.Errorf("%w: which columns are the ends of an edge? %s are called so: say which by --source "+
			"and --target", ErrValue, strings.Join(names, ", "))
	}
	return nil
}

// findFeatures finds the columns of --edge-features, or of labels of links.
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
		case k < 0: // of other relations
		case slices.Contains(t.features, k):
			return fmt.Errorf("%s: %w: %s names column %s twice", t.Path(), ErrValue, flag, name)
		case k == t.from || k == t.to:
			return fmt.Errorf("%s: %w: column %s is an end of the edges, and %s names it too", t.Path(),
				ErrValue, name, flag)
		case slices.Contains(e.options.Ignore, name):
			return fmt.Errorf("%s: %w: %s and --ignore both name column %s", t.Path(),
				ErrValue, flag, name)
		}
		t.features = append(t.features, k)
	}
	return nil
}

// edgeColumn is column for one that, of several relations, some may lack, unless the option names this one.
func (e *edgeSource) edgeColumn(t *table.Named, asked, flag string, usual ...string) (int, error) {
	if asked == "" || e.own == nil || e.own[flag] {
		return e.column(t, asked, flag, usual...)
	}
	k := slices.Index(t.Header, asked)
	e.seeColumn(flag, asked, k >= 0)
	return k, nil
}

// noteColumns says what the columns of the edges were taken as.
func noteColumns(e *edgeSource, t *edgeTable) {
	of := map[int]columnUse{t.from: {asSource, t.why}, t.to: {asTarget, t.why}}
	for _, k := range t.features {
		if k < 0 {
			continue
		}
		as := asEdgeFeature
		if e.options.linkTask() != "" {
			as = asLinkLabel
		}
		of[k] = columnUse{as, ""}
	}
	if t.weight >= 0 {
		of[t.weight] = columnUse{asWeight, ""}
	}
	if t.direction >= 0 {
		of[t.direction] = columnUse{asDirection, fmt.Sprintf("%d directed, %d undirected", t.directed, t.both)}
	}
	file := filepath.Base(t.Path())
	for k, name := range t.Header {
		switch _, read := of[k]; {
		case read:
		case isTime(name):
			of[k] = columnUse{asTime, ""}
			e.note("column %s of %s is ignored: %s", name, file, noTime)
		case ignoredWeights(name) != "":
			e.notes = append(e.notes, ignoredWeights(name))
		default:
			e.note("column %s of %s is not read", columnName(name, k), file)
		}
	}
	e.readsColumns(t.Named, of)
}

// eachNamedEdge calls visit with the ends of every edge and its weight, "" without such a column,
// and its features. They are valid until it returns.
func eachNamedEdge(e *edgeSource,
	path string,
	visit func(t *edgeTable, u, v, weight string, features []string) error,
) (*edgeTable, error) {
	opened, err := e.openTable(path, e.options.Table.NoHeader)
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
	for {
		row, err := t.Next()
		if err != nil || row == nil {
			return t, err
		}
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

// direct reads what the column of directions says of the current edge.
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
		return t.Errorf("column %s: %w: %.40q is neither Directed nor Undirected, and %s; --ignore %s imports "+
			"the rest", name, ErrValue, text, edgeTypes, name)
	}
	return nil
}

// collectIDs numbers the ids that the edges name.
func collectIDs(e *edgeSource, path string) error {
	s := e.from
	seen := make(map[string]graph.VertexID)
	var odd oddIDs
	if _, err := eachNamedEdge(e, path, func(t *edgeTable, u, v, _ string, _ []string) error {
		for _, id := range [2]string{u, v} {
			if _, ok := seen[id]; ok {
				continue
			}
			if strings.ContainsRune(id, '\n') {
				return t.Errorf("%w: vertex %.60q: want an id on one line", ErrValue, id)
			}
			id = strings.Clone(id)
			odd.see(id, t.Line())
			seen[id] = 0
		}
		return nil
	}); err != nil {
		return err
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

// placeOf returns the vertex of an id of the edge table t.
func placeOf(s *source, t *edgeTable, id string) (int64, error) {
	if s.places == nil {
		x, ok := table.ParseInt([]byte(id))
		if !ok {
			return 0, t.Errorf("%w: vertex %.60q: without a node table, features in an array are "+
				"those of vertices 0 to %d; name the node table with --nodes", ErrValue, id,
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
		return 0, t.Errorf("vertex %.60q was not there before: the file changed; import it again", id)
	}
	for _, alike := range []string{wholeNumber(id), id + ".0"} {
		if _, ok := s.places[alike]; ok {
			return 0, t.Errorf("vertex %.60q: %w: %s calls it %s; write ids alike, as with "+
				"pandas: df[column].astype(\"int64\")", id, graph.ErrVertexRange, nodes, alike)
		}
	}
	if slices.Contains(s.header, id) {
		return 0, t.Errorf("vertex %.60q: %w: %s has no row for it, but the name of a column: if its first row is "+
			"data, say --no-header", id, graph.ErrVertexRange, nodes)
	}
	return 0, t.Errorf("vertex %.60q: %w: %s has no row for it in column %s, which is the id%s; add one, or "+
		"remove the edge, or name the column of the ids with --id", id, graph.ErrVertexRange, nodes, s.idColumn,
		s.otherIDs)
}

// readEdgeTable adds the edges.
func readEdgeTable(e *edgeSource, path string) error {
	names, _ := e.options.edgeColumns()
	e.rows.cols = len(names)
	var both []int64 // the numbers of edges that are said to be undirected
	t, err := eachNamedEdge(e, path, func(t *edgeTable, from, to, weight string, features []string) error {
		u, err := placeOf(e.from, t, from)
		if err != nil {
			return err
		}
		v, err := placeOf(e.to, t, to)
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
				return t.Errorf("%w: %s of an edge is %.40q, which is no finite number%s", ErrValue,
					names[i], text, table.DecimalComma(text))
			}
			e.rows.data = appended(e.rows.data, float32(x))
		}
		if weight == "" {
			return nil
		}
		w, ok := table.ParseFloat([]byte(weight))
		if !ok {
			return t.Errorf("%w: an edge has weight %.40q, which is not a number%s", ErrValue, weight,
				table.DecimalComma(weight))
		}
		if err := e.addWeight(w); err != nil {
			return t.Errorf("%w", err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	e.turn(t, both)
	noteColumns(e, t)
	return nil
}

// turn makes edges undirected that the column of directions calls so: all, or, beside directed ones,
// each by a reverse of its own. With the reverses of all relations there is nothing to add.
func (e *edgeSource) turn(t *edgeTable, both []int64) {
	if len(both) == 0 || e.options.Undirected != AsFormat || e.options.Reverse {
		return
	}
	if t.directed == 0 {
		if e.undirected = true; e.of() != "" {
			e.note("the edges%s are undirected, as column %s of %s says: the reverse of each was added", e.of(),
				t.Header[t.direction], filepath.Base(t.Path()))
		}
		return
	}
	if e.both = both; e.from == e.to {
		e.addReverses(e, both)
	}
	e.note("%d edges%s are undirected, as column %s says: the reverse of each was added", len(both), e.of(),
		t.Header[t.direction])
}
