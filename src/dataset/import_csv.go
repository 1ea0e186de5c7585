package dataset

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/klauspost/compress/gzip"

	"halognn/src/dataset/table"
	"halognn/src/mem"
)

// csvTable is a text table with named columns, plain or gzip: fields separated by commas, tabs or
// semicolons, and quoted if they contain one. Its rows are read with package csv, because ids and
// labels are words; package table reads tables of numbers.
type csvTable struct {
	path   string
	header []string
	named  bool // the first row names the columns; otherwise they are called 0, 1, ...
	file   *os.File
	r      *csv.Reader
	first  []string // the first row, if it does not name the columns
}

// openTable opens a table and reads the names of its columns.
func openTable(path string, noHeader bool) (*csvTable, error) {
	f, err := mem.Open(path)
	if err != nil {
		return nil, err
	}
	t := &csvTable{path: path, file: f}
	if err := t.begin(noHeader); err != nil {
		_ = f.Close()
		return nil, err
	}
	return t, nil
}

func (t *csvTable) close() { _ = t.file.Close() }

func (t *csvTable) begin(noHeader bool) error {
	in := bufio.NewReaderSize(t.file, 1<<18)
	if head, _ := in.Peek(2); bytes.Equal(head, []byte{0x1f, 0x8b}) {
		z, err := gzip.NewReader(in)
		if err != nil {
			return fmt.Errorf("%s: damaged gzip header: %w; fetch the file again", t.path, err)
		}
		in = bufio.NewReaderSize(z, 1<<18)
	}
	head, err := in.Peek(1 << 16)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: %w; fetch the file again", t.path, err)
	}
	switch {
	case bytes.HasPrefix(head, []byte("\xff\xfe")), bytes.HasPrefix(head, []byte("\xfe\xff")):
		return fmt.Errorf("%s: %w: UTF-16 text; convert it: iconv -f UTF-16 -t UTF-8", t.path,
			ErrValue)
	case bytes.IndexByte(head, 0) >= 0:
		return fmt.Errorf("%s: %w: it is not a text table: it holds zero bytes", t.path, ErrValue)
	case bytes.HasPrefix(head, []byte("\xef\xbb\xbf")):
		head = head[3:]
		_, _ = in.Discard(3)
	}
	line, _, _ := bytes.Cut(head, []byte("\n"))
	if len(bytes.TrimSpace(line)) == 0 {
		return fmt.Errorf("%s: %w: the first line is empty; want a table with column names", t.path,
			ErrValue)
	}
	t.r = csv.NewReader(in)
	t.r.Comma = separator(line)
	t.r.ReuseRecord = true
	row, err := t.r.Read()
	if err != nil {
		return t.fault(err)
	}
	t.header = slices.Clone(row)
	t.named = !noHeader && !allNumbers(row)
	for i := range t.header {
		t.header[i] = strings.TrimSpace(t.header[i])
		if !t.named {
			t.header[i] = strconv.Itoa(i)
		}
	}
	if !t.named {
		t.first = slices.Clone(row)
		return nil
	}
	for i, name := range t.header {
		if slices.Contains(t.header[:i], name) {
			return fmt.Errorf("%s: line 1: %w: two columns are called %q; rename one", t.path,
				ErrValue, name)
		}
	}
	return nil
}

// separator returns the separator of the first line.
func separator(line []byte) rune {
	for _, c := range []byte{'\t', ',', ';'} {
		if bytes.IndexByte(line, c) >= 0 {
			return rune(c)
		}
	}
	return ','
}

func allNumbers(row []string) bool {
	for _, f := range row {
		if _, ok := table.ParseFloat([]byte(strings.TrimSpace(f))); !ok {
			return false
		}
	}
	return true
}

// next returns the next row with blanks round its fields cut off, nil at the end. It is valid until
// the next call.
func (t *csvTable) next() ([]string, error) {
	row := t.first
	if t.first = nil; row == nil {
		var err error
		if row, err = t.r.Read(); errors.Is(err, io.EOF) {
			return nil, nil
		} else if err != nil {
			return nil, t.fault(err)
		}
	}
	for i, f := range row {
		row[i] = strings.TrimSpace(f)
		if !utf8.ValidString(f) {
			return nil, t.errorf("%w: column %s is not UTF-8; convert the file: iconv -f LATIN1 "+
				"-t UTF-8", ErrValue, t.header[i])
		}
	}
	return row, nil
}

// fault converts an error of package csv to one about the row.
func (t *csvTable) fault(err error) error {
	var p *csv.ParseError
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%s: truncated; fetch the file again", t.path)
	case !errors.As(err, &p):
		return fmt.Errorf("%s: %w; fetch the file again", t.path, err)
	case errors.Is(p.Err, csv.ErrFieldCount):
		return fmt.Errorf("%s: line %d: %w: it does not have the %d columns of the first line; "+
			"quote fields that hold %q", t.path, p.Line, ErrValue, len(t.header), t.r.Comma)
	}
	return fmt.Errorf("%s: line %d: %w: %w; write a quote inside a quoted field twice",
		t.path, p.Line, ErrValue, p.Err)
}

// errorf makes an error about the current row.
func (t *csvTable) errorf(format string, args ...any) error {
	line := 1
	if t.r.InputOffset() > 0 {
		line, _ = t.r.FieldPos(0)
	}
	return fmt.Errorf("%s: line %d: %w", t.path, line, fmt.Errorf(format, args...))
}

// column returns the index of the requested column of t, or else of the first usual name that exists
// and is not left out, or -1.
func (s *source) column(t *csvTable, asked, flag string, usual ...string) (int, error) {
	if asked != "" {
		i := slices.Index(t.header, asked)
		if i < 0 {
			return 0, fmt.Errorf("%s: %w: there is no column %q, which %s names; the columns are "+
				"%s", t.path, ErrValue, asked, flag, strings.Join(t.header, ", "))
		}
		return i, nil
	}
	for _, name := range usual {
		same := func(h string) bool {
			return strings.EqualFold(h, name) && !slices.Contains(s.options.Ignore, h)
		}
		if i := slices.IndexFunc(t.header, same); i >= 0 {
			return i, nil
		}
	}
	return -1, nil
}
