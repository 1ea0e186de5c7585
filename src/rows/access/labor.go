package access

import (
	"fmt"
	"math"
	"math/bits"

	"halognn/src/base/mem"
	"halognn/src/base/random"
	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
)

// Labor is Inclusion for LABOR sampling, which gives every vertex a random number, uniform in
// [0,1). To a good approximation, a destination v draws an in-neighbour u if the number of u is
// below c(v) = min(1, f/indegree(v)), where f is the fanout. So the draws of u by its destinations
// are not independent: the destination with the largest c decides. Let p(v) be the probability that
// v is a destination. Let v(1), v(2), ... be the vertices that may draw u, and c(1) >= c(2) >= ...
// their values of c. Then
//
//	P(u) = sum over i of (c(i) - c(i+1)) (1 - product over j <= i of (1 - p(v(j))))
//
// The numbers of different hops are independent, so the probabilities that u is not drawn multiply
// over hops. If a vertex has one number for all hops, v counts once for each hop that may have
// found it, with the largest c of the later hops.
//
// Time is O(L (M+N)), and with one number for all hops O(L² M): a random read of 8 bytes for each
// edge and hop. Memory is 12 N + N/8 bytes, or 8 (L+1) N + N/8 bytes with one number for all hops;
// 4 N of it are the result.
func (m *Graph) Labor(train []graph.VertexID, batch float64, spec sample.Spec) ([]float32, error) {
	return m.labor(train, batch, spec, false)
}

// labor computes Labor. If drawn is set, it first draws a random number for every vertex and hop;
// the result is then the probability P for these numbers.
func (m *Graph) labor(train []graph.VertexID, batch float64, spec sample.Spec, drawn bool,
) ([]float32, error) {
	fanouts := spec.Fanouts
	p0, err := m.start(train, batch, fanouts)
	if err != nil {
		return nil, fmt.Errorf("access: labor: %w", err)
	}
	n, width, layers := m.in.NumVertices(), 1, spec.Numbers.Layers
	q, last := mem.Make[float32](n), []float32(nil) // last is q one hop earlier
	if layers {
		width, last = len(fanouts), mem.Make[float32](n)
	}
	takes := mem.Make[taker](n * width)
	active := NewSet(n)
	defer func() { mem.Free(last); mem.Free(takes); active.Free() }()
	for _, v := range train {
		q[v] = float32(p0)
	}
	for h, fanout := range fanouts {
		err := m.chunks(func(_, lo, hi int) {
			for v := lo; v < hi; v++ {
				if q[v] == 0 {
					continue
				}
				active.Add(graph.VertexID(v))
				t, c := takes[v*width:][:width],
					transition(fanout, m.in.InDegree(graph.VertexID(v)))
				if layers {
					foundAt(t[:h+1], c, float64(q[v]), float64(last[v]))
					last[v] = q[v]
				} else {
					t[0] = makeTaker(certain(float64(q[v])), float32(c))
				}
			}
		})
		if err == nil {
			take := m.takeAll
			switch {
			case drawn && layers:
				take = m.takeDrawn(0)
			case drawn:
				take = m.takeDrawn(h)
			}
			err = take(takes, width, active, func(u int, taken float64) {
				if layers { // the value taken then covers all hops so far
					q[u] = float32(taken)
				} else {
					q[u] = float32(1 - (1-float64(q[u]))*(1-taken))
				}
			})
		}
		if err != nil {
			mem.Free(q)
			return nil, fmt.Errorf("access: labor: hop %d: %w", h+1, err)
		}
		for i := 0; layers && i < len(train); i++ {
			q[train[i]] = float32(1 - (1-p0)*(1-float64(q[train[i]])))
		}
	}
	return q, nil
}

// taker describes a destination: with probability 1-exp(miss) it is in the minibatch, and then it
// draws the in-neighbours with numbers below c.
type taker uint64

func makeTaker(miss, c float32) taker {
	return taker(math.Float32bits(miss))<<32 | taker(math.Float32bits(c))
}

func (t taker) miss() float32 { return math.Float32frombits(uint32(t >> 32)) }
func (t taker) c() float32    { return math.Float32frombits(uint32(t)) }

// foundAt updates the takers t of a destination, one for each hop so far. The destination is in
// this hop with probability q, and then draws in-neighbours with numbers below c. It was in an
// earlier hop with the probability earlier.
func foundAt(t []taker, c, q, earlier float64) {
	for i := range t {
		t[i] = makeTaker(t[i].miss(), max(t[i].c(), float32(c)))
	}
	t[len(t)-1] = makeTaker(certain(max(q-earlier, 0)/max(1-earlier, 1e-9)), float32(c))
}

// certain returns logMiss(p), but at least -64, so that the result is finite where p is 1.
func certain(p float64) float32 { return max(logMiss(p), -64) }

// Each value c of a destination (see Labor) is put into a class by its exponent and the first three
// bits of its fraction. Classes are numbered from the largest values down. Values of one class
// differ by at most an eighth. All values below 2^-31 are in the last class.
const (
	classes   = 256
	classBits = 20
)

func classOf(c float32) uint32 {
	return min((math.Float32bits(1)-math.Float32bits(c))>>classBits, classes-1)
}

// takeAll calls finish with every vertex u and the probability that some destination draws it.
func (m *Graph) takeAll(takes []taker, width int, active Set,
	finish func(u int, taken float64)) error {
	return m.chunks(func(_, lo, hi int) {
		var sums, means [classes]float64 // for each class: the sum of miss, and of miss times c
		for u := lo; u < hi; u++ {
			var some [classes / 64]uint64
			for _, v := range m.out.InNeighbours(graph.VertexID(u)) {
				if !active.Has(v) {
					continue
				}
				for _, t := range takes[int(v)*width:][:width] {
					i := classOf(t.c())
					some[i/64] |= 1 << (i % 64)
					sums[i] += float64(t.miss())
					means[i] += float64(t.miss()) * float64(t.c())
				}
			}
			// The variable chance is the probability that u is drawn if its number lies between the
			// c of the current class and previous, the c of the previous class.
			total, hits, chance, previous := 0.0, 0.0, 0.0, 1.0
			for w, word := range some {
				for ; word != 0; word &= word - 1 {
					i := 64*w + bits.TrailingZeros64(word)
					if sums[i] != 0 {
						c := means[i] / sums[i]
						total += chance * (previous - c)
						hits += sums[i]
						chance, previous = hit(hits), c
					}
					sums[i], means[i] = 0, 0
				}
			}
			finish(u, total+chance*previous)
		}
	})
}

// takeDrawn returns a function like takeAll for one hop, in which the random number of every vertex
// is already drawn.
func (m *Graph) takeDrawn(hop int) func([]taker, int, Set, func(u int, taken float64)) error {
	return func(takes []taker, width int, active Set, finish func(u int, taken float64)) error {
		return m.chunks(func(_, lo, hi int) {
			for u := lo; u < hi; u++ {
				number := float32(random.Mix(uint64(hop)<<32|uint64(u))>>40) / (1 << 24)
				hits := 0.0
				for _, v := range m.out.InNeighbours(graph.VertexID(u)) {
					if !active.Has(v) {
						continue
					}
					for _, t := range takes[int(v)*width:][:width] {
						if number < t.c() {
							hits += float64(t.miss())
						}
					}
				}
				finish(u, hit(hits))
			}
		})
	}
}
