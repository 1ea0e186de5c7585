// Package mat reads numeric and sparse matrices from MATLAB 5 files (.mat, versions 5 to 7), where
// graph collections such as Facebook100 and BlogCatalog keep an adjacency matrix, attributes and
// labels.
//
//	header 128 bytes | element | element | ...
//	element:  type 14 (matrix) or 15 (zlib-compressed matrix), size
//	matrix:   flags | dimensions | name | numbers                               dense, column-major
//	          flags | dimensions | name | ir [nnz] | jc [cols+1] | numbers [nnz]   sparse by columns
//
// Every part has a tag (type, size) of 8 bytes; data of up to 4 bytes may be inside the tag.
// Numbers are stored in the smallest type that holds them, whatever the class of the matrix.
// Complex matrices, cells, structs and text are listed but not read. Source: "MAT-File Format", The
// MathWorks, level 5.
package mat

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"halognn/src/mem"
)

// ErrFormat is wrapped by every error about the content of a file.
var ErrFormat = errors.New("not usable as a MATLAB 5 file")

const (
	headerBytes    = 128
	typeMatrix     = 14
	typeCompressed = 15
	classSparse    = 5
	// maxInflate is the most bytes that deflate can make of one: sizes that claim more are damaged.
	maxInflate = 1032
)

// File lists the variables of an open .mat file.
type File struct {
	Variables []Variable
	path      string
	r         io.ReaderAt
	size      int64
	order     binary.ByteOrder
	stop      func() error
}

// Variable is one matrix of a file.
type Variable struct {
	Name       string
	Rows, Cols int
	Sparse     bool
	class      string // type of the content, for messages
	problem    string // reason why it cannot be read, "" if it can be
	file       *File
	at, size   int64 // position of the element's data
	compressed bool
}

// Open reads the header and the head of every variable. Compressed variables are inflated only as
// far as needed.
func Open(path string) (*File, error) {
	f, err := mem.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	m, err := NewFile(f, info.Size(), path)
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	m.stop = f.Close
	return m, nil
}

