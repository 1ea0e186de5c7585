// Package npy reads and writes NumPy arrays: .npy files (versions 1 to 3), mapped without copying
// or streamed, and the members of .npz archives.
//
//	"\x93NUMPY" | 1 0 | header bytes | {'descr': '<f4', ..., 'shape': (3, 2), }  \n | elements
//	└── padded with blanks so that the elements begin at a multiple of 64 ──────────┘
//
//	Map[float32](path, -1, 100)  file ──> page cache ──> []float32    no copy
//	Create(path, "<f4", 3, 2)    rows ──> path.tmp, XXH64 ──> path     whole or not at all
//	OpenZip(path)                member ──> Reader ──> converted to the type asked for
//
// Elements are little-endian numbers in C order. For other elements (big-endian, Python objects)
// the error says how to save them again. The package has its own code for headers. Published Go
// packages panic on damaged headers, and pad headers so that elements are not aligned and cannot be
// mapped.
package npy

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"unsafe"
)

// Element lists the element types of arrays. Float16 is stored as "<f2".
type Element interface {
	~int8 | ~uint8 | ~int16 | ~uint16 | ~int32 | ~uint32 | ~int64 | ~uint64 | ~float32 | ~float64
}

// Every error about the content of a file wraps one of these errors.
var (
	ErrFormat    = errors.New("not a NumPy array file")
	ErrTruncated = errors.New("truncated")
	ErrType      = errors.New("wrong element type or shape")
)

// DType returns the NumPy name of T, such as "<f4" or "|u1".
func DType[T Element]() string {
	var zero T
	if _, ok := any(zero).(Float16); ok {
		return "<f2"
	}
	return dtypeOf[reflect.TypeOf(zero).Kind()]
}

var dtypeOf = map[reflect.Kind]string{
	reflect.Int8: "|i1", reflect.Uint8: "|u1", reflect.Int16: "<i2", reflect.Uint16: "<u2",
	reflect.Int32:  "<i4",
	reflect.Uint32: "<u4", reflect.Int64: "<i8", reflect.Uint64: "<u8", reflect.Float32: "<f4",
	reflect.Float64: "<f8",
}

// longestElement is the length of the longest strings that are read. Strings of length 0 are not
// read, because a short file could then claim any number of elements.
const longestElement = 1 << 16

// dtypeSize returns the bytes of one element of a NumPy type, or an error that says why the type is
// unsupported.
func dtypeSize(dtype string) (int, error) {
	if len(dtype) < 2 {
		return 0, fmt.Errorf("element type %q is unknown", dtype)
	}
	if dtype[1] == 'O' {
		return 0, errors.New("it holds Python objects; save it again as an array of numbers, or " +
			"of strings: a.astype(str)")
	}
	n, err := strconv.Atoi(dtype[2:])
	if err != nil || n < 1 || n > longestElement {
		return 0, fmt.Errorf("element type %q is not a plain type", dtype)
	}
	if dtype[0] == '>' {
		return 0, fmt.Errorf("element type %q is big-endian; save it again with "+
			"x.astype(x.dtype.newbyteorder('<'))", dtype)
	}
	switch dtype[1] {
	case 'U':
		n *= 4
	case 'S', 'i', 'u', 'f', 'b':
	default:
		return 0, fmt.Errorf("element type %q is not a type of numbers", dtype)
	}
	return n, nil
}

// Header is the header of a .npy file.
type Header struct {
	DType   string // NumPy's name: "<f4", "|u1", "|S3", ...
	Fortran bool   // column-major order
	Shape   []int  // empty for a scalar
}

// IsText reports whether the elements are strings.
func (h Header) IsText() bool {
	return len(h.DType) > 2 && (h.DType[1] == 'S' || h.DType[1] == 'U')
}

// Elems returns the number of elements, the product of Shape.
func (h Header) Elems() int {
	n := 1
	for _, d := range h.Shape {
		n *= d
	}
	return n
}

// Check returns an error unless the array has the given element type and shape. In shape, -1 stands
// for any extent; without a shape, any shape is accepted. The error names what was expected and
// what was found.
func (h Header) Check(dtype string, shape ...int) error {
	fits := h.DType == dtype && (shape == nil || len(shape) == len(h.Shape))
	for i := 0; fits && i < len(shape); i++ {
		fits = shape[i] < 0 || shape[i] == h.Shape[i]
	}
	if fits {
		return nil
	}
	return fmt.Errorf("%w: found %s %s, expected %s %s", ErrType, h.DType, ShapeString(h.Shape),
		dtype, ShapeString(shape))
}

// ShapeString returns a shape as text, such as "[3 2]". An unknown extent is "?", and a nil shape
// is "of any shape".
func ShapeString(shape []int) string {
	if shape == nil {
		return "of any shape"
	}
	s := make([]string, len(shape))
	for i, d := range shape {
		s[i] = "?"
		if d >= 0 {
			s[i] = strconv.Itoa(d)
		}
	}
	return "[" + strings.Join(s, " ") + "]"
}

// View returns bytes as elements of type T, without copying. It is the inverse of mem.Bytes. The
// argument b must be aligned for T.
func View[T Element](b []byte) []T {
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))),
		len(b)/int(unsafe.Sizeof(*new(T))))
}
