package compute

import "math"

// Precision is that of the factors of matrix products. Whatever it is, a product is summed in
// float32, and everything else (weights, what optimizers keep, sums over edges and rows, norms,
// losses) is float32.
type Precision string

const (
	// PrecisionFloat32 multiplies what is given.
	PrecisionFloat32 Precision = "float32"
	// PrecisionBF16 rounds every factor to bfloat16 first, as RoundBF16 does: 8 bits of significand
	// and the range of float32.
	PrecisionBF16 Precision = "bf16"
)

// RoundBF16 returns the bfloat16 that is nearest to x, of two equally near ones the even one. NaN
// stays NaN.
func RoundBF16(x float32) float32 {
	const dropped = 0xffff // bits that bfloat16 does not have
	bits := math.Float32bits(x)
	if x != x {
		bits |= 0x400000 // a quiet NaN does not end in these bits alone
	} else {
		bits += dropped/2 + bits>>16&1
	}
	return math.Float32frombits(bits &^ dropped)
}
