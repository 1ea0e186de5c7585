package npy

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"halognn/src/base/mem"
)

// Reader reads the elements of one array piece by piece. The array is a .npy file or a member of an
// .npz archive.
type Reader struct {
	Header
	name string // name of the array in errors
	r    io.Reader
	size int
	left int // number of elements not read yet
	// Number of elements for which the file must have bytes, even if it is compressed. Memory for
	// these may be allocated before they are read.
	sure int
	raw  []byte
	stop func() error
}

// newReader reads the header of a .npy stream. The stream must be exactly total bytes long, header
// included. Errors call the stream by the given name.
func newReader(r io.Reader, name string, total int64) (*Reader, error) {
	h, begin, err := ReadHeader(r)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	size, err := h.checkSize(begin, total)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	n := h.Elems()
	return &Reader{Header: h, name: name, r: r, size: size, left: n, sure: n,
		stop: func() error { return nil }}, nil
}

// OpenReader opens a .npy file for reading piece by piece. Unlike Map it can convert element types,
// and takes no address space.
func OpenReader(path string) (*Reader, error) {
	f, err := mem.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	r, err := newReader(f, path, info.Size())
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	r.stop = f.Close
	return r, nil
}

// Close ends the stream.
func (r *Reader) Close() error { return r.stop() }

// Left returns the number of elements not read yet.
func (r *Reader) Left() int { return r.left }

// chunkBytes is the largest number of bytes that are converted at a time. It is small, so that
// these bytes stay in a fast cache of the processor.
const chunkBytes = 1 << 16

// Read fills dst with the next elements in stored order, converted to T, and returns their number.
// It returns fewer than len(dst) only at the end of the array, and io.EOF if no element is left.
// Read returns an error in three cases: an integer of the array is too large for T; T is an integer
// type and the array has a fraction or NaN; or the stream is truncated. If T is a floating-point
// type, numbers are rounded to T.
func Read[T Element](r *Reader, dst []T) (int, error) {
	if r.left == 0 && len(dst) > 0 {
		return 0, io.EOF
	}
	dst = dst[:min(len(dst), r.left)]
	for done := 0; done < len(dst); {
		n := min(max(1, chunkBytes/r.size), len(dst)-done)
		r.raw = slices.Grow(r.raw[:0], n*r.size)
		raw := r.raw[:n*r.size]
		if _, err := io.ReadFull(r.r, raw); err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				err = fmt.Errorf("%w: the file lacks %d of its %d elements", ErrTruncated, r.left,
					r.Elems())
			}
			return done, fmt.Errorf("%s: %w", r.name, err)
		}
		if err := convert(dst[done:done+n], raw, r.DType); err != nil {
			return done, fmt.Errorf("%s: near element %d: %w", r.name, r.Elems()-r.left, err)
		}
		done += n
		r.left -= n
	}
	if r.left == 0 { // reading an archive's member to its end checks its checksum
		if _, err := io.Copy(io.Discard, r.r); err != nil {
			return len(dst), fmt.Errorf("%s: at its end: %w", r.name, err)
		}
	}
	return len(dst), nil
}

func convert[T Element](dst []T, raw []byte, dtype string) error {
	if dtype == DType[T]() {
		copy(mem.Bytes(dst), raw)
		return nil
	}
	switch dtype[1:] {
	case "i1":
		return cast(dst, View[int8](raw))
	case "u1", "b1":
		return cast(dst, View[uint8](raw))
	case "i2":
		return cast(dst, View[int16](raw))
	case "u2":
		return cast(dst, View[uint16](raw))
	case "i4":
		return cast(dst, View[int32](raw))
	case "u4":
		return cast(dst, View[uint32](raw))
	case "i8":
		return cast(dst, View[int64](raw))
	case "u8":
		return cast(dst, View[uint64](raw))
	case "f4":
		return cast(dst, View[float32](raw))
	case "f8":
		return cast(dst, View[float64](raw))
	case "f2":
		half := View[Float16](raw)
		wide := make([]float32, len(half))
		for i, h := range half {
			wide[i] = h.Float32()
		}
		return convert(dst, mem.Bytes(wide), "<f4")
	}
	return fmt.Errorf("%w: cannot read %s as %s", ErrType, dtype, DType[T]())
}

// cast converts numbers. It returns an error if a converted number differs, except that conversions
// to floating point may round.
func cast[T, S Element](dst []T, src []S) error {
	if DType[T]() == "<f2" {
		for i, s := range src {
			dst[i] = T(ToFloat16(float32(s)))
		}
		return nil
	}
	isFloat := strings.Contains(DType[T](), "f")
	for i, s := range src {
		t := T(s)
		// The test of the range is needed because Go does not define the conversion of a float that
		// the integer type cannot hold.
		if !isFloat && (S(t) != s || (t < 0) != (s < 0) || math.Abs(float64(s)) >= 0x1p63) {
			return fmt.Errorf("%w: %v cannot be read as %s", ErrType, s, DType[T]())
		}
		dst[i] = t
	}
	return nil
}

// ReadAll reads the whole array as T and closes the reader. The result is in C order, even if the
// array is stored in Fortran order.
//
// Before reading it allocates memory only for the elements that the file must have. If there should
// be more, because an archive claims that few bytes inflate to many, memory grows as elements are
// read. So a false number of elements does not cost memory.
func ReadAll[T Element](r *Reader) ([]T, error) {
	defer r.Close()
	data := make([]T, min(r.left, max(r.sure, 1<<16)))
	done, err := Read(r, data)
	for err == nil && r.left > 0 {
		data = append(data, make([]T, min(r.left, len(data)))...)
		var n int
		n, err = Read(r, data[done:])
		done += n
	}
	if err != nil {
		return nil, err
	}
	if !r.Fortran || len(r.Shape) < 2 {
		return data, nil
	}
	if len(r.Shape) > 2 {
		return nil, fmt.Errorf("%s: %w: Fortran order with %d dimensions; save it again with "+
			"numpy.ascontiguousarray", r.name, ErrType, len(r.Shape))
	}
	rows, cols := r.Shape[0], r.Shape[1]
	byRow := make([]T, len(data))
	for j := range cols {
		for i := range rows {
			byRow[i*cols+j] = data[j*rows+i]
		}
	}
	return byRow, nil
}

// ReadText reads a whole array of byte strings ("|S3") or of UTF-32 strings ("<U3") in stored
// order, and closes the reader. Zeros at the end of a string are padding and are removed.
func ReadText(r *Reader) ([]string, error) {
	defer r.Close()
	if !r.IsText() {
		return nil, fmt.Errorf("%s: %w: found %s, expected strings", r.name, ErrType, r.DType)
	}
	words := make([]string, 0, min(r.left, r.sure))
	word := make([]byte, r.size)
	for range r.left {
		if _, err := io.ReadFull(r.r, word); err != nil {
			return nil, fmt.Errorf("%s: %w: %d of %d strings read",
				r.name, ErrTruncated, len(words), r.left)
		}
		words = append(words, decodeText(word, r.DType[1] == 'U'))
	}
	return words, nil
}

func decodeText(word []byte, wide bool) string {
	if !wide {
		return strings.TrimRight(string(word), "\x00")
	}
	var b strings.Builder
	for _, r := range View[uint32](word) {
		if r == 0 {
			break
		}
		b.WriteRune(rune(r)) // an invalid character becomes U+FFFD
	}
	return b.String()
}
