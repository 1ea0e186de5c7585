package dataset

import (
	"cmp"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/cespare/xxhash/v2"

	"halognn/src/data/dataset/table"
	"halognn/src/topology/graph"
)

// nodeColumns has the indices of the columns of a node table, by what the columns hold.
type nodeColumns struct {
	id, split        int
	labels, features []int
	masks            maskReader
	named            []int // columns that --features names
	// whether --label names columns of this table
	asked bool
	// columns with usual names of labels that are not read, because --label names a file or labels
	// of another type
	left []int
	use  map[int]columnUse
}

// indexNames are usual names of columns that hold row numbers, which tools write unasked.
var indexNames = []string{"", "index", "level_0", "rownames", "row_names"}

func isIndex(name string, column int) bool {
	lower := strings.ToLower(name)
	return name == "" || strings.HasPrefix(lower, "unnamed: ") || column < 2 &&
		slices.Contains(indexNames, lower)
}

// counts reports whether a column only counts the rows: it has no name of its own, or it holds the
// row numbers.
func counts(t *table.Named, column int) bool {
	name := t.Header[column]
	return isIndex(name, 2) || isIndex(name, column) && t.Counts(column)
}

// readNodes reads the ids, the labels and the split of a node table. It registers the features,
// which are read only when they are written.
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
	others := watchSplits(s, t, slices.Concat([]int{c.id, c.split}, c.labels, c.left, c.named))
	held := make([]bool, len(t.Header)) // columns that have a value in some row
	var odd oddIDs
	var first []uint64 // with FirstRows: hash of the first row of each vertex
	// The number of rows that repeat a vertex but differ from its first row (unequal), and whether
	// the column of the split holds numbers and not only words (codes).
	unequal, codes := 0, false
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
			return t.Errorf("%w: vertex %.60q comes twice in column %s, which is the id; give "+
				"one row for each vertex, or another column by --id, or --first-rows, which "+
				"takes the first row%s", ErrValue, id, s.idColumn, s.noID)
		}
		if id == "" || strings.ContainsRune(id, '\n') {
			return t.Errorf("%w: the id %.60q is empty or has a line break; give an id on one line",
				ErrValue, id)
		}
		if len(ids) == graph.MaxVertices {
			return t.Errorf("there are more than the %d vertices that are supported; leave some "+
				"out", graph.MaxVertices)
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
			part, word, ok := partOf(row[c.split])
			switch {
			case ok:
				*p.Lists()[part] = append(*p.Lists()[part], v)
				codes = codes || !word
			case !noPart(row[c.split]):
				marks := ""
				if _, is := mark(row[c.split]); is {
					marks = "; if it marks the vertices to train, call it train_mask"
				}
				return t.Errorf("%w: column %s holds %.40q, but the column of the split must "+
					"hold train, valid, test or an empty field%s",
					ErrValue, t.Header[c.split], row[c.split], marks)
			}
		}
		if err := c.masks.read(v, row); err != nil {
			return err
		}
		others.read(v, row)
	}
	if n := len(s.repeated); n > 0 {
		s.note("%d rows of %s repeat the vertex of an earlier row, and are left out; %d of these "+
			"rows differ from the earlier one", n, filepath.Base(path), unequal)
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
		use := columnUse{asSplit, ""}
		switch {
		case s.options.Split != "":
			use = columnUse{asIgnored, splitGiven}
		case codes:
			use.why = "0 is train, 1 valid, 2 test"
			switch part, _ := maskPart(t.Header[c.split]); {
			case len(p.Test) == 0 && part >= 0:
				return fmt.Errorf("%s: %w: --split-column names column %s, but this column marks "+
					"the vertices of one list, as it holds only 0 and 1; rename it %s_mask, and "+
					"leave out --split-column",
					path, ErrValue, t.Header[c.split], graph.SplitNames[part])
			case len(p.Test) == 0:
				s.note("column %s of %s holds only 0 and 1, which are taken as train and valid; "+
					"if it marks the vertices to train, call it train_mask", t.Header[c.split],
					filepath.Base(path))
			}
		}
		c.use[c.split] = use
	}
	if err := c.takeMasks(s, &c.masks, ids); err != nil {
		return err
	}
	if err := c.takeSplits(s, others); err != nil {
		return err
	}
	c.leaveEmpty(s, t, held)
	labels = c.leaveNames(s, t, ids, labels)
	line := func(v int) int { return lineOf(s, path, c.id, ids[v]) }
	if err := setTableLabels(s, t, c, line, labels); err != nil {
		return err
	}
	c.tell(s, t)
	return setColumnFeatures(s, t, c.features)
}

