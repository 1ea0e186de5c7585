// Package table reads rows of text files of any size, plain or gzip: tables of nodes, edges, splits
// and links, the CSV files of OGB, and SNAP edge lists. It is the one reader of text.
//
//	"847,2057\r\n" ── Next ──> a row ── Ints(dst [2]) ──> 847, 2057
//	                                 ── Floats(dst)        Fields()   Words()
//
// One buffer holds the current row, so files may have any size. Blank lines, a byte order mark and
// blanks around a field are skipped. A line ends with LF, CR LF or CR. A field that begins with a
// quote ends with the next quote. It may hold separators and line ends, and quotes that are written
// twice.
//
// This package parses bytes in place, and makes a string of a row only for words. encoding/csv
// would make a string of each row and a slice of strings for its fields, before strconv could read
// a number.
package table

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/klauspost/compress/gzip"

	"halognn/src/base/mem"
)

// ErrValue is wrapped by errors about what a file holds.
var ErrValue = errors.New("bad value")

// longestRow limits the buffer, because a file without line ends is not a table. longestJoined
// limits a row that spans several lines, so that the error about an open quote comes soon.
const (
	longestRow    = 1 << 28
	longestJoined = 1 << 24
)

// Separator says how the fields of a row are separated.
type Separator byte

// The separators that formats have.
const (
	Auto      Separator = 0    // the first rows show which separator it is
	Comma     Separator = ','  // exactly one comma; an empty field is not a number
	Semicolon Separator = ';'  // exactly one semicolon
	Tab       Separator = '\t' // exactly one tab
	Pipe      Separator = '|'  // exactly one bar
	Blank     Separator = ' '  // any run of blanks, tabs, commas and semicolons
	Space     Separator = '_'  // any run of blanks and tabs
	None      Separator = '\n' // a row is one field
)

// Reader reads a file row by row.
type Reader struct {
	path    string
	sep     Separator
	words   bool // a line that begins with # or % may be a row
	ragged  bool // rows may have different numbers of fields
	width   int  // number of fields of the first row, in a file of words
	under   int  // number of fields of each following row, if the first row has one field
	apart   string
	sample  int  // how many bytes at the beginning of the file look examines
	heading int  // how many comment lines at the beginning are still to be skipped
	rows    bool // a row was returned
	marks   bool // a row of words that begins with # or % was returned
	numbers bool // the first field of each row is a number
	// some first lines were comments, because they had another number of fields than rows
	remarks   bool
	Noted     int    // number of rows of words that begin like comments: with a mark and a blank
	NotedAt   int    // line of the first row that Noted counts
	NotedBy   string // the beginning of the first row that Noted counts
	Skipped   int    // number of comments that have as many fields as a row
	SkippedAt int    // line of the first comment that Skipped counts
	file      *os.File
	in        io.Reader
	buf       []byte
	next, end int // buf[next:end] is unread
	eof       bool
	cr, quote bool // the file has a CR, or a quote, so far
	// the separator if it is one character and the file has no quote so far; otherwise 0
	plain    byte
	row      []byte
	joined   []byte // a row that spans several lines
	cell     []byte // a field without its quotes
	fields   []string
	line     int // number of the line that was read last
	begun    int // number of the line on which the row begins
	badQuote bool
}

// Open opens a file of numbers. A line that begins with # or % is a comment. A file that begins
// like gzip is inflated, whatever its name is.
func Open(path string, sep Separator) (*Reader, error) {
	return open(&Reader{path: path, sep: sep})
}

// OpenWords opens a file of words. In such a file, a line that begins with a mark, # or %, may be a
// comment or a row.
//
// If rows have only one field, a line with a mark is a row. If rows have several fields, it is a
// row in two cases: it has as many fields as the first row without a mark, or an earlier row had a
// mark.
//
// Lines that begin with a mark and a blank are an exception. Those at the beginning of the file are
// comments if no later line begins in this way. All of them are comments if the first fields of
// rows are numbers, or if one of those at the beginning of the file has another number of fields
// than the rows. The Reader counts comments that have as many fields as a row.
//
// If ragged is set, rows may have any number of fields from two on. A line with a mark is then a
// comment only if it has one field and comes before all rows.
func OpenWords(path string, sep Separator, ragged bool) (*Reader, error) {
	return open(&Reader{path: path, sep: sep, ragged: ragged, words: true})
}

