package table

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Names says what is known about the first row of a table.
type Names struct {
	No    bool                   // the first row is data
	Yes   bool                   // the first row is the names of the columns
	Known func(name string) bool // whether a column may have this name; nil if no name is known
	// Data reports whether a row, followed by the rows after it, surely is data; nil if no row
	// surely is
	Data func(row []string, after [][]string) bool
	// Either is asked about a first row that could be names or data. named is true if it is the
	// names; known is false if Either cannot tell. Either may be nil.
	Either func(row []string, after [][]string) (named, known bool)
	// Remark is true if a comment before the first row may be the names, provided that Known knows
	// one of its words.
	Remark bool
}

// Named is a table of words whose columns have names.
type Named struct {
	*Reader
	Header   []string // names of the columns; "" for a column without a name
	HasNames bool     // the first row has the names; otherwise the columns are called 0, 1, ...
	Remark   string   // the comment that is the names, if no row is
	Why      string   // why the first row is names or data, for a report; "" if it is obvious
	Repeated int      // rows that repeated the names and were skipped
	At       int      // the line of the first repeated row
	first    []string // the first row, if it is data that Next has still to return
	// the first rows of data; if the row in the field `first` is set, it is the first of them
	after [][]string
}

// OpenNamed opens a table, plain or gzip, and finds the names of its columns in the first row. If
// all fields of that row are numbers, or if it looks like the rows below it, the columns have no
// names.
func OpenNamed(path string, names Names) (*Named, error) {
	r, err := OpenWords(path, Auto, false)
	if err != nil {
		return nil, err
	}
	t := &Named{Reader: r}
	if err := t.begin(names); err != nil {
		_ = r.Close()
		return nil, err
	}
	return t, nil
}

func (t *Named) begin(names Names) error {
	remark, named := t.remark(names.Known)
	remarked := names.Remark && named != nil && !names.No && !names.Yes
	t.after = t.sample(remark)
	ok, err := t.Reader.Next()
	// skips repetitions of the comment, which would otherwise count as rows
	for err == nil && ok && remarked && t.repeats(remark) {
		ok, err = t.Reader.Next()
	}
	if err == nil && !ok {
		lines := ""
		if t.line > 0 {
			lines = "; all lines begin like comments: if one is a row, quote its first field"
		}
		err = fmt.Errorf("%s: %w: it has no row; give a table with names of columns%s", t.path,
			ErrValue, lines)
	}
	if err != nil {
		return err
	}
	row, err := t.words()
	if err != nil {
		return err
	}
	t.Header = slices.Clone(row)
	if remarked && !namesBelow(named, row, t.after, names.Known) {
		t.keepFirst()
		t.Header, t.HasNames, t.Remark = named, true, remark
		if t.Skipped > 0 {
			t.Skipped--
		}
		return t.unique()
	}
	switch {
	case names.No:
	case names.Yes:
		t.HasNames = true
	case names.Data != nil && names.Data(row, t.after):
	case len(row) == 1 && !slices.ContainsFunc(append(t.after, row), func(r []string) bool {
		first, _, are := strings.Cut(r[0], "::")
		return !are || !isNumber(first) // std::a is one word, but 1::2 is two fields
	}):
		return t.errColons()
	default:
		if t.HasNames, err = t.areNames(row, t.after, names.Known); err != nil {
			known := false
			if names.Either != nil {
				t.HasNames, known = names.Either(row, t.after)
			}
			if !known {
				return err
			}
		}
	}
	if !t.HasNames {
		t.keepFirst()
		for i := range t.Header {
			t.Header[i] = strconv.Itoa(i)
		}
		return nil
	}
	return t.unique()
}

// keepFirst keeps the first row as the first row of data, because it does not name the columns.
func (t *Named) keepFirst() {
	t.first = slices.Clone(t.Header)
	t.after = slices.Insert(t.after, 0, t.first)
}

// namesBelow reports whether the row below a comment with names also names the columns. It does if
// one of its words stands above numbers. It also does if it has no number, has at least as many
// known names as the comment, and has no word that comes again below it.
func namesBelow(named, row []string, after [][]string, known func(string) bool) bool {
	count := func(fields []string) (n int) {
		for _, f := range fields {
			if f != "" && known(f) {
				n++
			}
		}
		return n
	}
	return OverNumbers(row, after) ||
		count(row) >= count(named) && !slices.ContainsFunc(row, isNumber) && !comesAgain(row, after)
}

