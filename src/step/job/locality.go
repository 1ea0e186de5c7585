package job

import (
	"fmt"
	"math"
)

// Locality says how much likelier training draws vertices whose rows, or whose neighbours' rows, a
// rank has at hand (data placement, Song and Jiang, ICS '22, section 4). It changes the
// minibatches, which then depend on the cache and on the nodes.
type Locality struct {
	Favour   float64 // how many times likelier, >= 1; 0 means 1
	Vertices int     // number of likelier vertices in each hop except the last, >= 1
	Adapts   bool    // whether the factor adapts, with Favour as its maximum; if not, it is Favour
	Adaption         // only if Adapts
}

// Adaption says how the factor of locality adapts from epoch to epoch: to the share of an epoch's
// time that loading takes, computed from counts and given rates. It reads no clock, so that runs
// can be repeated.
type Adaption struct {
	// Bounds in [0, 1]. If the share of loading is between them, the factor stays as it is; 0 is a
	// share like any other.
	Lower, Upper float64
	Link         float64 // bytes/s at which a rank gets rows that are not at hand; > 0
	Edges        float64 // sampled edges/s that a rank draws and trains on; > 0
}

// Clash returns an error for each two numbers that do not fit each other. The argument reads says
// whether the model reads neighbours. If it does not, there is no factor.
func (l *Locality) Clash(reads bool) (errs []error) {
	if reads && l.Adapts && !l.Favours() {
		errs = append(errs, fmt.Errorf(
			"sample.locality_adapt adapts a factor up to sample.locality, which is %g; set "+
				"sample.locality=8, or sample.locality_adapt=false", l.Favour))
	}
	if l.Lower > l.Upper {
		errs = append(errs, fmt.Errorf("sample.locality_lower is %g, above "+
			"sample.locality_upper, which is %g; swap them", l.Lower, l.Upper))
	}
	return errs
}

// check returns every error in the numbers.
func (l *Locality) check(reads bool) []error {
	errs := l.Clash(reads)
	reject := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if f := l.Favour; f != 0 && !(f >= 1 && f <= math.MaxFloat32) {
		reject("locality is %g; it must be at least 1, and finite", f)
	}
	if l.Favours() && l.Vertices < 1 {
		reject("locality vertices is %d; it must be at least 1", l.Vertices)
	}
	a := &l.Adaption
	if !l.Adapts {
		return errs
	}
	if !(a.Lower >= 0 && a.Upper <= 1) {
		reject("locality lower is %g and upper %g; they must be shares of 0 to 1", a.Lower, a.Upper)
	}
	if !(a.Link > 0 && a.Edges > 0) {
		reject("locality link is %g bytes/s and edges %g edges/s; both must be above 0", a.Link,
			a.Edges)
	}
	return errs
}

// Favours reports whether some epoch draws some vertices likelier than others.
func (l *Locality) Favours() bool { return l.Favour > 1 }

// Start returns the factor of the first epoch.
func (l *Locality) Start() Factor {
	if l.Adapts {
		return Factor{Value: 1, Before: 1}
	}
	return Factor{Value: l.Favour, Before: l.Favour, Fixed: true}
}

// Share returns the share of an epoch's time that loading takes, by the rates of a. The arguments
// bytes and edges are sums over all ranks, which are assumed to load and train equally much.
func (a *Adaption) Share(bytes, edges int64) float64 {
	load, train := float64(bytes)/a.Link, float64(edges)/a.Edges
	if load == 0 {
		return 0
	}
	return load / (load + train)
}

// Factor is how many times likelier an epoch draws vertices that are at hand.
type Factor struct {
	Value  float64
	Before float64 // the value before the last doubling
	Fixed  bool    // whether later epochs keep it
}

// Next returns the factor of the next epoch, after one in which loading took the given share of the
// time. Above Upper it doubles, to at most Favour. Below Lower it goes half of the way back.
// Otherwise it stays for good (algorithm 2).
func (l *Locality) Next(f Factor, share float64) Factor {
	switch {
	case f.Fixed:
	case f.Value >= l.Favour:
		f.Fixed = true
	case share > l.Upper:
		f.Before, f.Value = f.Value, min(2*f.Value, l.Favour)
	case share < l.Lower && f.Value != 1:
		f.Value = (f.Value + f.Before) / 2
	default:
		f.Fixed = true
	}
	return f
}