// NewFile is Open for size bytes of a reader; errors call them name.
func NewFile(r io.ReaderAt, size int64, name string) (*File, error) {
	m := &File{path: name, r: r, size: size, stop: func() error { return nil }}
	if err := m.scan(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return m, nil
}

// Close closes the file.
func (m *File) Close() error { return m.stop() }

// Lookup returns the variable of that name, ignoring case, nil if there is none.
func (m *File) Lookup(name string) *Variable {
	for i := range m.Variables {
		if strings.EqualFold(m.Variables[i].Name, name) {
			return &m.Variables[i]
		}
	}
	return nil
}

func (m *File) scan() error {
	var head [headerBytes]byte
	if _, err := m.r.ReadAt(head[:], 0); err != nil {
		return fmt.Errorf("%w: it is shorter than the header of %d bytes", ErrFormat, headerBytes)
	}
	switch string(head[126:]) {
	case "IM":
		m.order = binary.LittleEndian
	case "MI":
		m.order = binary.BigEndian
	default:
		return fmt.Errorf("%w: no byte order mark at byte 126; want a file written by MATLAB's "+
			"save -v7 or scipy.io.savemat", ErrFormat)
	}
	if v := m.order.Uint16(head[124:]); v != 0x0100 {
		return fmt.Errorf("%w: version 0x%04x (0x0200 is MATLAB 7.3, which is HDF5); save it "+
			"again with save -v7", ErrFormat, v)
	}
	for at := int64(headerBytes); at < m.size; {
		var tag [8]byte
		if _, err := m.r.ReadAt(tag[:], at); err != nil {
			return fmt.Errorf("%w: byte %d: truncated in the tag of an element; fetch it again",
				ErrFormat, at)
		}
		typ, size := m.order.Uint32(tag[:]), int64(m.order.Uint32(tag[4:]))
		if at+8+size > m.size {
			return fmt.Errorf("%w: byte %d: truncated: an element of %d bytes with %d left; "+
				"fetch it again", ErrFormat, at, size, m.size-at-8)
		}
		if typ == typeMatrix || typ == typeCompressed {
			v := Variable{file: m, at: at + 8, size: size, compressed: typ == typeCompressed}
			if _, err := v.open(); err != nil {
				return fmt.Errorf("byte %d: %w", at, err)
			}
			m.Variables = append(m.Variables, v)
		}
		at += 8 + size
	}
	return nil
}

// String describes the variable, for messages: "Network (sparse 5196 x 5196)".
func (v *Variable) String() string {
	return fmt.Sprintf("%s (%s %d x %d)", v.Name, v.class, v.Rows, v.Cols)
}

func (v *Variable) wrap(err error) error {
	return fmt.Errorf("%s: variable %s at byte %d: %w", v.file.path, v, v.at-8, err)
}

// Dense returns a dense matrix as float64, column-major: element (r, c) is at c*Rows+r.
func (v *Variable) Dense() ([]float64, error) {
	s, err := v.begin(false)
	if err != nil {
		return nil, v.wrap(err)
	}
	n := int64(v.Rows) * int64(v.Cols)
	typ, count, err := s.numbers()
	if err == nil && count != n {
		err = fmt.Errorf("%w: %d numbers stored", ErrFormat, count)
	}
	if err != nil {
		return nil, v.wrap(err)
	}
	out := make([]float64, 0, min(n, 1<<20)) // grows as data are read: sizes may be false
	err = s.each(typ, n, func(x float64) error {
		out = append(out, x)
		return nil
	})
	if err == nil {
		err = s.finish()
	}
	if err != nil {
		return nil, v.wrap(err)
	}
	return out, nil
}

// Entries calls visit for every stored entry of a sparse matrix, column by column, rows ascending
// as stored. It holds 4 bytes an entry and 8 a column while it runs. An error of visit ends it.
func (v *Variable) Entries(visit func(row, col int32, value float64) error) error {
	s, err := v.begin(true)
	if err != nil {
		return v.wrap(err)
	}
	if err := v.entries(s, visit); err != nil {
		return v.wrap(err)
	}
	return nil
}

func (v *Variable) entries(s *stream, visit func(row, col int32, value float64) error) error {
	typ, stored, err := s.numbers(miInt32, miUint32)
	if err != nil {
		return err
	}
	rows := mem.Make[int32](int(min(stored, 1<<16))) // grows as data are read: sizes may be false
	defer func() { mem.Free(rows) }()
	i := 0
	if err := s.each(typ, stored, func(x float64) error {
		if !(x >= 0 && x < float64(v.Rows)) {
			return fmt.Errorf("%w: entry %d lies in row %g", ErrFormat, i, x)
		}
		if i == len(rows) {
			rows = mem.Grow(rows, int(min(stored, 2*int64(i))))
		}
		rows[i] = int32(x)
		i++
		return nil
	}); err != nil {
		return err
	}
	ends, err := v.columns(s, stored)
	if err != nil {
		return err
	}
	used := ends[v.Cols] // the file may reserve more entries than it uses
	typ, count, err := s.numbers()
	if err != nil {
		return err
	}
	if count < used {
		return fmt.Errorf("%w: %d values for %d entries", ErrFormat, count, used)
	}
	e, col := int64(0), 0
	if err := s.each(typ, used, func(x float64) error {
		for ends[col+1] <= e {
			col++
		}
		e++
		return visit(rows[e-1], int32(col), x)
	}); err != nil {
		return err
	}
	if err := s.each(typ, count-used, func(float64) error { return nil }); err != nil {
		return err
	}
	return s.finish()
}

// columns reads jc: the entries of column c are ends[c]:ends[c+1].
func (v *Variable) columns(s *stream, stored int64) (ends []int64, err error) {
	typ, count, err := s.numbers(miInt32, miUint32)
	if err != nil {
		return nil, err
	}
	if count != int64(v.Cols)+1 {
		return nil, fmt.Errorf("%w: %d column offsets", ErrFormat, count)
	}
	return ends, s.each(typ, count, func(x float64) error {
		i := len(ends)
		if !(x >= 0 && x <= float64(stored)) || (i == 0 && x != 0) ||
			(i > 0 && int64(x) < ends[i-1]) {
			return fmt.Errorf("%w: column offset %d is %g, with %d entries stored", ErrFormat, i, x,
				stored)
		}
		ends = append(ends, int64(x))
		return nil
	})
}

// begin opens the variable and skips its head, ready to read numbers.
func (v *Variable) begin(sparse bool) (*stream, error) {
	switch {
	case v.problem != "":
		return nil, fmt.Errorf("%w: it is %s; want a real numeric matrix", ErrFormat, v.problem)
	case sparse != v.Sparse:
		return nil, fmt.Errorf("%w: it is %s", ErrFormat, v.class)
	}
	return v.open()
}