// unique returns an error if two columns have the same name.
func (t *Named) unique() error {
	for i, name := range t.Header {
		if name != "" && slices.Contains(t.Header[:i], name) {
			return fmt.Errorf("%s: line %d: %w: two columns are called %q; rename one, or remove "+
				"the line and say --no-header", t.path, t.begun, ErrValue, name)
		}
	}
	return nil
}

// Number reports whether the first row of data has a number in a column.
func (t *Named) Number(column int) bool { return isNumber(t.Field(column)) }

// Field returns the field of a column in the first row of data, even before Next has read that row.
// It returns "" if there is no row.
func (t *Named) Field(column int) string {
	if len(t.after) == 0 {
		return ""
	}
	return t.after[0][column]
}

// Sample returns the fields of a column in the first rows of data.
func (t *Named) Sample(column int) (fields []string) {
	for _, row := range t.after {
		fields = append(fields, row[column])
	}
	return fields
}

// remark returns the last comment before the first row that may name the columns, and its words. It
// looks for comments as numpy.savetxt(header=...) writes them: with as many words as a row has
// fields, none of them a number, and at least one of them known.
func (t *Named) remark(known func(string) bool) (line string, names []string) {
	if known == nil || t.width < 2 {
		return "", nil
	}
	for _, row := range t.firstRows() {
		if row = bytes.TrimSpace(row); !noted(row) {
			break
		}
		text := bytes.TrimSpace(row[1:])
		for _, colon := range []string{": ", ":\t"} { // such as: columns: source target
			text = bytes.TrimSpace(text[bytes.LastIndex(text, []byte(colon))+1:])
		}
		one := Reader{sep: t.sep, words: true, quote: t.quote, width: t.width}
		one.row = one.trim(text)
		fields, err := one.Words()
		if err != nil || slices.ContainsFunc(fields,
			func(f string) bool { return f == "" || isNumber(f) }) {
			continue
		}
		n, prose := 0, false
		for _, f := range fields {
			if known(f) {
				n++
			}
			prose = prose || t.sep == Space && slices.Contains(sentence, strings.ToLower(f))
		}
		if !prose && (n > 1 || n > 0 && t.sep != Space) {
			line, names = string(row), slices.Clone(fields)
		}
	}
	return line, names
}

// sentence lists words that show that a comment whose words are separated by blanks is a sentence,
// not names of columns.
var sentence = []string{"a", "an", "and", "are", "as", "by", "each", "for", "has", "have", "in",
	"is", "of", "or", "per", "the", "this", "was", "were", "with"}

// MayBeProse reports whether the names come from a comment whose words are separated by blanks, so
// that it may be a sentence.
func (t *Named) MayBeProse() bool { return t.Remark != "" && t.sep == Space }

// Square reports whether the table looks like a square matrix: the first fields of the rows are the
// names of the columns after the first, in the same order.
func (t *Named) Square() bool {
	for i, row := range t.after {
		if i+1 >= len(t.Header) || row[0] != t.Header[i+1] {
			return false
		}
	}
	return t.HasNames && len(t.after) > 1 && (len(t.after)+1 == len(t.Header) ||
		len(t.after) >= sampleRows-1)
}

// Between returns the separator of fields, as text.
func (t *Named) Between() string {
	if t.sep == Space {
		return " "
	}
	return string(rune(t.sep))
}

// Narrow returns the error about a table that has only one column but should have several. The text
// `want` names these columns.
func (t *Named) Narrow(want string) error {
	row := t.Header
	if t.first != nil {
		row = t.first
	}
	if strings.Contains(row[0], "::") {
		return t.errColons()
	}
	if strings.ContainsAny(row[0], "{}") {
		return t.Errorf("%w: the row has attributes in braces, as networkx.write_edgelist writes "+
			"them; write them with data=False, or write weights by "+
			"networkx.write_weighted_edgelist", ErrValue)
	}
	if t.under > 1 {
		return t.Errorf("%w: %.60q is a row of one field, but the next rows have %d fields; if "+
			"it is a title or a count of rows, remove it with tail -n +%d FILE > NEW",
			ErrValue, row[0], t.under,
			max(1, t.begun)+1)
	}
	return t.Errorf("%w: there is one column, but there must be at least two, %s, separated by "+
		"commas, tabs, semicolons or blanks", ErrValue, want)
}

