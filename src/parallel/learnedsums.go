package parallel

import (
	"halognn/src/compute"
	"halognn/src/exchange"
	"halognn/src/mem"
)

// learnedSums turns what a rank gives back for rows and sums into gradients of rows, as the rank
// would have made them: of each row the sum of those of its sums in their order, and its own last.
//
//	places     rows      │ sums
//	members              │ u v w   u w   v
//	u          own, last │ s0      s1
type learnedSums struct {
	at      []int32 // [own vertices] place in own, counted from 1; 0: not in it
	own     []int32 // the vertices of which there are gradients
	indptr  []int64 // of each the places
	indices []int32
	grads   []float32 // [own, cols]
}

// spread returns the rows of this rank that a rank has read, each once, and their gradients, where
// back has what the rank gives back: valid until the next call. O(members).
func (s *learnedSums) spread(k compute.SegmentKernels, l *exchange.Late, rank int, back []float32,
	cols int) (own []int32, grads []float32) {
	rows, sums := l.Asked(rank), l.Sums(rank)
	if sums == 0 {
		return rows, back
	}
	members := 0
	for range l.Members(rank) {
		members++
	}
	n := len(rows) + members
	s.own, s.indptr = mem.Grow(s.own[:0], n)[:0], mem.Grow(s.indptr[:0], n+1)
	clear(s.indptr)
	s.indices = mem.Grow(s.indices[:0], n)
	each := func(f func(place int, own int32)) {
		for place, own := range l.Members(rank) {
			f(place, own)
		}
		for place, own := range rows {
			f(place, own)
		}
	}
	each(func(_ int, own int32) {
		if s.at[own] == 0 {
			s.own = append(s.own, own)
			s.at[own] = int32(len(s.own))
		}
		s.indptr[s.at[own]]++
	})
	for i := range s.own {
		s.indptr[i+1] += s.indptr[i]
	}
	each(func(place int, own int32) {
		next := &s.indptr[s.at[own]-1]
		s.indices[*next] = int32(place)
		*next++
	})
	copy(s.indptr[1:], s.indptr[:len(s.own)])
	s.indptr[0] = 0
	for _, own := range s.own {
		s.at[own] = 0
	}
	g := matrixOf(&s.grads, compute.Float32s, len(s.own), cols)
	k.SegmentSum(g, compute.Segments{Indptr: s.indptr[:len(s.own)+1], Indices: s.indices}, nil,
		compute.Matrix{Rows: len(rows) + sums, Cols: cols, Data: back}, false)
	return s.own, g.Data
}

// makeRoom makes room for the gradients of so many rows, from so many members of sums.
func (s *learnedSums) makeRoom(rows, members, cols int) {
	s.own, s.indptr = mem.Grow(s.own[:0], rows+members), mem.Grow(s.indptr[:0], rows+members+1)
	s.indices = mem.Grow(s.indices[:0], rows+members)
	matrixOf(&s.grads, compute.Float32s, rows, cols)
}

func (s *learnedSums) bytes() int64 {
	return 8*int64(cap(s.indptr)) + 4*int64(cap(s.at)+cap(s.own)+cap(s.indices)+cap(s.grads))
}

func (s *learnedSums) free() {
	mem.Free(s.at)
	mem.Free(s.own)
	mem.Free(s.indptr)
	mem.Free(s.indices)
	mem.Free(s.grads)
}