func open(r *Reader) (*Reader, error) {
	f, err := mem.Open(r.path)
	if err != nil {
		return nil, err
	}
	r.file, r.in, r.buf = f, f, make([]byte, 1<<18)
	if err := r.detect(); err != nil {
		_ = f.Close()
		return nil, err
	}
	return r, nil
}

// mark is a byte order mark.
var mark = []byte("\xef\xbb\xbf")

func (r *Reader) detect() error {
	var magic [2]byte
	_, err := r.file.ReadAt(magic[:], 0)
	if err != nil && err != io.EOF {
		return err
	}
	if magic == [2]byte{0x1f, 0x8b} {
		z, err := gzip.NewReader(r.file)
		if err != nil {
			return fmt.Errorf("%s: damaged gzip header: %w; fetch the file again", r.path, err)
		}
		r.in = z
	}
	if err := r.fill(); err != nil {
		return err
	}
	head := r.buf[:r.end]
	if err := r.notText(head); err != nil {
		return err
	}
	if bytes.HasPrefix(head, mark) {
		r.next = len(mark)
	}
	if r.words {
		r.readSep()
		for r.sample = sampleBytes; ; r.sample *= 2 { // look needs a whole row
			for !r.eof && r.end-r.next < r.sample {
				if err := r.fill(); err != nil {
					return err
				}
			}
			if r.eof || len(r.firstRows()) > 0 || r.sample >= longestJoined {
				break
			}
		}
		r.look()
		r.setPlain()
	}
	return nil
}

// Close closes the file.
func (r *Reader) Close() error { return r.file.Close() }

// Next goes to the next row, and skips blank lines and comments. It returns false at the end. It is
// an error if the file is cut off, or if its checksum is wrong.
func (r *Reader) Next() (bool, error) {
	for {
		line, err := r.readLine()
		if err != nil || line == nil {
			return false, err
		}
		r.begun = r.line
		line = bytes.TrimPrefix(line, mark) // a file that was joined from several has further marks
		if r.row = r.trim(line); len(r.row) == 0 {
			continue
		}
		if r.isComment() {
			if r.width > 1 && r.Columns() == r.width {
				if r.Skipped++; r.Skipped == 1 {
					r.SkippedAt = r.begun
				}
			}
			continue
		}
		if r.quote && bytes.IndexByte(line, '"') >= 0 && r.open(line, false) {
			if line, err = r.join(line); err != nil {
				return false, err
			}
			r.row = r.trim(line)
		}
		if r.rows = true; marked(r.row) {
			r.marks = true
			if noted(r.row) && r.width > 1 {
				if r.Noted++; r.Noted == 1 {
					r.NotedAt, r.NotedBy = r.begun, string(r.row[:2])
				}
			}
		}
		return true, nil
	}
}

// trim removes blanks at both ends of a row. It keeps tabs if they are separators.
func (r *Reader) trim(line []byte) []byte {
	if r.sep == Tab {
		if len(bytes.TrimSpace(line)) == 0 {
			return nil
		}
		return bytes.Trim(line, " \r")
	}
	return bytes.TrimSpace(line)
}

func marked(row []byte) bool { return len(row) > 0 && (row[0] == '#' || row[0] == '%') }

// noted reports whether a line begins with a mark and a blank, as most comments do.
func noted(row []byte) bool {
	return marked(row) && len(row) > 1 && (row[1] == ' ' || row[1] == '\t')
}

