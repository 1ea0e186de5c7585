package parallel

import (
	"sync"

	"halognn/src/base/mem"
	"halognn/src/devices/compute"
	"halognn/src/rows/exchange"
)

// learnedGiven turns the gradients of rows and sums that a rank gives back into gradients of rows.
// For each row it adds the gradients of its sums in their order, and at last the gradient of the
// row itself. So the result has the same bits as if the rank had added them. The lists are made
// while the minibatch is prepared.
//
//	of a rank  rows      │ sums             gradients that it gives back, in this order
//	members              │ u v w   u w   v
//	u          own, last │ s0      s1
type learnedGiven struct {
	own     []int32 // vertices that get gradients, rank by rank
	first   []int   // [K+1] where each rank begins in own
	indptr  []int64 // segments of own, which list the gradients of each vertex
	indices []int32
}

// list lists the gradients that come back for the rows and sums that other ranks ask for. O(rows
// and members).
func (s *learnedGiven) list(l *exchange.Late, ranks int, room *ownPlaces) {
	n := 0
	for rank := range ranks {
		n += l.Reads(rank)
	}
	s.own, s.indices = mem.Grow(s.own[:0], n)[:0], mem.Grow(s.indices[:0], n)
	s.indptr = append(mem.Grow(s.indptr[:0], n+1)[:0], 0)
	s.first = append(s.first[:0], 0)
	for rank := range ranks {
		if l.Sums(rank) == 0 { // then each row is asked for once
			next := s.indptr[len(s.own)]
			for place, own := range l.Asked(rank) {
				s.indices[next] = int32(l.First(rank) + place)
				next++
				s.own, s.indptr = append(s.own, own), append(s.indptr, next)
			}
		} else {
			at := room.take()
			s.add(l, rank, at)
			room.giveBack(at)
		}
		s.first = append(s.first, len(s.own))
	}
}

// add lists the gradients of one rank. The array at is 0 for every own vertex, before and after the
// call.
func (s *learnedGiven) add(l *exchange.Late, rank int, at []int32) {
	base, next := len(s.own), s.indptr[len(s.own)]
	each := func(f func(place int, own int32)) {
		for place, own := range l.Members(rank) {
			f(place, own)
		}
		for place, own := range l.Asked(rank) {
			f(place, own)
		}
	}
	each(func(_ int, own int32) {
		if at[own] == 0 {
			s.own, s.indptr = append(s.own, own), append(s.indptr, 0)
			at[own] = int32(len(s.own) - base)
		}
		s.indptr[base+int(at[own])]++
	})
	// indptr[i] is where the next gradient of vertex own[i-1] is written. When all are written, it
	// is the end of the list of this vertex.
	for i := base + 1; i < len(s.indptr); i++ {
		next, s.indptr[i] = next+s.indptr[i], next
	}
	each(func(place int, own int32) {
		to := &s.indptr[base+int(at[own])]
		s.indices[*to] = int32(l.First(rank) + place)
		*to++
	})
	for _, own := range s.own[base:] {
		at[own] = 0
	}
}

// verticesReadBy returns those vertices of this rank that the given rank has read, each once, and
// the segments of their gradients.
func (s *learnedGiven) verticesReadBy(rank int) (own []int32, back compute.Segments) {
	lo, hi := s.first[rank], s.first[rank+1]
	return s.own[lo:hi], compute.Segments{Indptr: s.indptr[lo : hi+1], Indices: s.indices}
}

func (s *learnedGiven) bytes() int64 {
	return 8*int64(cap(s.indptr)) + 4*int64(cap(s.own)+cap(s.indices))
}

func (s *learnedGiven) free() {
	mem.Free(s.own)
	mem.Free(s.indptr)
	mem.Free(s.indices)
}

// ownPlaces are arrays [own vertices] of zeros, one for each goroutine that needs one.
type ownPlaces struct {
	own  int
	mu   sync.Mutex
	idle [][]int32
}

func (o *ownPlaces) take() []int32 {
	o.mu.Lock()
	defer o.mu.Unlock()
	if n := len(o.idle); n > 0 {
		at := o.idle[n-1]
		o.idle = o.idle[:n-1]
		return at
	}
	return mem.Make[int32](o.own)
}

func (o *ownPlaces) giveBack(at []int32) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.idle = append(o.idle, at)
}

// bytes returns the memory; all arrays must be idle.
func (o *ownPlaces) bytes() (bytes int64) {
	for _, at := range o.idle {
		bytes += 4 * int64(cap(at))
	}
	return bytes
}

func (o *ownPlaces) free() {
	for _, at := range o.idle {
		mem.Free(at)
	}
}
