package nn

import (
	"errors"

	"halognn/src/base/mem"
	"halognn/src/devices/compute"
)

// perEdge is used by layers that read features of edges. Its arrays make every edge a segment of
// its own, so that the usual kernels compute a row for each edge, instead of a row for each
// destination. The arrays are outside the Go heap and are reused.
type perEdge struct {
	*numbered
	to      []int32 // destination of each edge
	counted *buffer
}

// numbered has the arrays that all layers of a model with features of edges share.
type numbered struct {
	ends    []int64 // 0, 1, 2, ...
	none    []int64 // zeros
	edges   []int32 // 0, 1, 2, ...
	counted *buffer
}

// perEdge makes the perEdge of a layer.
func (s *store) perEdge() *perEdge {
	if s.numbered == nil {
		s.numbered = &numbered{counted: s.buffer()}
	}
	p := &perEdge{numbered: s.numbered, counted: s.buffer()}
	s.perEdges = append(s.perEdges, p)
	return p
}

// reserve makes the arrays for the edges of a hop. When memory is only planned, a hop has counts
// and no segments; reserve then counts the arrays in a buffer, in units of 4 bytes. If an array
// must grow, the old one is freed at once. This is safe because only CPUs read features of edges,
// and a kernel on a CPU has ended when its call returns.
func (p *perEdge) reserve(h *Hop) error {
	n := h.edges()
	if h.Forward.Indptr == nil {
		return errors.Join(p.numbered.counted.reserve((2+2+1)*n), p.counted.reserve(n))
	}
	if at := len(p.ends); at <= n {
		p.ends, p.none, p.edges = mem.Grow(p.ends, n+1), mem.Grow(p.none, n+1),
			mem.Grow(p.edges, n+1)
		for i := at; i <= n; i++ {
			p.ends[i], p.none[i], p.edges[i] = int64(i), 0, int32(i)
		}
	}
	p.to = mem.Grow(p.to[:0], n)
	for d := range max(1, len(h.Forward.Indptr)) - 1 {
		for e := h.Forward.Indptr[d]; e < h.Forward.Indptr[d+1]; e++ {
			p.to[e] = int32(d)
		}
	}
	return nil
}

func (p *perEdge) bytes() int64 { return int64(cap(p.to)) * 4 }

func (x *numbered) bytes() int64 {
	if x == nil {
		return 0
	}
	return int64(cap(x.ends)+cap(x.none))*8 + int64(cap(x.edges))*4
}

func (x *numbered) free() {
	if x != nil {
		mem.Free(x.ends)
		mem.Free(x.none)
		mem.Free(x.edges)
		x.ends, x.none, x.edges = nil, nil, nil
	}
}

// sources returns segments for edges: one segment for each edge, which reads the row of the edge's
// source. The method destinations returns segments that read the row of each edge's destination.
func (p *perEdge) sources(h *Hop) compute.Segments {
	return compute.Segments{Indptr: p.ends[:h.edges()+1], Indices: h.Forward.Indices}
}

func (p *perEdge) destinations(h *Hop) compute.Segments {
	n := h.edges()
	return compute.Segments{Indptr: p.ends[:n+1], Indices: p.to, Edges: p.edges[:n]}
}

// into returns a segment for each destination, which reads the rows of the edges into it. The
// method outOf returns a segment for each source, which reads the rows of the edges out of it.
func (p *perEdge) into(h *Hop) compute.Segments {
	return compute.Segments{Indptr: h.Forward.Indptr, Indices: p.edges[:h.edges()]}
}

func (p *perEdge) outOf(h *Hop) compute.Segments {
	return compute.Segments{Indptr: h.Transposed.Indptr, Indices: h.Transposed.Edges}
}

// clear sets all rows to zero. There is a row for each edge.
func (p *perEdge) clear(dev compute.Device, rows compute.Matrix) {
	dev.SegmentSum(rows, compute.Segments{Indptr: p.none[:rows.Rows+1]}, nil, rows, false)
}
