package sample

import (
	"halognn/src/graph"
	"halognn/src/mem"
)

// Kernel says how a hop becomes a block. The minibatches are the same.
type Kernel int

// The kernels.
const (
	// KernelFused draws straight into the columns of a block and renumbers there.
	KernelFused Kernel = iota
	// KernelCOO is what the fused one is measured against, as FastSample (section 3.2) describes
	// it: a hop is drawn as pairs (source, destination), the ids of both are compacted, and the
	// pairs are converted to CSC. It makes the same keyed draws and takes either vertex map, so
	// that what is compared is formats and passes. One goroutine makes a minibatch.
	KernelCOO
)

// pairs is the memory of KernelCOO. It is reused from hop to hop.
type pairs struct {
	src, dst       []graph.VertexID // [E] the edges
	weights        []float32        // [E] of them; empty if blocks have none
	srcRow, dstRow []int32          // [E] their local numbers
	ends           []int64          // [n+1] edges before each vertex
	next           []int64          // [n] where the next edge of a destination goes
}

// expandPairs is expand by KernelCOO.
func (s *Fused) expandPairs(block *graph.Block, fanout int, key uint64) error {
	p, mb, n := s.pairs, s.mb, len(s.mb.Frontier)
	p.ends = mem.Grow(p.ends, n+1)
	s.hop.start(&s.topology, mb.Frontier, mb.Original, p.ends, fanout, key)
	s.hop.poisson = s.kind == Poisson
	if err := s.locate(); err != nil {
		return err
	}
	edges := int(p.ends[n])
	if err := s.checkEdges(edges, n); err != nil {
		return err
	}
	p.src, p.dst = mem.Grow(p.src, edges), mem.Grow(p.dst, edges)
	s.hop.drawn = p.src
	p.weights = s.weigh(p.weights, edges)
	s.drawVertices(0, n, p.dst)
	s.convert(block)
	return nil
}

// drawVertices draws destinations [lo,hi) one after the other, and writes each beside what it has
// drawn, unless dst is nil.
func (s *Fused) drawVertices(lo, hi int, dst []graph.VertexID) {
	h, drawer := &s.hop, &s.workers[0].drawer
	for i := lo; i < hi; i++ {
		row := s.topology.Graph.Indices[h.begin[i]:][:h.degree[i]]
		first, drawn := h.indptr[i], h.drawn[h.indptr[i]:h.indptr[i+1]]
		drawer.pos = mem.Grow(drawer.pos, max(chunkEdges, len(drawn)))
		pos := drawer.pos[:len(drawn)]
		if len(pos) == len(row) {
			for k := range pos {
				pos[k] = int64(k)
			}
		} else {
			drawer.picks.choose(pos, 0, int64(len(row)), vertexStream(h.key, h.original[i]))
		}
		for k, at := range pos {
			drawn[k] = row[at]
			if h.weights != nil {
				w := h.inverse(i)
				if h.ofData != nil {
					w *= h.ofData[h.begin[i]+at]
				}
				h.weights[first+int64(k)] = w
			}
			if dst != nil {
				dst[first+int64(k)] = h.vertices[i]
			}
		}
	}
}

// convert makes the block of the pairs, and appends the vertices that it finds to the frontier.
func (s *Fused) convert(block *graph.Block) {
	p, mb, n, edges := s.pairs, s.mb, len(s.mb.Frontier), len(s.pairs.src)
	// Compact the ids of both.
	mb.Frontier = mem.Grow(mb.Frontier, min(n+edges, len(s.topology.Original))+1)
	p.srcRow, p.dstRow = mem.Grow(p.srcRow, max(edges, n)), mem.Grow(p.dstRow, edges)
	s.vertices.reset()
	total := renumber(s.vertices, mb.Frontier[:n], p.srcRow, mb.Frontier, 0)
	total = renumber(s.vertices, p.src, p.srcRow, mb.Frontier, total)
	renumber(s.vertices, p.dst, p.dstRow, mb.Frontier, total)
	mb.Frontier = mb.Frontier[:total]
	mb.Original = mem.Grow(mb.Original, total)
	s.gatherOriginal(n, total)
	// Convert to CSC: count, add up, scatter.
	block.NumDst, block.NumSrc = n, total
	block.Indptr, block.Indices = mem.Grow(block.Indptr, n+1), mem.Grow(block.Indices, edges)
	p.next = mem.Grow(p.next, n)
	clear(block.Indptr)
	for _, d := range p.dstRow {
		block.Indptr[d+1]++
	}
	for d := range n {
		block.Indptr[d+1] += block.Indptr[d]
	}
	copy(p.next, block.Indptr)
	block.Weights = mem.Grow(block.Weights, len(p.weights))
	if len(p.weights) > 0 {
		for e, d := range p.dstRow {
			block.Weights[p.next[d]] = p.weights[e]
			block.Indices[p.next[d]] = p.srcRow[e]
			p.next[d]++
		}
		return
	}
	for e, d := range p.dstRow {
		block.Indices[p.next[d]] = p.srcRow[e]
		p.next[d]++
	}
}

// extendPairs makes the pairs of a hop whose draws have come from several ranks: block has them as
// rows.
func (s *Fused) extendPairs(block *graph.Block) {
	p, drawn := s.pairs, asVertices(block.Indices)
	p.src, p.dst = mem.Grow(p.src, len(drawn)), mem.Grow(p.dst, len(drawn))
	p.weights = mem.Grow(p.weights, len(block.Weights))
	copy(p.src, drawn)
	copy(p.weights, block.Weights)
	for i, v := range s.mb.Frontier {
		for e := block.Indptr[i]; e < block.Indptr[i+1]; e++ {
			p.dst[e] = v
		}
	}
	s.convert(block)
}

func (p *pairs) bytes() int64 {
	if p == nil {
		return 0
	}
	return int64(cap(p.src)+cap(p.dst)+cap(p.weights)+cap(p.srcRow)+cap(p.dstRow))*4 +
		int64(cap(p.ends)+cap(p.next))*8
}

func (p *pairs) free() {
	if p == nil {
		return
	}
	mem.Free(p.src)
	mem.Free(p.dst)
	mem.Free(p.weights)
	mem.Free(p.srcRow)
	mem.Free(p.dstRow)
	mem.Free(p.ends)
	mem.Free(p.next)
}
