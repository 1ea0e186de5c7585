package cache

import (
	"math"
	"sort"
)

// Reuse models how soon remote rows are read again: a histogram of vertices by the probability that
// a minibatch reads them. It predicts the rows that a look-ahead cache keeps, without sampling.
//
// Let U(l) be the probability that a vertex that was just read is not read by the next l
// minibatches, and S(W) the sum of U(l) over l < W. Keeping the row for l minibatches takes one
// slot during these minibatches and saves one transfer, so a cache should keep the shortest
// intervals: all up to some length T. Belady's rule does the same if many rows are read at a time.
// If a minibatch reads a vertex with probability p:
//
//	held(W) = sum of p (S(W) - W U(W))  rows between two uses at most W apart, at any moment
//	kept(W) = sum of p (1 - U(W))       reads of a minibatch that come at most W minibatches
//	                                    after the previous read of the vertex
//
// So T is the W at which held reaches the capacity, and a window of T minibatches shows all
// intervals worth keeping. If minibatches are independent, U(l) is (1-p)^l. The type gap has U(l)
// for vertices that keep a random number (LABOR) for several minibatches.
//
//	count [levels][bins]  number of vertices by the share of random numbers with which they
//	                      are read, and by p; a doubling of p spans 128 bins
//	sum   [levels][bins]  sum of the p of these vertices
//
// Memory: 256 KiB on the heap for each level, for any graph; 1 level if minibatches are
// independent, else 8.
type Reuse struct {
	count, sum [][]float64
	lasts      float64
}

const (
	reuseShift  = 16 // low bits of a float32 that a bin ignores
	reuseBins   = 0x3F800000>>reuseShift + 1
	reuseLevels = 8 // number of levels; level i is for a share of 1/2^i
)

// NewReuse returns an empty histogram. The random numbers of vertices change every k minibatches.
// If k is 1, minibatches are independent.
func NewReuse(k int) *Reuse {
	r := &Reuse{count: make([][]float64, 1), sum: make([][]float64, 1), lasts: float64(k)}
	if k > 1 {
		r.count, r.sum = make([][]float64, reuseLevels), make([][]float64, reuseLevels)
	}
	for i := range r.count {
		r.count[i], r.sum[i] = make([]float64, reuseBins), make([]float64, reuseBins)
	}
	return r
}

// Add counts vertices. p in [0, 1] is the probability that a minibatch reads each. O(len(p)).
func (r *Reuse) Add(p []float32) { r.AddDrawn(p, p) }

// AddDrawn counts vertices whose random numbers (LABOR's) are already drawn. With these numbers a
// minibatch reads vertex v with probability p[v]; mean[v] is the mean of this probability over all
// possible numbers. O(len(p)).
func (r *Reuse) AddDrawn(p, mean []float32) {
	for v, x := range p {
		level := 0
		for share := float32(0.75); level < len(r.count)-1 && mean[v] < share*x; share /= 2 {
			level++
		}
		bin := min(math.Float32bits(x)>>reuseShift, reuseBins-1)
		r.count[level][bin]++
		r.sum[level][bin] += float64(x)
	}
}

// gap is the distribution of the time for which a vertex is not read, if vertices have random
// numbers (LABOR). A minibatch reads the vertex with probability p. The vertex gets a new random
// number every `lasts` minibatches. With the probability `share`, the new number gives the same p;
// otherwise it gives 0. The minibatches at which vertices get new numbers are spread evenly.
type gap struct {
	p, share, lasts float64
}

// over returns U(l) and S(l) (see Reuse), averaged over the time to the next number. With g = 1-p
// and k = lasts, for l up to k:
//
//	U(l) = ((k-l) g^l + (1-share) (1-g^l)/p + l share g^l) / k
//
// Beyond k, U falls by the factor 1 - share + share g^k every k minibatches.
func (g gap) over(l int) (unread, sum float64) {
	if l <= 0 {
		return 1, 0
	}
	n := float64(l)
	if g.share == 1 || g.lasts <= 1 {
		unread = math.Exp(n * math.Log1p(-g.p)) // if p is 1, this is exp(-Inf) = 0
		return unread, (1 - unread) / g.p
	}
	n = min(n, g.lasts)
	power := math.Exp(n * math.Log1p(-g.p))
	flat := -math.Expm1(n*math.Log1p(-g.p)) / g.p // sum of (1-p)^i over i < n
	slope := (1-g.p)*flat/g.p - n*power/g.p       // sum of i (1-p)^i over i < n
	unread = power + (1-g.share)*(flat-n*power)/g.lasts
	sum = flat + (1-g.share)*((n-flat)/g.p-slope)/g.lasts
	if rest := float64(l) - n; rest > 0 {
		decay := math.Log1p(-g.share*(1-power)) / g.lasts
		later := math.Exp(rest * decay)
		sum += unread * (1 - later) / -math.Expm1(decay)
		unread *= later
	}
	return unread, sum
}

// Uses returns the mean number of the counted vertices that a minibatch reads.
func (r *Reuse) Uses() float64 {
	uses := 0.0
	for _, level := range r.sum {
		for _, x := range level {
			uses += x
		}
	}
	return uses
}

