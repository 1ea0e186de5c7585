package compute

import "math"

// Precision is the precision of the factors of matrix products. In every precision products are
// summed in float32, and everything else (weights, optimizer state, sums over edges and rows,
// norms, losses) is float32.
type Precision string

const (
	// PrecisionFloat32 multiplies the factors without rounding.
	PrecisionFloat32 Precision = "float32"
	// PrecisionBF16 rounds every factor to bfloat16 first, as RoundBF16 does: 8 bits of significand
	// and the range of float32.
	PrecisionBF16 Precision = "bf16"
)

// RoundBF16 rounds x to the nearest bfloat16, ties to even. NaN stays NaN.
func RoundBF16(x float32) float32 {
	const dropped = 0xffff // bits that bfloat16 does not have
	bits := math.Float32bits(x)
	if x != x {
		bits |= 0x400000 // keep a NaN whose bits are all among the dropped ones
	} else {
		bits += dropped/2 + bits>>16&1
	}
	return math.Float32frombits(bits &^ dropped)
}
