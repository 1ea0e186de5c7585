package nn

import "halognn/src/compute"

// perEdge are the segments by which layers with features of edges work on a row for each edge, with
// the kernels of other layers. The zero value is ready; the arrays are reused.
type perEdge struct {
	ends  []int64 // 0, 1, 2, ...
	none  []int64 // zeros
	edges []int32 // 0, 1, 2, ...
	to    []int32 // destination of each edge
}

// reserve makes the arrays for the edges of a hop. One that is only counted, to plan memory, has no
// segments, and nothing is made.
func (p *perEdge) reserve(h *Hop) {
	if h.Forward.Indptr == nil {
		return
	}
	n := h.edges()
	for len(p.ends) <= n {
		p.ends, p.none = append(p.ends, int64(len(p.ends))), append(p.none, 0)
		p.edges = append(p.edges, int32(len(p.edges)))
	}
	p.to = p.to[:0]
	for d := 1; d < len(h.Forward.Indptr); d++ {
		for range h.Forward.Indptr[d] - h.Forward.Indptr[d-1] {
			p.to = append(p.to, int32(d-1))
		}
	}
}

// sources are segments of one edge each, which read the row of the edge's source; destinations read
// that of its destination.
func (p *perEdge) sources(h *Hop) compute.Segments {
	return compute.Segments{Indptr: p.ends[:h.edges()+1], Indices: h.Forward.Indices}
}

func (p *perEdge) destinations(h *Hop) compute.Segments {
	n := h.edges()
	return compute.Segments{Indptr: p.ends[:n+1], Indices: p.to, Edges: p.edges[:n]}
}

// into are the rows of the edges into each destination, outOf those out of each source.
func (p *perEdge) into(h *Hop) compute.Segments {
	return compute.Segments{Indptr: h.Forward.Indptr, Indices: p.edges[:h.edges()]}
}

func (p *perEdge) outOf(h *Hop) compute.Segments {
	return compute.Segments{Indptr: h.Transposed.Indptr, Indices: h.Transposed.Edges}
}

// clear sets a row for each edge to zero.
func (p *perEdge) clear(dev compute.Device, rows compute.Matrix) {
	dev.SegmentSum(rows, compute.Segments{Indptr: p.none[:rows.Rows+1]}, nil, rows, false)
}
