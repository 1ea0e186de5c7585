// Package mattest writes the MATLAB 5 files that package mat reads, so that tests of both the
// reader and the importer can make their own small files.
package mattest

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"math"
)

// Form says how a file is laid out.
type Form struct {
	Compress bool
	Order    binary.AppendByteOrder // nil means little-endian
}

// Matrix is one variable. Entries makes it sparse: they must come column by column. Otherwise
// Values, column-major, are stored as uint8 when all of them fit, else as doubles, the way MATLAB
// chooses.
type Matrix struct {
	Name       string
	Rows, Cols int
	Values     []float64
	Entries    []Entry
	Sparse     bool
}

// Entry is one stored entry of a sparse matrix.
type Entry struct {
	Row, Col int
	Value    float64
}

// File returns the content of a .mat file.
func File(form Form, matrices ...Matrix) []byte {
	if form.Order == nil {
		form.Order = binary.LittleEndian
	}
	b := append([]byte("MATLAB 5.0 MAT-file, written by a test"),
		bytes.Repeat([]byte(" "), 128)...)[:124]
	mark := uint16('M')<<8 | 'I'
	b = form.Order.AppendUint16(form.Order.AppendUint16(b, 0x0100), mark)
	for _, m := range matrices {
		e := form.element(m)
		if form.Compress {
			var z bytes.Buffer
			w := zlib.NewWriter(&z)
			_, _ = w.Write(e)
			_ = w.Close()
			b = append(form.tag(b, 15, z.Len()), z.Bytes()...)
		} else {
			b = append(b, e...)
		}
	}
	return b
}

func (f Form) element(m Matrix) []byte {
	var body []byte
	class := uint32(6)
	if m.Sparse {
		class = 5
	}
	body = f.part(body, 6, f.uint32s(class, uint32(len(m.Entries))))
	body = f.part(body, 5, f.uint32s(uint32(m.Rows), uint32(m.Cols)))
	body = f.part(body, 1, []byte(m.Name))
	if m.Sparse {
		ir, ends, values := []uint32{}, make([]uint32, m.Cols+1), []float64{}
		for _, e := range m.Entries {
			ir, values = append(ir, uint32(e.Row)), append(values, e.Value)
			ends[e.Col+1]++
		}
		for c := range m.Cols {
			ends[c+1] += ends[c]
		}
		body = f.part(body, 5, f.uint32s(ir...))
		body = f.part(body, 5, f.uint32s(ends...))
		body = f.numbers(body, values)
	} else {
		body = f.numbers(body, m.Values)
	}
	return append(f.tag(nil, 14, len(body)), body...)
}

func (f Form) numbers(b []byte, values []float64) []byte {
	var narrow, wide []byte
	fits := true
	for _, x := range values {
		fits = fits && x == float64(uint8(x))
		narrow = append(narrow, uint8(x))
		wide = f.Order.AppendUint64(wide, math.Float64bits(x))
	}
	if fits {
		return f.part(b, 2, narrow)
	}
	return f.part(b, 9, wide)
}

// part appends a tag and its data, padded; up to 4 bytes go inside the tag.
func (f Form) part(b []byte, typ uint32, data []byte) []byte {
	if n := len(data); n > 0 && n <= 4 {
		b = f.Order.AppendUint32(b, uint32(n)<<16|typ)
		return append(append(b, data...), make([]byte, 4-n)...)
	}
	b = append(f.tag(b, typ, len(data)), data...)
	return append(b, make([]byte, -len(data)&7)...)
}

func (f Form) tag(b []byte, typ uint32, size int) []byte {
	return f.Order.AppendUint32(f.Order.AppendUint32(b, typ), uint32(size))
}

func (f Form) uint32s(xs ...uint32) (b []byte) {
	for _, x := range xs {
		b = f.Order.AppendUint32(b, x)
	}
	return b
}
