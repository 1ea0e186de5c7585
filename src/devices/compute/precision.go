package compute

import (
	"math"
	"slices"
	"strings"
)

// Precision is the precision of the factors of matrix products, and of the rows that are stored as
// factors (Stored). In every precision products are summed in float32, and everything else
// (weights, optimizer state, sums over edges and rows, norms, losses) is float32.
type Precision string

const (
	// PrecisionFloat32 multiplies the factors without rounding.
	PrecisionFloat32 Precision = "float32"
	// PrecisionBF16 rounds every factor to bfloat16 first: 8 bits of significand, and the range of
	// float32.
	PrecisionBF16 Precision = "bf16"
	// PrecisionTF32 rounds every factor to what NVIDIA calls TF32: 11 bits of significand, and the
	// range of float32. Tensor cores get factors as they are and may cut the other bits off.
	PrecisionTF32 Precision = "tf32"
)

type precision struct {
	of             Precision
	dropped, bytes int
}

// precisions has for each precision the low bits of a float32 that rounding drops, and the bytes of
// a rounded factor where it is multiplied fastest; 0 if a GPU's factors are not copied.
var precisions = []precision{{PrecisionFloat32, 0, 0}, {PrecisionBF16, 16, 2},
	{PrecisionTF32, 13, 0}}

// Precisions lists the words of all precisions, for messages.
func Precisions() string {
	var all []string
	for _, p := range precisions {
		all = append(all, string(p.of))
	}
	return strings.Join(all, ", ")
}

// find returns the row of p in precisions, and whether there is one.
func (p Precision) find() (q precision, known bool) {
	if i := slices.IndexFunc(precisions, func(q precision) bool { return q.of == p }); i >= 0 {
		return precisions[i], true
	}
	return q, false
}

// Known says whether p is one of the precisions.
func (p Precision) Known() bool {
	_, known := p.find()
	return known
}

// Dropped returns the number of low bits that rounding removes from a float32; 0: no rounding.
func (p Precision) Dropped() int {
	q, _ := p.find()
	return q.dropped
}

// FactorBytes returns the bytes of a rounded factor on a GPU; 0 if it makes no rounded copies.
func (p Precision) FactorBytes() int {
	q, _ := p.find()
	return q.bytes
}

// Round rounds x to the nearest number that a factor may be, ties to even. NaN stays NaN.
func (p Precision) Round(x float32) float32 {
	n := p.Dropped()
	if n == 0 {
		return x
	}
	bits, low := math.Float32bits(x), uint32(1)<<n-1
	if x != x {
		bits |= 0x400000 // keep a NaN whose bits are all among the dropped ones
	} else {
		bits += low/2 + bits>>n&1
	}
	return math.Float32frombits(bits &^ low)
}
