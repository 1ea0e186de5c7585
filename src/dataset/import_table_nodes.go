package dataset

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/cespare/xxhash/v2"

	"halognn/src/dataset/table"
	"halognn/src/graph"
)

// nodeColumns are the indices of a node table's columns.
type nodeColumns struct {
	id, split        int
	labels, features []int
	masks            [3]int // columns of marks of a split; -1 for none
	named            bool   // --label names the labels
	left             []int  // columns of usual names, where --label names a file or labels of another type
	use              map[int]columnUse
}

// maskNames are names of columns that mark the vertices of a list of the split. A column of the last two
// names is one only if all its values are marks.
var maskNames = [3][]string{{"train_mask", "is_train", "train"}, {"val_mask", "valid_mask", "is_val", "is_valid",
	"val", "valid"}, {"test_mask", "is_test", "test"}}

// indexNames are names of columns with the numbers of rows, which tools write unasked.
var indexNames = []string{"", "index", "level_0", "rownames", "row_names"}

func isIndex(name string, column int) bool {
	lower := strings.ToLower(name)
	return name == "" || strings.HasPrefix(lower, "unnamed: ") || column < 2 && slices.Contains(indexNames, lower)
}

// isFold reports whether a column is called as those of cross-validation, or one of several splits: fold,
// split_0.
func isFold(name string) bool {
	stem := strings.TrimRight(strings.ToLower(name), "0123456789")
	numbered := stem != strings.ToLower(name)
	stem = strings.ReplaceAll(strings.TrimSuffix(stem, "_"), "_", "")
	return slices.Contains([]string{"fold", "folds", "kfold", "cvfold", "foldid"}, stem) || numbered && stem == "split"
}

// counts reports whether a column is an index: one without a name of its own, or one that counts the rows.
func counts(t *table.Named, column int) bool {
	name := t.Header[column]
	return isIndex(name, 2) || isIndex(name, column) && t.Counts(column)
}

// mark reads a mark of a mask.
func mark(text string) (is, ok bool) {
	switch strings.ToLower(text) {
	case "1", "true", "t", "yes", "y", "1.0":
		return true, true
	case "0", "false", "f", "no", "n", "0.0", "":
		return false, true
	}
	return false, false
}

// readNodes reads ids, labels and split, and registers the features, which are read when they are
// written.
func readNodes(s *source, path string) error {
	t, err := s.openTable(path, s.options.Table.NoHeader, s.options.Table.ofNodes()...)
	if err != nil {
		return err
	}
	defer t.Close()
	c, err := findNodeColumns(s, t)
	if err != nil {
		return err
	}
	var ids []string
	labels := make([][]string, len(c.labels))
	p := &splitSource{
		from: "column " + t.Header[max(0, c.split)] + " of " + filepath.Base(path),
		path: path,
		read: true,
	}
	masks := maskReader{t: t, columns: c.masks, given: s.options.Split != ""}
	held := make([]bool, len(t.Header)) // columns with something in a row
	var odd oddIDs
	var first []uint64 // of each vertex, the hash of its row, with FirstRows
	unequal := 0
	s.places = make(map[string]graph.VertexID)
	for n := 0; ; n++ {
		row, err := t.Next()
		if err != nil {
			return err
		}
		if row == nil {
			break
		}
		v := graph.VertexID(len(ids))
		id := strings.Clone(row[c.id])
		own, twice := s.places[id]
		if s.options.Table.FirstRows {
			hash := xxhash.Sum64String(strings.Join(row, "\x00"))
			if twice {
				if s.repeated = append(s.repeated, n); hash != first[own] {
					unequal++
				}
				continue
			}
			first = append(first, hash)
		}
		if twice {
			return t.Errorf("%w: vertex %.60q comes twice in column %s, which is the id; want a row for each "+
				"vertex, another column as --id, or --first-rows, which takes the first%s", ErrValue, id, s.idColumn, s.noID)
		}
		if id == "" || strings.ContainsRune(id, '\n') {
			return t.Errorf("%w: vertex %.60q: want an id, on one line", ErrValue, id)
		}
		if len(ids) == graph.MaxVertices {
			return t.Errorf("more than the %d vertices that are supported", graph.MaxVertices)
		}
		s.places[id] = v
		for k, f := range row {
			held[k] = held[k] || f != ""
		}
		odd.see(id, t.Line())
		ids = append(ids, id)
		for i, k := range c.labels {
			labels[i] = append(labels[i], strings.Clone(row[k]))
		}
		if c.split >= 0 {
			text := strings.ToLower(row[c.split])
			part, ok := partNames[text]
			switch {
			case ok:
				*p.Lists()[part] = append(*p.Lists()[part], v)
			case !table.Missing(text) && text != "-1" && text != "unused":
				return t.Errorf("%w: column %s holds %.40q; want train, valid, test or nothing",
					ErrValue, t.Header[c.split], row[c.split])
			}
		}
		if err := masks.read(v, row); err != nil {
			return err
		}
	}
	if n := len(s.repeated); n > 0 {
		s.note("%d rows of %s are of vertices that have a row before, and are left out: %d of them differ from it", n,
			filepath.Base(path), unequal)
	}
	if err := odd.tell(s, path, s.places); err != nil {
		return err
	}
	if err := s.setVertices(int64(len(ids)), path); err != nil {
		return err
	}
	keepIDs(s, ids)
	if c.split >= 0 {
		s.given = p
		c.use[c.split] = columnUse{asSplit, ""}
	}
	if err := c.takeMasks(s, &masks, ids); err != nil {
		return err
	}
	c.leaveEmpty(s, t, held)
	c.leaveNames(s, t, ids, labels)
	if err := setTableLabels(s, t, c, labels); err != nil {
		return err
	}
	c.tell(s, t)
	return setColumnFeatures(s, t, c.features)
}

