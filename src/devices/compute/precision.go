package compute

import (
	"math"
	"slices"
	"strings"
)

// Precision is the precision of the factors of matrix products, and of rows that are stored in the
// rounded form (Stored). With every precision, products are summed in float32. All other numbers
// (weights, optimiser state, sums over edges and rows, norms, losses) are float32 too.
type Precision string

const (
	// PrecisionFloat32 does not round factors.
	PrecisionFloat32 Precision = "float32"
	// PrecisionBF16 rounds every factor to bfloat16, which has 8 bits of significand and the range
	// of float32.
	PrecisionBF16 Precision = "bf16"
	// PrecisionTF32 rounds every factor to NVIDIA's TF32, which has 11 bits of significand and the
	// range of float32. Tensor cores get factors that are not rounded, and may cut low bits off
	// instead of rounding.
	PrecisionTF32 Precision = "tf32"
)

type precision struct {
	of             Precision
	dropped, bytes int
}

// precisions has a row for each precision. The first number is the number of low bits of a float32
// that rounding drops. The second is the bytes of an element in a rounded copy of a factor on a
// GPU, or 0 if the GPU makes no rounded copies.
var precisions = []precision{{PrecisionFloat32, 0, 0}, {PrecisionBF16, 16, 2},
	{PrecisionTF32, 13, 0}}

// Precisions returns the names of all precisions as text, for messages.
func Precisions() string {
	var all []string
	for _, p := range precisions {
		all = append(all, string(p.of))
	}
	return strings.Join(all, ", ")
}

// find returns the row of p in precisions. If there is none, known is false.
func (p Precision) find() (q precision, known bool) {
	if i := slices.IndexFunc(precisions, func(q precision) bool { return q.of == p }); i >= 0 {
		return precisions[i], true
	}
	return q, false
}

// Known reports whether p is one of the precisions.
func (p Precision) Known() bool {
	_, known := p.find()
	return known
}

// Dropped returns the number of low bits that rounding removes from a float32. It is 0 if nothing
// is rounded.
func (p Precision) Dropped() int {
	q, _ := p.find()
	return q.dropped
}

// FactorBytes returns the bytes of an element of a rounded factor on a GPU. It is 0 if the GPU
// makes no rounded copies.
func (p Precision) FactorBytes() int {
	q, _ := p.find()
	return q.bytes
}

// Round rounds x to the nearest number of precision p, and to the even one if two are equally near.
// A NaN stays a NaN.
func (p Precision) Round(x float32) float32 {
	n := p.Dropped()
	if n == 0 {
		return x
	}
	bits, low := math.Float32bits(x), uint32(1)<<n-1
	if x != x {
		// without this, a NaN whose set bits are all dropped would become an infinity
		bits |= 0x400000
	} else {
		bits += low/2 + bits>>n&1
	}
	return math.Float32frombits(bits &^ low)
}
