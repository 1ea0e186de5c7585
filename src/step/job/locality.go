package job

import (
	"fmt"
	"math"
)

// Locality says by what factor training prefers to draw vertices whose rows, or whose neighbours'
// rows, the rank already has (data placement, Song and Jiang, ICS '22, section 4). It changes the
// minibatches, which then depend on the cache and on the nodes.
type Locality struct {
	Favour   float64 // factor of the probability of such a vertex, >= 1; 0 means 1
	Vertices int     // number of preferred vertices in each hop except the last, >= 1
	Adapts   bool    // whether the factor changes by epoch, up to Favour; if not, it is Favour
	Adaption         // only used if Adapts is set
}

// Adaption says how the factor of locality changes from epoch to epoch. The change depends on the
// share of an epoch's time that loading takes, which is computed from counts and the given rates.
// No clock is read, so that a run can be repeated exactly.
type Adaption struct {
	// Bounds, in [0, 1], of the share of an epoch's time that loading takes. If the share is
	// between them, the factor stays as it is. 0 is a bound like any other.
	Lower, Upper float64
	Link         float64 // bytes/s at which a rank gets rows that are not at hand; > 0
	Edges        float64 // sampled edges/s that a rank draws and trains on; > 0
}

// Clash returns an error for each pair of settings that contradict each other. If the model reads
// neighbours, `reads` is true. If it does not, the factor is not used, so Adapts may be set without
// Favour.
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
		reject("sample.locality is %g; it must be at least 1, and finite", f)
	}
	if l.Favours() && l.Vertices < 1 {
		reject("sample.locality_vertices is %d; it must be at least 1", l.Vertices)
	}
	a := &l.Adaption
	if !l.Adapts {
		return errs
	}
	if !(a.Lower >= 0 && a.Upper <= 1) {
		reject("sample.locality_lower is %g and sample.locality_upper is %g; both must be "+
			"between 0 and 1", a.Lower, a.Upper)
	}
	if !(a.Link > 0 && a.Edges > 0) {
		reject("sample.locality_link is %g bytes/s and sample.locality_edges is %g edges/s; "+
			"both must be above 0", a.Link,
			a.Edges)
	}
	return errs
}

// Favours reports whether some epoch may draw some vertices with a higher probability than others.
func (l *Locality) Favours() bool { return l.Favour > 1 }

// Start returns the factor of the first epoch.
func (l *Locality) Start() Factor {
	if l.Adapts {
		return Factor{Value: 1, Before: 1}
	}
	return Factor{Value: l.Favour, Before: l.Favour, Fixed: true}
}

// Share returns the share of an epoch's time that loading takes, by the rates of a. The arguments
// bytes and edges are sums over all ranks, and all ranks are assumed to load and train the same
// amount.
func (a *Adaption) Share(bytes, edges int64) float64 {
	load, train := float64(bytes)/a.Link, float64(edges)/a.Edges
	if load == 0 {
		return 0
	}
	return load / (load + train)
}

// Factor is the factor by which an epoch prefers vertices whose rows are at hand.
type Factor struct {
	Value  float64
	Before float64 // Value before it was last doubled
	Fixed  bool    // whether all later epochs keep Value
}

// Next returns the factor of the next epoch (algorithm 2). In the last epoch, loading took the
// given share of the time. If this share is above Upper, the factor doubles, to at most Favour. If
// it is below Lower, the factor goes back half of the way to Before. Otherwise the factor keeps its
// value for the rest of the run.
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