// lineOf reads a node table again, up to the first row that has the given id, and returns the line
// of that row. It returns 0 if there is no such row.
func lineOf(s *source, path string, column int, id string) int {
	t, err := s.openTable(path, s.options.Table.NoHeader, s.options.Table.ofNodes()...)
	if err != nil {
		return 0
	}
	defer t.Close()
	for {
		row, err := t.Next()
		if err != nil || row == nil {
			return 0
		}
		if row[column] == id {
			return t.Line()
		}
	}
}

// leaveEmpty leaves out the features that are empty in all rows, such as timeset of Gephi. If
// --features names the features, it leaves out none.
func (c *nodeColumns) leaveEmpty(s *source, t *table.Named, held []bool) {
	if len(s.options.Table.Features) > 0 || len(s.places) == 0 {
		return
	}
	for k, is := range held {
		// a separator at the end of each row makes such an empty column
		if c.use[k].why == rowNumbers && !is {
			c.use[k] = columnUse{asIgnored, "empty"}
		}
	}
	c.features = slices.DeleteFunc(c.features, func(k int) bool {
		if held[k] {
			return false
		}
		c.use[k] = columnUse{asIgnored, "empty"}
		s.note("column %s of %s is not read: it is empty", columnName(t.Header[k], k),
			filepath.Base(t.Path()))
		return true
	})
}

const forDisplay = "names for display"

// gephi reports whether a column is the column Label that Gephi writes beside Id.
func (c *nodeColumns) gephi(t *table.Named, column int) bool {
	return t.Header[column] == "Label" && strings.HasPrefix(t.Header[c.id], "I")
}

// leaveNames handles the column Label that Gephi writes beside Id. If nearly all its values differ,
// they seem to be names of the vertices, and leaveNames leaves the column out. Another label column
// with classes, if there is one, is then the label. leaveNames returns the values of the remaining
// label columns.
func (c *nodeColumns) leaveNames(s *source, t *table.Named, ids []string,
	labels [][]string) [][]string {
	if c.asked || len(c.labels) == 0 || !c.gephi(t, c.labels[0]) || regression(s) &&
		len(c.labels) == 1 {
		return labels
	}
	seen, same := map[string]bool{}, true
	for v, y := range labels[0] {
		seen[y] = true
		same = same && y == ids[v]
	}
	names, file := same || 2*len(seen) > len(ids) || regression(s), filepath.Base(t.Path())
	other := -1
	if len(c.labels) == 2 {
		other = c.labels[1]
	}
	classes := other >= 0 && (regression(s) || !slices.ContainsFunc(labels[1], func(y string) bool {
		x, is := table.ParseFloat([]byte(y))
		return is && x != math.Trunc(x)
	}))
	if names {
		s.note("column Label of %s is not read: it has %d names for %d vertices, as Gephi writes "+
			"names for display; --label Label makes classes of them", file, len(seen), len(ids))
		c.use[c.labels[0]] = columnUse{asIgnored, forDisplay}
	}
	feature := func(k int) {
		if len(s.options.Table.Features) == 0 {
			c.features = append(c.features, k)
			slices.Sort(c.features)
		}
	}
	switch {
	case names && classes:
		c.labels, labels = c.labels[1:], labels[1:]
	case names:
		c.labels, labels = nil, nil
		if other >= 0 {
			feature(other)
		}
	case other >= 0:
		s.note("columns Label, %s of %s could all be the label; Label is taken, and the other is "+
			"a feature; --label takes another, and --ignore leaves columns out",
			t.Header[other], file)
		c.use[c.labels[0]] = columnUse{asLabel, "rather than " + t.Header[other]}
		s.rivals = []string{"Label", t.Header[other]}
		c.labels, labels = c.labels[:1], labels[:1]
		feature(other)
	}
	return labels
}

