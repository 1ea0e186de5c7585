package dataset

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"halognn/src/data/dataset/table"
	"halognn/src/topology/graph"
)

// Columns of a node table can say in three forms which vertices are for training, validation and
// test: one column of words or codes (partOf); a column of marks for each list (maskPart); or one
// column of numbers that could also be a feature, where only its name shows that it is a split
// (likeSplit).

// partOf returns the index of the list of a split that a text names: by a word such as train, or by
// a code 0, 1 or 2. pandas writes a code as 0.0 if a column has empty fields. The result word is
// true if the text is a word.
func partOf(text string) (part int, word, ok bool) {
	text = strings.ToLower(text)
	if whole := wholeNumber(text); whole != "" {
		text = whole
	}
	if of, set := strings.CutSuffix(text, "set"); set { // training set
		text = strings.TrimRight(of, " _-")
	}
	part, ok = partNames[text]
	return part, ok && !isCode(text), ok
}

// noPart reports whether a text means that a vertex is in no list of the split.
func noPart(text string) bool {
	return table.Missing(text) || text == "-1" || wholeNumber(text) == "-1" ||
		strings.EqualFold(text, "unused")
}

func isCode(text string) bool { return text == "0" || text == "1" || text == "2" }

// wordOfPart works like partOf, but knows only words of more than two letters. Codes and words of
// two letters do not count: VA and TE may be regions.
func wordOfPart(text string) (part int, ok bool) {
	part, word, _ := partOf(text)
	return part, word && len(text) > 2
}

// maskPart reads the name of a column. If the name is that of a mask, such as train_mask, isVal or
// mask_test, it returns the index of the list whose vertices the mask marks; otherwise it returns
// -1. The result plain is true if the name says no more than the list, such as train or train_flag.
// A column with a plain name is a mask only if all its values are marks and another column is a
// mask too.
func maskPart(name string) (part int, plain bool) {
	plain = true
	words := slices.DeleteFunc(wordsOf(name), func(w string) bool {
		mask := slices.Contains([]string{"mask", "masks", "is"}, w)
		plain = plain && !mask
		return mask || slices.Contains([]string{"flag", "indicator", "set", "node", "nodes", "used",
			"for", "in"}, w)
	})
	if len(words) != 1 {
		return -1, false
	}
	word := strings.TrimSuffix(words[0], "mask")
	plain = plain && word == words[0]
	part, ok := wordOfPart(word)
	if !ok && strings.Contains(strings.ToLower(name), "mask") { // tr_mask
		part, ok, _ = partOf(word)
	}
	if !ok {
		return -1, false
	}
	return part, plain
}

// isFold reports whether a name is that of a fold of cross-validation, or of one of several splits:
// fold, split_0.
func isFold(name string) bool {
	stem := strings.TrimRight(strings.ToLower(name), "0123456789")
	numbered := stem != strings.ToLower(name)
	stem = strings.ReplaceAll(strings.TrimSuffix(stem, "_"), "_", "")
	return slices.Contains([]string{"fold", "folds", "kfold", "cvfold", "foldid"}, stem) ||
		numbered && stem == "split"
}

// likeSplit reports whether a column holds a split, to judge by its name. The result sure is true
// for a name that only a split has (mask, split_id, train_test, valid_split, is_train). The result
// perhaps is true for a name with one word that is usual for splits (phase, subset, split_count,
// wears_mask).
func likeSplit(name string) (sure, perhaps bool) {
	words, parts := wordsOf(name), 0
	for _, w := range words {
		w = strings.Trim(w, "0123456789")
		perhaps = perhaps || slices.Contains([]string{"partition", "subset", "phase", "usage",
			"stage", "role", "set", "part", "dataset", "holdout"}, w)
		if _, is := wordOfPart(w); is {
			parts++
		}
	}
	part, plain := maskPart(name)
	sure = slices.Contains([]string{"mask", "split", "split_id"}, strings.Join(words, "_")) ||
		part >= 0 && !plain || parts > 1 && parts == len(words) || parts > 0 &&
		words[len(words)-1] == "split"
	return sure, perhaps || marksByName(name)
}

