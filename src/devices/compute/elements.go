package compute

import (
	"math"
	"unsafe"

	"halognn/src/base/mem"
)

// Matrix has Rows x Cols elements, stored by rows without padding: element (i,j) is Data[i*Cols+j]
// or, in a matrix of bfloat16, BF16[i*Cols+j]. On a device with its own memory these slices are
// address ranges of that memory: the host may slice them further, but must not read or write their
// elements.
//
// Kernels read and write float32, unless their methods say that a matrix may be of float32 or
// bfloat16.
type Matrix struct {
	Rows, Cols int
	Data       []float32
	// if not nil, it is used instead of Data; its elements are the upper halves of float32 numbers
	BF16 []uint16
}

// Elements is the type of a matrix's elements (docs/design/32-stored-in-bf16.md).
type Elements uint8

// The types of elements.
const (
	Float32s Elements = iota
	BF16s
)

// String returns the name of the type.
func (e Elements) String() string {
	if e == BF16s {
		return "bfloat16"
	}
	return "float32"
}

// Stored returns the type in which a device of precision p stores complete rows that a layer reads.
func (p Precision) Stored() Elements {
	if p == PrecisionBF16 {
		return BF16s
	}
	return Float32s
}

// DType returns the type of feature rows with these elements.
func (e Elements) DType() DType {
	if e == BF16s {
		return BFloat16
	}
	return Float32
}

// Size returns the bytes of an element.
func (e Elements) Size() int {
	if e == BF16s {
		return 2
	}
	return floatBytes
}

// Floats returns the number of float32 whose memory n elements take, rounded up.
func (e Elements) Floats(n int) int { return (n*e.Size() + floatBytes - 1) / floatBytes }

// MatrixIn returns a matrix of this element type that begins where the slice memory begins.
func (e Elements) MatrixIn(memory []float32, rows, cols int) Matrix {
	m := Matrix{Rows: rows, Cols: cols}
	if n := rows * cols; e == BF16s {
		m.BF16 = unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(memory))),
			2*len(memory))[:n]
	} else {
		m.Data = memory[:n]
	}
	return m
}

// Elements returns the type of m's elements.
func (m Matrix) Elements() Elements {
	if m.BF16 != nil {
		return BF16s
	}
	return Float32s
}

// RowsAt returns rows [lo,hi) of m, without copying.
func (m Matrix) RowsAt(lo, hi int) Matrix {
	part := Matrix{Rows: hi - lo, Cols: m.Cols}
	if m.BF16 != nil {
		part.BF16 = m.BF16[lo*m.Cols : hi*m.Cols]
	} else {
		part.Data = m.Data[lo*m.Cols : hi*m.Cols]
	}
	return part
}

// Row returns row i of m, without copying. The matrix m must be of float32.
func (m Matrix) Row(i int) []float32 { return m.Data[i*m.Cols : (i+1)*m.Cols] }

// Memory returns the memory of m's elements as a slice of float32, so that Device.Upload and
// Download can copy it.
func (m Matrix) Memory() []float32 {
	if m.BF16 == nil {
		return m.Data
	}
	n := BF16s.Floats(len(m.BF16))
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(m.BF16))), n)
}

// Clear sets all elements to zero. The matrix must be in host memory.
func (m Matrix) Clear() {
	clear(m.Data)
	clear(m.BF16)
}

// Widen copies all elements to dst, as float32. The matrix must be in host memory.
func (m Matrix) Widen(dst []float32) {
	if m.BF16 == nil {
		copy(dst, m.Data)
		return
	}
	for i, x := range m.BF16 {
		dst[i] = FromBF16(x)
	}
}

// Narrow copies src to the matrix, rounded to the matrix's type. The matrix must be in host memory.
func (m Matrix) Narrow(src []float32) {
	if m.BF16 == nil {
		copy(m.Data, src)
		return
	}
	for i, x := range src {
		m.BF16[i] = ToBF16(x)
	}
}

// Load copies the elements of a matrix in device memory to dst, as float32. If scratch is too
// small, it allocates a larger one.
func Load(d Device, dst []float32, m Matrix, scratch *[]float32) {
	if m.BF16 == nil {
		d.Download(dst, m.Data)
		return
	}
	*scratch = mem.Grow(*scratch, len(m.Memory()))
	d.Download(*scratch, m.Memory())
	BF16s.MatrixIn(*scratch, m.Rows, m.Cols).Widen(dst)
}

// Store copies rows from the host to a matrix in device memory. It rounds them to the type in which
// the device stores rows. If scratch is too small, it allocates a larger one.
func Store(d Device, m Matrix, src []float32, scratch *[]float32) {
	p := d.Capabilities().Precision
	switch {
	case m.BF16 != nil:
		*scratch = mem.Grow(*scratch, len(m.Memory()))
		BF16s.MatrixIn(*scratch, m.Rows, m.Cols).Narrow(src)
		d.Upload(m.Memory(), *scratch)
	case p.Stored() == BF16s:
		*scratch = mem.Grow(*scratch, len(src))
		for i, x := range src {
			(*scratch)[i] = p.Round(x)
		}
		d.Upload(m.Data, *scratch)
	default:
		d.Upload(m.Data, src)
	}
}

// FromBF16 returns the number of a bfloat16 whose bits are x.
func FromBF16(x uint16) float32 { return math.Float32frombits(uint32(x) << 16) }

// ToBF16 rounds a number to bfloat16, as PrecisionBF16 does, and returns the bits.
func ToBF16(x float32) uint16 { return uint16(math.Float32bits(PrecisionBF16.Round(x)) >> 16) }
