package simulate

import (
	"slices"

	"halognn/src/access"
	"halognn/src/cache"
	"halognn/src/comm"
	"halognn/src/compute"
	"halognn/src/compute/ref"
	"halognn/src/exchange"
	"halognn/src/graph"
	"halognn/src/mem"
	"halognn/src/sample"
)

// node returns the parts whose rows a rank can read: its own, and those of the ranks on its node.
func (s *Simulation) node(rank int) (first, last int) {
	n := s.o.RanksPerNode
	return rank / n * n * s.perRank, min((rank/n+1)*n, s.o.Ranks) * s.perRank
}

// minibatches returns how many minibatches a rank trains in a step.
func (s *Simulation) minibatches() int { return s.share.Count }

// reader describes the minibatches of a rank as training does.
func (s *Simulation) reader(rank, workers int) *access.Reader {
	r := &access.Reader{
		Sample: sample.Neighbours(s.o.Fanouts...), Hops: s.o.HaloHops, Topology: s.shards.Topology(), Streams: s.streams,
		First: rank * s.minibatches(), Count: s.minibatches(), Seed: s.o.Seed, Epochs: s.o.Epochs, Workers: workers,
	}
	for p, last := s.node(rank); p < last; p++ {
		r.Local = append(r.Local, access.Range{First: graph.VertexID(s.shards.Offsets[p]), End: graph.VertexID(s.shards.Offsets[p+1])})
	}
	r.Sources = access.Sources(s.streams, r.First, r.Count)
	if s.o.LastShort {
		own := &r.Sources[0]
		own.PerBatch = float64(len(own.Seeds)) / float64(s.stepsOf(len(own.Seeds)))
	}
	return r
}

// stepsOf returns the steps of an epoch in which a rank with so many seeds has some.
func (s *Simulation) stepsOf(seeds int) int {
	if !s.o.LastShort {
		return s.streams.Steps()
	}
	return max(1, (seeds+s.o.Batch-1)/s.o.Batch)
}

// capacities returns the rows of a rank's cache, by size.
func (s *Simulation) capacities(m *access.Graph, r *access.Reader) ([]int, error) {
	var rows []int
	for _, a := range s.o.Alphas {
		rows = append(rows, access.Capacity(a, s.shards.Vertices, s.o.Ranks))
	}
	if len(s.o.HaloFractions) == 0 {
		return rows, nil
	}
	halo, err := m.HaloSize(r.Local)
	for _, f := range s.o.HaloFractions {
		rows = append(rows, int(min(f*float64(halo), float64(s.shards.Vertices))))
	}
	return rows, err
}

// planWindows sets the windows of lookahead: what is asked for, or the most that any rank should see. No window is wider than
// the run.
func (s *Simulation) planWindows(m *access.Graph) error {
	if !slices.Contains(s.o.Policies, cache.NameLookahead) {
		return nil
	}
	sizes, _ := s.o.sizes()
	s.windows = make([]int, len(sizes))
	for rank := 0; rank < s.o.Ranks && s.o.Window == 0; rank++ {
		r := s.reader(rank, s.o.Workers)
		capacity, err := s.capacities(m, r)
		if err != nil {
			return err
		}
		p, err := m.Reads(r)
		if err != nil {
			return err
		}
		for i, rows := range capacity {
			w, err := m.PlanWindow(r, p, rows)
			if err != nil {
				mem.Free(p)
				return err
			}
			s.windows[i] = max(s.windows[i], w)
		}
		mem.Free(p)
	}
	for i := range s.windows {
		s.windows[i] = min(max(s.windows[i], s.o.Window), s.o.Epochs*s.streams.Steps()*s.minibatches())
	}
	return nil
}

// exchange returns the rank's exchange, which plans and fetches nothing. Its rows are of two bytes that nobody ever reads or writes, so they
// take addresses but no memory.
func (s *Simulation) exchange(rank int) (*exchange.Exchange, func(), error) {
	first, last := s.node(rank)
	offsets := s.shards.Offsets
	width := int64(compute.Float16.Size())
	rows := mem.Make[byte](int((offsets[last] - offsets[first]) * width))
	tables := make([][]byte, s.shards.Parts)
	for p := first; p < last; p++ {
		tables[p] = rows[(offsets[p]-offsets[first])*width : (offsets[p+1]-offsets[first])*width]
	}
	x, err := exchange.New(comm.NewWorld(s.o.Ranks).Rank(rank), exchange.Options{
		Offsets: offsets, Tables: tables, Cols: 1, Type: compute.Float16, Host: ref.Host{},
	})
	return x, func() { mem.Free(rows) }, err
}
