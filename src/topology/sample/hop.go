package sample

import (
	"math"
	"unsafe"

	"halognn/src/base/mem"
	"halognn/src/devices/compute/cpu"
	"halognn/src/topology/graph"
)

// chunkEdges is the number of edges drawn, gathered and renumbered at a time: few enough that the
// data between passes stays in the L1 cache, but enough that starting the loops costs little.
const chunkEdges = 2048

// hop is one hop being drawn. The work is split into passes over many vertices whose iterations do
// not depend on each other, so that the processor overlaps their cache misses. A single pass that
// follows each vertex from row pointer to neighbours would wait for every miss in turn.
//
//	locate   Indptr[v], Indptr[v+1]      random reads of the row pointers
//	count    edges of each destination   kind Poisson only: arithmetic, or with Numbers the reads
//	                                     of draw
//	         near neighbours first       random reads of the marks of rows (Near.Edges)
//	draw     positions                   arithmetic only; by numbers (Numbers) random reads of the
//	                                     original ids of all neighbours
//	gather   Indices[position]           random reads of the neighbours
//	touch    table[neighbour]            random reads of the vertex map
//	number   table, rows, frontier       finds all entries in the cache (vertexMap)
type hop struct {
	topology *Topology
	rows     []int64 // row pointers; rows[0] belongs to the vertex first
	first    graph.VertexID
	vertices []graph.VertexID // [n] the destinations or, with relations, their columns
	original []int32          // [n] original ids of the destinations
	fanout   int64            // fanout of the hop; MaxInt64 for All
	poisson  bool             // whether each neighbour is drawn independently
	key      uint64           // key of the draws: Spec.word
	numbers  numbers          // random numbers of the vertices, if draws use them
	table    []uint32         // random numbers of all vertices; nil if there is no table
	// the CPU whose kernel draws by random numbers of vertices; nil if plain Go draws
	host  *cpu.Host
	chunk int // largest number of destinations of a chunk

	begin  []int64 // [n] beginning of each destination's row in Indices
	degree []int64 // [n] number of edges that each destination may draw, without skipped ones
	skips  skips   // edges that the minibatch leaves out

	indptr []int64          // [n+1] result: row pointers
	drawn  []graph.VertexID // [indptr[n]] result: the neighbours drawn

	// set of edges (Near.Edges) that are drawn likelier, by the factor favour; nil if there are
	// none
	near       []uint64
	favour     float64
	nearDegree []int64 // [n] number of near neighbours of each destination
	nearDrawn  []int64 // [n] number of near neighbours that each destination draws

	weights []float32 // [indptr[n]] weights of the edges drawn; nil if not needed
	ofData  []float32 // edge weights of the topology, if weights use them
	places  []int32   // [indptr[n]] positions of the edges drawn; nil if not needed
}

func (h *hop) start(t *Topology, vertices []graph.VertexID, original []int32, indptr []int64) {
	h.topology, h.vertices, h.original, h.indptr = t, vertices, original, indptr
	h.rows, h.first = t.rows()
	h.begin = mem.Grow(h.begin, len(vertices))
	h.degree = mem.Grow(h.degree, len(vertices))
	h.drawn, h.weights, h.ofData, h.places, h.poisson, h.near = nil, nil, nil, nil, false, nil
}

// setDraws sets how many neighbours the next destinations draw, and the key of their draws.
func (h *hop) setDraws(fanout int, key uint64, m moment) {
	h.key = key
	h.fanout, h.chunk = int64(fanout), max(chunkEdges/max(fanout, 1), 1)
	if fanout == All {
		h.fanout, h.chunk = math.MaxInt64, chunkEdges/16
	}
	h.number(m)
}

func (h *hop) free() {
	mem.Free(h.begin)
	mem.Free(h.degree)
	mem.Free(h.nearDegree)
	mem.Free(h.nearDrawn)
}

func (h *hop) bytes() int64 {
	return int64(cap(h.begin)+cap(h.degree)+cap(h.nearDegree)+cap(h.nearDrawn)) * 8
}

