package report

import (
	"fmt"
	"math"
	"strconv"
)

// absent stands for what a run has not recorded, which is not zero.
const absent = "–"

// figure formats a number for people: counts whole with thousands apart, others to four digits.
func figure(x float64) string {
	a := math.Abs(x)
	switch {
	case math.IsNaN(x):
		return absent
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

// cell is the figure of a number that may be absent.
func cell(x float64, ok bool) string {
	if !ok {
		return absent
	}
	return figure(x)
}

// count is cell for what is counted: whole, also where it is a mean.
func count(x float64, ok bool) string { return cell(math.Round(x), ok) }

func percent(x float64, ok bool) string {
	if !ok {
		return absent
	}
	return fmt.Sprintf("%.2f\u202f%%", 100*x)
}

// short formats a number where there is little room, with a unit prefix of SI.
func short(v float64) string {
	a := math.Abs(v)
	for _, unit := range []struct {
		size float64
		name string
	}{{1e9, "G"}, {1e6, "M"}, {1e4, "k"}} {
		if a >= unit.size {
			if unit.size == 1e4 {
				unit.size = 1e3
			}
			return fmt.Sprintf("%.3g%s", v/unit.size, unit.name)
		}
	}
	if a >= 1000 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return fmt.Sprintf("%.3g", v)
}
