package npy

import "math"

// Float16 is an IEEE 754 binary16 number by its bits.
type Float16 uint16

// ToFloat16 rounds to the nearest Float16, ties to even; too large numbers become infinite, and a
// NaN stays a NaN.
func ToFloat16(x float32) Float16 {
	b := math.Float32bits(x)
	sign, abs := Float16(b>>16)&0x8000, b&0x7fffffff
	switch {
	case abs > 0x7f800000: // NaN, kept quiet
		return sign | 0x7e00 | Float16(abs>>13&0x1ff)
	case abs >= 0x477ff000: // half way from the largest number, 65504, to 2^16
		return sign | 0x7c00
	case abs >= 0x38800000:
		// normal: rebias the exponent, round off 13 bits; a carry runs into the exponent, as it
		// should
		return sign | Float16((abs-0x38000000+0xfff+abs>>13&1)>>13)
	default: // subnormal: adding 0.5 leaves the value, rounded to even at 2^-24, in the low bits
		return sign | Float16(math.Float32bits(math.Float32frombits(abs)+0.5)-0x3f000000)
	}
}

// Float32 returns the same number; every Float16 is exactly a float32.
func (h Float16) Float32() float32 {
	sign, exp, frac := uint32(h&0x8000)<<16, uint32(h>>10&0x1f), uint32(h&0x3ff)
	switch exp {
	case 0:
		x := float32(frac) * 0x1p-24
		return math.Float32frombits(sign | math.Float32bits(x))
	case 0x1f:
		return math.Float32frombits(sign | 0x7f800000 | frac<<13)
	default:
		return math.Float32frombits(sign | (exp+112)<<23 | frac<<13)
	}
}