// maskReader reads columns of marks.
type maskReader struct {
	t       *table.Named
	columns [3]int
	lists   graph.Split
	none    [3]bool // the column does not hold marks alone
	given   bool    // another split is: masks are not judged
}

func (m *maskReader) read(v graph.VertexID, row []string) error {
	for i, k := range m.columns {
		if k < 0 || m.none[i] {
			continue
		}
		is, ok := mark(row[k])
		switch name := m.t.Header[k]; {
		case !ok && strings.Contains(name, "_") && !m.given:
			return m.t.Errorf("%w: column %s holds %.40q; want 0 or 1, or false or true; --ignore %[2]s leaves "+
				"it out", ErrValue, name, row[k])
		case !ok:
			m.none[i] = true
		case is:
			*m.lists.Lists()[i] = append(*m.lists.Lists()[i], v)
		}
	}
	return nil
}

// overlap returns the first vertex that two masks mark, and their columns; ok is false if none is.
func (m *maskReader) overlap(vertices int) (v graph.VertexID, one, other string, ok bool) {
	by := make([]int8, vertices) // the mask of each, from 1
	for i, list := range m.lists.Lists() {
		for _, v := range *list {
			if at := by[v]; at > 0 && !m.none[i] && !m.none[at-1] {
				return v, m.t.Header[m.columns[at-1]], m.t.Header[m.columns[i]], true
			}
			if !m.none[i] {
				by[v] = int8(i + 1)
			}
		}
	}
	return 0, "", "", false
}

// takeMasks makes the split of the masks, or features of columns that turned out to be none, unless
// features are named.
func (c *nodeColumns) takeMasks(s *source, m *maskReader, ids []string) error {
	masks, wordy := 0, false
	for i, k := range m.columns {
		if k >= 0 && !m.none[i] {
			masks++
			wordy = wordy || strings.Contains(m.t.Header[k], "_")
		}
	}
	// one column called test alone is a number like others
	take := masks > 1 || masks > 0 && wordy
	v, one, other, both := m.overlap(len(ids))
	switch {
	case !take || !both || m.given && wordy:
	case wordy:
		return fmt.Errorf("%s: %w: columns %s and %s both mark vertex %.60q, and each vertex is of one list; "+
			"correct them, leave one out by --ignore, or give the split by --split", m.t.Path(), ErrValue, one,
			other, ids[v])
	default:
		take = false
		s.note("columns %s and %s of %s are no split, for both mark vertex %.60q", one, other,
			filepath.Base(m.t.Path()), ids[v])
	}
	var names []string
	for i, k := range m.columns {
		switch {
		case k < 0:
		case m.given && strings.Contains(m.t.Header[k], "_"):
			c.use[k] = columnUse{asIgnored, "--split gives the split"}
		case take && !m.none[i]:
			names = append(names, m.t.Header[k])
			c.use[k] = columnUse{asSplit, "marks of 0 and 1"}
		case len(s.options.Table.Features) == 0:
			c.features = append(c.features, k)
			slices.Sort(c.features)
		}
	}
	if !take || m.given {
		return nil
	}
	if c.split >= 0 {
		return fmt.Errorf("%s: %w: the split could be column %s, or %s: leave one out by --ignore", m.t.Path(),
			ErrValue, m.t.Header[c.split], strings.Join(names, ", "))
	}
	s.given = &splitSource{Split: m.lists, read: true, path: m.t.Path(),
		from: "columns " + strings.Join(names, ", ") + " of " + filepath.Base(m.t.Path())}
	return nil
}

