package compute

import (
	"math"
	"testing"
)

// Round takes the nearer of the two neighbours of fewer bits, ties to even, for numbers of every
// exponent.
func TestRound(t *testing.T) {
	for precision, dropped := range map[Precision]int{PrecisionBF16: 16, PrecisionTF32: 13} {
		unit, top := uint32(1)<<dropped, uint32(0x800000)
		half := unit / 2
		for exponent := uint32(0); exponent < 255; exponent++ {
			for _, sign := range []uint32{0, 1 << 31} {
				for _, fraction := range []uint32{0, 1, half - 1, half, half + 1, unit - 1, unit,
					unit + half - 1, unit + half, unit + half + 1, top - unit - 1, top - half - 1,
					top - half, top - 1} {
					bits := sign | exponent<<23 | fraction
					x := math.Float32frombits(bits)
					down := math.Float32frombits(bits &^ (unit - 1))
					up := math.Float32frombits(bits&^(unit-1) + unit)
					below := math.Abs(float64(x) - float64(down))
					above := math.Abs(float64(up) - float64(x))
					// The upper neighbour is infinite: use the next power of two.
					if exponent == 254 && fraction >= top-unit {
						above = math.Ldexp(1, 127-23+dropped) - below
					}
					want := down
					if above < below || above == below && bits>>dropped&1 == 1 {
						want = up
					}
					if got := precision.Round(x); math.Float32bits(got) != math.Float32bits(want) {
						t.Errorf("%s: %g (%#x) is rounded to %g, want %g", precision, x, bits, got,
							want)
					}
				}
			}
		}
		for _, x := range []float64{math.Inf(1), math.Inf(-1)} {
			if got := precision.Round(float32(x)); float64(got) != x {
				t.Errorf("%s: %g is rounded to %g", precision, x, got)
			}
		}
		for _, bits := range []uint32{0x7f800001, 0x7fffffff, 0xff800001, 0xffffffff} {
			if got := precision.Round(math.Float32frombits(bits)); got == got {
				t.Errorf("%s: NaN %#x is rounded to %g", precision, bits, got)
			}
		}
	}
	if x := math.Float32frombits(0x3f800001); PrecisionFloat32.Round(x) != x {
		t.Error("float32 is rounded")
	}
}

func TestPrecisions(t *testing.T) {
	if Precisions() != "float32, bf16, tf32" || !PrecisionTF32.Known() || Precision("fp8").Known() {
		t.Errorf("there are %s", Precisions())
	}
}
