package compute

import (
	"math"
	"testing"
)

// RoundBF16 rounds to the nearer of the two neighbours with 16 bits, ties to even, for numbers of
// every exponent.
func TestRoundBF16(t *testing.T) {
	for exponent := uint32(0); exponent < 255; exponent++ {
		for _, sign := range []uint32{0, 1 << 31} {
			for _, fraction := range []uint32{0, 1, 0x7fff, 0x8000, 0x8001, 0xffff, 0x10000, 0x17fff,
				0x18000, 0x18001, 0x7effff, 0x7f7fff, 0x7f8000, 0x7fffff} {
				bits := sign | exponent<<23 | fraction
				x := math.Float32frombits(bits)
				down, up := math.Float32frombits(bits&^0xffff), math.Float32frombits(bits&^0xffff+0x10000)
				below, above := math.Abs(float64(x)-float64(down)), math.Abs(float64(up)-float64(x))
				// The upper neighbour is infinite: use the next power of two.
				if exponent == 254 && fraction >= 0x7f0000 {
					above = 0x1p120 - below
				}
				want := down
				if above < below || above == below && bits>>16&1 == 1 {
					want = up
				}
				if got := RoundBF16(x); math.Float32bits(got) != math.Float32bits(want) {
					t.Errorf("%g (%#x) is rounded to %g, want %g", x, bits, got, want)
				}
			}
		}
	}
	for _, x := range []float64{math.Inf(1), math.Inf(-1)} {
		if got := RoundBF16(float32(x)); float64(got) != x {
			t.Errorf("%g is rounded to %g", x, got)
		}
	}
	for _, bits := range []uint32{0x7f800001, 0x7fffffff, 0xff800001, 0xffffffff} {
		if got := RoundBF16(math.Float32frombits(bits)); got == got {
			t.Errorf("NaN %#x is rounded to %g", bits, got)
		}
	}
}
