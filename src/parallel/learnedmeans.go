package parallel

import (
	"halognn/src/compute"
	"halognn/src/exchange"
	"halognn/src/graph"
	"halognn/src/mem"
)

// learnedMeans are the means of learned rows that the input layer reads in the place of rows
// (averaged): of each type the means of its rows by relation, and the destinations' own rows.
//
//	segments   means of type 0 │ of type 1 │ ... │ own rows of type 0 │ of type 1 │ ...
//	x          [means, own rows] of each type, before its map
//	row        the gradient of a row is the sum, in this order, of those of the sums that it is in
//
// So own rows come last, and what relations add comes first, in their order.
type learnedMeans struct {
	exchange.Edges           // of places in learnedOf.ids
	types          []meansOf // [T]
	sums           []float32 // [segments, cols] gradients of sums
	rows           []float32 // [places, cols] and of rows
	transpose      graph.BlockTranspose
}

// meansOf are the segments of a type.
type meansOf struct {
	averaged   bool
	means, own span
}

type span struct{ first, end int }

func (s span) len() int { return s.end - s.first }

// rows returns how many rows of the type the input layer reads, if it is averaged.
func (m *meansOf) rows() int { return m.means.len() + m.own.len() }

// list lists the segments of the types that learn rows and are averaged. Of type t the vertices begin
// at first[t] in the list of those with learned rows.
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
			a.types[t].means = a.add(s, span{0, n}, first[t]-e.order.begin(t))
		}
	}
	for t := range a.types {
		if s, _ := e.Means(t); a.types[t].averaged {
			n := s.Len() - e.means.types[t].own
			a.types[t].own = a.add(s, span{n, s.Len()}, first[t]-e.order.begin(t))
			a.Alone += a.types[t].own.len()
		}
	}
	own := a.Indices[a.Indptr[a.count()-a.Alone]:]
	a.Whole = append(mem.Grow(a.Whole[:0], len(own))[:0], own...)
}

// add appends some segments of s, whose indices are moved.
func (a *learnedMeans) add(s compute.Segments, of span, by int) span {
	begin, edges := len(a.Indptr)-1, len(a.Indices)
	lo, hi := s.Indptr[of.first], s.Indptr[of.end]
	a.Indptr = mem.Grow(a.Indptr, begin+of.len()+1)
	a.Indices = mem.Grow(a.Indices, edges+int(hi-lo))
	for k := range of.len() {
		a.Indptr[begin+k+1] = s.Indptr[of.first+k+1] - lo + int64(edges)
	}
	for k, source := range s.Indices[lo:hi] {
		to := compute.SourceOf(source) + int32(by)
		if source < 0 {
			to = ^to
		}
		a.Indices[edges+k] = to
	}
	return span{begin, begin + of.len()}
}

// count returns the number of segments.
func (a *learnedMeans) count() int { return len(a.Indptr) - 1 }

// segments returns some of them.
func (a *learnedMeans) segments(of span) compute.Segments {
	s := compute.Segments{Indptr: a.Indptr[of.first : of.end+1], Indices: a.Indices}
	if a.Counts != nil {
		s.Counts = a.Counts[of.first:of.end]
	}
	return s
}

// read reports whether a segment reads the row at a place, after spread.
func (a *learnedMeans) read(place int) bool {
	return a.transpose.Indptr[place] < a.transpose.Indptr[place+1]
}

// gradients makes room for those of the segments.
func (a *learnedMeans) gradients(cols int) compute.Matrix {
	return matrixOf(&a.sums, compute.Float32s, a.count(), cols)
}

// back sets the gradients of the sums of a type from those of its means.
func (a *learnedMeans) back(sums compute.Matrix, t int, means compute.Matrix) {
	of, from := &a.types[t], 0
	for _, s := range []span{of.means, of.own} {
		for k := s.first; k < s.end; k++ {
			n := int(a.Indptr[k+1] - a.Indptr[k])
			if a.Counts != nil {
				n = int(a.Counts[k])
			}
			share := 1 / float32(n)
			to := sums.Row(k)
			for j, g := range means.Row(from) {
				to[j] = g * share
			}
			from++
		}
	}
}

// spread returns the gradient of each place, of rows and of sums that have come, from those of the
// segments. Afterwards means cannot be made any more.
func (a *learnedMeans) spread(k compute.SegmentKernels, places int,
	sums compute.Matrix) compute.Matrix {
	rows := a.turn(places, sums.Cols)
	k.SegmentSum(rows, compute.Segments{Indptr: a.transpose.Indptr[:places+1],
		Indices: a.transpose.Indices[:len(a.Indices)]}, nil, sums, false)
	return rows
}

// turn lists for each place the segments that read it, and makes room for its gradient.
func (a *learnedMeans) turn(places, cols int) compute.Matrix {
	for e, source := range a.Indices { // a block knows no groups
		a.Indices[e] = compute.SourceOf(source)
	}
	b := graph.Block{NumSrc: places, NumDst: a.count(), Indptr: a.Indptr, Indices: a.Indices}
	b.Transpose(&a.transpose)
	return matrixOf(&a.rows, compute.Float32s, places, cols)
}

func (a *learnedMeans) bytes() int64 {
	t := &a.transpose
	return int64(cap(a.Indptr)+cap(t.Indptr))*8 +
		int64(cap(a.Indices)+cap(a.Whole)+cap(t.Indices)+cap(t.Edges)+cap(a.sums)+cap(a.rows))*4
}

func (a *learnedMeans) free() {
	mem.Free(a.Indptr)
	mem.Free(a.Indices)
	mem.Free(a.Whole)
	mem.Free(a.sums)
	mem.Free(a.rows)
	a.transpose.Free()
}