// leaveEmpty leaves out features, unless they are named, of which no row holds anything, such as timeset of
// Gephi.
func (c *nodeColumns) leaveEmpty(s *source, t *table.Named, held []bool) {
	if len(s.options.Table.Features) > 0 || len(s.places) == 0 {
		return
	}
	for k, is := range held {
		if c.use[k].why == rowNumbers && !is { // rows that end with a separator
			c.use[k] = columnUse{asIgnored, "empty"}
		}
	}
	c.features = slices.DeleteFunc(c.features, func(k int) bool {
		if held[k] {
			return false
		}
		c.use[k] = columnUse{asIgnored, "empty"}
		s.note("column %s of %s is not read: it is empty", columnName(t.Header[k], k), filepath.Base(t.Path()))
		return true
	})
}

const forDisplay = "names for display"

// gephi reports whether a column is called Label beside Id, as Gephi writes them.
func (c *nodeColumns) gephi(t *table.Named, column int) bool {
	return t.Header[column] == "Label" && strings.HasPrefix(t.Header[c.id], "I")
}

// leaveNames leaves out a column Label beside Id, as Gephi writes them, whose values name the vertices:
// they differ for nearly all.
func (c *nodeColumns) leaveNames(s *source, t *table.Named, ids []string, labels [][]string) {
	if c.named || regression(s) || len(c.labels) != 1 || !c.gephi(t, c.labels[0]) {
		return
	}
	seen, same := map[string]bool{}, true
	for v, y := range labels[0] {
		seen[y] = true
		same = same && y == ids[v]
	}
	if !same && 2*len(seen) <= len(ids) {
		return
	}
	s.note("column Label of %s is not read: it has %d names for %d vertices, as Gephi writes it for display; "+
		"--label Label makes classes of them", filepath.Base(t.Path()), len(seen), len(ids))
	c.use[c.labels[0]] = columnUse{asIgnored, forDisplay}
	c.labels = nil
}

// tell notes what the columns were taken as.
func (c *nodeColumns) tell(s *source, t *table.Named) {
	for _, k := range c.labels {
		if _, ok := c.use[k]; !ok {
			c.use[k] = columnUse{asLabel, ""}
		}
	}
	for _, k := range c.features {
		c.use[k] = columnUse{asFeature, ""}
		if name := t.Header[k]; len(s.options.Table.Features) == 0 && likeID(name) {
			s.note("column %s of %s is a feature, and called as ids are: --ignore %s leaves it out", name,
				filepath.Base(t.Path()), inShell(name))
		}
	}
	file := filepath.Base(t.Path())
	for k, name := range t.Header {
		switch use, ok := c.use[k]; {
		case !ok && slices.Contains(s.options.Ignore, name):
		case !ok:
			s.note("column %s of %s is not read", name, file)
		case use.as == asIgnored && use.why == rowNumbers:
			s.note("column %s of %s is not read: it seems to be an index, the numbers of the rows",
				columnName(name, k), file)
		}
	}
	s.readsColumns(t, c.use)
}

const rowNumbers = "an index that tools write"

