package sample

import (
	"errors"
	"fmt"
	"math"
	"math/bits"

	"github.com/cespare/xxhash/v2"

	"halognn/src/base/mem"
	"halognn/src/base/random"
	"halognn/src/topology/graph"
)

// Locality-aware sampling (data placement, Song and Jiang, ICS '22, section 4): vertices that are
// near, because their rows or their neighbours' rows are at hand, are drawn with s times the
// probability.
//
//	q'(u) = c s q(u) if u is near, else c q(u)       c such that q' has the sum of q
//
// The sum is over the in-neighbours of a vertex for kind Poisson, and over the in-neighbours of a
// layer for kind LADIES. A q' above 1 is set to 1, and the excess is divided among the others.
// Edges weigh 1/q', so estimates stay unbiased, but their variance grows.

// Near says which vertices are near, for each hop, beginning with the hop next to the seeds. In the
// zero Near no vertices are near. The sets lie outside the Go heap.
type Near struct {
	Vertices [][]uint64 // bit v%64 of word v/64 is vertex v
	// Only for kind Poisson: bit e%64 of word e/64 says whether edge e comes from a near vertex,
	// Graph.Indices[e]. With these bits, a draw learns about 64 neighbours in one read. Without
	// them, each neighbour would cost a read of Vertices. Each set has one spare word at its end,
	// because a draw reads two words at once: the edges of a row may begin within a word.
	Edges [][]uint64
}

// NewNear makes a Near with an empty set for each hop of spec. The sets have room for the given
// numbers of vertices and edges, which are those of the graph.
func NewNear(spec Spec, vertices, edges int) (n Near) {
	for range spec.Hops() {
		n.Vertices = append(n.Vertices, mem.Make[uint64]((vertices+63)/64))
		if spec.kind() == Poisson {
			n.Edges = append(n.Edges, mem.Make[uint64](edgeWords(edges)))
		}
	}
	return n
}

// edgeWords returns the number of words of one bit set in Near.Edges, for the given number of
// edges.
func edgeWords(edges int) int { return (edges+63)/64 + 1 }

// MarkEdges computes the words [lo,hi) of Edges from Vertices. For each hop it reads the edges of
// these words in order, and Vertices at random.
func (n Near) MarkEdges(indices []graph.VertexID, lo, hi int) {
	for h, marks := range n.Edges {
		set := n.Vertices[h]
		for w := lo; w < hi; w++ {
			word := uint64(0)
			for k, u := range indices[64*w : min(64*w+64, len(indices))] {
				word |= set[u/64] >> (u % 64) & 1 << k
			}
			marks[w] = word
		}
	}
}

// check returns an error for sets that do not fit the Spec and the topology.
func (n Near) check(spec Spec, t *Topology) error {
	if n.None() {
		return nil
	}
	if len(n.Vertices) != spec.Hops() || spec.kind() == Poisson && len(n.Edges) != spec.Hops() {
		return fmt.Errorf("near vertices are given for %d hops and near edges for %d, but there "+
			"are %d hops", len(n.Vertices),
			len(n.Edges), spec.Hops())
	}
	vertices, edges := (len(t.Original)+63)/64, edgeWords(len(t.Graph.Indices))
	for h := range n.Vertices {
		if len(n.Vertices[h]) != vertices || n.Edges != nil && len(n.Edges[h]) != edges {
			return errors.New("the sets of near vertices were made for another graph")
		}
	}
	return nil
}

// None reports whether no vertices are near.
func (n Near) None() bool { return n.Vertices == nil }

// Free frees the sets.
func (n Near) Free() {
	for _, sets := range [...][][]uint64{n.Vertices, n.Edges} {
		for _, set := range sets {
			mem.Free(set)
		}
	}
}

// Bytes returns the memory of the sets.
func (n Near) Bytes() (bytes int64) {
	for _, sets := range [...][][]uint64{n.Vertices, n.Edges} {
		for _, set := range sets {
			bytes += int64(cap(set)) * 8
		}
	}
	return bytes
}