func (t *Named) errColons() error {
	return t.Errorf("%w: the fields are separated by ::, as in MovieLens, which is not read; "+
		"replace it by sed 's/::/|/g' FILE", ErrValue)
}

// Counts reports whether a column holds 0, 1, 2 and so on, or 1, 2, 3 and so on, in the first rows
// of data.
func (t *Named) Counts(column int) bool {
	for i, row := range t.after {
		n, ok := ParseInt([]byte(row[column]))
		first, _ := ParseInt([]byte(t.after[0][column]))
		if !ok || first < 0 || first > 1 || n != first+int64(i) {
			return false
		}
	}
	return true
}

// repeats reports whether the current row repeats the comment that names the columns. Such a row
// does not count.
func (t *Named) repeats(remark string) bool {
	if remark == "" || string(bytes.TrimSpace(t.row)) != remark {
		return false
	}
	t.Noted--
	return true
}

// sample returns the fields of all rows after the first that lie in the buffer, without repetitions
// of the comment remark.
func (t *Named) sample(remark string) (rows [][]string) {
	for _, row := range t.firstRows()[t.heading:] {
		one := Reader{sep: t.sep, words: true, quote: t.quote, width: t.width, numbers: t.numbers,
			remarks: t.remarks}
		if one.row = one.trim(row); one.isComment() || string(bytes.TrimSpace(row)) == remark {
			continue
		}
		if fields, err := one.Words(); err == nil && len(fields) == t.width {
			rows = append(rows, slices.Clone(fields))
		}
	}
	return rows[min(1, len(rows)):]
}

// areNames reports whether a first row names the columns. It returns an error if the row could be
// either names or data.
func (t *Named) areNames(row []string, after [][]string, known func(string) bool) (bool, error) {
	numbers, blanks, measured := 0, 0, false
	for i, f := range row {
		if known != nil && known(f) && (f != "" || i == 0) {
			return true, nil
		}
		if isNumber(f) {
			n, is := ParseInt([]byte(f))
			// measured is true for a number that cannot be a column's name: a fraction, a negative
			// number, or one that comes twice
			numbers++
			measured = measured || !is || n < 0 || slices.Contains(row[:i], f)
		} else if blank(f) {
			blanks++
		}
	}
	same := alike(row, after)
	switch {
	case numbers > 0 && numbers+blanks == len(row) && (len(row) < 4 || !Counting(row)):
		return false, nil
	case numbers == len(row): // 0, 1, 2 and so on may be names or data, so the user must decide
	case (numbers > 0 || same) && recurs(row, after):
		return false, nil
	case same && numbers > 0 || comesAgain(row, after):
		return false, nil
	case crosses(row, after):
		// The user must decide: child,parent above parent,thing may be names or vertices.
	case !same && (numbers == 0 || strange(row, after)):
		return true, nil
	case !same && (isNumber(row[0]) && row[0] != "0" || measured):
		return false, nil
	case !same && fractions(row, after):
		return true, nil
	}
	return false, t.Errorf("%w: is this row the names of the columns, or data? --header reads it "+
		"as the names, and --no-header as data", ErrValue)
}

// Counting reports whether the fields of a row are 0, 1, 2 and so on, which pandas writes for
// columns without names.
func Counting(row []string) bool {
	for i, f := range row {
		if f != strconv.Itoa(i) {
			return false
		}
	}
	return true
}

// recurs reports whether a word of a row comes again in a later row. Later rows that are equal to
// the whole row do not count, because they repeat the names of the columns. A word that comes again
// is not the name of a column.
func recurs(row []string, after [][]string) bool {
	for _, other := range after {
		if !slices.Equal(row, other) && slices.ContainsFunc(row, func(f string) bool {
			return f != "" && !isNumber(f) && slices.Contains(other, f)
		}) {
			return true
		}
	}
	return false
}

// comesAgain reports whether a word of a row occurs again below it in its column, or each of the
// first two words occurs below the other. Ids do so, but names do not.
func comesAgain(row []string, after [][]string) bool {
	if OverNumbers(row, after) {
		return false
	}
	again := func(k, column int) bool {
		return !blank(row[k]) && !isNumber(row[k]) && slices.ContainsFunc(after,
			func(o []string) bool {
				return !slices.Equal(row, o) && o[column] == row[k]
			})
	}
	return len(row) > 1 && again(0, 1) && again(1, 0) ||
		slices.ContainsFunc(indices(row), func(k int) bool { return again(k, k) })
}