// findNodeColumns finds the columns of a node table.
func findNodeColumns(s *source, t *table.Named) (c nodeColumns, err error) {
	o := &s.options.Table
	c.use, c.masks = map[int]columnUse{}, [3]int{-1, -1, -1}
	for _, name := range t.Header {
		if err := s.refusal(t.Path()+": column "+name, name); err != nil {
			return c, err
		}
	}
	if err := c.findID(s, t); err != nil {
		return c, err
	}
	if err := askProse(t, ", or name the id with --id", o.ID != "" || c.id == 0); err != nil {
		return c, err
	}
	if c.split, err = s.column(t, o.Split, "--split-column", splitNames...); err != nil {
		return c, err
	}
	if err := c.findLabels(s, t); err != nil {
		return c, err
	}
	taken := append([]int{c.id, c.split}, c.labels...)
	switch {
	case arrayFile(o.Features) != "":
	case len(o.Features) > 0:
		for _, name := range o.Features {
			k, err := s.column(t, name, "--features")
			if err == nil {
				err = notEmpty(name, "--features")
			}
			if err != nil {
				return c, err
			}
			if slices.Contains(taken, k) {
				return c, fmt.Errorf("%s: %w: column %q is the id, the label or the split, and "+
					"--features names it too", t.Path(), ErrValue, name)
			}
			c.features = append(c.features, k)
		}
	}
	for i, names := range maskNames {
		if k, _ := s.column(t, "", "", names...); o.Split == "" && k >= 0 &&
			!slices.Contains(append(taken, c.features...), k) {
			c.masks[i] = k
		}
	}
	taken = append(taken, c.masks[:]...)
	if len(o.Features) > 0 {
		return c, nil
	}
	for k, name := range t.Header {
		switch {
		case slices.Contains(taken, k) || slices.Contains(s.options.Ignore, name):
		case slices.Contains(c.left, k) && s.unlabelled:
			c.use[k] = columnUse{asIgnored, "--label names those of another type"}
		case slices.Contains(c.left, k):
			c.use[k] = columnUse{asIgnored, "--label names a file"}
			s.note("column %s of %s is not read: --label names a file of labels; --features makes it one", name,
				filepath.Base(t.Path()))
		case t.HasNames && counts(t, k):
			c.use[k] = columnUse{asIgnored, rowNumbers}
		case isFold(name):
			c.use[k] = columnUse{asIgnored, "of a split, it seems"}
			s.note("column %s of %s is not read: it seems to be of a split; make a column of train, valid, "+
				"test of it", name, filepath.Base(t.Path()))
		case c.gephi(t, k) && !t.Number(k): // beside another label
			c.use[k] = columnUse{asIgnored, forDisplay}
			s.note("column Label of %s is not read: it holds words, as Gephi writes it for display",
				filepath.Base(t.Path()))
		default:
			c.features = append(c.features, k)
		}
	}
	return c, nil
}

const firstColumn = "the first column, for none is called id or node"

// likeID reports whether a column is called as ids are: paper_id, userId, or a usual name.
func likeID(name string) bool {
	lower := strings.ToLower(name)
	return slices.Contains(idNames, lower) || strings.HasSuffix(lower, "_id") || strings.HasSuffix(name, "Id") ||
		len(name) > 2 && strings.HasSuffix(name, "ID") && unicode.IsLower(rune(name[len(name)-3])) // not COVID
}

// findID finds the column of the ids: of a usual name, else the first one.
func (c *nodeColumns) findID(s *source, t *table.Named) (err error) {
	if c.id, err = s.column(t, s.options.Table.ID, "--id", idNames...); err != nil {
		return err
	}
	ofNeo4j := func(name string) bool { return strings.HasSuffix(strings.SplitN(name, "(", 2)[0], ":ID") }
	if k := slices.IndexFunc(t.Header, ofNeo4j); k >= 0 && s.options.Table.ID == "" {
		c.id = k
	}
	why := ""
	if c.id < 0 {
		c.id = slices.IndexFunc(t.Header, func(h string) bool { return !slices.Contains(s.options.Ignore, h) })
		if t.HasNames {
			why = firstColumn
		}
		if next := c.id + 1; t.HasNames && c.id >= 0 && counts(t, c.id) && next < len(t.Header) &&
			!counts(t, next) && !slices.Contains(s.options.Ignore, t.Header[next]) && !t.Number(next) {
			c.id, why = next, "the first column after an index, and words"
		}
	}
	if c.id < 0 {
		return t.Errorf("--ignore leaves no column for the ids of vertices; ignore fewer columns")
	}
	s.idColumn, s.header, s.unnamed = t.Header[c.id], t.Header, !t.HasNames
	o := &s.options
	named := func(name string) bool { // as something else
		return slices.Contains(slices.Concat(o.Ignore, o.Table.Labels, o.Table.Features, []string{o.Table.Split}), name)
	}
	var others []string
	for k, name := range t.Header {
		if k != c.id && likeID(name) && !named(name) {
			others = append(others, name)
		}
	}
	if why == firstColumn && len(others) > 0 && !likeID(s.idColumn) {
		first := "the first one, without a name"
		if s.idColumn != "" {
			first = s.idColumn + ", the first one"
		}
		return t.Errorf("%w: which column is the id of a vertex? It could be %s, or %s: say which by --id, or "+
			"leave columns out by --ignore", ErrValue, first, strings.Join(others, ", "))
	}
	if len(others) > 0 && s.options.Table.ID == "" {
		s.otherIDs = "; " + strings.Join(others, ", ") + " could be, too"
		why = "rather than " + strings.Join(others, ", ")
	}
	if s.options.Table.ID == "" && !likeID(s.idColumn) {
		s.noID = "; if there is none, and the rows are vertices 0, 1, ... in their order, add one: pandas: " +
			"df.insert(0, \"id\", range(len(df)))"
	}
	c.use[c.id] = columnUse{asID, why}
	return nil
}

