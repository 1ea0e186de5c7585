package cache

import (
	"math"
	"sort"
)

// Reuse says how soon remote rows are read again: the vertices that a minibatch may read, counted by how likely it reads them. It
// predicts what a cache that looks ahead keeps, without sampling.
//
// A vertex that a minibatch reads with probability p, independently of the others, is read again after l minibatches with probability
// p (1-p)^(l-1). Keeping the row until then takes one slot l minibatches long and saves one transfer, so the best use of a cache
// is to keep the rows with the shortest ways: all up to some length T, which is what Belady does where many rows are read at a time.
//
//	held(W) = sum of 1 - (1-p)^W (1 + W p)     rows that are between two uses at most W apart, at any moment
//	kept(W) = sum of p (1 - (1-p)^W)           reads of a minibatch that come at most W after the last one of the vertex
//
// So T is where held reaches the capacity, and a window of T minibatches knows all that is worth keeping.
//
//	count [bins]   vertices by p, 128 bins an octave
//	sum   [bins]   their p, added up
//
// Memory 256 KiB on the heap, whatever the graph.
type Reuse struct {
	count, sum []float64
}

const (
	reuseShift = 16 // bits of a float32 that a bin does not tell apart
	reuseBins  = 0x3F800000>>reuseShift + 1
)

// NewReuse has no vertices yet.
func NewReuse() *Reuse {
	return &Reuse{count: make([]float64, reuseBins), sum: make([]float64, reuseBins)}
}

// Add counts vertices, such as those from one local range to the next: p in [0, 1] is how likely a minibatch reads each. O(len(p)).
func (r *Reuse) Add(p []float32) {
	for _, x := range p {
		bin := min(math.Float32bits(x)>>reuseShift, reuseBins-1)
		r.count[bin]++
		r.sum[bin] += float64(x)
	}
}

// Uses returns how many of the vertices a minibatch reads on average.
func (r *Reuse) Uses() float64 {
	uses := 0.0
	for _, x := range r.sum {
		uses += x
	}
	return uses
}

// of returns held and kept of a window; see Reuse.
func (r *Reuse) of(window int) (held, kept float64) {
	if window < 1 {
		return 0, 0
	}
	w := float64(window)
	for bin, n := range r.count {
		if r.sum[bin] == 0 {
			continue
		}
		p := min(r.sum[bin]/n, 1)
		unread := math.Exp(w * math.Log1p(-p))
		held += n * (1 - unread*(1+w*p))
		kept += r.sum[bin] * (1 - unread)
	}
	return held, kept
}

// Fetched predicts how many rows of a minibatch a cache of so many rows that sees so far ahead transfers, on average.
func (r *Reuse) Fetched(capacity, window int) float64 {
	room := float64(capacity)
	full := r.fills(capacity, window)
	held, kept := r.of(full)
	if held > room { // a part of the ways of that length
		before, keptBefore := r.of(full - 1)
		kept = keptBefore + (kept-keptBefore)*(room-before)/(held-before)
	}
	return max(r.Uses()-kept, 0)
}

// fills returns the narrowest window that knows enough uses to fill the cache, at most limit.
func (r *Reuse) fills(capacity, limit int) int {
	return sort.Search(max(limit, 0), func(w int) bool {
		held, _ := r.of(w)
		return held >= float64(capacity)
	})
}

// WindowOptions are what a window is planned from. They follow from the graph and the settings of a run, never from the machine, so that all
// ranks, and a simulation, can come to the same one.
type WindowOptions struct {
	Capacity int    // rows
	Steps    int    // minibatches of a rank in an epoch
	Epochs   int    // of the run; there is no more to know
	Reuse    *Reuse // of the remote vertices

	// A minibatch that is known but not yet trained stays in memory. At most Memory bytes are spent on those of the window, of StepBytes
	// each, and on looking ahead itself; 0 for no bound.
	Memory, StepBytes int64
}

// windowSlack widens a planned window beyond the mean, for steps are not all alike.
const windowSlack = 4 // a quarter

// PlanWindow returns how many steps ahead a Lookahead has to see to be as good as one that sees everything: the narrowest window that
// knows enough uses to fill the cache, and a quarter more, as far as the memory goes; at least 1. Where nothing fills the cache it is an
// epoch, which is enough to begin with the right rows: none has to leave.
func PlanWindow(o WindowOptions) int {
	if o.Reuse.Uses() == 0 {
		return 1
	}
	run := o.Steps * max(o.Epochs, 1)
	w := o.Reuse.fills(o.Capacity, run)
	if w == run {
		w = o.Steps
	}
	w += (w + windowSlack - 1) / windowSlack
	if o.Memory > 0 {
		each := float64(o.StepBytes) + o.Reuse.Uses()*2*entryBytes // rings are up to twice as long as what they hold
		w = int(min(float64(w), float64(o.Memory)/each))
	}
	return max(1, min(w, run))
}
