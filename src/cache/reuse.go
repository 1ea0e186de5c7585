package cache

import (
	"math"
	"sort"
)

// Reuse models how soon remote rows are read again: a histogram of vertices by the probability that
// a minibatch reads them. It predicts the rows that a look-ahead cache keeps, without sampling.
//
// A vertex that a minibatch reads with probability p, independently of the others, is read again
// after l minibatches with probability p (1-p)^(l-1). Keeping the row until then takes one slot for
// l minibatches and saves one transfer, so a cache should keep the shortest intervals: all up to
// some length T. Belady's rule does the same if many rows are read at a time.
//
//	held(W) = sum of 1 - (1-p)^W (1 + W p)     rows that are between two uses at most W apart, at
//	                                           any moment
//	kept(W) = sum of p (1 - (1-p)^W)           reads of a minibatch that come at most W after the
//	                                           last one of the vertex
//
// So T is where held reaches the capacity, and a window of T minibatches knows all intervals worth
// keeping.
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

// NewReuse returns an empty histogram.
func NewReuse() *Reuse {
	return &Reuse{count: make([]float64, reuseBins), sum: make([]float64, reuseBins)}
}

// Add counts vertices: p in [0, 1] is the probability that a minibatch reads each. O(len(p)).
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

// beyond returns the reads of a minibatch that come more than reach minibatches after the last one
// of the row: all but kept; see Reuse.
func (r *Reuse) beyond(reach int) (reads float64) {
	r.each(func(n, p float64) { reads += n * p * unread(p, reach) })
	return reads
}

// Fetched predicts the rows that a cache of this capacity and window transfers for a minibatch, on
// average over a run of so many minibatches.
//
// Where the window knows too few uses to fill the cache, rows without a known use fill the rest,
// and the one used longest ago is replaced first. If that is A minibatches ago, the cache holds
//
//	occupied(A) = sum of 1 - (1-p)^(A+W) (1 + W p)
//
// rows: those used less than A ago and not in the window, and those used in the window and at most
// A+W apart. So A is where that reaches the capacity. A read is a hit up to A+W minibatches after
// the last one, and in the first W+1 minibatches, whose rows the first fill holds.
func (r *Reuse) Fetched(capacity, window, run int) float64 {
	room := float64(capacity)
	if full := r.fills(capacity, window); full < window || r.occupied(0, window) >= room {
		before, held := r.occupied(0, full-1), r.occupied(0, full)
		return between(room, before, held, r.beyond(full-1), r.beyond(full))
	}
	known := min(window+1, run)
	age := sort.Search(run, func(age int) bool { return r.occupied(age, window) >= room })
	if age+window >= run { // it is never full
		return r.missed(known, run, run)
	}
	return between(room, r.occupied(age-1, window), r.occupied(age, window),
		r.missed(known, age-1+window, run), r.missed(known, age+window, run))
}

// between interpolates from x to y as at goes from from to to.
func between(at, from, to, x, y float64) float64 {
	if to <= from {
		return y
	}
	return x + (y-x)*min(1, max(0, (at-from)/(to-from)))
}

// occupied returns the rows of a cache in which rows without a known use stay up to that age; see
// Fetched.
func (r *Reuse) occupied(age, window int) (rows float64) {
	r.each(func(n, p float64) { rows += n * (1 - unread(p, age+window)*(1+float64(window)*p)) })
	return rows
}

// missed returns the mean reads of a minibatch that come more than reach minibatches after the last
// one of the row. The first known minibatches of a run miss nothing.
func (r *Reuse) missed(known, reach, run int) (reads float64) {
	r.each(func(n, p float64) {
		// Read for the first time, before reach is over.
		first := max(unread(p, known)-unread(p, reach), 0)
		reads += n * (first + float64(run-reach)*p*unread(p, reach)) / float64(max(run, 1))
	})
	return reads
}

// unread returns the probability that so many minibatches do not read a vertex.
func unread(p float64, minibatches int) float64 {
	if minibatches <= 0 {
		return 1 // also where p is 1
	}
	return math.Exp(float64(minibatches) * math.Log1p(-p))
}

// each calls yield with the vertices of every bin and their probability.
func (r *Reuse) each(yield func(n, p float64)) {
	for bin, n := range r.count {
		if r.sum[bin] > 0 {
			yield(n, min(r.sum[bin]/n, 1))
		}
	}
}

// fills returns the narrowest window that knows enough uses to fill the cache, at most limit.
func (r *Reuse) fills(capacity, limit int) int {
	return sort.Search(max(limit, 0), func(w int) bool {
		return r.occupied(0, w) >= float64(capacity)
	})
}

// WindowOptions are the inputs of a planned window. They follow from the graph and the settings,
// never from the machine, so that all ranks, and a simulation, plan the same window.
type WindowOptions struct {
	Capacity int    // rows
	Steps    int    // minibatches of a rank in an epoch
	Epochs   int    // of the run
	Reuse    *Reuse // of the remote vertices

	// A minibatch that is known but not yet trained stays in memory. At most Memory bytes are spent
	// on those of the window, of StepBytes each, and on looking ahead itself; 0 for no bound.
	Memory, StepBytes int64
}

// windowSlack widens a planned window beyond the mean, because steps differ.
const windowSlack = 4 // a quarter

// PlanWindow returns the steps that a Lookahead must know to be as good as one that knows all: the
// narrowest window with enough uses to fill the cache, and a quarter more, within the memory; at
// least 1. If no window fills the cache it is an epoch: no row has to leave, and an epoch is enough
// to choose the first rows.
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
		// rings are up to twice as long as what they hold
		each := float64(o.StepBytes) + o.Reuse.Uses()*2*entryBytes
		w = int(min(float64(w), float64(o.Memory)/each))
	}
	return max(1, min(w, run))
}
