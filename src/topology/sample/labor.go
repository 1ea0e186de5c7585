package sample

import (
	"errors"
	"fmt"
	"math"

	"halognn/src/base/mem"
	"halognn/src/base/random"
	"halognn/src/devices/compute"
	"halognn/src/devices/compute/cpu"
	"halognn/src/topology/graph"
)

// Labor draws by random numbers of vertices instead of random sequences of destinations
// (layer-neighbour sampling, Balin and Catalyurek, NeurIPS 2023). In each hop every vertex t has a
// random number r(t), and a destination takes the neighbours with the smallest numbers.
//
//	r             7  2  9  4  1        of the vertices a b c d e
//	x -> a b c    takes b a            fanout 2
//	y -> b c d    takes b d            neighbours of several destinations are chosen alike
//	z -> d e      takes d e            all, as there are at most fanout neighbours
//
// For one destination this is a uniform subset without replacement, as with Neighbour, and edges
// weigh 1. A minibatch has fewer vertices, because destinations choose the same ones; for the same
// reason its noise averages out less.
const Labor Kind = "labor"

// Numbers says how long the random number of a vertex lasts, and which streams share it. Labor
// draws by these numbers, and so does Poisson if Shared is set. A number depends on the original id
// of its vertex, so neither the numbering of parts nor the rank that holds a row matters.
type Numbers struct {
	Shared bool    // Poisson draws a neighbour if its number r is below q
	Share  Sharing // ranks that share numbers; with Alone, each stream has its own
	// Dependency is how many steps a number lasts; 0 means 1. Vertices change their numbers at
	// different steps: about one in Dependency of them at each step.
	Dependency int
	Layers     bool // whether a vertex has one number for all hops

	// Set by InJob: the number of steps of an epoch, and the number of consecutive streams that
	// share numbers; 0 means 1.
	Steps, Streams int
}

// MaxDependency is the largest number of steps that a number may last, so that counting steps
// cannot overflow.
const MaxDependency = 1 << 30

// InJob returns the Spec for a job with the given numbers of steps in an epoch, of streams and of
// ranks. A node has perNode consecutive ranks.
func (s Spec) InJob(steps, streams, ranks, perNode int) Spec {
	n := &s.Numbers
	if n.Steps, n.Streams = steps, 1; n.Share != Alone {
		n.Streams = max(1, streams*n.Share.GroupSize(ranks, perNode)/ranks)
	}
	return s
}

// ByNode reports whether draws depend on which ranks form a node.
func (s Spec) ByNode() bool { return s.Numbered() && s.Numbers.Share == InNodes }

// Common returns how many consecutive streams draw by the same random numbers of vertices, or 0 if
// vertices have no random numbers.
func (s Spec) Common() int {
	if !s.Numbered() {
		return 0
	}
	return max(1, s.Numbers.Streams)
}

// Numbered reports whether each vertex has a random number, by which all destinations decide
// whether to draw that vertex.
func (s Spec) Numbered() bool {
	return s.kind() == Labor || s.kind() == Poisson && s.Numbers.Shared
}

// checkNumbers does what Spec.Check does, for the kinds that may draw by random numbers of
// vertices.
func checkNumbers(s Spec) error {
	var lasts error
	if d := s.Numbers.Dependency; d < 0 || d > MaxDependency {
		lasts = fmt.Errorf("sample.dependency is %d; it must be 1 to %d steps", d, MaxDependency)
	}
	return errors.Join(checkFanouts(s), lasts)
}

// word returns the word that keys the random numbers of hop h >= 1.
func (s Spec) word(k Key, h int) uint64 {
	if !s.Numbered() {
		return k.hop(h)
	}
	if s.Numbers.Layers {
		h = 0
	}
	return fold(numbering, k.Seed, k.Stream/s.Common(), h)
}

// moment is the step of training for which the random numbers of vertices are computed. In the zero
// moment, vertices have no numbers.
type moment struct {
	step   int    // number of the step, counted over epochs
	lasts  int    // number of steps that a number lasts
	phases uint64 // key for the steps at which vertices change their numbers
}