// isComment reports whether the current line is a comment. It looks only at this line, before the
// following ones are joined to it, because a quote in a comment does not join lines.
func (r *Reader) isComment() bool {
	if r.heading > 0 {
		r.heading--
		return true
	}
	switch {
	case !marked(r.row):
		return false
	case !r.words || r.width > 1 && !r.ragged && (r.numbers || r.remarks) && noted(r.row):
		return true
	case r.width == 1 || r.marks:
		return false
	case r.ragged:
		return !r.rows && r.Columns() < 2
	}
	n := r.Columns()
	if r.quote && n <= r.width && r.open(r.row, false) {
		return noted(r.row) // the row may go on in the next lines
	}
	return n != r.width
}

// join appends the following lines to a line that ends inside quotes, up to the closing quote.
func (r *Reader) join(line []byte) ([]byte, error) {
	r.joined = append(r.joined[:0], line...)
	for inside := true; inside; {
		more, err := r.readLine()
		if err != nil {
			return nil, err
		}
		if more == nil || len(r.joined) > longestJoined {
			return nil, r.Errorf("%w: a field begins with a quote, and no quote ends it; write a "+
				"quote inside a quoted field twice", ErrValue)
		}
		r.joined = append(append(r.joined, '\n'), more...)
		inside = r.open(more, true)
	}
	return r.joined, nil
}

// open reports whether a line ends inside quotes. If the line also begins inside quotes, `inside`
// is true.
func (r *Reader) open(line []byte, inside bool) bool {
	row := r.row
	defer func() { r.row, r.badQuote = row, false }()
	at := 0
	if r.row = line; inside {
		_, at = r.quoted(-1) // as if the opening quote were before the line
	} else {
		r.row = r.trim(line)
	}
	for at >= 0 {
		_, at = r.field(at)
	}
	return at == unclosed
}

// readLine returns the next line without its end. It returns nil at the end of the file.
func (r *Reader) readLine() ([]byte, error) {
	for {
		rest := r.buf[r.next:r.end]
		if !r.cr {
			if i := bytes.IndexByte(rest, '\n'); i >= 0 {
				return r.take(i, 1), nil
			}
		} else {
			switch k := lineEnd(rest); {
			case k < 0:
			case rest[k] == '\n':
				return r.take(k, 1), nil
			case k+1 < len(rest) && rest[k+1] == '\n':
				return r.take(k, 2), nil
			case k+1 < len(rest) || r.eof:
				return r.take(k, 1), nil
			}
		}
		if r.eof {
			if r.next == r.end {
				return nil, nil
			}
			return r.take(len(rest), 0), nil
		}
		if err := r.fill(); err != nil {
			return nil, err
		}
	}
}

// lineEnd returns the position of the first LF or CR, or -1 if there is none. It searches for both
// in growing pieces of the text, because a file may have only one of the two, and the search for
// the other would read to the end each time.
func lineEnd(rest []byte) int {
	for n := 1 << 9; ; n *= 2 {
		within := rest[:min(n, len(rest))]
		i := bytes.IndexByte(within, '\n')
		if i >= 0 {
			within = within[:i]
		}
		if k := bytes.IndexByte(within, '\r'); k >= 0 {
			return k
		}
		if i >= 0 || n >= len(rest) {
			return i
		}
	}
}

// take returns the next n bytes as a line. It moves on past these bytes and past the line end after
// them, which has `end` bytes.
func (r *Reader) take(n, end int) []byte {
	line := r.buf[r.next : r.next+n]
	r.next += n + end
	r.line++
	return line
}

// fill moves the unread bytes to the front of the buffer and reads more bytes after them.
func (r *Reader) fill() error {
	copy(r.buf, r.buf[r.next:r.end])
	r.next, r.end = 0, r.end-r.next
	if r.end == len(r.buf) {
		if len(r.buf) >= longestRow {
			return fmt.Errorf("%s: line %d is longer than %d MiB, so this is not a text table; "+
				"name another file", r.path,
				r.line+1, longestRow>>20)
		}
		r.buf = append(r.buf, make([]byte, len(r.buf))...)
	}
	n, err := r.in.Read(r.buf[r.end:])
	more := r.buf[r.end : r.end+n]
	r.cr = r.cr || bytes.IndexByte(more, '\r') >= 0
	r.quote = r.quote || bytes.IndexByte(more, '"') >= 0
	r.setPlain()
	r.end += n
	switch {
	case err == nil:
		return nil
	case errors.Is(err, io.EOF):
		r.eof = true
		return nil
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%s: truncated after line %d; fetch the file again", r.path, r.line)
	}
	return fmt.Errorf("%s: damaged after line %d: %w; fetch the file again", r.path, r.line, err)
}

