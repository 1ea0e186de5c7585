package residence

import (
	"halognn/src/access"
	"halognn/src/graph"
	"halognn/src/sample"
	"halognn/src/trace"
)

// Near returns the vertices that this rank's sampler makes likelier, with cache c: in the last hop
// those whose rows it reads in the memory of its node, in parts or in a cache that does not change,
// and in others those with the most paths from them. nil if the job asks for none, or if all rows
// are at hand.
func (s *Store) Near(c *Cache) (sample.Near, error) {
	if !s.Job.FavoursNear() {
		return nil, nil
	}
	m, err := s.graph()
	if err != nil {
		return nil, err
	}
	defer m.Free()
	n := m.NumVertices()
	held := access.NewSet(n)
	defer held.Free()
	held.AddRanges(s.Job.Local(s.Comm.Rank()))
	if c.fixed != nil {
		for v := range graph.VertexID(n) {
			if c.fixed.Row(v) >= 0 {
				held.Add(v)
			}
		}
	}
	near, err := m.Near(held, s.Job.Sample.Hops(), s.Job.Locality.Vertices)
	s.SetUp.Done(trace.SetUpRank)
	return near, err
}
