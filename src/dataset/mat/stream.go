package mat

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/klauspost/compress/zlib"
)

// stream reads the parts of one matrix element, inflated.
type stream struct {
	r      io.Reader
	order  binary.ByteOrder
	inline []byte // unread data inside the last tag
	pad    int64  // bytes between the end of the part being read and the next tag
	most   int64  // no part can have more bytes
	buf    []byte
}

// The types that numbers are stored in, and their sizes.
const (
	miInt8, miUint8, miInt16, miUint16, miInt32, miUint32 = 1, 2, 3, 4, 5, 6
	miSingle, miDouble, miInt64, miUint64                 = 7, 9, 12, 13
)

var typeSize = map[uint32]int64{
	miInt8: 1, miUint8: 1, miInt16: 2, miUint16: 2, miInt32: 4, miUint32: 4, miSingle: 4,
	miDouble: 8, miInt64: 8, miUint64: 8,
}

var classNames = [...]string{1: "cell", 2: "struct", 3: "object", 4: "char", 5: "sparse",
	6: "double", 7: "single",
	8: "int8", 9: "uint8", 10: "int16", 11: "uint16", 12: "int32", 13: "uint32", 14: "int64",
	15: "uint64"}

// open starts reading the element and takes flags, dimensions and name from its head.
func (v *Variable) open() (*stream, error) {
	section := bufio.NewReaderSize(io.NewSectionReader(v.file.r, v.at, v.size), 1<<16)
	s := &stream{r: section, order: v.file.order, most: v.size, buf: make([]byte, 1<<16)}
	if v.compressed {
		z, err := zlib.NewReader(section)
		if err != nil {
			return nil, fmt.Errorf("%w: compressed element: %w", ErrFormat, err)
		}
		s.r, s.most = z, v.size*maxInflate
		if typ, _, err := s.tag(); err != nil || typ != typeMatrix {
			return nil, errors.Join(fmt.Errorf("%w: a compressed element that holds no matrix",
				ErrFormat), err)
		}
		s.pad = 0
	}
	return s, v.head(s)
}

func (v *Variable) head(s *stream) error {
	flags, err := s.small(8, miUint32)
	if err != nil {
		return err
	}
	if len(flags) != 8 {
		return fmt.Errorf("%w: array flags of %d bytes", ErrFormat, len(flags))
	}
	bits, class := s.order.Uint32(flags), int(s.order.Uint32(flags)&0xff)
	v.Sparse = class == classSparse
	v.class = "unknown class"
	if class > 0 && class < len(classNames) {
		v.class = classNames[class]
	}
	if class < classSparse || class >= len(classNames) {
		v.problem = "a " + v.class
	}
	if bits&0x0800 != 0 {
		v.problem = "complex"
	}
	dims, err := s.small(4*32, miInt32)
	if err != nil {
		return err
	}
	for i := 0; i+4 <= len(dims); i += 4 {
		n := int(int32(s.order.Uint32(dims[i:])))
		if n < 0 {
			return fmt.Errorf("%w: dimension %d is %d", ErrFormat, i/4+1, n)
		}
		switch i / 4 {
		case 0:
			v.Rows = n
		case 1:
			v.Cols = n
		default:
			v.problem = "an array of more than two dimensions"
		}
	}
	if len(dims) < 8 {
		v.problem = "without dimensions"
	}
	if v.Sparse && int64(v.Cols) > s.most/4 { // each column has an offset
		return fmt.Errorf("%w: a sparse matrix of %d columns in an element that holds at most %d "+
			"bytes", ErrFormat, v.Cols, s.most)
	}
	name, err := s.small(256, miInt8, miUint8)
	v.Name = string(name)
	return err
}

// read fills b and reports a premature end as an error of the format.
func (s *stream) read(b []byte) error {
	n := copy(b, s.inline)
	s.inline = s.inline[n:]
	if _, err := io.ReadFull(s.r, b[n:]); err != nil {
		return fmt.Errorf("%w: its data end early or are damaged (%w); fetch it again", ErrFormat,
			err)
	}
	return nil
}