// moment returns the moment of a minibatch.
func (s Spec) moment(k Key) moment {
	if !s.Numbered() {
		return moment{}
	}
	return moment{step: k.Epoch*s.Numbers.Steps + k.Step, lasts: max(1, s.Numbers.Dependency),
		phases: fold(phasing, k.Seed)}
}

// word returns the word of a hop's draws by one relation. A vertex has the same number in all
// relations, so that all relations choose the same vertices.
func (m moment) word(hop uint64, relation int) uint64 {
	if m.lasts > 0 {
		return hop
	}
	return relationWord(hop, relation)
}

// numbers gives each vertex its number in one hop. A vertex of phase p, uniform in [0,lasts), has
// its z-th number at step i, where z = floor((i+p)/lasts). So at any step z has at most two values.
type numbers struct {
	now, next uint64 // keys of a vertex's number before and after its next change
	phases    uint64
	turn      uint64 // step i modulo lasts
	lasts     uint64 // 0 if vertices have no numbers
}

// keyedNumbers returns the numbers that a word keys, at this moment.
func (m moment) keyedNumbers(word uint64) numbers {
	if m.lasts == 0 {
		return numbers{}
	}
	z := word + uint64(m.step/m.lasts)*random.Golden
	return numbers{now: random.Mix(z), next: random.Mix(z + random.Golden), phases: m.phases,
		turn: uint64(m.step % m.lasts), lasts: uint64(m.lasts)}
}

// of returns the number of a vertex, uniform in [0,2^32).
func (n *numbers) of(original int32) uint32 {
	id, word := uint64(uint32(original)), n.now
	if n.turn > 0 && n.turn+n.phase(original) >= n.lasts {
		word = n.next
	}
	return uint32(random.Mix(word^id) >> 32)
}

// phase returns the phase of a vertex, below lasts: it decides at which steps the vertex gets a new
// number.
func (n *numbers) phase(original int32) uint64 {
	return random.Mix(n.phases^uint64(uint32(original))) >> 32 * n.lasts >> 32
}

// forKernel returns the numbers as arguments of a kernel, for vertices with the given original ids.
func (n *numbers) forKernel(original []int32) cpu.Numbers {
	return cpu.Numbers{Original: original, Numbers: n.forDevice()}
}

// forDevice returns what a device needs to give vertices these numbers.
func (n *numbers) forDevice() compute.Numbers {
	return compute.Numbers{Now: n.now, Next: n.next, Phases: n.phases, Turn: n.turn, Lasts: n.lasts}
}

// numbersEnd is greater than every number.
const numbersEnd = 1 << 32

// below returns a bound: a share q of all vertices have random numbers below this bound.
func below(q float64) uint64 { return uint64(math.Ceil(min(q, 1) * numbersEnd)) }

// likely returns a bound for a row of this degree: almost always at least fanout neighbours have
// random numbers below the bound, but not many more.
func likely(fanout, degree int64) uint64 {
	f := float64(fanout)
	return below((f + 3*math.Sqrt(f) + 3) / float64(degree))
}

// number sets how vertices get their random numbers in this hop: by the hop's key, at moment m.
func (h *hop) number(m moment) { h.numbers, h.table = m.keyedNumbers(h.key), nil }

// numberOf returns the number of a vertex.
func (h *hop) numberOf(v graph.VertexID) uint32 {
	if h.table != nil {
		return h.table[v]
	}
	return h.numbers.of(h.topology.Original[v])
}

// numbered reports whether destination i draws by numbers.
func (h *hop) numbered(i int) bool { return h.numbers.lasts > 0 && h.degree[i] > h.fanout }

// bounds has the numbers below which a destination draws a neighbour: near is the bound for near
// neighbours, others for all others.
type bounds struct{ near, others uint64 }

