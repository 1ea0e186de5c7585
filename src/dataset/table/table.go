// Package table reads rows of numbers from text files of any size, plain or gzip: the CSV files of
// OGB, and SNAP edge lists.
//
//	"847,2057\r\n" ── Next ──> a row ── Ints(dst [2]) ──> 847, 2057
//	                                 ── Floats(dst)        Fields()
//
// One buffer holds the current row, for files of any length. Blank lines, comment lines, CR before
// LF, a byte order mark and blanks around a field are skipped. Every error names file and line.
// encoding/csv makes a string of each record, and a slice of strings for its fields, before strconv
// reads a number; this package parses bytes where they lie.
package table

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/klauspost/compress/gzip"

	"halognn/src/mem"
)

// longestRow limits the buffer: a file without line ends is not a table.
const longestRow = 1 << 28

// Separator says how the fields of a row are separated.
type Separator byte

// The separators that the formats use.
const (
	Comma Separator = ',' // exactly one comma; an empty field is not a number
	Blank Separator = ' ' // any run of blanks, tabs and commas
)

// Reader reads a file row by row.
type Reader struct {
	path      string
	sep       Separator
	file      *os.File
	in        io.Reader
	buf       []byte
	next, end int // the unread bytes of buf
	eof       bool
	row       []byte
	line      int
}

// Open opens a text file; a file that begins with the gzip magic is inflated, under any name.
func Open(path string, sep Separator) (*Reader, error) {
	f, err := mem.Open(path)
	if err != nil {
		return nil, err
	}
	r := &Reader{path: path, sep: sep, file: f, in: f, buf: make([]byte, 1<<18)}
	if err := r.detect(); err != nil {
		_ = f.Close()
		return nil, err
	}
	return r, nil
}

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
	if bytes.HasPrefix(r.buf[:r.end], []byte("\xef\xbb\xbf")) {
		r.next = 3
	}
	return nil
}

// Close closes the file.
func (r *Reader) Close() error { return r.file.Close() }

// Next goes to the next row, past blank lines and lines that begin with # or %; false means the
// end. A file that ends early, or whose checksum is wrong, is an error.
func (r *Reader) Next() (bool, error) {
	for {
		line, err := r.readLine()
		if err != nil || line == nil {
			return false, err
		}
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' && line[0] != '%' {
			r.row = line
			return true, nil
		}
	}
}

// readLine returns the next line without its end, nil at the end of the file.
func (r *Reader) readLine() ([]byte, error) {
	for {
		if i := bytes.IndexByte(r.buf[r.next:r.end], '\n'); i >= 0 {
			line := r.buf[r.next : r.next+i]
			r.next += i + 1
			r.line++
			return line, nil
		}
		if r.eof {
			if r.next == r.end {
				return nil, nil
			}
			line := r.buf[r.next:r.end]
			r.next = r.end
			r.line++
			return line, nil
		}
		if err := r.fill(); err != nil {
			return nil, err
		}
	}
}

// fill moves the unread bytes to the front of the buffer and reads more after them.
func (r *Reader) fill() error {
	copy(r.buf, r.buf[r.next:r.end])
	r.next, r.end = 0, r.end-r.next
	if r.end == len(r.buf) {
		if len(r.buf) >= longestRow {
			return fmt.Errorf("%s: line %d is longer than %d MiB; want a text table", r.path,
				r.line+1, longestRow>>20)
		}
		r.buf = append(r.buf, make([]byte, len(r.buf))...)
	}
	n, err := r.in.Read(r.buf[r.end:])
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

// Row returns the current row, without blanks at its ends. It is valid until Next.
func (r *Reader) Row() []byte { return r.row }

// Line returns the line number of the current row, from 1.
func (r *Reader) Line() int { return r.line }

// Errorf makes an error about the current row, which names file and line.
func (r *Reader) Errorf(format string, args ...any) error {
	return fmt.Errorf("%s: line %d: %w", r.path, r.line, fmt.Errorf(format, args...))
}

// Fields appends the fields of the current row to dst, as views valid until Next, and returns it.
func (r *Reader) Fields(dst [][]byte) [][]byte {
	for at := 0; at >= 0; {
		var f []byte
		f, at = r.field(at)
		dst = append(dst, f)
	}
	return dst
}

// field returns the field that begins at byte at of the row, and where the next one begins, -1 if
// it was the last.
func (r *Reader) field(at int) (f []byte, next int) {
	row := r.row
	if r.sep == Comma {
		i := at
		for i < len(row) && row[i] != ',' {
			i++
		}
		f = row[at:i]
		if len(f) > 0 && (f[0] <= ' ' || f[len(f)-1] <= ' ') {
			f = bytes.TrimSpace(f)
		}
		if i == len(row) {
			return f, -1
		}
		return f, i + 1
	}
	i := at
	for i < len(row) && !isBlank(row[i]) {
		i++
	}
	f = row[at:i]
	for i < len(row) && isBlank(row[i]) {
		i++
	}
	if i == len(row) {
		return f, -1
	}
	return f, i
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' || c == ',' }

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

// fields reads the current row, which must have exactly len(dst) fields, each accepted by parse.
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
			return r.Errorf("column %d: %.40q is not %s", i+1, f, kind)
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
