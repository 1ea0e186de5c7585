package parallel

import (
	"halognn/src/base/mem"
	"halognn/src/devices/compute"
	"halognn/src/rows/exchange"
)

// learnedMeans are the means of learned rows that the input layer reads instead of rows (averaged):
// for each type the means of its rows by relation, then the destinations' own rows.
//
//	segments   means of type 0 │ of type 1 │ ... │ own rows of type 0 │ of type 1 │ ...
//	x          [means, own rows] of each type, before its linear map
//	row        the gradient of a row is the sum, in this order, of the gradients of its sums
//
// So a row's gradients from relations come first, in the order of relations, and the gradient from
// its use as own row comes last.
type learnedMeans struct {
	exchange.Edges           // the means; sources are places in learnedOf.ids
	types          []meansOf // [T] segments of each type
}

// meansOf are the segments of one vertex type.
type meansOf struct {
	averaged   bool
	means, own span
}

type span struct{ first, end int }

func (s span) len() int { return s.end - s.first }

// rows returns how many rows of the type the input layer reads, if it is averaged.
func (m *meansOf) rows() int { return m.means.len() + m.own.len() }

// list lists the segments of the types that learn rows and are averaged. The vertices of type t
// begin at first[t] in the list of vertices with learned rows.
func (a *learnedMeans) list(e *LayerEdges, learns []bool, first []int) {
	if len(a.types) != len(learns) {
		a.types = make([]meansOf, len(learns))
	}
	a.Indptr = append(mem.Grow(a.Indptr[:0], 1)[:0], 0)
	a.Indices, a.Counts, a.Alone = a.Indices[:0], nil, 0
	for t := range a.types {
		a.types[t] = meansOf{}
		if s, averaged := e.Means(t); averaged && learns[t] {
			n := s.Len() - e.means.types[t].own
			a.types[t].averaged = true
			a.types[t].means = a.appendSegments(s, span{0, n}, first[t]-e.order.begin(t))
		}
	}
	for t := range a.types {
		if s, _ := e.Means(t); a.types[t].averaged {
			n := s.Len() - e.means.types[t].own
			a.types[t].own = a.appendSegments(s, span{n, s.Len()}, first[t]-e.order.begin(t))
			a.Alone += a.types[t].own.len()
		}
	}
	own := a.Indices[a.Indptr[a.count()-a.Alone]:]
	a.Whole = append(mem.Grow(a.Whole[:0], len(own))[:0], own...)
}

// appendSegments appends those segments of s that lie in the span part, and adds shift to their
// indices.
func (a *learnedMeans) appendSegments(s compute.Segments, part span, shift int) span {
	begin, edges := len(a.Indptr)-1, len(a.Indices)
	lo, hi := s.Indptr[part.first], s.Indptr[part.end]
	a.Indptr = mem.Grow(a.Indptr, begin+part.len()+1)
	a.Indices = mem.Grow(a.Indices, edges+int(hi-lo))
	for k := range part.len() {
		a.Indptr[begin+k+1] = s.Indptr[part.first+k+1] - lo + int64(edges)
	}
	for k, source := range s.Indices[lo:hi] {
		to := compute.SourceOf(source) + int32(shift)
		if source < 0 {
			to = ^to
		}
		a.Indices[edges+k] = to
	}
	return span{begin, begin + part.len()}
}

// count returns the number of segments.
func (a *learnedMeans) count() int { return len(a.Indptr) - 1 }

// segments returns the segments of a span.
func (a *learnedMeans) segments(of span) compute.Segments {
	s := compute.Segments{Indptr: a.Indptr[of.first : of.end+1], Indices: a.Indices}
	if a.Counts != nil {
		s.Counts = a.Counts[of.first:of.end]
	}
	return s
}

// size returns the number of rows of a segment: its mean is their sum times 1/size.
func (a *learnedMeans) size(k int) int {
	if a.Counts != nil {
		return int(a.Counts[k])
	}
	return int(a.Indptr[k+1] - a.Indptr[k])
}

func (a *learnedMeans) bytes() int64 {
	return int64(cap(a.Indptr))*8 + int64(cap(a.Indices)+cap(a.Whole))*4
}

func (a *learnedMeans) free() {
	mem.Free(a.Indptr)
	mem.Free(a.Indices)
	mem.Free(a.Whole)
}