// marksByName reports whether a name has a word that names of masks and splits have, such as
// bitmask or splits.
func marksByName(name string) bool {
	return slices.ContainsFunc(wordsOf(name), func(w string) bool {
		return strings.Contains(w, "split") || strings.HasSuffix(strings.Trim(w, "s0123456789"),
			"mask")
	})
}

// mark reads a field of a mask. The first result is true for a mark such as 1 or yes, and false for
// one such as 0 or no. The result ok is false if the text is neither.
func mark(text string) (is, ok bool) {
	switch strings.ToLower(text) {
	case "1", "true", "t", "yes", "y", "x", "1.0":
		return true, true
	case "0", "false", "f", "no", "n", "0.0", "":
		return false, true
	}
	return false, false
}

// maskReader reads columns of marks.
type maskReader struct {
	t       *table.Named
	columns [3]int // column that marks each list; -1 if there is none
	plain   [3]bool
	lists   graph.Split
	none    [3]bool // the column of the list has a value that is no mark
	given   bool    // another split is given, so other values than marks are no error
	alone   bool    // the table is the file of --split
}

// noMasks is the value of maskReader.columns if there are no masks.
var noMasks = [3]int{-1, -1, -1}

// findMasks finds the columns of marks, except the columns in the list taken.
func findMasks(s *source, t *table.Named, taken []int) maskReader {
	m := maskReader{t: t, columns: noMasks, given: s.options.Split != ""}
	for k, name := range t.Header {
		part, plain := maskPart(name)
		if part < 0 || slices.Contains(taken, k) || slices.Contains(s.options.Ignore, name) {
			continue
		}
		if m.columns[part] < 0 || m.plain[part] && !plain {
			m.columns[part], m.plain[part] = k, plain
		}
	}
	return m
}

func (m *maskReader) count() (n int) {
	for _, k := range m.columns {
		if k >= 0 {
			n++
		}
	}
	return n
}

// first returns the first column of a mask, or -1 if there is none.
func (m *maskReader) first() int {
	for _, k := range m.columns {
		if k >= 0 {
			return k
		}
	}
	return -1
}

func (m *maskReader) read(v graph.VertexID, row []string) error {
	for i, k := range m.columns {
		if k < 0 || m.none[i] {
			continue
		}
		is, ok := mark(row[k])
		named := false // whether the value names a list
		if !ok {
			var part int
			// such as the value train in the column train_mask
			if part, _, named = partOf(row[k]); named && part == i {
				is, ok = true, true
			}
		}
		switch name := m.t.Header[k]; {
		case !ok && !m.plain[i] && !m.given:
			split := ""
			if named {
				cure := "--split-column " + inShell(name) + " reads it"
				if m.alone {
					cure = "call it split"
				}
				split = "; if it holds the whole split (train, valid and test, or 0, 1 and 2), " +
					cure
			}
			return m.t.Errorf("%w: column %s holds %.40q; want 0 or 1, or false or true%s; "+
				"--ignore %s leaves it out", ErrValue, name, row[k], split, inShell(name))
		case !ok:
			m.none[i] = true
		case is:
			*m.lists.Lists()[i] = append(*m.lists.Lists()[i], v)
		}
	}
	return nil
}

