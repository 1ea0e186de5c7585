package simulate

import (
	"errors"
	"fmt"
	"math"
	"sync"

	"halognn/src/access"
	"halognn/src/graph"
	"halognn/src/mem"
)

// Run simulates all ranks, as many at a time as there are workers. Every minibatch is sampled once, and twice in as many epochs as policy
// sim counts.
func (s *Simulation) Run() (*Result, error) {
	o := s.o
	r := &Result{Options: o, Vertices: s.shards.Vertices, Steps: s.streams.Steps()}
	for range o.Policies {
		r.Rows = append(r.Rows, make([]int64, len(o.Alphas)))
		r.Predicted = append(r.Predicted, make([]float64, len(o.Alphas)))
	}
	together := min(o.Workers, o.Ranks)
	each := max(1, o.Workers/together)
	m, err := access.New(&s.shards.Topology().Graph, access.Options{Workers: each})
	if err != nil {
		return nil, err
	}
	defer m.Free()
	ranks := make([]*rankResult, o.Ranks)
	faults := make([]error, together)
	var wait sync.WaitGroup
	for w := range together {
		wait.Go(func() {
			for rank := w; rank < o.Ranks && faults[w] == nil; rank += together {
				ranks[rank], faults[w] = s.rank(rank, m, each)
			}
		})
	}
	wait.Wait()
	if err := errors.Join(faults...); err != nil {
		return nil, fmt.Errorf("simulating: %w", err)
	}
	for _, rank := range ranks { // in order, so that sums of predictions are the same every time
		r.Remote += rank.remote
		for p := range o.Policies {
			for a := range o.Alphas {
				r.Rows[p][a] += rank.rows[p][a]
				r.Predicted[p][a] += rank.predicted[p][a]
			}
		}
	}
	return r, nil
}

// rankResult is the share of one rank in a Result.
type rankResult struct {
	remote    int64
	rows      [][]int64
	predicted [][]float64
}

// rank simulates one rank.
func (s *Simulation) rank(rank int, m *access.Graph, workers int) (*rankResult, error) {
	o := &s.o
	reader, err := s.reader(rank, workers)
	if err != nil {
		return nil, err
	}
	var capacity []int
	for _, a := range o.Alphas {
		capacity = append(capacity, access.Capacity(a, s.shards.Vertices, o.Ranks))
	}
	c := &counter{Simulation: s, rank: rank, accesses: mem.Make[uint32](int(s.shards.Vertices))}
	defer c.free()
	initial := func(rows int) ([]graph.VertexID, error) {
		score, err := m.Score(access.PolicyDegree, reader)
		if err != nil {
			return nil, err
		}
		defer mem.Free(score)
		return m.Top(score, reader.Local, rows)
	}
	if err := c.addDynamic(capacity, initial); err != nil {
		return nil, err
	}
	if err := c.count(workers); err != nil {
		return nil, err
	}
	r := &rankResult{remote: c.remote}
	inclusion, err := s.inclusion(m, reader)
	if err != nil {
		return nil, err
	}
	defer mem.Free(inclusion)
	for _, name := range o.Policies {
		rows, predicted, err := c.static(name, m, reader, inclusion, capacity)
		if err != nil {
			return nil, fmt.Errorf("rank %d, policy %s: %w", rank, name, err)
		}
		r.rows, r.predicted = append(r.rows, rows), append(r.predicted, predicted)
	}
	for _, d := range c.dynamic {
		r.rows[d.policy][d.alpha] = d.rows
	}
	return r, nil
}

// reader describes the minibatches of a rank as training does.
func (s *Simulation) reader(rank, workers int) (*access.Reader, error) {
	first, last, err := s.shards.RankRange(rank, s.o.Ranks)
	if err != nil {
		return nil, err
	}
	r := &access.Reader{
		Fanouts: s.o.Fanouts, Topology: s.shards.Topology(), Streams: s.streams, First: rank, Count: 1,
		Seed: s.o.Seed, Epochs: s.o.Epochs, Workers: workers,
	}
	for p := first; p < last; p++ {
		r.Local = append(r.Local, access.Range{First: graph.VertexID(s.shards.Offsets[p]), End: graph.VertexID(s.shards.Offsets[p+1])})
		r.Seeds = append(r.Seeds, s.shards.Train(p)...)
	}
	r.PerStep = float64(len(r.Seeds)) / float64(s.stepsOf(len(r.Seeds)))
	return r, nil
}

// stepsOf returns the steps of an epoch in which a rank with so many seeds has some.
func (s *Simulation) stepsOf(seeds int) int {
	if !s.o.LastShort {
		return s.streams.Steps()
	}
	return max(1, (seeds+s.o.Batch-1)/s.o.Batch)
}

// inclusion returns the probability that a step of the rank reads each vertex; zeros for a rank without seeds.
func (s *Simulation) inclusion(m *access.Graph, r *access.Reader) ([]float32, error) {
	if len(r.Seeds) == 0 {
		return mem.Make[float32](int(s.shards.Vertices)), nil
	}
	return m.Inclusion(r.Seeds, r.PerStep, r.Fanouts)
}

// static returns the rows of all epochs and the predicted rows of one, for every capacity; for a dynamic policy there is nothing to
// return yet, and no prediction.
func (c *counter) static(policy string, m *access.Graph, r *access.Reader, inclusion []float32, capacity []int) ([]int64, []float64, error) {
	rows, predicted := make([]int64, len(capacity)), make([]float64, len(capacity))
	var score []float32
	var err error
	switch policy {
	case PolicySieve, PolicyPrefetch, PolicyOptimum:
		for a := range predicted {
			predicted[a] = math.NaN()
		}
		return rows, predicted, nil
	case access.PolicyNone:
	case access.PolicyOracle: // counted already
		score = mem.Make[float32](len(c.accesses))
		for v, n := range c.accesses {
			score[v] = float32(n)
		}
	default:
		score, err = m.Score(policy, r)
	}
	defer mem.Free(score)
	for a := 0; a < len(capacity) && err == nil; a++ {
		var held []graph.VertexID
		if policy != access.PolicyNone {
			if held, err = m.Top(score, r.Local, capacity[a]); err != nil {
				break
			}
		}
		rows[a] = c.remote
		for _, v := range held {
			rows[a] -= int64(c.accesses[v])
		}
		if predicted[a], err = access.Expected(inclusion, r.Local, held); err == nil {
			predicted[a] *= float64(c.stepsOf(len(r.Seeds)))
		}
		mem.Free(held)
	}
	return rows, predicted, err
}