func (r *Reader) setPlain() {
	if r.plain = 0; !r.quote && (r.sep == Comma || r.sep == Semicolon || r.sep == Tab ||
		r.sep == Pipe) {
		r.plain = byte(r.sep)
	}
}

// Path returns the path of the file.
func (r *Reader) Path() string { return r.path }

// Apart returns a text for the report if several separators would have fitted the rows, and ""
// otherwise. The text says which one was taken.
func (r *Reader) Apart() string { return r.apart }

// Row returns the current row, without blanks at its ends. It is valid until Next.
func (r *Reader) Row() []byte { return r.row }

// Line returns the number of the line on which the current row begins, from 1.
func (r *Reader) Line() int { return r.begun }

// Errorf returns an error that names the file and the line of the current row.
func (r *Reader) Errorf(format string, args ...any) error {
	return fmt.Errorf("%s: line %d: %w", r.path, max(1, r.begun), fmt.Errorf(format, args...))
}

// Fields appends the fields of the current row to dst, and returns dst. The fields are views that
// are valid until Next, but quoted fields are copies.
func (r *Reader) Fields(dst [][]byte) [][]byte {
	for at := 0; at >= 0; {
		var f []byte
		if f, at = r.field(at); r.quote {
			f = bytes.Clone(f)
		}
		dst = append(dst, f)
	}
	return dst
}

// Words returns the fields of the current row of words. The slice is valid until the next call. It
// is an error if the row has another number of fields than the first row, a quote inside a field,
// or text that is not UTF-8.
func (r *Reader) Words() ([]string, error) {
	r.fields = r.fields[:0]
	if r.quote && bytes.IndexByte(r.row, '"') >= 0 {
		r.badQuote = false
		for at := 0; at >= 0; {
			var f []byte
			f, at = r.field(at)
			r.fields = append(r.fields, string(f))
		}
		if r.badQuote {
			return nil, r.Errorf("%w: a quote inside a field; quote the whole field, and write a "+
				"quote inside it twice", ErrValue)
		}
	} else {
		row, begin := string(r.row), 0
		for at := 0; at >= 0; begin = at {
			var f []byte
			if f, at = r.field(begin); len(f) == 0 {
				r.fields = append(r.fields, "")
				continue
			}
			// the offset of the field in the row is also its offset in the row's string
			from := cap(r.row) - cap(f)
			r.fields = append(r.fields, row[from:from+len(f)])
		}
	}
	if n := len(r.fields); r.width > 0 && n != r.width && !(r.ragged && n >= min(2, r.width)) {
		return nil, r.misfit(n)
	}
	if utf8.Valid(r.row) {
		return r.fields, nil
	}
	for i, f := range r.fields {
		if !utf8.ValidString(f) {
			return r.fields, r.Errorf("%w: %w; convert the file: iconv -f LATIN1 -t UTF-8",
				ErrValue, &notUTF8{i})
		}
	}
	return r.fields, nil
}

// notUTF8 is the error of Words about a field that is not UTF-8. It has the number of the field's
// column.
type notUTF8 struct{ column int }

func (e *notUTF8) Error() string { return fmt.Sprintf("column %d is not UTF-8", e.column+1) }

