package partition

import (
	"halognn/src/base/mem"
	"halognn/src/topology/graph"
)

// Renumber gives the parts new numbers so that few edges leave a run of consecutive parts. It
// changes part in place and returns it. It works on the quotient graph: its vertices are the parts,
// and its edge weights are the cuts between two parts. This graph is bisected recursively with a
// small cut, and the leaves, left to right, are the new order. The two sides are equal if the
// number of parts is even; for 3, 9 or 15 parts the left side is a third. So the groups of P/K
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

// cutMatrix is the quotient graph: weight[a*parts+b] is the weight of the edges between parts a and
// b, in both directions together.
type cutMatrix struct {
	parts  int
	weight []int64
}

func (m cutMatrix) at(a, b int32) int64 { return m.weight[int(a)*m.parts+int(b)] }

func quotient(g *graph.CSC, w Weights, part []int32, parts int) cutMatrix {
	m := cutMatrix{parts, make([]int64, parts*parts)}
	members, offsets := graph.Members(part, parts)
	mem.Pieces(parts, 1, func(_, k, _ int) { // row k is written only here, so no lock is needed
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

// arrange permutes the parts in order by recursive bisection (see Renumber).
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

// bisect permutes the parts in set so that the cut between its first parts and the others is small.
// The argument count is the number of first parts. It grows the first group greedily from set[0].
// Then it makes the best swap of two parts as long as one helps (Kernighan and Lin, 1970).
func (m cutMatrix) bisect(set []int32, count int) {
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
	for i := range count {
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
		// a is the part of the left group with the least pull to the left, b of the right group
		// with the most
		a, b := 0, count
		for i := range count {
			if pull[set[i]] < pull[set[a]] {
				a = i
			}
		}
		for j := count; j < len(set); j++ {
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