func (h *hop) bounds(i int) bounds {
	if h.near == nil {
		b := below(float64(h.fanout) / float64(h.degree[i]))
		return bounds{b, b}
	}
	ofNear, ofOthers := favour(h.degree[i], h.nearDegree[i], h.fanout, h.favour)
	return bounds{below(ofNear), below(ofOthers)}
}

// inverseBelow returns 1/q, where q is the probability that the random number of a vertex is below
// the bound.
func inverseBelow(bound uint64) float32 { return float32(numbersEnd / float64(bound)) }

// isNear reports whether an edge is one of Near.Edges.
func (h *hop) isNear(e int64) bool {
	return h.near != nil && h.near[e/64]>>(e%64)&1 != 0
}

// lineIndices is the number of neighbours in a cache line.
const lineIndices = 16

// touch reads a neighbour from each cache line of the rows of destinations [lo,hi), so that the
// cache misses of all these rows overlap and later work on them does not wait.
func (h *hop) touch(lo, hi int) (sum graph.VertexID) {
	indices := h.topology.Graph.Indices
	for i := lo; i < hi; i++ {
		if h.degree[i] <= h.fanout || h.degree[i] > touched {
			continue
		}
		row := indices[h.begin[i]:][:h.degree[i]]
		for k := 0; k < len(row); k += lineIndices {
			sum ^= row[k]
		}
	}
	return sum
}

// touched is the length of the longest rows that touch reads: the processor prefetches longer ones.
const touched = 1024

// blockNumbers is the number of neighbours that the method candidates examines before it makes room
// for more results.
const blockNumbers = 1024

// candidates returns the neighbours of destination i with numbers below a bound, in the order of
// the row, each as number<<32 | place in the row.
func (d *drawer) candidates(h *hop, i int, bound uint64) []uint64 {
	row := h.topology.Graph.Indices[h.begin[i]:][:int(h.degree[i])+len(h.skips.skippedPlaces(i))]
	n := 0
	for lo := 0; lo < len(row); lo += blockNumbers {
		block := row[lo:min(lo+blockNumbers, len(row))]
		d.found = growKeeping(d.found, n, n+len(block))
		if found := d.found; h.table != nil {
			n = keepBelow(found, n, h.table, block, uint64(lo), bound)
			continue
		}
		for k, u := range block {
			r := uint64(h.numbers.of(h.topology.Original[u]))
			d.found[n] = r<<32 | uint64(lo+k)
			if r < bound {
				n++
			}
		}
	}
	return h.skips.rest(i, d.found[:n])
}

// keepBelow appends to found[:n] the vertices of a row with numbers below a bound; the row begins
// at place first. It always writes, and advances n only for vertices that are kept, so no branch
// depends on a number.
func keepBelow(found []uint64, n int, table []uint32, row []graph.VertexID, first,
	bound uint64) int {
	for k, u := range row {
		r := uint64(table[u])
		found[n] = r<<32 | (first + uint64(k))
		n += int((r - bound) >> 63)
	}
	return n
}

// growKeeping works like mem.Grow, but keeps the first n items.
func growKeeping(s []uint64, n, size int) []uint64 {
	if size <= cap(s) {
		return s[:size]
	}
	grown := mem.Make[uint64](2 * size)
	copy(grown, s[:n])
	mem.Free(s)
	return grown[:size]
}

// chooseLeast sets pos to the positions of the neighbours of destination i with the smallest
// numbers, in the order of the row. Of equal numbers the first in the row win.
func (d *drawer) chooseLeast(pos []int64, h *hop, i int) {
	found := d.candidates(h, i, likely(h.fanout, h.degree[i]))
	if len(found) < len(pos) {
		found = d.candidates(h, i, numbersEnd)
	}
	last, n := nth(found, len(pos)), 0
	for _, c := range found {
		if c <= last {
			pos[n] = h.begin[i] + int64(uint32(c))
			n++
		}
	}
}