// beyond returns how many rows a minibatch reads, on average, that were last read more than age
// minibatches ago. These are the reads that kept(age) does not count; see Reuse.
func (r *Reuse) beyond(age int) (reads float64) {
	r.each(func(n float64, g gap) {
		unread, _ := g.over(age)
		reads += n * g.p * unread
	})
	return reads
}

// Fetched predicts the rows that a cache of this capacity and window transfers for a minibatch, on
// average over a run of the given number of minibatches.
//
// If the window knows too few uses to fill the cache, rows without a known use fill the other
// slots, and the row that was used longest ago is replaced first. If this row was used A
// minibatches ago, the cache holds
//
//	occupied(A) = sum of p (S(A+W) - W U(A+W))
//
// rows. Here W is the window, and p, S and U are those of Reuse. The cache holds rows of two sorts:
// rows without a use in the window that were used less than A minibatches ago, and rows with a use
// in the window whose previous use was at most A+W minibatches before that use. So A
// is where occupied reaches the capacity. A read is a hit if the row was last read at most A+W
// minibatches ago. All reads of the first W+1 minibatches are hits, because their rows are in the
// first fill.
func (r *Reuse) Fetched(capacity, window, run int) float64 {
	rows := float64(capacity)
	if full := r.fills(capacity, window); full < window || r.occupied(0, window) >= rows {
		before, held := r.occupied(0, full-1), r.occupied(0, full)
		return between(rows, before, held, r.beyond(full-1), r.beyond(full))
	}
	known := min(window+1, run)
	age := sort.Search(run, func(age int) bool { return r.occupied(age, window) >= rows })
	if age+window >= run { // the cache is never full
		return r.missed(known, run, run)
	}
	return between(rows, r.occupied(age-1, window), r.occupied(age, window),
		r.missed(known, age-1+window, run), r.missed(known, age+window, run))
}

// between interpolates linearly. It returns y0 at x = x0, y1 at x = x1, and values in between
// otherwise.
func between(x, x0, x1, y0, y1 float64) float64 {
	if x1 <= x0 {
		return y1
	}
	return y0 + (y1-y0)*min(1, max(0, (x-x0)/(x1-x0)))
}

// occupied returns the number of rows in the cache if rows without a known use stay up to the given
// age. The comment of Fetched has the formula.
func (r *Reuse) occupied(age, window int) (rows float64) {
	r.each(func(n float64, g gap) {
		unread, sum := g.over(age + window)
		rows += n * g.p * (sum - float64(window)*unread)
	})
	return rows
}

// missed returns how many of the rows that a minibatch reads were last read more than age
// minibatches ago. The result is the average over the minibatches of the run. The first minibatches
// of the run miss nothing; their number is `known`.
func (r *Reuse) missed(known, age, run int) (reads float64) {
	r.each(func(n float64, g gap) {
		unread, sum := g.over(age)
		_, before := g.over(known)
		// The expected number of first reads of a vertex in the minibatches from number known to
		// number age-1. All other missed reads are in later minibatches.
		first := g.p * max(sum-before, 0)
		reads += n * (first + float64(run-age)*g.p*unread) / float64(max(run, 1))
	})
	return reads
}

// each calls yield for every bin, with the number of its vertices and the distribution of the time
// between their reads.
func (r *Reuse) each(yield func(n float64, g gap)) {
	share := 1.0
	for level, sums := range r.sum {
		for bin, sum := range sums {
			if n := r.count[level][bin]; sum > 0 {
				yield(n, gap{min(sum/n, 1), share, r.lasts})
			}
		}
		share /= 2
	}
}

// fills returns the narrowest window with enough known uses to fill the cache, at most limit.
func (r *Reuse) fills(capacity, limit int) int {
	return sort.Search(max(limit, 0), func(w int) bool {
		return r.occupied(0, w) >= float64(capacity)
	})
}

// WindowOptions are the inputs of PlanWindow. They depend on the graph and the settings, but not on
// the machine, so that all ranks, and a simulation, plan the same window.
type WindowOptions struct {
	Capacity int    // number of rows
	Steps    int    // number of minibatches of a rank in an epoch
	Epochs   int    // number of epochs of the run
	Reuse    *Reuse // reuse of the remote vertices

	// A minibatch that is known but not yet trained stays in memory. At most Memory bytes are used
	// for the minibatches of the window, StepBytes each, and for the look-ahead itself. Memory 0
	// sets no bound.
	Memory, StepBytes int64
}

// windowSlack widens a planned window, because some steps have fewer uses than the mean step.
const windowSlack = 4 // the window gets 1/windowSlack longer

// PlanWindow returns the number of steps that a Lookahead must know to be as good as a Lookahead
// that knows all steps. It takes the narrowest window with enough uses to fill the cache, and adds
// a quarter. The result is at least 1, and at most the window that fits into the memory. If no
// window fills the cache, no row has to leave, and the result is the number of steps of an epoch,
// which is enough to choose the first rows.
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
		// A ring's length is a power of two, so a ring may be twice as long as its content.
		each := float64(o.StepBytes) + o.Reuse.Uses()*2*entryBytes
		w = int(min(float64(w), float64(o.Memory)/each))
	}
	return max(1, min(w, run))
}
