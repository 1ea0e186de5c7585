package dataset

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"halognn/src/data/dataset/table"
)

// Reading says how a column of a table, or an array, was read: as a feature, a label and so on.
// Neighbouring columns of one kind are one Reading.
type Reading struct {
	Of      string `json:"of"` // the table, or the archive or directory of arrays
	Name    string `json:"name"`
	Last    string `json:"last,omitempty"`    // name of the last column, if there are several
	Columns int    `json:"columns,omitempty"` // number of columns, if there are several
	As      string `json:"as"`
	Why     string `json:"why,omitempty"` // where there was a choice
}

// What a column or array may be read as.
const (
	asID          = "id"
	asSource      = "source"
	asTarget      = "target"
	asLabel       = "label"
	asSplit       = "split"
	asWeight      = "weight"
	asFeature     = "feature"
	asEdgeFeature = "edge feature"
	asLinkLabel   = "label of links"
	asDirection   = "direction"
	asTime        = "time, not used"
	asIgnored     = "ignored"
	asEdges       = "edges"
	asCount       = "number of vertices"
)

func (r Reading) String() string {
	name := r.Name
	if r.Columns > 1 {
		name = fmt.Sprintf("%s to %s, %d columns", r.Name, r.Last, r.Columns)
	}
	text := fmt.Sprintf("%s: %s: %s", r.Of, name, r.As)
	if r.Why != "" {
		text += " (" + r.Why + ")"
	}
	return text
}

// The method reads adds to the report how a column or array of the file of was read.
func (f *findings) reads(of, name, as, why string) {
	of = filepath.Base(of)
	if n := len(f.reading) - 1; n >= 0 && (as == asFeature || as == asEdgeFeature) {
		if last := &f.reading[n]; last.Of == of && last.As == as && last.Why == why {
			last.Columns, last.Last = max(1, last.Columns)+1, name
			return
		}
	}
	f.reading = append(f.reading, Reading{Of: of, Name: name, As: as, Why: why})
}

// note adds a note to the report.
func (f *findings) note(format string, args ...any) {
	f.notes = append(f.notes, fmt.Sprintf(format, args...))
}

// columnUse says what a column of a table is used as, and why.
type columnUse struct{ as, why string }

// readsColumns adds to the report what each column of a table was read as, in the order of the
// columns.
func (in *importer) readsColumns(t *table.Named, of map[int]columnUse) {
	switch {
	case t.HasNames && t.Why != "":
		in.reads(t.Path(), "the first row", "names of the columns", t.Why)
	case !t.HasNames && !in.options.Table.NoHeader:
		in.reads(t.Path(), "the first row", "data",
			cmp.Or(t.Why, "it is not like names of columns"))
	}
	if t.Remark != "" {
		in.reads(t.Path(), fmt.Sprintf("the comment %.60q", t.Remark), "names of the columns",
			"no row has them; --no-header leaves them out")
	}
	if apart := t.Apart(); apart != "" {
		in.note("%s: %s", filepath.Base(t.Path()), apart)
	}
	for k, name := range t.Header {
		name = columnName(name, k)
		if use, ok := of[k]; ok {
			in.reads(t.Path(), name, use.as, use.why)
		} else {
			in.reads(t.Path(), name, asIgnored, "")
		}
	}
	in.tellComments(t)
	if t.Repeated > 0 {
		in.note("%s: line %d repeats the names of the columns; all %d such rows are skipped",
			filepath.Base(t.Path()), t.At, t.Repeated)
	}
}

// tellComments notes lines that could be rows or comments, and says which of the two they were
// taken for.
func (in *importer) tellComments(t *table.Named) {
	if t.Skipped > 0 {
		in.note("%s: line %d begins with # or %% and is skipped as a comment, though it has as "+
			"many fields as the rows (such lines: %d); if it is a row, quote its first field",
			filepath.Base(t.Path()), t.SkippedAt, t.Skipped)
	}
	if t.Noted > 0 {
		in.note("%s: line %d begins with %q and is read as a row, because it has as many fields "+
			"as the others (such lines: %d); if it is a comment, remove it",
			filepath.Base(t.Path()), t.NotedAt, t.NotedBy, t.Noted)
	}
}

