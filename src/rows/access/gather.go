package access

import (
	"sync/atomic"

	"halognn/src/topology/graph"
)

// blockEdges is the number of edges gathered before they are summed: their values fit the
// first-level cache.
const blockEdges = 2048

// scratch is the memory of one goroutine of gather.
type scratch struct {
	values [blockEdges]float32
	sums   [blockEdges]float64
}

// If fewer than one in sparseShare of the values differ from zero, a bit for each vertex is tested
// before its value is read. That is cheaper, because the bits fit into a processor's cache and the
// values do not.
const sparseShare = 16

// gather sums w [columns] over the out-neighbours of every vertex, counting parallel edges, and
// passes the sums to finish in runs: sums[i] is the sum for vertex first+i. Several goroutines call
// finish at a time, each for its own vertices.
//
// A block of values is gathered before it is summed. The gathering loop has no branches that depend
// on the graph, so it keeps the most reads of w in flight. A loop over rows would stall at the end
// of each row. If few values differ from zero, as in the first hops from few training vertices,
// zeros are not read; this changes no sum.
func (m *Graph) gather(w []float32, finish func(first int, sums []float64)) error {
	active := NewSet(len(w))
	defer active.Free()
	var count atomic.Int64
	mark := func(_, lo, hi int) {
		n := 0
		for v := lo; v < hi; v++ {
			if w[v] != 0 {
				active.Add(graph.VertexID(v))
				n++
			}
		}
		count.Add(int64(n))
	}
	if m.columns.Plain() {
		if err := m.chunks(mark); err != nil {
			return err
		}
	} else {
		mark(0, 0, len(w))
	}
	load := loadAll
	if int(count.Load()) < len(w)/sparseShare {
		load = func(values, w []float32, at []graph.VertexID) { loadActive(values, w, at, active) }
	}
	scratches := make([]scratch, m.workers)
	return m.chunks(func(worker, lo,
		hi int) {
		m.gatherChunk(&scratches[worker], w, lo, hi, load, finish)
	})
}

func (m *Graph) gatherChunk(s *scratch, w []float32, lo, hi int,
	load func(values, w []float32, at []graph.VertexID), finish func(first int, sums []float64)) {
	ends := m.out.Indptr[1 : hi+1]
	last := m.out.Indptr[hi]
	sum := 0.0 // sum of the current vertex, whose edges may span blocks
	for u, edge := lo, m.out.Indptr[lo]; u < hi; {
		stop := min(edge+blockEdges, last)
		values := s.values[:stop-edge]
		load(values, w, m.out.Indices[edge:stop])
		first, begin := u, edge
		sums := s.sums[:0]
		for u < hi && ends[u] <= stop && len(sums) < cap(sums) {
			end := ends[u]
			sums = append(sums, sum+total(values[begin-edge:end-edge]))
			sum, begin = 0, end
			u++
		}
		if len(sums) < cap(sums) {
			sum += total(values[begin-edge:])
			begin = stop
		}
		edge = begin
		finish(first, sums)
	}
}

// loadAll sets values[i] to w[at[i]].
func loadAll(values, w []float32, at []graph.VertexID) {
	values = values[:len(at)]
	for i, v := range at {
		values[i] = w[v]
	}
}

// loadActive does the same as loadAll, but reads w only at the active vertices. At all others w is
// zero.
func loadActive(values, w []float32, at []graph.VertexID, active Set) {
	values = values[:len(at)]
	for i, v := range at {
		values[i] = 0
		if active.Has(v) {
			values[i] = w[v]
		}
	}
}

// total returns the sum of x. It adds in four independent chains, which the processor overlaps.
func total(x []float32) float64 {
	var a, b, c, d float64
	for ; len(x) >= 4; x = x[4:] {
		a += float64(x[0])
		b += float64(x[1])
		c += float64(x[2])
		d += float64(x[3])
	}
	for _, v := range x {
		a += float64(v)
	}
	return a + b + (c + d)
}
