package chart

import (
	"math"
	"strconv"
	"strings"
)

// Absent is shown for a number that was not recorded, to tell it from zero.
const Absent = "–"

// Number formats a number for people. Whole numbers get a thousands separator, other numbers four
// digits. For NaN it returns Absent.
func Number(x float64) string {
	a := math.Abs(x)
	switch {
	case math.IsNaN(x):
		return Absent
	case a >= 1000 && a < 1e15 || x == math.Trunc(x) && a < 1e15:
		s := strconv.FormatFloat(x, 'f', 0, 64)
		for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
			s = s[:i] + "\u202f" + s[i:]
		}
		return s
	case a >= 0.001 && a < 1000:
		digits := 3 - int(math.Floor(math.Log10(a)))
		return strconv.FormatFloat(x, 'f', digits, 64)
	}
	return strconv.FormatFloat(x, 'g', 3, 64)
}

// Short formats a number with three digits and an SI prefix, for places with little room.
func Short(v float64) string {
	a, unit, digits := math.Abs(v), "", 3
	switch {
	case a >= 1e12: // too large for any prefix
	case a >= 1e9:
		v, unit = v/1e9, "G"
	case a >= 1e6:
		v, unit = v/1e6, "M"
	case a >= 1e4:
		v, unit = v/1e3, "k"
	case a >= 1e3:
		digits = 4
	}
	s := strconv.FormatFloat(v, 'g', digits, 64)
	// So that 999.9 becomes 1000, not 1e+03.
	if a = math.Abs(v); a >= 1 && a < 1e6 && strings.Contains(s, "e") {
		s = strconv.FormatFloat(v, 'f', 0, 64)
	}
	return s + unit
}
