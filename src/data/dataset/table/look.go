package table

import (
	"bytes"
	"fmt"
	"slices"
)

// look examines only the beginning of a file: at most sampleBytes bytes and sampleRows rows.
const (
	sampleBytes = 1 << 16
	sampleRows  = 50
)

// readSep reads a first line such as sep=; by which spreadsheets name the separator.
func (r *Reader) readSep() {
	line, _, _ := bytes.Cut(r.buf[r.next:r.end], []byte{'\n'})
	line, _, _ = bytes.Cut(line, []byte{'\r'})
	text := bytes.Trim(line, "\"")
	if r.sep != Auto || len(text) != 5 || !bytes.EqualFold(text[:4], []byte("sep=")) {
		return
	}
	switch sep := Separator(text[4]); sep {
	case Comma, Semicolon, Tab, Pipe:
		r.sep = sep
		_, _ = r.readLine()
	}
}

// look examines the first rows. It finds out which of them are comments, what the separator is if
// it is Auto, and how many fields a row has.
func (r *Reader) look() {
	rows := r.firstRows()
	if len(rows) == 0 { // the first quote is never closed
		line, _, _ := bytes.Cut(r.buf[r.next:r.end], []byte{'\n'})
		rows = append(rows, line)
	}
	n, all := 0, rows
	for n < len(rows) && noted(bytes.TrimSpace(rows[n])) {
		n++
	}
	// every line of the file begins with a mark and a blank
	if n == len(rows) && r.eof && n < sampleRows {
		r.heading = n
		return
	}
	head := n < len(rows) && !slices.ContainsFunc(rows[n:], noted)
	if head {
		rows = rows[n:]
	}
	if r.sep == Auto {
		r.sep = r.separator(rows)
	}
	defer func() {
		if head && r.width > 1 {
			r.heading = n
		}
		r.known(all, n)
	}()
	for i, row := range rows {
		if !marked(row) {
			if r.width = r.count(row, r.sep); r.width == 1 && i+1 < len(rows) {
				under := r.separator(rows[i+1:])
				if r.even(rows[i+1:], under) {
					r.under = r.count(rows[i+1], under)
				}
			}
			return
		}
	}
	for _, row := range rows { // every row begins with # or %, so these are part of the ids
		r.width = max(r.width, r.count(row, r.sep))
	}
}

// known sets r.remarks and r.numbers, which help to tell rows from comments. The first n of the
// given rows begin like comments. r.remarks is true if one of these n lines has another number of
// fields than a row, so that it surely is a comment. r.numbers is true if the first field of each
// row is a number. The first of all rows may be the names of the columns, so it does not count.
func (r *Reader) known(rows [][]byte, n int) {
	r.remarks = slices.ContainsFunc(rows[:n],
		func(row []byte) bool { return r.count(row, r.sep) != r.width })
	of := 0
	for _, row := range rows {
		if marked(row) {
			continue
		}
		one := Reader{sep: r.sep, quote: bytes.IndexByte(row, '"') >= 0}
		one.row = one.trim(row)
		f, _ := one.field(0)
		if of++; of > 1 && !isNumber(string(f)) {
			return
		}
	}
	r.numbers = of > 1
}

// firstRows returns the first rows that lie completely in the sample.
func (r *Reader) firstRows() (rows [][]byte) {
	head := r.buf[r.next:r.end]
	if len(head) > r.sample {
		head = head[:r.sample]
	}
	whole := r.eof && len(head) == r.end-r.next
	for begin, at, quotes := 0, 0, 0; at < len(head) && len(rows) < sampleRows; {
		i := bytes.IndexAny(head[at:], "\r\n")
		if i < 0 {
			if i = len(head) - at; !whole {
				break // the end of the sample cuts this row
			}
		}
		row := head[begin : at+i]
		quotes += bytes.Count(head[at:at+i], []byte{'"'})
		at += i + 1
		if quotes%2 != 0 && at < len(head) && !noted(row) {
			continue // the line ends inside quotes
		}
		quotes = 0
		if begin = at; len(bytes.TrimSpace(row)) > 0 {
			rows = append(rows, row)
		}
	}
	return rows
}

// separator returns the separator that gives all rows the number of fields of the first row. If
// several separators do, or none does, it prefers tabs to commas, and commas to semicolons; but it
// prefers semicolons if the commas are decimal commas. If the first row has no tab, comma or
// semicolon, fields are separated by blanks, or by | if only that fits.
func (r *Reader) separator(rows [][]byte) Separator {
	for i, row := range rows {
		if !marked(row) {
			rows = rows[i:]
			break
		}
	}
	if len(rows) == 0 {
		return Comma
	}
	var there, fit []Separator
	for _, sep := range []Separator{Tab, Semicolon, Comma} {
		if r.count(rows[0], sep) < 2 {
			continue
		}
		there = append(there, sep)
		if r.even(rows, sep) {
			fit = append(fit, sep)
		}
	}
	if len(fit) > 0 {
		sep := fit[0]
		if sep == Semicolon && len(fit) > 1 && !r.decimal(rows) {
			sep = Comma
		}
		if len(fit) > 1 {
			other := fit[0]
			if other == sep {
				other = fit[1]
			}
			r.apart = fmt.Sprintf("fields are separated by %q, although %q would fit too",
				rune(sep), rune(other))
		}
		return sep
	}
	switch {
	case len(there) == 0 && r.even(rows, Space) && r.count(rows[0], Space) > 1:
		return Space
	case !r.ragged && len(rows) > 1 && r.count(rows[0], Pipe) > 1 && r.even(rows, Pipe):
		return Pipe
	case len(there) == 0:
		return Comma
	// neither semicolons nor commas fit all rows, so it takes commas, which are more usual
	case len(there) > 1 && there[0] == Semicolon:
		return Comma
	}
	return there[0]
}

// decimal reports whether all commas between semicolons are decimal commas. The first row may be
// the names of columns, so it does not count.
func (r *Reader) decimal(rows [][]byte) bool {
	for _, row := range rows[min(1, len(rows)-1):] {
		one := Reader{sep: Semicolon, quote: bytes.IndexByte(row, '"') >= 0}
		one.row = one.trim(row)
		for _, f := range one.Fields(nil) {
			if bytes.IndexByte(f, ',') >= 0 && DecimalComma(string(f)) == "" {
				return false
			}
		}
	}
	return true
}

// even reports whether all rows have as many fields as the first row. If rows may differ (ragged),
// two fields are enough. A row that begins with # or % does not count, because it may be a comment.
func (r *Reader) even(rows [][]byte, sep Separator) bool {
	want := r.count(rows[0], sep)
	for _, row := range rows[1:] {
		n := r.count(row, sep)
		if n != want && !(r.ragged && n > 1) && !marked(row) {
			return false
		}
	}
	return true
}

// count returns how many fields a row has with the separator sep. It returns 1 if a quote ends
// anywhere but at the end of a field.
func (r *Reader) count(row []byte, sep Separator) int {
	one := Reader{sep: sep, quote: bytes.IndexByte(row, '"') >= 0}
	one.row = one.trim(row)
	if n := one.Columns(); !one.badQuote {
		return n
	}
	return 1
}
