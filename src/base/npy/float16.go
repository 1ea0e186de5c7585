package npy

import "math"

// Float16 holds the bits of an IEEE 754 binary16 number.
type Float16 uint16

// ToFloat16 rounds to the nearest Float16, ties to even. Numbers that are too large become
// infinite. A NaN stays a NaN.
func ToFloat16(x float32) Float16 {
	b := math.Float32bits(x)
	sign, abs := Float16(b>>16)&0x8000, b&0x7fffffff
	switch {
	case abs > 0x7f800000: // NaN: set the bit of a quiet NaN
		return sign | 0x7e00 | Float16(abs>>13&0x1ff)
	case abs >= 0x477ff000: // at least half way from 65504, the largest number, to 2^16
		return sign | 0x7c00
	case abs >= 0x38800000:
		// Normal number: change the bias of the exponent and round off 13 bits. A carry of the
		// fraction correctly increases the exponent.
		return sign | Float16((abs-0x38000000+0xfff+abs>>13&1)>>13)
	// Subnormal: adding 0.5 puts the value, rounded to a multiple of 2^-24, into the low bits.
	default:
		return sign | Float16(math.Float32bits(math.Float32frombits(abs)+0.5)-0x3f000000)
	}
}

// Float32 returns the number as a float32, which can hold every Float16 exactly.
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