// misfit returns the error about a row that has n fields, which is the wrong number.
func (r *Reader) misfit(n int) error {
	cure := fmt.Sprintf("quote fields that hold %q", rune(r.sep))
	if r.sep == Space || r.sep == None {
		cure = "quote fields that hold blanks"
	}
	switch {
	case n == r.width+1 && r.fields[n-1] == "":
		cure = fmt.Sprintf("it ends with %q, and the first line does not; add one to the first "+
			"line, which makes a column without a name", rune(r.sep))
	case n > r.width && r.begun <= 3:
		cure += ", or, if the first line is a title, remove it, or, if it does not name all " +
			"columns, name all"
	}
	if marked(r.row) {
		cure = fmt.Sprintf("rows may begin with %q here: if it is a comment, remove it",
			rune(r.row[0]))
	}
	if r.sep == Comma && n > r.width && r.fields[n-1] != "" && decimalCommas(r.fields, n-r.width) {
		cure = "the numbers seem to have decimal commas; write a point in their place, or " +
			"separate the columns by semicolons"
	}
	return r.Errorf("%w: it does not have the %d columns of the first line, but %d; %s", ErrValue,
		r.width, n, cure)
}

// decimalCommas reports whether decimal commas may have caused the surplus fields of a row. The row
// has `many` surplus fields. It must have at least that number of pairs of whole numbers side by
// side, because a decimal comma splits a number into such a pair.
func decimalCommas(fields []string, many int) bool {
	for i := 0; i+1 < len(fields); i++ {
		_, left := ParseInt([]byte(fields[i]))
		_, right := ParseInt([]byte(fields[i+1]))
		if left && right && strings.Trim(fields[i+1], "0123456789") == "" {
			many--
			i++
		}
	}
	return many <= 0
}

// The method field returns unclosed in place of a position if the row ends inside quotes.
const unclosed = -2

// field returns the field that begins at the byte of the row with the index at, and where the next
// field begins. The result next is -1 if this was the last field.
func (r *Reader) field(at int) (f []byte, next int) {
	if r.plain == 0 {
		return r.anyField(at)
	}
	row, i, sep := r.row, at, r.plain
	for i < len(row) && row[i] != sep {
		i++
	}
	if f = row[at:i]; len(f) > 0 && (!graphic(f[0]) || !graphic(f[len(f)-1])) {
		f = bytes.TrimSpace(f)
	}
	if i == len(row) {
		return f, -1
	}
	return f, i + 1
}

// graphic reports whether a byte is a visible ASCII character, and so neither a blank nor one byte
// of a longer blank.
func graphic(c byte) bool { return c-'!' <= '~'-'!' }

// anyField does what field does, for any separator and for rows with quotes.
func (r *Reader) anyField(at int) (f []byte, next int) {
	row := r.row
	if r.quote && r.sep != None {
		if begin := at + leading(row[at:]); begin < len(row) && row[begin] == '"' {
			return r.quoted(begin)
		}
	}
	switch r.sep {
	case Blank, Space:
		i := at
		for i < len(row) && !r.isBlank(row[i]) {
			i++
		}
		f = row[at:i]
		if r.quote {
			r.badQuote = r.badQuote || bytes.IndexByte(f, '"') >= 0
		}
		for i < len(row) && r.isBlank(row[i]) {
			i++
		}
		if i == len(row) {
			return f, -1
		}
		return f, i
	case None:
		if n := len(row); r.quote && n > 1 && row[0] == '"' {
			one := Reader{sep: Comma, quote: true, row: row}
			if f, next = one.quoted(0); next == -1 && !one.badQuote {
				return f, -1
			}
		}
		return row[at:], -1
	}
	i, sep := at, byte(r.sep)
	for i < len(row) && row[i] != sep {
		i++
	}
	f = row[at:i]
	f = bytes.TrimSpace(f)
	if r.quote {
		r.badQuote = r.badQuote || bytes.IndexByte(f, '"') >= 0
	}
	if i == len(row) {
		return f, -1
	}
	return f, i + 1
}

// leading returns the number of blanks before a field.
func leading(row []byte) (n int) {
	for n < len(row) && row[n] == ' ' {
		n++
	}
	return n
}

