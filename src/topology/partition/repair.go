package partition

import (
	"cmp"
	"math"
	"slices"

	"halognn/src/topology/graph"
)

// repairRounds is the largest number of rounds of Repair; real graphs need one to five.
const repairRounds = 50

// Repair moves vertices out of parts that exceed a limit of o, until every limit holds or no single
// move helps. Each vertex moves to the part for which the growth of the cut is least in proportion
// to the relief. Repair also gives every empty part a vertex. It returns the number of moves.
// Multilevel and streaming methods miss several limits by a few percent, so a few moves suffice.
//
// Relief is the decrease of the total excess: the sum, over parts and constraints, of the weight
// above the limit divided by the mean. It falls with each move, so two parts that exceed limits in
// different constraints trade vertices instead of blocking each other.
//
// Time O(M + N*P) a round, memory O(N).
func Repair(g *graph.CSC, w Weights, o Options, part []int32) int {
	l := newLoad(g.NumVertices(), w, o)
	size := make([]int, o.Parts)
	for v, k := range part {
		l.add(v, int(k), 1)
		size[k]++
	}
	moves := fillEmpty(g, l, part, size)
	near := newNeighbours(o.Parts)
	var candidates []move
	for range repairRounds {
		candidates = candidates[:0]
		for v, k := range part {
			if size[k] > 1 && l.excess(v, int(k)) {
				if m, ok := bestMove(g, w, l, near, part, v); ok {
					candidates = append(candidates, m)
				}
			}
		}
		slices.SortFunc(candidates, func(a, b move) int {
			return cmp.Or(cmp.Compare(a.price, b.price), cmp.Compare(a.v, b.v))
		})
		before := moves
		for _, m := range candidates {
			from := part[m.v]
			if size[from] > 1 && l.relief(int(m.v), none, int(from), int(m.to)) > 0 {
				l.move(part, int(m.v), int(from), int(m.to))
				size[from]--
				size[m.to]++
				moves++
			}
		}
		if moves == before {
			break
		}
	}
	return moves
}

// Balance calls Repair. If a limit is still exceeded because no single move helps, since parts that
// have room in one constraint are full in another, Balance also exchanges pairs of vertices. It
// returns the number of moves; a vertex may move several times.
func Balance(g *graph.CSC, w Weights, o Options, part []int32) int {
	moves := Repair(g, w, o, part)
	l := newLoad(g.NumVertices(), w, o)
	for v, k := range part {
		l.add(v, int(k), 1)
	}
	return moves + 2*exchange(l, part)
}

// Limits of the function `exchange`. For a swap it looks at up to 256 vertices (candidates), evenly
// spread, of the part that exceeds a limit, and at up to 256 vertices of each of 16 other parts
// (partners), those with the most room in the exceeded constraint. It makes at most 1024 swaps
// (exchanges) for any number of parts: a swap looks at up to a million pairs, and 1024 swaps take
// half a minute.
const candidates, partners, exchanges = 256, 16, 1024

// exchange swaps pairs of vertices as long as a swap relieves the part with the largest excess.
// Each time it swaps the pair that relieves the part most. It returns the number of swaps. Time O(P
// log P + partners candidates^2) a swap.
func exchange(l *load, part []int32) (swaps int) {
	parts := len(l.sum) / len(l.constraints)
	stuck := make([]bool, parts)
	a, c := l.worst(stuck)
	if a < 0 {
		return 0
	}
	members, offsets := graph.Members(part, parts)
	order := make([]int, parts)
	for k := range order {
		order[k] = k
	}
	for ; a >= 0 && swaps < exchanges; a, c = l.worst(stuck) {
		slices.SortFunc(order, func(x, y int) int {
			return cmp.Or(cmp.Compare(l.of(x)[c], l.of(y)[c]), cmp.Compare(x, y))
		})
		most, at, with, b := 0.0, int64(0), int64(0), 0
		step := func(k int) int64 {
			return max(1, (offsets[k+1]-offsets[k]+candidates-1)/candidates)
		}
		for _, k := range order[:min(partners, parts)] {
			for i := offsets[a]; i < offsets[a+1] && k != a; i += step(a) {
				for j := offsets[k]; j < offsets[k+1]; j += step(k) {
					if r := l.relief(int(members[i]), int(members[j]), a, k); r > most {
						most, at, with, b = r, i, j, k
					}
				}
			}
		}
		if stuck[a] = most == 0; stuck[a] {
			continue
		}
		l.move(part, int(members[at]), a, b)
		l.move(part, int(members[with]), b, a)
		members[at], members[with] = members[with], members[at]
		swaps++
	}
	return swaps
}

func (l *load) move(part []int32, v, from, to int) {
	l.add(v, from, -1)
	l.add(v, to, 1)
	part[v] = int32(to)
}

// worst looks at the parts that are not stuck. It returns the part that exceeds a limit most, in
// proportion to the mean, and the constraint of that limit. If no part exceeds a limit, the part is
// -1.
func (l *load) worst(stuck []bool) (part, constraint int) {
	part, most := -1, 0.0
	for i, sum := range l.sum {
		k, c := i/len(l.constraints), i%len(l.constraints)
		of := &l.constraints[c]
		if x := float64(sum-of.Limit) / of.Mean; x > most && !stuck[k] {
			part, constraint, most = k, c, x
		}
	}
	return part, constraint
}

// refinements is the largest number of passes of Refine.
const refinements = 10

