package parallel

import (
	"halognn/src/base/mem"
	"halognn/src/devices/compute"
	"halognn/src/rows/exchange"
)

// learnedReaders lists, for each learned row and each sum of such rows, the input rows that it is
// part of. The gradient of a learned row is a sum in this order. First comes, for each mean that
// the row is part of, the gradient of the mean times the share of the row in the mean. Then comes
// the gradient of the row itself, if the layer reads it. The lists are made while the minibatch is
// prepared, so that a step only adds.
//
//	x         what the input layer reads: rows of types, or their means and own rows
//	segments  of received rows and sums (exchange.Plan.Received) │ of own rows (learnedOf.own)
type learnedReaders struct {
	indptr  []int64
	indices []int32   // rows of x that each learned row or sum is part of
	shares  []float32 // share of the learned row or sum in each of these rows of x
	shared  bool      // whether some shares are not 1
	slot    []int32   // [places] number of the segment for the row or sum at each place
	come    int       // number of segments of received rows and sums
}

// makeLists makes the lists for the learned rows of e. The exchange x has planned the requests for
// these rows.
func (r *learnedReaders) makeLists(e *learnedOf, x *exchange.Exchange) {
	_, come := e.plan.Vectors()
	r.come, r.shared = int(come), e.means.count() > 0
	r.slot = mem.Grow(r.slot[:0], len(e.plan.Rows.Of))
	e.own = mem.Grow(e.own[:0], len(e.ids))[:0]
	for i := range r.slot {
		if r.slot[i] = int32(x.Slot(&e.plan, i)); r.slot[i] < 0 {
			r.slot[i] = int32(r.come + len(e.own))
			e.own = append(e.own, int32(e.ids[i]-x.First()))
		}
	}
	n := r.come + len(e.own)
	r.indptr = mem.Grow(r.indptr[:0], n+1)
	clear(r.indptr)
	edges := 0
	r.each(e, func(slot, _ int32, _ float32) { r.indptr[slot+1]++; edges++ })
	// indptr[s+1] is where the next entry of segment s is written. When all entries are written, it
	// is the end of segment s.
	next := int64(0)
	for s := range n {
		next, r.indptr[s+1] = next+r.indptr[s+1], next
	}
	r.indices, r.shares = mem.Grow(r.indices[:0], edges), mem.Grow(r.shares[:0], edges)
	r.each(e, func(slot, of int32, share float32) {
		to := &r.indptr[slot+1]
		r.indices[*to], r.shares[*to] = of, share
		*to++
	})
}

// each calls the function f for every pair of a learned row and a row of x that it is part of. The
// row of x is a mean, or the learned row itself. The arguments of f are the segment of the learned
// row, the number of the row of x, and the share of the learned row in the row of x.
func (r *learnedReaders) each(e *learnedOf, f func(slot, of int32, share float32)) {
	for _, of := range e.types {
		a, x := &e.means.types[of.kind], int32(of.at)
		if !a.averaged {
			for _, slot := range r.slot[of.first : of.first+of.vertices] {
				f(slot, x, 1)
				x++
			}
			continue
		}
		for _, s := range [...]span{a.means, a.own} {
			for k := s.first; k < s.end; k++ {
				share := 1 / float32(e.means.size(k))
				for _, source := range e.means.Indices[e.means.Indptr[k]:e.means.Indptr[k+1]] {
					f(r.slot[compute.SourceOf(source)], x, share)
				}
				x++
			}
		}
	}
}

// add sets the gradients of received rows and sums, or of own rows, from the gradients of x.
func (r *learnedReaders) add(k compute.SegmentKernels, to compute.Matrix, own bool,
	x compute.Matrix) {
	s := compute.Segments{Indptr: r.indptr[:r.come+1], Indices: r.indices}
	if own {
		s.Indptr = r.indptr[r.come:]
	}
	var shares []float32
	if r.shared {
		shares = r.shares
	}
	k.SegmentSum(to, s, shares, x, false)
}

func (r *learnedReaders) bytes() int64 {
	return 8*int64(cap(r.indptr)) + 4*int64(cap(r.indices)+cap(r.shares)+cap(r.slot))
}

func (r *learnedReaders) free() {
	mem.Free(r.indptr)
	mem.Free(r.indices)
	mem.Free(r.shares)
	mem.Free(r.slot)
}