// Digest identifies the sets: XXH64 over all vertex sets, in order.
func (n Near) Digest() uint64 {
	var h xxhash.Digest
	h.Reset()
	for _, set := range n.Vertices { // the Write of a hash returns no error
		_, _ = h.Write(mem.Bytes(set))
	}
	return h.Sum64()
}

// likelier returns, from Near.Vertices or Near.Edges, the set for the hop with the index hop. It
// returns nil if the minibatch does not favour near vertices.
func likelier(sets [][]uint64, hop int, key Key) []uint64 {
	if sets == nil || key.Favour <= 1 {
		return nil
	}
	return sets[hop]
}

// isNear reports whether a set of vertices has v.
func isNear(set []uint64, v graph.VertexID) bool { return set[v/64]>>(v%64)&1 != 0 }

// The function favour returns the probabilities with which a vertex draws each of its near
// neighbours, and each of the others. There are `nearby` near neighbours, and each is s times
// likelier to be drawn than another. The fanout must be less than the degree.
func favour(degree, nearby, fanout int64, s float64) (ofNear, ofOthers float64) {
	c := float64(fanout) / (float64(s*float64(nearby)) + float64(degree-nearby))
	// If q > 1, nearby is less than fanout. The second test guards against rounding.
	if q := float64(c * s); q <= 1 || nearby >= fanout {
		return min(q, 1), c
	}
	return 1, float64(fanout-nearby) / float64(degree-nearby)
}

// farStream is the random sequence with which a vertex chooses among neighbours that are not near.
func farStream(hop uint64, original int32) stream {
	return vertexStream(random.Mix(hop^random.Golden), original)
}

// prefer sets the edges that the hop draws with a higher probability (near, one bit set of
// Near.Edges) and the factor of this probability. The set is nil if all edges are alike.
func (h *hop) prefer(near []uint64, favour float64) {
	if h.near, h.favour = near, favour; near != nil {
		h.nearDegree = mem.Grow(h.nearDegree, len(h.vertices))
		h.nearDrawn = mem.Grow(h.nearDrawn, len(h.vertices))
	}
}

// marks returns a bit for each of 64 edges of destination i, from its k-th edge on: 1 if the edge
// comes from a near vertex. Bits beyond the last edge are 0.
func (h *hop) marks(i int, k int64) uint64 {
	e, left := uint64(h.begin[i]+k), h.degree[i]-k
	words := h.near[e/64:][:2]
	word := words[0]>>(e%64) | words[1]<<(64-e%64)
	if left < 64 {
		word &= 1<<left - 1
	}
	return word
}

// countNear counts the near neighbours of destinations [lo,hi). It is a pass without draws, so that
// the processor can overlap its reads of the marks of many destinations.
func (h *hop) countNear(lo, hi int) {
	for i := lo; i < hi; i++ {
		near := int64(0)
		if h.degree[i] > h.fanout {
			for k := int64(0); k < h.degree[i]; k += 64 {
				near += int64(bits.OnesCount64(h.marks(i, k)))
			}
		}
		h.nearDegree[i] = near
	}
}

// drawNear draws two numbers: how many near neighbours destination i draws, and how many others. It
// returns the sum of both.
func (h *hop) drawNear(i int, s *stream) int64 {
	near := h.nearDegree[i]
	ofNear, ofOthers := favour(h.degree[i], near, h.fanout, h.favour)
	h.nearDrawn[i] = s.binomial(near, ofNear)
	return h.nearDrawn[i] + s.binomial(h.degree[i]-near, ofOthers)
}

// members is a subset of the neighbours of one destination, in memory that is reused. The method
// place finds the k-th of the subset.
type members struct {
	words  []uint64 // bit k%64 of word k/64: neighbour k is a member; arbitrary beyond the row
	before []int64  // number of members before each word; padded to a power of 2 with larger values
}

func (m *members) grow(words int) {
	size := 1 << bits.Len(uint(words-1))
	m.words, m.before = mem.Grow(m.words, words), mem.Grow(m.before, size)
	for w := words; w < size; w++ {
		m.before[w] = math.MaxInt64
	}
}