// tell adds to the report what the columns of a node table were read as.
func (c *nodeColumns) tell(s *source, t *table.Named) {
	for _, k := range c.labels {
		if _, ok := c.use[k]; !ok {
			c.use[k] = columnUse{asLabel, ""}
		}
	}
	var times []string
	for _, k := range c.features {
		is := timeOf(t.Header[k], t.Sample(k))
		c.use[k] = columnUse{asFeature, ""}
		if is != "" {
			c.use[k] = columnUse{asFeature, "it " + is + " a time"}
			times = append(times, t.Header[k])
		}
		if name := t.Header[k]; len(s.options.Table.Features) == 0 && likeID(name) {
			s.note("column %s of %s is a feature, but has a name of ids: --ignore %s leaves it out",
				name, filepath.Base(t.Path()), inShell(name))
		}
	}
	file := filepath.Base(t.Path())
	if len(times) > 0 {
		s.note("features of %[2]s that seem to be times, of which float32 keeps 7 digits: %[1]s",
			few(times), file)
	}
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

// findNodeColumns finds out what each column of a node table holds.
func findNodeColumns(s *source, t *table.Named) (c nodeColumns, err error) {
	o := &s.options.Table
	c.use = map[int]columnUse{}
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
					"--features names it too; leave it out there", t.Path(), ErrValue, name)
			}
			c.features = append(c.features, k)
		}
		c.named = c.features
	}
	if c.masks = (maskReader{columns: noMasks}); o.Split == "" {
		c.masks = findMasks(s, t, append(taken, c.features...))
	}
	taken = append(taken, c.masks.columns[:]...)
	if len(o.Features) > 0 {
		return c, nil
	}
	for k, name := range t.Header {
		switch {
		case slices.Contains(taken, k) || slices.Contains(s.options.Ignore, name):
		case slices.Contains(c.left, k) && s.unlabelled:
			c.use[k] = columnUse{asIgnored, "--label names the labels of another type"}
		case slices.Contains(c.left, k):
			c.use[k] = columnUse{asIgnored, "--label names a file"}
			s.note("column %s of %s is not read: --label names a file of labels; to make the "+
				"column a feature, name it in --features", name, filepath.Base(t.Path()))
		case t.HasNames && counts(t, k):
			c.use[k] = columnUse{asIgnored, rowNumbers}
		case isFold(name):
			c.use[k] = columnUse{asIgnored, ofSplit} // takeSplits notes this column
		case c.gephi(t, k) && !t.Number(k): // Label of Gephi, beside another label column
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

// likeID reports whether a column is named like ids: paper_id, userId, or one of the usual names.
func likeID(name string) bool {
	lower := strings.ToLower(name)
	return slices.Contains(idNames, lower) || strings.HasSuffix(lower, "_id") ||
		strings.HasSuffix(name, "Id") ||
		// a capital before ID, as in COVID, does not count
		len(name) > 2 && strings.HasSuffix(name, "ID") && unicode.IsLower(rune(name[len(name)-3]))
}

// findID finds the column of the ids: the column with a usual name, or the first column if there is
// none.
func (c *nodeColumns) findID(s *source, t *table.Named) (err error) {
	if c.id, err = s.column(t, s.options.Table.ID, "--id", idNames...); err != nil {
		return err
	}
	ofNeo4j := func(name string) bool {
		return strings.HasSuffix(strings.SplitN(name, "(", 2)[0], ":ID")
	}
	if k := slices.IndexFunc(t.Header, ofNeo4j); k >= 0 && s.options.Table.ID == "" {
		c.id = k
	}
	why := ""
	if c.id < 0 {
		c.id = slices.IndexFunc(t.Header,
			func(h string) bool { return !slices.Contains(s.options.Ignore, h) })
		if t.HasNames {
			why = firstColumn
		}
		if next := c.id + 1; t.HasNames && c.id >= 0 && counts(t, c.id) && next < len(t.Header) &&
			!counts(t, next) && !slices.Contains(s.options.Ignore, t.Header[next]) &&
			!t.Number(next) {
			c.id, why = next, "the first column after an index, and words"
		}
	}
	if c.id < 0 {
		return t.Errorf("--ignore leaves no column for the ids of vertices; ignore fewer columns")
	}
	s.idColumn, s.header, s.unnamed = t.Header[c.id], t.Header, !t.HasNames
	o := &s.options
	// named reports whether a flag names the column as something other than the id.
	named := func(name string) bool {
		return slices.Contains(slices.Concat(o.Ignore, o.Table.Labels, o.Table.Features,
			[]string{o.Table.Split}), name)
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
		return t.Errorf("%w: it is not clear which column holds the ids of vertices; it could be "+
			"%s, or %s; name it by --id, or leave columns out by --ignore", ErrValue, first,
			strings.Join(others, ", "))
	}
	if len(others) > 0 && s.options.Table.ID == "" {
		s.otherIDs = "; " + strings.Join(others, ", ") + " could be the id, too"
		why = "rather than " + strings.Join(others, ", ")
	}
	if s.options.Table.ID == "" && !likeID(s.idColumn) {
		s.noID = "; if there is none, and the rows are vertices 0, 1, ... in their order, add " +
			"one, in pandas with df.insert(0, \"id\", range(len(df)))"
	}
	c.use[c.id] = columnUse{asID, why}
	return nil
}

// findLabels finds the columns that hold labels.
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
	if c.asked = len(of) > 0; c.asked {
		return nil
	}
	var found []int
	var names []string
	beside, _ := s.column(t, "", "", "x")
	place := beside >= 0 // if there is a column x, a column y may be a coordinate
	for _, name := range labelNames {
		if k, _ := s.column(t, "", "", name); k >= 0 && k != c.id && k != c.split &&
			!slices.Contains(found, k) && !(place && name == "y" &&
			slices.Contains(o.Features, t.Header[k])) {
			found, names = append(found, k), append(names, t.Header[k])
		}
	}
	if y != "" || s.unlabelled {
		c.left = found
		return nil
	}
	if len(found) > 1 && c.gephi(t, found[0]) && !t.Number(found[0]) &&
		!(place && strings.EqualFold(names[1], "y")) { // leaveNames then chooses one of the two
		c.labels = found[:2]
		return nil
	}
	if len(found) > 0 {
		c.labels = found[:1]
		if place && strings.EqualFold(names[0], "y") {
			s.note("column %s of %s is the label; if it is a coordinate, as %s beside it, name "+
				"both in --features", names[0], filepath.Base(t.Path()), t.Header[beside])
		}
	}
	if len(found) > 1 {
		s.note("columns %s of %s could all be the label; %s is taken, and the others are "+
			"features; --label takes another, and --ignore leaves columns out",
			strings.Join(names, ", "),
			filepath.Base(t.Path()), names[0])
		c.use[found[0]] = columnUse{asLabel, "rather than " + strings.Join(names[1:], ", ")}
		s.rivals = names
	}
	return nil
}

// setTableLabels takes columns of a table as the labels. The function line returns the line of a
// vertex's row, for error messages.
func setTableLabels(s *source, t *table.Named, c nodeColumns, line func(v int) int,
	labels [][]string) error {
	if regression(s) {
		return setTableNumbers(s, t, c, line, labels)
	}
	name := func(i int) string { return t.Header[c.labels[i]] }
	switch len(c.labels) {
	case 0:
		return nil
	case 1:
		if err := s.nameClasses(labels[0]); err != nil {
			err = s.atLine(err, t.Path(), line, name)
			if t.Path() != s.options.Table.Nodes { // the table is a file of labels
				return err
			}
			label, both := t.Header[c.labels[0]], ""
			if strings.EqualFold(label, "y") && !c.asked {
				both = ", and --features x,y makes coordinates features"
			}
			return fmt.Errorf("%w; --ignore %s leaves the column out%s", err, inShell(label), both)
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
			var err error
			if !ok {
				err = badLabel(v, i, "is %.40q: %w: with several label columns each must be 0 or 1",
					text, ErrValue)
			}
			if err = cmp.Or(err, s.setMark(v, i, float64(y))); err != nil {
				return s.atLine(err, t.Path(), line, name)
			}
		}
	}
	if err := s.finishMarks(); err != nil {
		return s.atLine(err, t.Path(), line,
			func(int) string { return strings.Join(s.classNames, ", ") })
	}
	return nil
}

// number reads a field as a number. The words true and false count as 1 and 0.
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

// setColumnFeatures registers columns of a node table as features. They are read again when they
// are written.
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
					return fmt.Errorf("the file now has %d rows, but it had %d before, so it has "+
						"changed; import it again",
						v, s.vertices)
				}
				return nil
			}
			if v == s.vertices {
				return t.Errorf("more than %d rows now, so the file has changed; import it again",
					s.vertices)
			}
			for i, k := range columns {
				x, ok := number(row[k])
				if !ok || x != x {
					return notNumbers(s, t, row, columns[i:])
				}
				if !finite(x) {
					return t.Errorf("%w: column %s holds %.40q, which is not a finite number of "+
						"32 bits; repair it, or leave the column out by --ignore %s", ErrValue,
						t.Header[k], row[k], inShell(t.Header[k]))
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

// notNumbers returns the error about a row that has words in feature columns. The argument
// `columns` begins with the first such column. The error names all feature columns that hold words,
// so that one run shows them all.
func notNumbers(s *source, t *table.Named, row []string, columns []int) error {
	first := columns[0]
	if both := s.rivals; slices.Contains(both, t.Header[first]) {
		return t.Errorf("%w: columns %s could all be the label; %s is taken, so %s is a feature, "+
			"but it holds %.40q, which is not a number; name the label by --label, such as "+
			"--label %[4]s, and leave the other columns out by --ignore", ErrValue,
			strings.Join(both, ", "), both[0], inShell(t.Header[first]), row[first])
	}
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
	row, line := slices.Clone(row), t.Line()
	if parts, odd, at := oddPart(t, row, first); parts > 1 {
		why := ""
		if odd != "" {
			why = fmt.Sprintf(" (line %d has %.40q, which is none of these)", at, odd)
		}
		return fmt.Errorf("%s: line %d: %w: column %s holds %.40q, which is not a number; if it "+
			"is the split, write train, valid and test, or an empty field for none%s, and give "+
			"--split-column %[4]s; otherwise leave it out with --ignore %[4]s",
			t.Path(), line, ErrValue,
			inShell(words[0]), row[first], why)
	}
	if len(words) == 1 && isDate(row[first]) {
		return fmt.Errorf("%s: line %d: %w: column %s holds %.40q, which is not a number%s, with "+
			"--ignore %s", t.Path(), line, ErrValue, words[0], row[first], dated(row[first]),
			inShell(words[0]))
	}
	others, these, label := "", "this one", ""
	if len(words) > 1 {
		others, these = ", and neither are the values of "+strings.Join(words[1:], ", "), "these"
	}
	if s.labels == nil && s.marks == nil && s.targets == nil {
		label = "; if this is the class, give --label " + inShell(class)
	}
	return fmt.Errorf("%s: line %d: %w: column %s holds %.40q, which is not a number%s; name the "+
		"feature columns with --features, leave %s out with --ignore %s, or make a column of 0 "+
		"and 1 for each word%s", t.Path(), line, ErrValue, words[0], row[first], others, these,
		inShell(strings.Join(words, ",")), label)
}

// oddPart examines a column of words that may be a split. If the first words of the column name
// lists of a split, it reads the column on from the given row. It returns how many of the three
// lists the column names, the first word that names no list, and the line of that word.
func oddPart(t *table.Named, row []string, column int) (parts int, odd string, line int) {
	if !slices.ContainsFunc(t.Sample(column),
		func(f string) bool { _, is := wordOfPart(f); return is }) {
		return 0, "", 0
	}
	var seen [3]bool
	var err error
	for err == nil && row != nil {
		part, is := wordOfPart(row[column])
		switch {
		case is && !seen[part]:
			seen[part] = true
			parts++
		case !is && odd == "" && !noPart(row[column]):
			odd, line = strings.Clone(row[column]), t.Line()
		}
		row, err = t.Next()
	}
	return parts, odd, line
}

// inShell puts a word in quotes if a shell would need them.
func inShell(word string) string {
	if strings.ContainsAny(word, " \t\"$&()*;<>?[]`{|}~#!\\") {
		return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	return word
}

// notANumber returns the error about a field that should be a number. Its advice comes from
// cureNumber.
func notANumber(t *table.Named, column int, text string) error {
	return t.Errorf("%w: column %s %s", ErrValue, t.Header[column],
		cureNumber(t.Header[column], text))
}

// cureNumber returns, for a field that should be a number but is none, what is wrong with it and
// what to do. If the field is a word, it returns "".
func cureNumber(name, text string) string {
	list := strings.FieldsFunc(text, func(r rune) bool {
		return strings.ContainsRune(" ,;|[]()\n\t", r)
	})
	isList := len(list) > 1 && !slices.ContainsFunc(list, func(f string) bool {
		_, is := number(f)
		return !is
	})
	comma := table.DecimalComma(text)
	_, signed := number(strings.Trim(text, "%$€£ "))
	fill := "fill it in, for example with the column's mean, or leave it out: --ignore " +
		inShell(name)
	switch {
	case text == "":
		return "is empty; " + fill
	case table.Missing(text), text == ".", slices.Contains(doubtful, strings.ToLower(text)):
		return fmt.Sprintf("holds %q, which seems to mean that the value is missing; %s",
			text, fill)
	case comma != "" && len(list) == 2:
		return fmt.Sprintf("holds %.40q, which is not a number%s; or, if it is a list, give each "+
			"number a column", text, comma)
	case comma != "":
		return fmt.Sprintf("holds %.40q, which is not a number%s", text, comma)
	case isList:
		return fmt.Sprintf("holds %.40q, a list of %d numbers; give each a column, or save the "+
			"rows as a .npy file and give that to --features", text, len(list))
	case signed:
		return fmt.Sprintf("holds %.40q, a number with a currency or percent sign; leave the "+
			"sign out", text)
	}
	return ""
}
