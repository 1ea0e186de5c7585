package sample

import (
	"sort"

	"halognn/src/base/mem"
	"halognn/src/topology/graph"
)

// Several workers share a hop. While they draw, each of them has a range of the destinations; while
// they renumber, each has a range of the edges. Ranges write to disjoint memory, and the start of a
// range is a sum of counts in range order, so the number of workers affects only the time.

// worker is one of the goroutines that share a minibatch. It runs for one phase; its scratch memory
// is kept.
type worker struct {
	drawer
	// run does the phase and reports to Fused.wait. It is made once, so that starting it allocates
	// nothing.
	run func()
	err error
	// number of edges or new vertices of the worker's range; later, their number in all earlier
	// ranges
	count int
}

func newWorker(s *Fused, i int) worker {
	return worker{drawer: newDrawer(), run: func() {
		defer s.wait.Done()
		s.workers[i].err = mem.Contain(func() error { s.phase(s, i); return nil })
	}}
}

// runPhase runs the function `phase` on every worker, and waits until all have finished. If a
// worker hits a fault in a mapped file, runPhase returns it as an error.
func (s *Fused) runPhase(phase func(s *Fused, w int)) error {
	s.phase = phase
	s.wait.Add(len(s.workers))
	for i := 1; i < len(s.workers); i++ {
		go s.workers[i].run()
	}
	s.workers[0].run()
	s.wait.Wait()
	for i := range s.workers {
		if err := s.workers[i].err; err != nil {
			return err
		}
	}
	return nil
}

// addCounts replaces the count of every range by the sum of start and the counts of all ranges
// before this one. It returns the sum of start and all counts.
func (s *Fused) addCounts(start int) int {
	for i := range s.workers {
		w := &s.workers[i]
		w.count, start = start, start+w.count
	}
	return start
}

// shared reports whether a hop with this many edges is large enough for several workers.
func (s *Fused) shared(edges int) bool {
	return len(s.workers) > 1 && edges >= s.options.minParallel
}

// split cuts n items into one range for each worker, and returns the range [lo, hi) of worker w.
func (s *Fused) split(n, w int) (lo, hi int) {
	return n * w / len(s.workers), n * (w + 1) / len(s.workers)
}

// splitByEdges cuts the destinations into one range for each worker, so that all ranges have about
// the same number of edges. It returns the range [lo, hi) of worker w.
func (s *Fused) splitByEdges(w int) (lo, hi int) {
	ends := s.hop.indptr[1:]
	from, to := s.split(len(s.hop.drawn), w)
	cut := func(edge int) int {
		return sort.Search(len(ends),
			func(i int) bool { return ends[i] > int64(edge) })
	}
	return cut(from), cut(to)
}

// locate finds the rows of all destinations and completes the row pointers of the hop.
func (s *Fused) locate() error {
	n := len(s.hop.vertices)
	s.hop.indptr[0] = 0
	if !s.shared(n) {
		s.hop.locate(0, n)
		return nil
	}
	if err := s.runPhase((*Fused).locateRange); err != nil {
		return err
	}
	s.addCounts(0)
	return s.runPhase((*Fused).shiftRange)
}

func (s *Fused) locateRange(w int) {
	lo, hi := s.split(len(s.hop.vertices), w)
	s.workers[w].count = int(s.hop.locate(lo, hi))
}

func (s *Fused) shiftRange(w int) {
	lo, hi := s.split(len(s.hop.vertices), w)
	ends := s.hop.indptr[lo+1 : hi+1]
	for i := range ends {
		ends[i] += int64(s.workers[w].count)
	}
}

// renumberShared does what renumberAlone does, on all workers. It draws the neighbours, and lets
// every edge claim its vertex. Then it counts the won claims in each range, numbers the winners in
// the order of the edges, and gives the other edges the number of their winner.
func (s *Fused) renumberShared(n int) (int, error) {
	edges := len(s.hop.drawn)
	s.values = mem.Grow(s.values, edges)
	s.vertices.reserve(s.hop.vertices, edges)
	for _, phase := range [...]func(*Fused, int){(*Fused).drawRange, (*Fused).claimRange,
		(*Fused).resolveRange} {
		if err := s.runPhase(phase); err != nil {
			return 0, err
		}
	}
	total := s.addCounts(n)
	s.mb.Original = mem.Grow(s.mb.Original, total)
	if err := s.runPhase((*Fused).appendRange); err != nil {
		return 0, err
	}
	return total, s.runPhase((*Fused).linkRange)
}

func (s *Fused) drawRange(w int) {
	lo, hi := s.splitByEdges(w)
	s.workers[w].drawChunks(&s.hop, lo, hi)
}

func (s *Fused) claimRange(w int) {
	lo, hi := s.split(len(s.hop.drawn), w)
	first := len(s.hop.vertices) + lo
	blocks(s.hop.drawn[lo:hi],
		func(ids []graph.VertexID, at int) { s.vertices.claim(ids, first+at) })
}

func (s *Fused) resolveRange(w int) {
	lo, hi := s.split(len(s.hop.drawn), w)
	s.workers[w].count = s.vertices.resolve(s.hop.drawn[lo:hi], s.values[lo:hi],
		len(s.hop.vertices)+lo)
}

// appendRange appends the vertices for which an edge of range w has won the claim. No later phase
// of this hop reads the claims, so the map can already store the numbers.
func (s *Fused) appendRange(w int) {
	lo, hi := s.split(len(s.hop.drawn), w)
	n, from := len(s.hop.vertices), s.workers[w].count
	total := from
	for e := lo; e < hi; e++ {
		if int(s.values[e]) == n+e {
			s.mb.Frontier[total] = s.hop.drawn[e]
			s.rows[e] = int32(total) // overwrites drawn[e]
			total++
		}
	}
	blocks(s.mb.Frontier[from:total],
		func(vertices []graph.VertexID, at int) { s.vertices.settle(vertices, from+at) })
	s.gatherOriginal(from, total)
}

// linkRange sets the rows of the edges that won no claim: to the vertex's local number, or to the
// row of the edge that won.
func (s *Fused) linkRange(w int) {
	lo, hi := s.split(len(s.hop.drawn), w)
	n := len(s.hop.vertices)
	for e := lo; e < hi; e++ {
		switch value := int(s.values[e]); {
		case value < n:
			s.rows[e] = int32(value)
		case value != n+e:
			s.rows[e] = s.rows[value-n]
		}
	}
}