// overlap returns the first vertex that two masks mark, and the names of the two columns. The
// result ok is false if no vertex is marked twice.
func (m *maskReader) overlap(vertices int) (v graph.VertexID, one, other string, ok bool) {
	// for each vertex, 1 + the index of the mask that marks it; 0 if none does
	by := make([]int8, vertices)
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

// takeMasks makes the split from the masks. A column that is named like a mask, but whose values
// are not marks, becomes a feature, unless --features names the features.
func (c *nodeColumns) takeMasks(s *source, m *maskReader, ids []string) error {
	masks, sure := 0, false
	for i, k := range m.columns {
		if k >= 0 && !m.none[i] {
			masks++
			sure = sure || !m.plain[i]
		}
	}
	// If all names are plain (test, valid_for), the columns are masks only if there are several and
	// one of them is for training. Otherwise they are numbers like those of other columns.
	take := masks > 0 && sure || masks > 1 && m.columns[0] >= 0 && !m.none[0]
	v, one, other, both := m.overlap(len(ids))
	switch {
	case !take || !both || m.given && sure:
	case sure:
		return fmt.Errorf("%s: %w: columns %s and %s both mark vertex %.60q, but a vertex can be "+
			"in one list only; correct them, leave one out by --ignore, or give the split by "+
			"--split",
			m.t.Path(), ErrValue, one, other, ids[v])
	default:
		take = false
		s.note("columns %s and %s of %s are not a split, because both mark vertex %.60q", one,
			other, filepath.Base(m.t.Path()), ids[v])
	}
	var names []string
	for i, k := range m.columns {
		switch {
		case k < 0:
		case m.given && !m.plain[i]:
			c.use[k] = columnUse{asIgnored, splitGiven}
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
		return twoSplits(m.t, m.t.Header[c.split], strings.Join(names, ", "))
	}
	s.given = &splitSource{Split: m.lists, read: true, path: m.t.Path(),
		from: "columns " + strings.Join(names, ", ") + " of " + filepath.Base(m.t.Path())}
	return nil
}

const splitGiven = "--split gives the split"

func twoSplits(t *table.Named, one, other string) error {
	return fmt.Errorf("%s: %w: the split could be column %s, or %s; leave one out by --ignore, "+
		"or name the right one by --split-column", t.Path(), ErrValue, one, other)
}

// otherSplits looks for columns that hold a split among the columns that no flag names, whatever
// their own names are.
type otherSplits struct {
	t    *table.Named
	left []*otherSplit // columns that may still be a split
}

type otherSplit struct {
	column int
	called bool     // whether the name looks like the name of a split
	trains bool     // the name has the word train
	codes  []string // distinct numbers in the column, collected if called is true
	parts  [3]bool  // lists of the split whose words the column has
	lists  graph.Split
}

// mostCodes is the largest number of distinct numbers in a column that may be a split: 0, 1, 2, and
// one more that means "in no list". Each of these numbers must also be below mostCodes.
const mostCodes = 4

// watchSplits returns a watcher of all columns of the table except those in taken.
func watchSplits(s *source, t *table.Named, taken []int) *otherSplits {
	o := &otherSplits{t: t}
	for k, name := range t.Header {
		if !slices.Contains(taken, k) && !slices.Contains(s.options.Ignore, name) {
			sure, perhaps := likeSplit(name)
			trains := slices.ContainsFunc(wordsOf(name), func(w string) bool {
				part, is := wordOfPart(w)
				return is && part == 0
			})
			o.left = append(o.left, &otherSplit{column: k, called: sure || perhaps || trains,
				trains: trains})
		}
	}
	return o
}

func (o *otherSplits) read(v graph.VertexID, row []string) {
	for i := 0; i < len(o.left); i++ {
		if !o.left[i].see(v, row[o.left[i].column]) {
			o.left = slices.Delete(o.left, i, i+1)
			i--
		}
	}
}

// see reads the field of vertex v, and reports whether the column may still be a split.
func (c *otherSplit) see(v graph.VertexID, text string) bool {
	part, word := wordOfPart(text)
	if c.called {
		part, word, _ = partOf(text)
	}
	switch {
	case word && c.codes == nil:
		c.parts[part] = true
		*c.lists.Lists()[part] = append(*c.lists.Lists()[part], v)
		return true
	case noPart(text):
		return true
	case !c.called || c.parts != [3]bool{}:
		return false
	}
	if whole := wholeNumber(text); whole != "" {
		text = whole
	}
	_, marks := mark(text)
	if code, number := integer(text); !marks && (!number || code < -1 || code > mostCodes) {
		return false
	}
	if !slices.Contains(c.codes, text) {
		c.codes = append(c.codes, text)
	}
	return len(c.codes) <= mostCodes
}

// takeSplits looks at the columns that may be a split. If the words in a column name the lists of a
// split, and no flag names another split, it makes the split of them. A column whose name surely is
// that of a split, but whose values are numbers, is left out of the features, with a note. A column
// that is only perhaps a split stays a feature, with a note.
func (c *nodeColumns) takeSplits(s *source, o *otherSplits) error {
	file := filepath.Base(o.t.Path())
	for _, of := range o.left {
		name := o.t.Header[of.column]
		switch {
		case c.use[of.column].as == asSplit || of.words() < 2 || !of.parts[0]:
			// the column is a mask, or turned out not to be a split
		case s.options.Split != "":
			c.leave(of.column, splitGiven)
		case s.options.Table.Split != "":
			c.leave(of.column, "--split-column names another")
		case len(s.options.Table.Features) > 0:
			c.leave(of.column, "")
			s.note("column %s of %s is not read, but its words are those of a split; "+
				"--split-column %s makes it the split", name, file, inShell(name))
		case s.unlabelled || s.options.linkTask() != "" || len(c.labels) == 0 &&
			s.fileOfLabels() == "":
			c.leave(of.column, "its words are those of a split, and there are no labels")
		case s.given != nil:
			before := strings.TrimPrefix(strings.TrimPrefix(s.given.from, "columns "), "column ")
			return twoSplits(o.t, strings.TrimSuffix(before, " of "+file), name)
		default:
			c.leave(of.column, "")
			c.use[of.column] = columnUse{asSplit, "its words are those of a split"}
			s.given = &splitSource{Split: of.lists, read: true, path: o.t.Path(),
				from: "column " + name + " of " + file}
		}
	}
	given := s.given != nil || s.options.Split != ""
	for _, of := range o.left {
		name := o.t.Header[of.column]
		sure, _ := likeSplit(name)
		switch {
		case len(of.codes) == 0 || !slices.Contains(c.features, of.column) ||
			len(s.options.Table.Features) > 0:
		case sure:
			c.leave(of.column, ofSplit)
			s.note("column %s of %s is not read: it holds %s, and has the name of a split%s; if "+
				"it is a feature, name it in --features, together with the other features",
				name, file,
				few(slices.Sorted(slices.Values(of.codes))), of.cure(name, given))
		case of.coded() && !given:
			s.note("column %s of %s is a feature; if its values 0, 1 and 2 mean train, valid and "+
				"test, --split-column %s makes it the split", name, file, inShell(name))
		case (of.trains || marksByName(name)) && of.marks() && !given:
			s.note("column %s of %s is a feature; if it marks the vertices to train, call it "+
				"train_mask", name, file)
		}
	}
	for k, name := range o.t.Header {
		if c.use[k] == (columnUse{asIgnored, ofSplit}) && isFold(name) {
			s.note("column %s of %s is not read: it seems to be a split; turn it into a column "+
				"of train, valid, test", name, file)
		}
	}
	return nil
}

// words returns how many of the three lists (train, valid, test) occur as words in the column.
func (c *otherSplit) words() (n int) {
	for _, has := range c.parts {
		if has {
			n++
		}
	}
	return n
}

const ofSplit = "it seems to be a split"

// leave removes a column from the features and says why.
func (c *nodeColumns) leave(column int, why string) {
	c.features = slices.DeleteFunc(c.features, func(k int) bool { return k == column })
	c.use[column] = columnUse{asIgnored, why}
}

// coded reports whether the column's values are the codes 0, 1 and 2.
func (c *otherSplit) coded() bool {
	return len(c.codes) == 3 && !slices.ContainsFunc(c.codes,
		func(x string) bool { return !isCode(x) })
}

// marks reports whether all values are marks, such as 0 and 1.
func (c *otherSplit) marks() bool {
	return len(c.codes) > 0 && !slices.ContainsFunc(c.codes,
		func(x string) bool { _, is := mark(x); return !is })
}

// cure returns advice on how to turn the codes of a column into a split.
func (c *otherSplit) cure(name string, given bool) string {
	all := func(is func(string) bool) bool {
		return !slices.ContainsFunc(c.codes, func(x string) bool { return !is(x) })
	}
	switch {
	case given:
		return ", and another one is the split"
	case all(isCode) && slices.Contains(c.codes, "2"):
		return ": --split-column " + inShell(name) + " reads 0 as train, 1 as valid and 2 as test"
	case c.marks():
		return ": call it train_mask if it marks the vertices to train"
	}
	return ": make a column of train, valid, test of it, for --split-column"
}
