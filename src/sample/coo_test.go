package sample

import (
	"halognn/src/graph"
	"halognn/src/mem"
)

// coo is the sampler that the fused one is measured against, as FastSample (section 3.2) describes
// it: a hop is drawn as pairs (source, destination), the ids of both are compacted, and the pairs
// are converted to CSC. It makes the same keyed draws, reuses its arrays and uses either vertex
// map, so that only formats and passes differ.
type coo struct {
	topology *Topology
	fanouts  []int
	vertices vertexMap
	picks    picks
	pos      []int64
	src, dst []graph.VertexID
	srcRow   []int32
	dstRow   []int32
	next     []int64
}

func newCOO(t *Topology, fanouts []int, m vertexMap) *coo {
	most := 0
	for _, f := range fanouts {
		most = max(most, f)
	}
	return &coo{topology: t, fanouts: fanouts, vertices: m, pos: make([]int64, most)}
}

func (c *coo) sample(mb *Minibatch, seeds []graph.VertexID, key Key) {
	t := c.topology
	mb.layers(len(c.fanouts))
	frontier := mem.Grow(mb.Frontier, len(seeds))
	copy(frontier, seeds)
	for h, fanout := range c.fanouts {
		n := len(frontier)
		// Draw to pairs.
		c.src, c.dst = mem.Grow(c.src, n*fanout), mem.Grow(c.dst, n*fanout)
		edges := 0
		for _, v := range frontier {
			row := t.Graph.InNeighbours(v)
			pos := c.pos[:min(len(row), fanout)]
			if len(row) > fanout {
				c.picks.choose(pos, 0, int64(len(row)), vertexStream(key.hop(h+1), t.Original[v]))
			} else {
				for k := range pos {
					pos[k] = int64(k)
				}
			}
			for k, p := range pos {
				c.src[edges+k], c.dst[edges+k] = row[p], v
			}
			edges += len(pos)
		}
		c.src, c.dst = c.src[:edges], c.dst[:edges]
		// Compact the ids of both.
		frontier = mem.Grow(frontier, n+edges+1)
		c.srcRow, c.dstRow = mem.Grow(c.srcRow, max(edges, n)), mem.Grow(c.dstRow, edges)
		c.vertices.reset()
		total := renumber(c.vertices, frontier[:n], c.srcRow, frontier, 0)
		total = renumber(c.vertices, c.src, c.srcRow, frontier, total)
		renumber(c.vertices, c.dst, c.dstRow, frontier, total)
		frontier = frontier[:total]
		// Convert to CSC: count, add up, scatter.
		b := &mb.Blocks[len(c.fanouts)-1-h]
		b.NumDst, b.NumSrc = n, total
		b.Indptr, b.Indices, c.next = mem.Grow(b.Indptr, n+1), mem.Grow(b.Indices, edges),
			mem.Grow(c.next, n)
		clear(b.Indptr)
		for _, d := range c.dstRow {
			b.Indptr[d+1]++
		}
		for d := range n {
			b.Indptr[d+1] += b.Indptr[d]
		}
		copy(c.next, b.Indptr)
		for e, d := range c.dstRow {
			b.Indices[c.next[d]] = c.srcRow[e]
			c.next[d]++
		}
	}
	mb.Frontier, mb.Seeds = frontier, frontier[:len(seeds)]
	mb.Original = mem.Grow(mb.Original, len(frontier))
	for i, v := range frontier {
		mb.Original[i] = t.Original[v]
	}
}
