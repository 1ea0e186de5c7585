package npy

import (
	"encoding/binary"
	"fmt"
	"io"
	"math/bits"
	"regexp"
	"strconv"
	"strings"
)

const (
	magic = "\x93NUMPY"
	// Elements begin at a multiple of headerAlign bytes, as in files that NumPy writes. That is the
	// length of a cache line, so elements of any type are aligned and can be used directly in a
	// mapped file.
	headerAlign = 64
	// headerBytes is the size of the shortest header that is written. It has room to replace the
	// number of rows later by any other.
	headerBytes = 128
	// headerLimit is the largest header that is read, so that a damaged length cannot make the
	// reader allocate gigabytes.
	headerLimit = 1 << 20
)

// The three keys of a header. They may come in any order, with any spacing. Python 2 wrote shapes
// with an L after each number.
var (
	descrKey   = regexp.MustCompile(`['"]descr['"]\s*:\s*['"]([^'"]*)['"]`)
	fortranKey = regexp.MustCompile(`['"]fortran_order['"]\s*:\s*(True|False)`)
	shapeKey   = regexp.MustCompile(`['"]shape['"]\s*:\s*\(([^)]*)\)`)
)

// ReadHeader reads the header of a .npy stream. It also returns the number of bytes before the
// elements.
func ReadHeader(r io.Reader) (Header, int, error) {
	var fixed [12]byte
	if _, err := io.ReadFull(r, fixed[:10]); err != nil {
		return Header{}, 0, fmt.Errorf("%w: the header needs at least 10 bytes", ErrFormat)
	}
	if string(fixed[:6]) != magic {
		return Header{}, 0, fmt.Errorf("%w: it does not begin with \\x93NUMPY", ErrFormat)
	}
	begin, length := 10, int(binary.LittleEndian.Uint16(fixed[8:]))
	switch major := fixed[6]; major {
	case 1:
	case 2, 3:
		if _, err := io.ReadFull(r, fixed[10:]); err != nil {
			return Header{}, 0, fmt.Errorf("%w in its header", ErrTruncated)
		}
		begin, length = 12, int(binary.LittleEndian.Uint32(fixed[8:]))
	default:
		return Header{}, 0, fmt.Errorf("%w: format version %d is unknown", ErrFormat, major)
	}
	if length > headerLimit {
		return Header{}, 0, fmt.Errorf("%w: its header claims %d bytes", ErrFormat, length)
	}
	text := make([]byte, length)
	if _, err := io.ReadFull(r, text); err != nil {
		return Header{}, 0, fmt.Errorf("%w in its header of %d bytes", ErrTruncated, length)
	}
	h, err := parseHeader(string(text))
	return h, begin + length, err
}

func parseHeader(text string) (Header, error) {
	descr, fortran, shape := descrKey.FindStringSubmatch(text), fortranKey.FindStringSubmatch(text),
		shapeKey.FindStringSubmatch(text)
	if descr == nil || fortran == nil || shape == nil {
		return Header{}, fmt.Errorf("%w: cannot use the header %.80q (only arrays of one plain "+
			"type are read)", ErrFormat, text)
	}
	h := Header{DType: descr[1], Fortran: fortran[1] == "True", Shape: []int{}}
	size, err := dtypeSize(h.DType)
	if err != nil {
		return Header{}, err
	}
	total := uint64(size)
	for _, s := range strings.Split(shape[1], ",") {
		s = strings.TrimSuffix(strings.TrimSpace(s), "L")
		if s == "" {
			continue
		}
		d, err := strconv.ParseUint(s, 10, 62)
		// Count an extent of 0 as 1, so that it cannot hide another extent that is far too large.
		hi, lo := bits.Mul64(max(total, 1), max(d, 1))
		if err != nil || hi != 0 || lo >= 1<<62 {
			return Header{}, fmt.Errorf("%w: the shape (%s) is not a possible one", ErrFormat,
				shape[1])
		}
		total = lo
		h.Shape = append(h.Shape, int(d))
	}
	return h, nil
}

// checkSize returns an error unless a file holds exactly the elements of h. The file has total
// bytes, and its elements begin at byte number begin. It also returns the bytes of an element.
func (h Header) checkSize(begin int, total int64) (elem int, err error) {
	if elem, err = dtypeSize(h.DType); err != nil {
		return 0, err
	}
	want := int64(begin) + int64(h.Elems())*int64(elem)
	switch {
	case total < want:
		err = fmt.Errorf("%w: found %d bytes, expected %d for %s %s; copy or make the file again",
			ErrTruncated, total, want, h.DType, ShapeString(h.Shape))
	case total > want:
		err = fmt.Errorf("%w: found %d bytes, expected %d for %s %s; copy or make the file again",
			ErrFormat, total, want,
			h.DType, ShapeString(h.Shape))
	}
	return elem, err
}

// format returns the bytes of the header in format version 1.0.
func (h Header) format() []byte {
	dims := make([]string, len(h.Shape))
	for i, d := range h.Shape {
		dims[i] = strconv.Itoa(d)
	}
	shape := strings.Join(dims, ", ")
	if len(dims) == 1 {
		shape += ","
	}
	order := "False"
	if h.Fortran {
		order = "True"
	}
	text := fmt.Sprintf("{'descr': '%s', 'fortran_order': %s, 'shape': (%s), }", h.DType, order,
		shape)
	total := max(headerBytes, (10+len(text)+1+headerAlign-1)/headerAlign*headerAlign)
	b := make([]byte, 0, total)
	b = append(b, magic...)
	b = append(b, 1, 0)
	b = binary.LittleEndian.AppendUint16(b, uint16(total-10))
	b = append(b, text...)
	b = append(b, strings.Repeat(" ", total-1-len(b))...)
	return append(b, '\n')
}