// columnName returns the name of a column for reports. A column without a name gets its number.
func columnName(name string, column int) string {
	if name == "" {
		return fmt.Sprintf("%d, without a name,", column)
	}
	return name
}

// usual reports whether a name is one that columns usually have, which shows that the first row
// names the columns.
func (in *importer) usual(name string) bool {
	o := &in.options.Table
	lists := [][]string{sourceNames, targetNames, idNames, labelNames, splitNames, weightNames,
		timeNames, o.Labels, o.Features, o.EdgeFeatures, in.options.LinkLabels, in.options.Ignore,
		{o.ID, o.Source, o.Target, o.Weight, o.Split, "type"}}
	part, plain := maskPart(name)
	return part >= 0 && !plain || isIndex(name, 0) || slices.ContainsFunc(lists,
		func(names []string) bool {
			return slices.ContainsFunc(names, func(n string) bool {
				// n may be the number of a column, because a column has no name
				_, number := table.ParseInt([]byte(n))
				return n != "" && !number && strings.EqualFold(n, name)
			})
		})
}

// openTable opens a table and finds the names of its columns. The argument `flags` lists the column
// names that the user gave in flags. If one of them is a number, the columns have no names, so
// openTable takes no comment as names.
func (in *importer) openTable(path string, noHeader bool, flags ...string) (*table.Named, error) {
	return table.OpenNamed(path, in.namesOf(noHeader, flags...))
}

// namesOf returns what is known about the first row of a table.
func (in *importer) namesOf(noHeader bool, flags ...string) table.Names {
	byNumber := slices.ContainsFunc(flags, func(n string) bool {
		_, is := table.ParseInt([]byte(n))
		return is
	})
	return table.Names{No: noHeader, Yes: in.options.Table.Header, Known: in.usual,
		Remark: !byNumber}
}

// ofNodes returns the names of columns of the node table that flags give.
func (o *TableOptions) ofNodes() []string {
	return slices.Concat(o.Labels, o.Features, []string{o.ID, o.Split})
}

// ofEdges returns the names of columns of the edge table that flags give.
func (o *ImportOptions) ofEdges() []string {
	t := &o.Table
	return slices.Concat(t.EdgeFeatures, o.LinkLabels, []string{t.Source, t.Target, t.Weight})
}

// askProse returns an error if the names of the columns come from a comment that may also be a
// sentence, unless the names are the usual ones in the usual order.
func askProse(t *table.Named, flags string, usual bool) error {
	if usual || !t.MayBeProse() {
		return nil
	}
	return t.Errorf("%w: the comment %.60q may name the columns or be a sentence: if it names "+
		"them, remove its comment mark%s, otherwise give --no-header", ErrValue, t.Remark, flags)
}

// column returns the index in t of the column with the name asked, which the user gave by the flag.
// If asked is "", it returns the first column that has one of the usual names and that no flag
// leaves out. It returns -1 if there is no such column.
func (in *importer) column(t *table.Named, asked, flag string, usual ...string) (int, error) {
	if asked != "" {
		i := slices.Index(t.Header, asked)
		if i < 0 {
			alone := ""
			if alone = in.misnamed(asked); alone == "" && in.own != nil && !in.own[flag] {
				alone = "; " + flag + " NAME=COLUMN names a column of one type or relation only"
			}
			if k, is := table.ParseInt([]byte(asked)); is && t.HasNames && k >= 0 &&
				k < int64(len(t.Header)) {
				alone += "; --no-header calls them 0, 1, ..., and reads the first row as data"
			}
			return 0, fmt.Errorf("%s: %w: there is no column %q, which %s names; the columns are "+
				"%s%s", t.Path(), ErrValue, asked, flag, strings.Join(t.Header, ", "), alone)
		}
		return i, nil
	}
	for _, name := range usual {
		same := func(h string) bool {
			return strings.EqualFold(h, name) && !slices.Contains(in.options.Ignore, h)
		}
		if i := slices.IndexFunc(t.Header, same); i >= 0 {
			return i, nil
		}
	}
	return -1, nil
}

// notEmpty returns an error if a column name in the list of a flag is empty.
func notEmpty(name, flag string) error {
	if name == "" {
		return badOption("%s: the name of a column is empty; name one, or leave the flag out", flag)
	}
	return nil
}