// quoted does what field does, for a field that begins with a quote, whose byte has the index at,
// or -1 if the quote is on an earlier line.
func (r *Reader) quoted(at int) (f []byte, next int) {
	row := r.row
	r.cell = r.cell[:0]
	for at++; ; at++ {
		i := bytes.IndexByte(row[at:], '"')
		if i < 0 {
			return row[at:], unclosed
		}
		r.cell = append(r.cell, row[at:at+i]...)
		if at += i + 1; at == len(row) || row[at] != '"' {
			break
		}
		r.cell = append(r.cell, '"')
	}
	f = bytes.TrimSpace(r.cell)
	for at < len(row) && row[at] == ' ' {
		at++
	}
	switch {
	case at == len(row):
		return f, -1
	case r.sep == Blank || r.sep == Space:
		for at < len(row) && r.isBlank(row[at]) {
			at++
		}
		if at == len(row) {
			return f, -1
		}
		return f, at
	case row[at] == byte(r.sep):
		return f, at + 1
	}
	r.badQuote = true
	if i := bytes.IndexByte(row[at:], byte(r.sep)); i >= 0 {
		return f, at + i + 1
	}
	return f, -1
}

func (r *Reader) isBlank(c byte) bool {
	return c == ' ' || c == '\t' || r.sep == Blank && (c == ',' || c == ';')
}

// Columns returns the number of fields of the current row.
func (r *Reader) Columns() int {
	n := 0
	for at := 0; at >= 0; n++ {
		_, at = r.field(at)
	}
	return n
}

// Ints reads the current row, which must have exactly len(dst) fields, all of them integers.
func (r *Reader) Ints(dst []int64) error { return fields(r, dst, ParseInt, "an integer") }

// Floats reads the current row, which must have exactly len(dst) fields, all of them numbers; nan
// and inf are numbers too.
func (r *Reader) Floats(dst []float64) error { return fields(r, dst, ParseFloat, "a number") }

// fields reads the current row into dst. The row must have exactly len(dst) fields, and the
// function parse must accept each of them.
func fields[T any](r *Reader, dst []T, parse func([]byte) (T, bool), kind string) error {
	at := 0
	for i := range dst {
		if at < 0 {
			return r.columns(len(dst))
		}
		var f []byte
		f, at = r.field(at)
		x, ok := parse(f)
		if !ok {
			return r.Errorf("column %d: %.40q is not %s%s", i+1, f, kind, DecimalComma(string(f)))
		}
		dst[i] = x
	}
	if at >= 0 {
		return r.columns(len(dst))
	}
	return nil
}

func (r *Reader) columns(want int) error {
	return r.Errorf("%d columns, want %d", r.Columns(), want)
}

// DecimalComma returns a hint to add to the error about a text that is not a number, if the text
// would be one with a point in place of its comma, or without its commas. For any other text it
// returns "".
func DecimalComma(text string) string {
	whole, part, has := strings.Cut(text, ",")
	_, is := ParseFloat([]byte(whole + "." + part))
	switch {
	case !has:
		return ""
	case is && len(part) == 3 && whole != "0" && len(whole) <= 4:
		return ": it has a comma; write a point if it is a decimal comma, and leave it out if it " +
			"is between thousands"
	case is:
		return ": it has a decimal comma; write a point"
	case thousands(text):
		return ": it has commas between thousands; leave them out"
	}
	return ""
}

// thousands reports whether a text is a number with commas between thousands.
func thousands(text string) bool {
	if _, is := ParseFloat([]byte(strings.ReplaceAll(text, ",", ""))); !is {
		return false
	}
	groups := strings.Split(strings.TrimLeft(text, "+-"), ",")
	last, _, _ := strings.Cut(groups[len(groups)-1], ".")
	groups[len(groups)-1] = last
	for i, group := range groups {
		if n := len(group); n != 3 && (i > 0 || n < 1 || n > 3) ||
			strings.Trim(group, "0123456789") != "" {
			return false
		}
	}
	return len(groups) > 1
}