// tag skips the padding of the previous part and reads the next tag: type, and bytes of data that
// follow.
func (s *stream) tag() (typ uint32, size int64, err error) {
	var b [8]byte
	if err := s.read(b[:s.pad]); err != nil {
		return 0, 0, err
	}
	if err := s.read(b[:]); err != nil {
		return 0, 0, err
	}
	typ, size = s.order.Uint32(b[:]), int64(s.order.Uint32(b[4:]))
	if typ>>16 != 0 { // small data element: the upper half is the size, the data lie inside the tag
		typ, size = typ&0xffff, int64(typ>>16)
		if size > 4 {
			return 0, 0, fmt.Errorf("%w: a small data element of %d bytes", ErrFormat, size)
		}
		s.inline, s.pad = b[4:4+size:4+size], 0
		return typ, size, nil
	}
	if size > s.most {
		return 0, 0, fmt.Errorf("%w: a part of %d bytes in an element that holds at most %d",
			ErrFormat, size, s.most)
	}
	s.pad = -size & 7
	return typ, size, nil
}

// small reads a whole part of at most most bytes and one of the given types.
func (s *stream) small(most int64, types ...uint32) ([]byte, error) {
	typ, size, err := s.tag()
	if err != nil {
		return nil, err
	}
	if !slices.Contains(types, typ) || size > most {
		return nil, fmt.Errorf("%w: a part of type %d and %d bytes in the head of a matrix",
			ErrFormat, typ, size)
	}
	b := make([]byte, size)
	return b, s.read(b)
}

// numbers reads the tag of a part that holds numbers, of one of the given types or any: their type
// and count.
func (s *stream) numbers(types ...uint32) (typ uint32, count int64, err error) {
	typ, size, err := s.tag()
	if err != nil {
		return 0, 0, err
	}
	width := typeSize[typ]
	if width == 0 || size%width != 0 || (len(types) > 0 && !slices.Contains(types, typ)) {
		return 0, 0, fmt.Errorf("%w: a part of type %d and %d bytes where numbers belong",
			ErrFormat, typ, size)
	}
	return typ, size / width, nil
}

// each calls f for the next n numbers of a type.
func (s *stream) each(typ uint32, n int64, f func(float64) error) error {
	width := typeSize[typ]
	for n > 0 {
		chunk := min(n, int64(len(s.buf))/width)
		b := s.buf[:chunk*width]
		if err := s.read(b); err != nil {
			return err
		}
		for ; len(b) > 0; b = b[width:] {
			if err := f(s.number(typ, b)); err != nil {
				return err
			}
		}
		n -= chunk
	}
	return nil
}

func (s *stream) number(typ uint32, b []byte) float64 {
	switch typ {
	case miInt8:
		return float64(int8(b[0]))
	case miUint8:
		return float64(b[0])
	case miInt16:
		return float64(int16(s.order.Uint16(b)))
	case miUint16:
		return float64(s.order.Uint16(b))
	case miInt32:
		return float64(int32(s.order.Uint32(b)))
	case miUint32:
		return float64(s.order.Uint32(b))
	case miSingle:
		return float64(math.Float32frombits(s.order.Uint32(b)))
	case miInt64:
		return float64(int64(s.order.Uint64(b)))
	case miUint64:
		return float64(s.order.Uint64(b))
	default: // miDouble; numbers let no other type pass
		return math.Float64frombits(s.order.Uint64(b))
	}
}

// finish reads to the end of the element, where zlib verifies its checksum.
func (s *stream) finish() error {
	n, err := io.Copy(io.Discard, io.LimitReader(s.r, 64))
	if err != nil {
		return fmt.Errorf("%w: at its end: %w", ErrFormat, err)
	}
	if n == 64 {
		return fmt.Errorf("%w: more data than its dimensions need", ErrFormat)
	}
	return nil
}
