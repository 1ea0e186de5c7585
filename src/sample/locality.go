package sample

import (
	"github.com/cespare/xxhash/v2"

	"halognn/src/graph"
	"halognn/src/mem"
	"halognn/src/random"
)

// Locality-aware sampling (data placement, Song and Jiang, ICS '22, section 4): vertices that are
// near, because their rows or those of their neighbours are at hand, are drawn with s times the
// probability.
//
//	q'(u) = c s q(u) if u is near, else c q(u)       c such that the sum of q' is that of q
//
// The sum is over the in-neighbours of a vertex for kind Poisson, over those of a layer for kind
// LADIES. A q' above 1 is 1, and the others share what is left over. Edges weigh 1/q', so estimates
// stay unbiased, and vary more.

// Near says which vertices are near, for each hop, seed hop first: bit v%64 of word v/64 is vertex
// v.
type Near [][]uint64

// Free frees sets that lie outside the Go heap.
func (n Near) Free() {
	for h := range n {
		mem.Free(n[h])
	}
}

// Bytes returns their memory.
func (n Near) Bytes() (bytes int64) {
	for _, set := range n {
		bytes += int64(cap(set)) * 8
	}
	return bytes
}

// Digest tells sets apart: XXH64 over all of them, in order.
func (n Near) Digest() uint64 {
	var h xxhash.Digest
	h.Reset()
	for _, set := range n { // the Write of a hash returns no error
		_, _ = h.Write(mem.Bytes(set))
	}
	return h.Sum64()
}

// at returns the set of a hop, from 0; nil: none is likelier.
func (n Near) at(hop int, key Key) []uint64 {
	if n == nil || key.Favour <= 1 {
		return nil
	}
	return n[hop]
}

// isNear reports whether a set has v.
func isNear(set []uint64, v graph.VertexID) bool { return nearBit(set, v) != 0 }

// nearBit is isNear as a number: loops add it up without a branch, which no processor would foresee.
func nearBit(set []uint64, v graph.VertexID) int { return int(set[v/64] >> (v % 64) & 1) }

// favour returns the probabilities of a vertex's near neighbours, of which there are so many, and
// of the others. The fanout is less than the degree.
func favour(degree, near, fanout int64, s float64) (ofNear, ofOthers float64) {
	c := float64(fanout) / (float64(s*float64(near)) + float64(degree-near))
	if q := float64(c * s); q <= 1 || near >= fanout { // the sum of q of near ones is below fanout
		return min(q, 1), c
	}
	return 1, float64(fanout-near) / float64(degree-near)
}

// farStream is the random sequence by which a vertex chooses among neighbours that are not near.
func farStream(hop uint64, original int32) stream {
	return vertexStream(random.Mix(hop^random.Golden), original)
}

// prefer makes near vertices likelier in the hop; nil: none.
func (h *hop) prefer(near []uint64, favour float64) {
	if h.near, h.favour = near, favour; near != nil {
		h.nearDegree = mem.Grow(h.nearDegree, len(h.vertices))
		h.nearDrawn = mem.Grow(h.nearDrawn, len(h.vertices))
	}
}

// countNear draws how many near and how many other neighbours destination i draws, and returns the
// sum.
func (h *hop) countNear(i int, s *stream) int64 {
	count := 0
	for _, u := range h.topology.Graph.Indices[h.begin[i]:][:h.degree[i]] {
		count += nearBit(h.near, u)
	}
	near := int64(count)
	ofNear, ofOthers := favour(h.degree[i], near, h.fanout, h.favour)
	drawn := s.binomial(near, ofNear)
	h.nearDegree[i], h.nearDrawn[i] = near, drawn
	return drawn + s.binomial(h.degree[i]-near, ofOthers)
}

// chooseNear sets pos to the positions that destination i draws: first those of near neighbours.
func (d *drawer) chooseNear(pos []int64, h *hop, i int) {
	begin, degree, near := h.begin[i], int(h.degree[i]), int(h.nearDegree[i])
	// Every position is written to the end of both lists, of which one grows: each has room for one
	// more.
	d.split = mem.Grow(d.split, degree+2)
	nears, others := d.split[:near+1], d.split[near+1:degree+2]
	n := 0
	for k, u := range h.topology.Graph.Indices[begin:][:degree] {
		nears[n], others[k-n] = begin+int64(k), begin+int64(k)
		n += nearBit(h.near, u)
	}
	drawn := h.nearDrawn[i]
	d.pick(pos[:drawn], nears[:near], vertexStream(h.key, h.original[i]))
	d.pick(pos[drawn:], others[:degree-near], farStream(h.key, h.original[i]))
}

// pick sets pos to len(pos) distinct elements of from, every subset equally likely.
func (d *drawer) pick(pos, from []int64, s stream) {
	if len(pos) == len(from) {
		copy(pos, from)
		return
	}
	d.picks.choose(pos, 0, int64(len(from)), s)
	for k, p := range pos {
		pos[k] = from[p]
	}
}

// weighNear sets the weights of the edges that destination i drew, which chooseNear has ordered, to
// 1/q.
func (h *hop) weighNear(weights []float32, i int) {
	ofNear, ofOthers := favour(h.degree[i], h.nearDegree[i], h.fanout, h.favour)
	for k := range weights {
		weights[k] = float32(1 / ofOthers)
		if int64(k) < h.nearDrawn[i] {
			weights[k] = float32(1 / ofNear)
		}
	}
}