// nth returns the n-th smallest of distinct words, n >= 1. It estimates the value from the largest
// word, as if words were spread evenly, and then corrects it word by word. If n is large relative
// to the number of words, this takes few passes, without branches that are hard to predict.
func nth(words []uint64, n int) uint64 {
	guess := uint64(0)
	for _, w := range words {
		guess = max(guess, w)
	}
	guess = uint64(float64(guess) * (float64(n) / float64(len(words))))
	count := 0
	for _, w := range words {
		if w <= guess {
			count++
		}
	}
	for ; count < n; count++ { // guess becomes the smallest word above guess
		next := uint64(math.MaxUint64)
		for _, w := range words {
			if w > guess {
				next = min(next, w)
			}
		}
		guess = next
	}
	// guess becomes one less than the largest word that is not above guess
	for count++; count > n; count-- {
		next := uint64(0)
		for _, w := range words {
			if w <= guess {
				next = max(next, w)
			}
		}
		guess = next - 1
	}
	return guess + 1
}

// byKernel reports whether the kernel draws the hop.
func (h *hop) byKernel() bool {
	return h.host != nil && h.numbers.lasts > 0 && !h.poisson && h.host.DrawsLeast(h.fanout)
}

// drawLeast draws the neighbours of destinations [lo,hi) with the kernel, with the same result as
// chooseLeast. The kernel stops at the first destination that it cannot serve; drawLeast returns
// the number of destinations before this one.
func (d *drawer) drawLeast(h *hop, lo, hi int) int {
	first, last := h.indptr[lo], h.indptr[hi]
	var pos []int64
	if h.weights != nil || h.places != nil {
		d.pos = mem.Grow(d.pos, int(last-first))
		pos = d.pos
	}
	numbers := h.numbers.forKernel(h.topology.Original)
	numbers.Table = h.table
	n := h.host.DrawLeast(asRows(h.drawn[first:last]), pos, h.begin[lo:hi], h.degree[lo:hi],
		int(h.fanout), asRows(h.topology.Graph.Indices), &numbers)
	if h.weights != nil {
		h.weigh(lo, lo+n, pos)
	}
	if h.places != nil {
		h.place(lo, pos[:h.indptr[lo+n]-first])
	}
	return n
}

// chooseBelow writes into pos the positions of the neighbours of destination i whose random numbers
// are below the bounds of i. It expects len(pos) such neighbours, the number that countBelow has
// found.
func (d *drawer) chooseBelow(pos []int64, h *hop, i int) {
	b, n := h.bounds(i), 0
	for _, c := range d.candidates(h, i, max(b.near, b.others)) {
		e := h.begin[i] + int64(uint32(c))
		if b.has(h.isNear(e), c>>32) {
			pos[n] = e
			n++
		}
	}
}

// has reports whether a neighbour with the given number is drawn. If the neighbour is near, `inSet`
// is true.
func (b bounds) has(inSet bool, number uint64) bool {
	if inSet {
		return number < b.near
	}
	return number < b.others
}

// countBelow returns how many neighbours destination i draws, each independently.
func (h *hop) countBelow(i int) (n int64) {
	b, without := h.bounds(i), h.skips.skippedPlaces(i)
	for k, u := range h.topology.Graph.Indices[h.begin[i]:][:int(h.degree[i])+len(without)] {
		if len(without) > 0 && without[0] == int64(k) {
			without = without[1:]
		} else if b.has(h.isNear(h.begin[i]+int64(k)), uint64(h.numberOf(u))) {
			n++
		}
	}
	return n
}

// weighBelow sets the weights of the edges that destination i drew, each independently. The first
// edge has position pos[at].
func (h *hop) weighBelow(weights []float32, i int, pos []int64, at int) {
	b := h.bounds(i)
	ofNear, ofOthers := inverseBelow(b.near), inverseBelow(b.others)
	for k := range weights {
		if weights[k] = ofOthers; h.near != nil && h.isNear(pos[at+k]) {
			weights[k] = ofNear
		}
	}
}