// locate finds the rows of destinations [lo,hi), sets indptr[lo+1:hi+1] to the running number of
// their edges, counted from 0, and returns that number.
func (h *hop) locate(lo, hi int) int64 {
	begin, degree, ends := h.begin[lo:hi], h.degree[lo:hi], h.indptr[lo+1:hi+1]
	rows, first := h.rows, h.first
	edges := int64(0)
	for i, v := range h.vertices[lo:hi] {
		row := rows[v-first:][:2]
		begin[i], degree[i] = row[0], row[1]-row[0]
		if lo+i < h.skips.end() {
			degree[i] -= int64(len(h.skips.skippedPlaces(lo + i)))
		}
		edges += min(degree[i], h.fanout)
		ends[i] = edges
	}
	if h.poisson {
		return h.count(lo, hi)
	}
	return edges
}

// count is the second half of locate for kind Poisson: it draws how many neighbours each of the
// destinations [lo,hi) draws, and sets indptr. If all neighbours are equally likely, any subset of
// the drawn size is equally likely too. So draw can choose the neighbours afterwards, as for a
// fanout of that size. The cost grows with the edges drawn, not with the length of the row.
func (h *hop) count(lo, hi int) int64 {
	if h.near != nil {
		h.countNear(lo, hi)
	}
	ends, edges := h.indptr[lo+1:hi+1], int64(0)
	for i, degree := range h.degree[lo:hi] {
		if degree > h.fanout {
			s := countStream(h.key, h.original[lo+i])
			switch {
			case h.numbered(lo + i):
				degree = h.countBelow(lo + i)
			case h.near != nil:
				degree = h.drawNear(lo+i, &s)
			default:
				degree = s.binomial(degree, float64(h.fanout)/float64(degree))
			}
		}
		edges += degree
		ends[i] = edges
	}
	return edges
}

// drawer is the scratch memory of one goroutine that draws.
type drawer struct {
	picks picks
	// near neighbours of one destination (nears), and its other neighbours (others)
	nears, others members
	pos           []int64        // positions in Indices of the edges of one chunk
	found         []uint64       // neighbours of one destination that may be drawn
	sink          graph.VertexID // written so that the compiler keeps the reads of touch
}

func newDrawer() drawer { return drawer{pos: mem.Make[int64](chunkEdges)} }

// draw sets drawn[indptr[lo]:indptr[hi]] to the neighbours drawn by destinations [lo,hi), at most
// h.chunk of them. If the kernel stops at a destination, plain Go draws for it. This happens in
// rare cases, and on a damaged topology, on which plain Go panics.
func (d *drawer) draw(h *hop, lo, hi int) {
	for lo < hi {
		end, skip := hi, true
		if h.byKernel() {
			end, skip = h.skips.run(lo, hi)
		}
		if !skip {
			lo += d.drawLeast(h, lo, end)
			end = min(end, lo+1)
		}
		if lo < end {
			d.drawPlainly(h, lo, end)
			lo = end
		}
	}
}

func (d *drawer) drawPlainly(h *hop, lo, hi int) {
	indices := h.topology.Graph.Indices
	if h.fanout == math.MaxInt64 {
		for i := lo; i < hi; i++ {
			if without := h.skips.skippedPlaces(i); len(without) > 0 {
				d.drawRest(h, i, without)
				continue
			}
			// Panics if the row exceeds Indices, instead of cutting it short.
			row := indices[h.begin[i]:][:h.degree[i]]
			copy(h.drawn[h.indptr[i]:h.indptr[i+1]], row)
			if h.places != nil {
				for k := range row {
					h.places[h.indptr[i]+int64(k)] = int32(h.begin[i]) + int32(k)
				}
			}
			if h.weights == nil {
				continue
			}
			weights := h.weights[h.indptr[i]:h.indptr[i+1]]
			if h.ofData != nil {
				copy(weights, h.ofData[h.begin[i]:])
				continue
			}
			for k := range weights {
				weights[k] = 1
			}
		}
		return
	}
	if h.numbers.lasts > 0 {
		d.sink = h.touch(lo, hi)
	}
	first := h.indptr[lo]
	// One vertex alone may draw more than a chunk.
	d.pos = mem.Grow(d.pos, max(chunkEdges, int(h.indptr[hi]-first)))
	for i := lo; i < hi; i++ {
		pos := d.pos[h.indptr[i]-first : h.indptr[i+1]-first]
		begin, degree := h.begin[i], h.degree[i]
		switch {
		case h.numbered(i) && h.poisson:
			d.chooseBelow(pos, h, i)
		case h.numbered(i):
			d.chooseLeast(pos, h, i)
		case h.near != nil && degree > h.fanout:
			d.chooseNear(pos, h, i)
		case degree == int64(len(pos)):
			for k := range pos {
				pos[k] = begin + int64(k)
			}
		default:
			d.picks.choose(pos, begin, degree, vertexStream(h.key, h.original[i]))
		}
		if without := h.skips.skippedPlaces(i); len(without) > 0 && !h.numbered(i) {
			pass(pos, begin, without)
		}
	}
	drawn := h.drawn[first:h.indptr[hi]]
	for k, p := range d.pos[:len(drawn)] {
		drawn[k] = indices[p]
	}
	h.place(lo, d.pos[:len(drawn)])
	if h.weights != nil {
		h.weigh(lo, hi, d.pos)
	}
}

