package partition

import (
	"halognn/src/base/mem"
	"halognn/src/topology/graph"
)

// Renumber renumbers the parts so that runs of consecutive parts are close, and returns part. The
// vertices of the quotient graph are the parts, and its edge weights are the cuts between two
// parts. It is bisected recursively into halves (thirds, fifths, ... if the count is not even) of
// equal size with a small cut; the leaves, left to right, are the new order. So the groups of P/K
// consecutive parts that K ranks own have a small cut too.
//
// Time O(M + P^2 log P), memory O(N + P^2).
func Renumber(g *graph.CSC, w Weights, part []int32, parts int) []int32 {
	cut := quotient(g, w, part, parts)
	order := make([]int32, parts)
	for k := range order {
		order[k] = int32(k)
	}
	cut.arrange(order)
	number := make([]int32, parts)
	for i, k := range order {
		number[k] = int32(i)
	}
	for v, k := range part {
		part[v] = number[k]
	}
	return part
}

// cutMatrix is the quotient graph: the weight of the edges between parts a and b, both directions,
// at a*parts+b.
type cutMatrix struct {
	parts  int
	weight []int64
}

func (m cutMatrix) at(a, b int32) int64 { return m.weight[int(a)*m.parts+int(b)] }

func quotient(g *graph.CSC, w Weights, part []int32, parts int) cutMatrix {
	m := cutMatrix{parts, make([]int64, parts*parts)}
	members, offsets := graph.Members(part, parts)
	mem.Pieces(parts, 1, func(_, k, _ int) { // row k has one writer
		row := m.weight[k*parts : (k+1)*parts]
		for _, v := range members[offsets[k]:offsets[k+1]] {
			for e := g.Indptr[v]; e < g.Indptr[v+1]; e++ {
				if w.Edge == nil {
					row[part[g.Indices[e]]]++
				} else {
					row[part[g.Indices[e]]] += int64(w.Edge[e])
				}
			}
		}
	})
	for a := range parts {
		for b := range a {
			both := m.weight[a*parts+b] + m.weight[b*parts+a]
			m.weight[a*parts+b], m.weight[b*parts+a] = both, both
		}
	}
	return m
}

// arrange permutes order by recursive bisection.
func (m cutMatrix) arrange(order []int32) {
	if len(order) < 3 {
		return
	}
	p := smallestFactor(len(order))
	left := len(order) / p * (p / 2)
	m.bisect(order, left)
	m.arrange(order[:left])
	m.arrange(order[left:])
}

func smallestFactor(n int) int {
	for p := 2; p*p <= n; p++ {
		if n%p == 0 {
			return p
		}
	}
	return n
}

// bisect permutes set so that the cut between its first parts and the others is small. The argument
// left is the number of first parts. It grows the first parts greedily from the first part of set,
// then makes the best swaps as long as one helps (Kernighan and Lin, 1970).
func (m cutMatrix) bisect(set []int32, left int) {
	// [parts] weight of each part's edges to the left side minus that to the right side
	pull := make([]int64, m.parts)
	for _, a := range set {
		for _, b := range set {
			if a != b {
				pull[a] -= m.at(a, b)
			}
		}
	}
	shift := func(moved int32, times int64) {
		for _, b := range set {
			if b != moved {
				pull[b] += times * m.at(moved, b)
			}
		}
	}
	for i := range left {
		best := i
		for j := i; j < len(set) && i > 0; j++ {
			if pull[set[j]] > pull[set[best]] {
				best = j
			}
		}
		set[i], set[best] = set[best], set[i]
		shift(set[i], 2)
	}
	for range len(set) { // each swap lowers the cut; the bound keeps the worst case quadratic
		a, b := 0, left // the left part pulled left least, the right part most
		for i := range left {
			if pull[set[i]] < pull[set[a]] {
				a = i
			}
		}
		for j := left; j < len(set); j++ {
			if pull[set[j]] > pull[set[b]] {
				b = j
			}
		}
		if pull[set[b]]-pull[set[a]]-2*m.at(set[a], set[b]) <= 0 {
			return
		}
		shift(set[a], -2)
		shift(set[b], 2)
		set[a], set[b] = set[b], set[a]
	}
}