// place returns the position of member k in the row. Its branches do not depend on the position, so
// that searches for several members overlap.
func (m *members) place(k int64) int64 {
	w := 0
	for half := len(m.before) / 2; half > 0; half /= 2 {
		next := w
		if m.before[w+half] <= k {
			next = w + half
		}
		w = next
	}
	return 64*int64(w) + int64(bitAt(m.words[w], uint64(k-m.before[w])))
}

func (m *members) free() {
	mem.Free(m.words)
	mem.Free(m.before)
}

func (m *members) bytes() int64 { return int64(cap(m.words)+cap(m.before)) * 8 }

// A word in which each byte is 1, and a word in which only the highest bit of each byte is set.
const (
	bytesOf1 = 0x0101010101010101
	highBits = 0x8080808080808080
)

// bitAt returns the place of the k-th set bit, counted from 0; more than k bits must be set. It
// finds the byte by sums over bytes, and the bit in it by spreading its bits over bytes (Vigna,
// Broadword Implementation of Rank/Select Queries, 2008).
func bitAt(word, k uint64) uint64 {
	sums := word - word>>1&0x5555555555555555
	sums = sums&0x3333333333333333 + sums>>2&0x3333333333333333
	sums = (sums + sums>>4) & 0x0f0f0f0f0f0f0f0f * bytesOf1 // byte i: set bits of bytes 0 to i
	at := 8 * bytesAtMost(sums, k)
	k -= sums << 8 >> at & 0xff
	// Byte i of spread has bit i of the byte found, and no other bit.
	spread := word >> at & 0xff * bytesOf1 & 0x8040201008040201
	set := (spread | (spread&^highBits + (highBits - bytesOf1))) & highBits >> 7
	return at + bytesAtMost(set*bytesOf1, k)
}

// bytesAtMost returns how many bytes of a word are at most n. All bytes, and n, must be below 128.
func bytesAtMost(word, n uint64) uint64 {
	return (n*bytesOf1 | highBits - word) & highBits >> 7 * bytesOf1 >> 56
}

// chooseNear sets pos to the positions that destination i draws, first the positions of near
// neighbours.
func (d *drawer) chooseNear(pos []int64, h *hop, i int) {
	words := int((h.degree[i] + 63) / 64)
	d.nears.grow(words)
	d.others.grow(words)
	near := int64(0)
	for w := range words {
		k := 64 * int64(w)
		word := h.marks(i, k)
		d.nears.words[w], d.nears.before[w] = word, near
		d.others.words[w], d.others.before[w] = ^word, k-near
		near += int64(bits.OnesCount64(word))
	}
	drawn := h.nearDrawn[i]
	d.pick(pos[:drawn], h.begin[i], near, &d.nears, vertexStream(h.key, h.original[i]))
	d.pick(pos[drawn:], h.begin[i], h.degree[i]-near, &d.others, farStream(h.key, h.original[i]))
}

// pick sets pos to the positions of len(pos) distinct members of a row. The row has n members, and
// every subset of them is equally likely.
func (d *drawer) pick(pos []int64, begin, n int64, of *members, s stream) {
	if int64(len(pos)) < n {
		d.picks.choose(pos, 0, n, s)
	} else {
		for k := range pos {
			pos[k] = int64(k)
		}
	}
	for k, p := range pos {
		pos[k] = begin + of.place(p)
	}
}

// weighNear sets the weights of the edges that destination i drew to 1/q. It relies on the order of
// chooseNear, which puts edges from near neighbours first.
func (h *hop) weighNear(weights []float32, i int) {
	ofNear, ofOthers := favour(h.degree[i], h.nearDegree[i], h.fanout, h.favour)
	ofEach, drawn := float32(1/ofNear), int(h.nearDrawn[i])
	for k := range weights {
		if k == drawn {
			ofEach = float32(1 / ofOthers)
		}
		weights[k] = ofEach
	}
}