// findLabels finds the columns of the labels.
func (c *nodeColumns) findLabels(s *source, t *table.Named) error {
	o := &s.options.Table
	y := s.fileOfLabels()
	of := o.Labels
	if y != "" && !slices.Contains(t.Header, y) {
		of = nil
	} else {
		y = ""
	}
	for _, name := range of {
		k, err := s.column(t, name, "--label")
		if err == nil {
			err = notEmpty(name, "--label")
		}
		if err != nil {
			return err
		}
		c.labels = append(c.labels, k)
	}
	if c.named = len(of) > 0; c.named {
		return nil
	}
	var found []int
	var names []string
	beside, _ := s.column(t, "", "", "x")
	place := beside >= 0 // a column y may be a coordinate
	for _, name := range labelNames {
		if k, _ := s.column(t, "", "", name); k >= 0 && k != c.id && k != c.split && !slices.Contains(found, k) &&
			!(place && name == "y" && slices.Contains(o.Features, t.Header[k])) {
			found, names = append(found, k), append(names, t.Header[k])
		}
	}
	if y != "" || s.unlabelled {
		c.left = found
		return nil
	}
	if len(found) > 0 {
		c.labels = found[:1]
		if place && strings.EqualFold(names[0], "y") {
			s.note("column %s of %s is the label; if it is a coordinate, as %s beside it, --features names both", names[0],
				filepath.Base(t.Path()), t.Header[beside])
		}
	}
	if len(found) > 1 {
		s.note("columns %s of %s could all be the label: %s is it, and the others are features; --label names "+
			"another, --ignore leaves columns out", strings.Join(names, ", "), filepath.Base(t.Path()), names[0])
		c.use[found[0]] = columnUse{asLabel, "rather than " + strings.Join(names[1:], ", ")}
	}
	return nil
}