// Refine moves each vertex, in order, to the part that most of its in-edges come from. It considers
// the parts that have room for the vertex within every limit of o. It passes over the graph until a
// pass moves less than a thousandth of the vertices. Refine makes up for part of the growth of the
// cut that Repair caused. Time O(M) a pass, memory O(N).
func Refine(g *graph.CSC, w Weights, o Options, part []int32) {
	l, near := newLoad(g.NumVertices(), w, o), newNeighbours(o.Parts)
	size := make([]int, o.Parts)
	for v, k := range part {
		l.add(v, int(k), 1)
		size[k]++
	}
	for range refinements {
		moves := 0
		for v, from := range part {
			near.count(g, w.Edge, part, v)
			best := from
			for _, k := range near.parts {
				if near.weight[k] > near.weight[best] && size[from] > 1 &&
					l.fullness(v, int(k)) <= 1 {
					best = k
				}
			}
			if best != from {
				l.move(part, v, int(from), int(best))
				size[from]--
				size[best]++
				moves++
			}
		}
		if moves <= len(part)/1000 {
			return
		}
	}
}

type move struct {
	price float64 // growth of the cut divided by the relief; negative if the cut shrinks
	v, to int32
}

// bestMove returns the cheapest move of v that reduces the excess.
func bestMove(g *graph.CSC, w Weights, l *load, near *neighbours, part []int32, v int) (move,
	bool) {
	near.count(g, w.Edge, part, v)
	from := int(part[v])
	best := move{price: math.Inf(1), v: int32(v), to: -1}
	for k := range near.weight {
		if k == from {
			continue
		}
		relief := l.relief(v, none, from, k)
		if relief <= 0 {
			continue
		}
		if price := float64(near.weight[from]-near.weight[k]) / relief; price < best.price {
			best.price, best.to = price, int32(k)
		}
	}
	return best, best.to >= 0
}

// excess reports whether a part exceeds the limit of a constraint in which v has a weight.
func (l *load) excess(v, part int) bool {
	sum := l.of(part)
	for i := range l.constraints {
		if c := &l.constraints[i]; c.Weights[v] > 0 && sum[i] > c.Limit {
			return true
		}
	}
	return false
}

// none is passed to relief in place of a vertex if no vertex moves the opposite way.
const none = -1

// relief returns the decrease of the total excess if vertex v moves from one part to another.
// At the same time another vertex (`swapped`) moves the opposite way, unless it is none. In each
// constraint, the excess is measured in multiples of the mean of a part.
func (l *load) relief(v, swapped, from, to int) float64 {
	a, b, total := l.of(from), l.of(to), 0.0
	for i := range l.constraints {
		c := &l.constraints[i]
		x := int64(c.Weights[v])
		if swapped != none {
			x -= int64(c.Weights[swapped])
		}
		less := max(a[i]-c.Limit, 0) - max(a[i]-x-c.Limit, 0)
		more := max(b[i]+x-c.Limit, 0) - max(b[i]-c.Limit, 0)
		total += float64(less-more) / c.Mean
	}
	return total
}

// fillEmpty moves a vertex into each empty part: from the largest part, the vertex with the
// smallest in-degree. It returns the number of moves.
func fillEmpty(g *graph.CSC, l *load, part []int32, size []int) int {
	moves := 0
	for k := range size {
		if size[k] > 0 {
			continue
		}
		largest := slices.Index(size, slices.Max(size))
		pick := -1
		for v, p := range part {
			if int(p) == largest &&
				(pick < 0 || g.InDegree(graph.VertexID(v)) < g.InDegree(graph.VertexID(pick))) {
				pick = v
			}
		}
		l.move(part, pick, largest, k)
		size[largest]--
		size[k]++
		moves++
	}
	return moves
}

// Complete gives a part to each vertex without one (-1). It prefers the parts of the vertex's
// in-neighbours that have room, by the rule of LDG, and otherwise takes the part with the fewest
// vertices. A part has room up to the default imbalance of the number of vertices; other weights do
// not matter. Every empty part gets a vertex, too.
//
// Time O(M + N*P), memory O(N).
func Complete(g *graph.CSC, o Options, part []int32) {
	l, near := newLoad(g.NumVertices(), Weights{}, o), newNeighbours(o.Parts)
	size := make([]int, o.Parts)
	put := func(v, k int) {
		part[v] = int32(k)
		l.add(v, k, 1)
		size[k]++
	}
	for v, k := range part {
		if k >= 0 {
			put(v, int(k))
		}
	}
	for v, k := range part {
		if k < 0 {
			near.count(g, nil, part, v)
			put(v, l.choose(v, near))
		}
	}
	fillEmpty(g, l, part, size)
}

// neighbours sums the in-edges of one vertex by the part of their source.
type neighbours struct {
	weight []int64 // [P] total weight of the in-edges from each part
	parts  []int32 // parts with weight > 0, in first-seen order
}

func newNeighbours(parts int) *neighbours {
	return &neighbours{weight: make([]int64, parts), parts: make([]int32, 0, parts)}
}

// count replaces the sums by those of vertex v. In-edges from v itself, and from vertices without a
// part (-1), do not count.
func (s *neighbours) count(g *graph.CSC, edge []int32, part []int32, v int) {
	for _, k := range s.parts {
		s.weight[k] = 0
	}
	s.parts = s.parts[:0]
	for e := g.Indptr[v]; e < g.Indptr[v+1]; e++ {
		u := g.Indices[e]
		k := part[u]
		if k < 0 || int(u) == v {
			continue
		}
		if s.weight[k] == 0 {
			s.parts = append(s.parts, k)
		}
		if edge == nil {
			s.weight[k]++
		} else {
			s.weight[k] += int64(edge[e])
		}
	}
}