// crosses reports whether one of the first two words of a row occurs below the other word.
func crosses(row []string, after [][]string) bool {
	if len(row) < 2 || OverNumbers(row, after) {
		return false
	}
	return slices.ContainsFunc(after, func(other []string) bool {
		return !isNumber(row[0]) && row[0] == other[1] || !isNumber(row[1]) && row[1] == other[0]
	})
}

// Missing reports whether a field is a usual word for a missing value.
func Missing(f string) bool {
	switch strings.ToLower(f) {
	case "", "nan", "none", "null", "na", "n/a", "<na>", "#n/a":
		return true
	}
	return false
}

// blank reports whether a field may stand for a missing value in a column of numbers.
func blank(f string) bool { return Missing(f) || f == "?" || f == "-" || f == "." || f == `\N` }

// OverNumbers reports whether a word of a row stands above numbers only. Such a word names its
// column.
func OverNumbers(row []string, after [][]string) bool {
	return len(after) > 0 && slices.ContainsFunc(indices(row), func(k int) bool {
		name := !blank(row[k]) && !isNumber(row[k])
		return name && !slices.ContainsFunc(after, func(other []string) bool {
			return !isNumber(other[k])
		})
	})
}

// strange reports whether the first word of a row is unlike the fields below it, which differ only
// in their digits (5 and 6, or p1 and p2).
func strange(row []string, after [][]string) bool {
	if len(after) == 0 || row[0] == "" || isNumber(row[0]) {
		return false
	}
	own := stem(after[0][0])
	return stem(row[0]) != own && !slices.ContainsFunc(after, func(other []string) bool {
		return stem(other[0]) != own || other[0] == own
	})
}

// stem returns a text without its digits.
func stem(f string) string {
	return strings.Map(func(c rune) rune {
		if c >= '0' && c <= '9' {
			return -1
		}
		return c
	}, f)
}

func isNumber(f string) bool {
	_, ok := ParseFloat([]byte(f))
	return ok
}

// alike reports whether a word of a row, such as u1, differs from all fields below it only in its
// digits. Ids are written like that; names of columns are not.
func alike(row []string, after [][]string) bool {
	if len(after) == 0 {
		return false
	}
	return slices.ContainsFunc(indices(row), func(k int) bool {
		own := stem(row[k])
		if own == "" || own == row[k] || strings.Trim(own, "+-.eE") == "" {
			return false
		}
		for _, other := range after {
			if stem(other[k]) != own {
				return false
			}
		}
		return true
	})
}

// fractions reports whether some field of a row is a whole number, although its column holds
// numbers with a fraction. Such a field is likely to be a name.
func fractions(row []string, after [][]string) bool {
	return slices.ContainsFunc(indices(row), func(k int) bool {
		if _, is := ParseInt([]byte(row[k])); !is {
			return false
		}
		return slices.ContainsFunc(after, func(other []string) bool {
			_, number := ParseFloat([]byte(other[k]))
			_, is := ParseInt([]byte(other[k]))
			return number && !is
		})
	})
}

func indices(row []string) []int {
	all := make([]int, len(row))
	for i := range all {
		all[i] = i
	}
	return all
}

// Next returns the next row, or nil at the end. The row is valid until the next call. It skips and
// counts rows that repeat the names of the columns, as in files that were joined.
func (t *Named) Next() ([]string, error) {
	if row := t.first; row != nil {
		t.first = nil
		return row, nil
	}
	for {
		ok, err := t.Reader.Next()
		if err != nil || !ok {
			return nil, err
		}
		row, err := t.words()
		if err != nil {
			return nil, err
		}
		if !t.repeats(t.Remark) && (!t.HasNames || len(row) < 2 || !slices.Equal(row, t.Header)) {
			return row, nil
		}
		if t.Repeated++; t.At == 0 {
			t.At = t.begun
		}
	}
}

// words returns the fields of the current row.
func (t *Named) words() ([]string, error) {
	row, err := t.Words()
	var bad *notUTF8
	if errors.As(err, &bad) {
		name := strconv.Itoa(bad.column)
		if t.Header != nil {
			name = t.Header[bad.column]
		}
		return nil, t.Errorf("%w: column %s is not UTF-8; convert the file: iconv -f LATIN1 -t "+
			"UTF-8", ErrValue, name)
	}
	return row, err
}