// place stores the positions of drawn edges in h.places. The list pos begins with the positions of
// the edges of destination lo.
func (h *hop) place(lo int, pos []int64) {
	if h.places == nil {
		return
	}
	for k, p := range pos {
		h.places[h.indptr[lo]+int64(k)] = int32(p)
	}
}

// drawRest draws all edges of the row of destination i, except those that the minibatch leaves out.
// The places of these edges in the row are given (`without`).
func (d *drawer) drawRest(h *hop, i int, without []int64) {
	d.pos = mem.Grow(d.pos, max(chunkEdges, int(h.degree[i])))
	pos := d.pos[:h.degree[i]]
	for k := range pos {
		pos[k] = h.begin[i] + int64(k)
	}
	pass(pos, h.begin[i], without)
	for k, p := range pos {
		h.drawn[h.indptr[i]+int64(k)] = h.topology.Graph.Indices[p]
	}
	h.place(i, pos)
	if h.weights != nil {
		h.weigh(i, i+1, pos)
	}
}

// weigh sets the weights of the edges that destinations [lo,hi) drew, at positions pos of Indices.
// It reads pos only if edges have weights in the data or some edges are near.
func (h *hop) weigh(lo, hi int, pos []int64) {
	first := h.indptr[lo]
	for i := lo; i < hi; i++ {
		inverse, weights := h.inverse(i), h.weights[h.indptr[i]:h.indptr[i+1]]
		for k := range weights {
			weights[k] = inverse
		}
		if h.poisson && h.numbered(i) {
			h.weighBelow(weights, i, pos, int(h.indptr[i]-first))
		} else if h.near != nil && h.degree[i] > h.fanout {
			h.weighNear(weights, i)
		}
		if h.ofData != nil {
			for k, p := range pos[h.indptr[i]-first:][:len(weights)] {
				weights[k] *= h.ofData[p]
			}
		}
	}
}

// inverse returns the factor of the weights of a destination's edges: 1/q for kind Poisson, where
// an edge is drawn with probability q, and 1 for other kinds.
func (h *hop) inverse(i int) float32 {
	if !h.poisson || h.degree[i] <= h.fanout {
		return 1
	}
	return float32(float64(h.degree[i]) / float64(h.fanout))
}

// drawChunks draws for any number of destinations [lo,hi).
func (d *drawer) drawChunks(h *hop, lo, hi int) {
	for ; lo < hi; lo += h.chunk {
		d.draw(h, lo, min(lo+h.chunk, hi))
	}
}

func (d *drawer) free() {
	mem.Free(d.pos)
	mem.Free(d.found)
	d.nears.free()
	d.others.free()
}

func (d *drawer) bytes() int64 {
	return d.nears.bytes() + d.others.bytes() + int64(cap(d.pos)+cap(d.found)+len(d.picks.table))*8
}

// asVertices returns the memory of rows as vertex ids. The Indices of a block hold the ids of the
// neighbours drawn until they are renumbered in place.
func asVertices(rows []int32) []graph.VertexID {
	return unsafe.Slice((*graph.VertexID)(unsafe.SliceData(rows)), len(rows))
}

// asRows returns the memory of vertex ids as local numbers. It is the inverse of asVertices.
func asRows(vertices []graph.VertexID) []int32 {
	return unsafe.Slice((*int32)(unsafe.SliceData(vertices)), len(vertices))
}
