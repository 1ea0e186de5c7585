package chart

import "math"

// scale maps data to the page.
type scale struct {
	lo, hi   float64
	from, to float64 // page
	log      bool
}

// newScale covers lo to hi, or a wider range if tick labels could not distinguish them. On a
// logarithmic scale both must be above 0.
func newScale(lo, hi, from, to float64, log bool) scale {
	const least, nothing = 1e-5, 1e-300
	size := max(math.Abs(lo), math.Abs(hi))
	switch {
	case hi-lo > least*size && hi-lo > nothing:
	case log:
		lo, hi = lo/2, hi*2
	case size > nothing:
		lo, hi = lo-size/10, hi+size/10
	default:
		lo, hi = 0, 1
	}
	return scale{lo: lo, hi: hi, from: from, to: to, log: log}
}

func (s scale) at(v float64) float64 {
	lo, hi := s.lo, s.hi
	if s.log {
		v, lo, hi = math.Log(v), math.Log(lo), math.Log(hi)
	}
	return s.from + (v-lo)/(hi-lo)*(s.to-s.from)
}

// ticks returns about n round numbers within the scale.
func (s scale) ticks(n int) (out []float64) {
	if s.log {
		digits := []float64{1, 2, 5}
		if s.hi < 20*s.lo {
			digits = []float64{1, 1.5, 2, 3, 4, 6, 8}
		}
		for e := math.Floor(math.Log10(s.lo)); e <= math.Ceil(math.Log10(s.hi)); e++ {
			for _, m := range digits {
				if v := m * math.Pow(10, e); v >= s.lo*0.999 && v <= s.hi*1.001 {
					out = append(out, v)
				}
			}
		}
		if len(out) > 2 {
			return out
		}
		out = nil // less than a decade: linear ticks will do
	}
	raw := (s.hi - s.lo) / float64(n)
	unit := math.Pow(10, math.Floor(math.Log10(raw)))
	step := 10 * unit
	for _, m := range []float64{1, 2, 5} {
		if m*unit >= raw {
			step = m * unit
			break
		}
	}
	for k := math.Ceil(s.lo/step - 1e-9); k*step <= s.hi+step*1e-9; k++ {
		out = append(out, k*step+0) // +0 turns a minus zero into zero
	}
	return out
}
