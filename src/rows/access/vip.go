package access

import (
	"errors"
	"fmt"
	"math"

	"halognn/src/base/mem"
	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
)

// VIP estimates the probability that a minibatch reads each vertex (its vertex inclusion
// probability), by the paper's formula:
//
//	p_0(v) = min(1, batch/T) for v in train, else 0
//	p_h(u) = 1 - product over v that may sample u of (1 - t_h(v) p_{h-1}(v)),
//	         t_h(v) = min(1, f_h/indegree(v))
//	p(u)   = 1 - product over h = 1..L of (1 - p_h(u))                            the result [N]
//
//	train [T]  distinct training vertices of the part; without any, all results are 0
//	batch      mean seeds of a step: T/S if S steps share the training vertices evenly
//	fanouts    seed hop first; sample.All draws every neighbour
//
// It is exact if each vertex is reached by at most one sampling path and only the vertices found by
// the last hop draw in a hop. Where paths meet, they are assumed to be independent; parallel edges
// are separate paths. A seed's own row (hop 0) does not count as read.
//
// Products are sums of logarithms. Time is O(L (M+N)), divided among the workers; most of it goes
// into one random 4-byte read for each edge and hop. Memory is 12 N + N/8 bytes, of which the
// result takes 4 N.
//
// Source: SALIENT++ (Kaler et al., MLSys 2023), Proposition 1.
func (m *Graph) VIP(train []graph.VertexID, batch float64, fanouts []int) ([]float32, error) {
	return m.vip(train, batch, draws{fanouts: fanouts})
}

func (m *Graph) vip(train []graph.VertexID, batch float64, d draws) ([]float32, error) {
	fanouts := d.fanouts
	p0, err := m.start(train, batch, fanouts)
	if err != nil {
		return nil, fmt.Errorf("access: VIP: %w", err)
	}
	w, next := mem.Make[float32](m.columns.width()), mem.Make[float32](m.columns.width())
	p := mem.Make[float32](m.in.NumVertices())
	defer func() { mem.Free(w); mem.Free(next) }()
	for _, v := range train {
		m.columns.each(d, 0, int(v), func(c int, t float64) { w[c] = logMiss(t * p0) })
	}
	for h := 1; h <= len(fanouts); h++ {
		// Until the last hop, p is a sum of logarithms.
		hop := func(first int, sums []float64) {
			for i, sum := range sums {
				u := first + i
				p[u] += float32(sum)
				drawn := hit(sum)
				m.columns.each(d, h, u, func(c int, t float64) { next[c] = logMiss(t * drawn) })
			}
		}
		if h == len(fanouts) {
			hop = func(first int, sums []float64) {
				for i, sum := range sums {
					p[first+i] = float32(hit(float64(p[first+i]) + sum))
				}
			}
		}
		if err := m.gather(w, hop); err != nil {
			mem.Free(p)
			return nil, fmt.Errorf("access: VIP: hop %d: %w", h, err)
		}
		w, next = next, w
	}
	return p, nil
}

// Inclusion is VIP for package sample, where a frontier keeps its destinations, as in other
// systems: a vertex draws in every hop after the one that found it, not only in the next. Let
// q_h(v) be the probability that v is in the frontier after hop h, and a_h(v) the probability that
// v is there and has drawn one given neighbour:
//
//	q_0(v) = min(1, batch/T) for v in train, else 0;    a_0(v) = 0
//	a_h(v) = a_{h-1}(v) + t_h(v) (q_{h-1}(v) - a_{h-1}(v))
//	q_h(u) = 1 - (1 - q_0(u)) product over v that may sample u of (1 - a_h(v))
//
// The result is q_L [N]; seeds count. With relations, a, t and f belong to a column of v. It is
// exact if each vertex is reached by at most one path of edges from the seeds; otherwise it assumes
// independence, as VIP does. It has the arguments and the time of VIP, and takes 8 N + N/8 bytes,
// of which the result takes 4 N. VIP and Inclusion rank vertices alike. But sums of VIP are too low
// if fanouts do not fall from hop to hop. On block models with fanouts 5,5,5 they are 11 to 16% too
// low, while sums of Inclusion are right to within 4%. So use Inclusion to predict volumes.
func (m *Graph) Inclusion(train []graph.VertexID, batch float64, fanouts []int) ([]float32, error) {
	return m.includes(train, batch, draws{fanouts: fanouts})
}

func (m *Graph) includes(train []graph.VertexID, batch float64, d draws) ([]float32, error) {
	p0, err := m.start(train, batch, d.fanouts)
	if err != nil {
		return nil, fmt.Errorf("access: inclusion: %w", err)
	}
	// The array w holds log(1-a) of every column.
	w, q := mem.Make[float32](m.columns.width()), mem.Make[float32](m.in.NumVertices())
	defer mem.Free(w)
	for _, v := range train {
		q[v] = float32(p0)
	}
	for h := range d.fanouts {
		err := errors.Join(
			m.chunks(func(_, lo, hi int) {
				for v := lo; v < hi; v++ {
					if q[v] == 0 {
						continue
					}
					m.columns.each(d, h, v, func(c int, t float64) {
						a := hit(float64(w[c]))
						w[c] = logMiss(a + t*max(float64(q[v])-a, 0))
					})
				}
			}),
			m.gather(w, func(first int, sums []float64) {
				for i, sum := range sums {
					q[first+i] = float32(hit(sum))
				}
			}))
		if err != nil {
			mem.Free(q)
			return nil, fmt.Errorf("access: inclusion: hop %d: %w", h+1, err)
		}
		for _, v := range train {
			q[v] = float32(1 - (1-p0)*(1-float64(q[v])))
		}
	}
	return q, nil
}

// start checks the arguments of an analysis and returns p_0 of a training vertex.
func (m *Graph) start(train []graph.VertexID, batch float64, fanouts []int) (float64, error) {
	errs := []error{checkTrain(m.NumVertices(), train)}
	if !(batch > 0) {
		errs = append(errs, fmt.Errorf("batch is %g; it must be above 0", batch))
	}
	if len(fanouts) == 0 {
		errs = append(errs, errors.New("no fanouts; give one for every layer, seed hop first"))
	}
	for i, f := range fanouts {
		if f < 1 && f != sample.All {
			errs = append(errs,
				fmt.Errorf("fanouts[%d] is %d; it must be at least 1, or %d for all neighbours", i,
					f, sample.All))
		}
	}
	return min(1, batch/float64(max(len(train), 1))), errors.Join(errs...)
}

func checkTrain(n int, train []graph.VertexID) error {
	for _, v := range train {
		if uint(v) >= uint(n) {
			return fmt.Errorf("training vertex %d: %w (the graph has %d vertices)", v,
				graph.ErrVertexRange, n)
		}
	}
	return nil
}

// If an argument is at most small, a few terms of the series of a logarithm or exponential are as
// exact as a float32. Most probabilities are that low, and computing these terms takes a fraction
// of the time of math.Log1p or math.Expm1.
const small = 1.0 / 32

// logMiss returns log(1-p), -Inf for p = 1.
func logMiss(p float64) float32 {
	if p <= small {
		return float32(0 - p*(1+p*(1./2+p*(1./3+p*(1./4+p*(1./5))))))
	}
	return float32(math.Log1p(-min(p, 1)))
}

// hit returns 1-exp(s) for s <= 0: the probability whose logMiss is s.
func hit(s float64) float64 {
	if s >= -small {
		return 0 - s*(1+s*(1./2+s*(1./6+s*(1./24)))) // 0 - s, because -s would turn 0 into -0
	}
	return -math.Expm1(s)
}