func setTableLabels(s *source, t *table.Named, c nodeColumns, labels [][]string) error {
	if regression(s) {
		return setTableNumbers(s, t, c, labels)
	}
	name := func(i int) string { return t.Path() + ": column " + t.Header[c.labels[i]] }
	switch len(c.labels) {
	case 0:
		return nil
	case 1:
		if err := s.nameClasses(labels[0]); err != nil {
			if t.Path() != s.options.Table.Nodes { // a file of labels
				return fmt.Errorf("%s: %w", name(0), err)
			}
			label, both := t.Header[c.labels[0]], ""
			if strings.EqualFold(label, "y") && !c.named {
				both = ", and --features x,y makes coordinates features"
			}
			return fmt.Errorf("%s: %w; --ignore %s leaves the column out%s", name(0), err, inShell(label), both)
		}
		return nil
	}
	if err := s.makeMarks(len(labels), t.Path()); err != nil {
		return err
	}
	for i, column := range labels {
		s.classNames = append(s.classNames, t.Header[c.labels[i]])
		for v, text := range column {
			y, ok := number(text)
			if s.noLabel(text) {
				y, ok = float32(math.NaN()), true
			}
			if !ok {
				return fmt.Errorf("%s: vertex %d is %.40q: %w: with several label columns each "+
					"must be 0 or 1", name(i), v, text, ErrValue)
			}
			if err := s.setMark(v, i, float64(y)); err != nil {
				return fmt.Errorf("%s: %w", name(i), err)
			}
		}
	}
	if err := s.finishMarks(); err != nil {
		return fmt.Errorf("%s: %w", t.Path(), err)
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
func setColumnFeatures(s *source, t *table.Named, columns []int) error {
	if len(columns) == 0 {
		return nil
	}
	noHeader := !t.HasNames
	defer func() {
		if s.features == nil {
			return
		}
		s.features.columns = columns
		for i := 0; t.HasNames && i < len(columns); i++ {
			s.features.names = append(s.features.names, t.Header[columns[i]])
		}
	}()
	return s.setFeatures(t.Path(), len(columns), Float32, -1, func(w *RowWriter) error {
		t, err := s.openTable(t.Path(), noHeader, s.options.Table.ofNodes()...)
		if err != nil {
			return err
		}
		defer t.Close()
		values, repeated := make([]float32, len(columns)), s.repeated
		for n, v := 0, 0; ; n, v = n+1, v+1 {
			row, err := t.Next()
			for len(repeated) > 0 && repeated[0] == n && err == nil {
				repeated, n = repeated[1:], n+1
				row, err = t.Next()
			}
			if err != nil {
				return err
			}
			if row == nil {
				if v != s.vertices {
					return fmt.Errorf("%d rows, but %d before; the file changed: import it again",
						v, s.vertices)
				}
				return nil
			}
			if v == s.vertices {
				return t.Errorf("more than %d rows now; the file changed: import it again",
					s.vertices)
			}
			for i, k := range columns {
				x, ok := number(row[k])
				if !ok {
					return notNumbers(s, t, row, columns[i:])
				}
				values[i] = x
			}
			if err := w.Check(v, values); err != nil {
				return t.Errorf("%w", err)
			}
			if err := w.WriteChecked(values); err != nil {
				return err
			}
		}
	})
}

// notNumbers is the error about a row whose first of some columns holds no number. It names all that hold
// words, so that one run tells them.
func notNumbers(s *source, t *table.Named, row []string, columns []int) error {
	first := columns[0]
	if cureNumber(t.Header[first], row[first]) != "" {
		return notANumber(t, first, row[first])
	}
	var words []string
	class := t.Header[first]
	for _, k := range columns {
		if _, is := number(row[k]); !is && cureNumber(t.Header[k], row[k]) == "" {
			if words = append(words, t.Header[k]); !isDate(row[k]) {
				class = t.Header[k]
			}
		}
	}
	others, these, label := "", "this one", ""
	if len(words) > 1 {
		others, these = ", nor are those of "+strings.Join(words[1:], ", "), "these"
	}
	if s.labels == nil && s.marks == nil && s.targets == nil {
		label = "; the class is named by --label " + inShell(class)
	}
	return t.Errorf("%w: column %s holds %.40q, which is not a number%s; name the feature columns with --features, "+
		"leave %s out with --ignore %s, or make a column of 0 and 1 for each word%s", ErrValue, words[0], row[first],
		others, these, inShell(strings.Join(words, ",")), label)
}

// inShell is a word as a shell takes it.
func inShell(word string) string {
	if strings.ContainsAny(word, " \t\"$&()*;<>?[]`{|}~#!\\") {
		return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	return word
}

// notANumber is the error about a field that cureNumber knows.
func notANumber(t *table.Named, column int, text string) error {
	return t.Errorf("%w: column %s %s", ErrValue, t.Header[column], cureNumber(t.Header[column], text))
}

// cureNumber says what is wrong with a field that is no number, but is meant as one, and what to do; "" for
// words.
func cureNumber(name, text string) string {
	list := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" ,;|[]()\n\t", r) })
	isList := len(list) > 1 && !slices.ContainsFunc(list, func(f string) bool { _, is := number(f); return !is })
	comma := table.DecimalComma(text)
	_, signed := number(strings.Trim(text, "%$€£ "))
	fill := "fill it in, for example with the column's mean, or leave it out: --ignore " + inShell(name)
	switch {
	case table.Missing(text):
		return "is empty; " + fill
	case text == "." || slices.Contains(doubtful, strings.ToLower(text)):
		return fmt.Sprintf("holds %q, which seems to stand for nothing; %s", text, fill)
	case comma != "" && len(list) == 2:
		return fmt.Sprintf("holds %.40q, which is not a number%s; or, if it is a list, give each number a column", text,
			comma)
	case comma != "":
		return fmt.Sprintf("holds %.40q, which is not a number%s", text, comma)
	case isList:
		return fmt.Sprintf("holds %.40q, a list of %d numbers; give each a column, or all rows to --features as a .npy "+
			"file", text, len(list))
	case signed:
		return fmt.Sprintf("holds %.40q, a number with a sign; leave the sign out", text)
	}
	return ""
}
