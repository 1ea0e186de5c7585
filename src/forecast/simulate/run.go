package simulate

import (
	"fmt"
	"iter"
	"math"
	"slices"
	"sync"

	"halognn/src/base/mem"
	"halognn/src/base/trace"
	"halognn/src/rows/access"
	"halognn/src/rows/policy"
	"halognn/src/step/job"
	"halognn/src/step/parallel"
	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
)

// Run simulates all ranks. The number of workers is the largest number of ranks that are simulated
// at the same time. Every minibatch is sampled once; policy sim, which scores vertices by counting
// minibatches, also samples those that it counts.
func (s *Simulation) Run() (*Result, error) {
	o := s.o
	together := min(o.Workers, o.Ranks)
	each := max(1, o.Workers/together)
	t := s.shards.Topology()
	m, err := access.New(&t.Graph, access.Options{Workers: each, Columns: &t.Columns})
	if err != nil {
		return nil, err
	}
	defer m.Free()
	s.transposed = m.Transposed()
	if err := s.planWindows(m); err != nil {
		return nil, fmt.Errorf("planning windows: %w", err)
	}
	if s.job.Cache.Shared() {
		defer s.freeShared()
		if err := s.shareNodes(m); err != nil {
			return nil, fmt.Errorf("placing caches: %w", err)
		}
	}
	count := s.counted
	switch {
	case s.byNode():
		count = s.countedNodes
	case s.job.FavoursNear():
		count = s.countedNear
	}
	r, err := count(m, together, each)
	if err != nil {
		return nil, fmt.Errorf("simulating: %w", err)
	}
	r.Bytes = s.bytes(together, each, r.used, r.Capacity)
	return r, nil
}

// counted counts all policies and sizes over the same minibatches.
func (s *Simulation) counted(m *access.Graph, together, each int) (*Result, error) {
	var sum sum
	err := s.onRanks(together, func(rank int) error {
		r, err := s.rank(rank, m, each)
		if err == nil {
			sum.add(rank, r)
		}
		return err
	})
	return sum.Result, err
}

// onRanks calls f for every rank. It makes at most `calls` calls at a time.
func (s *Simulation) onRanks(calls int, f func(rank int) error) error {
	return mem.Together(calls, func(w int) (err error) {
		for rank := w; rank < s.job.Ranks && err == nil; rank += calls {
			err = f(rank)
		}
		return err
	})
}

// sum adds the results of ranks in the order of rank numbers, although ranks finish in any order.
// So sums of predictions are always rounded alike.
type sum struct {
	sync.Mutex
	*Result
	waiting map[int]*Result // results that wait for the results of lower ranks
	next    int             // rank whose result is added next
}

func (s *sum) add(rank int, r *Result) {
	s.Lock()
	defer s.Unlock()
	if s.waiting == nil {
		s.waiting = map[int]*Result{}
	}
	for s.waiting[rank] = r; s.waiting[s.next] != nil; s.next++ {
		if s.next == 0 {
			s.Result = s.waiting[0]
		} else {
			s.Result.add(s.waiting[s.next])
		}
		delete(s.waiting, s.next)
	}
}

// add adds the counts of another rank.
func (r *Result) add(o *Result) {
	r.used.atLeast(o.used)
	r.Remote += o.Remote
	r.Asked.add(o.Asked)
	r.EdgeRows += o.EdgeRows
	r.EdgeShared += o.EdgeShared
	r.Learned.Add(o.Learned)
	for i, n := range o.Each {
		r.Each[i] += n
	}
	for i, rows := range o.Capacity {
		r.Capacity[i] = max(r.Capacity[i], rows)
	}
	for p := range r.Rows {
		for size := range r.Rows[p] {
			r.Rows[p][size] += o.Rows[p][size]
			r.Read[p][size] += o.Read[p][size]
			r.Peer[p][size] += o.Peer[p][size]
			r.Shared[p][size] += o.Shared[p][size]
			r.Filled[p][size] += o.Filled[p][size]
			r.Predicted[p][size] += o.Predicted[p][size]
			r.Totals[p][size].Add(o.Totals[p][size])
			for i, d := range o.Traces[p][size] {
				r.Traces[p][size][i].Add(d)
			}
		}
	}
}

// newCounter makes the counter of a rank, which must be freed even after an error.
func (s *Simulation) newCounter(rank int) (*counter, error) {
	c := &counter{Simulation: s, rank: rank, kinds: s.job.Kinds(),
		accesses: mem.Make[uint32](int(s.shards.Vertices)), each: make([]int64,
			s.job.Epochs*s.job.Steps())}
	if s.job.Model.LearnsRows() {
		x, err := s.job.LearnedExchange(rank, false)
		if err != nil {
			return c, err
		}
		c.learns = parallel.NewLearnedCounter(s.job.Model, s.shards.Topology(), x)
	}
	return c, nil
}

// rank simulates one rank.
func (s *Simulation) rank(rank int, m *access.Graph, workers int) (*Result, error) {
	reader := s.reader(rank, workers)
	capacity, err := s.capacities(m, rank)
	if err != nil {
		return nil, err
	}
	c, err := s.newCounter(rank)
	defer c.free()
	if err != nil {
		return nil, err
	}
	if s.job.Sums {
		err = c.countSums(m, reader, capacity, workers)
	} else {
		err = c.countRows(m, reader, capacity, workers)
	}
	if err != nil {
		return nil, err
	}
	inclusion, err := m.Reads(reader)
	if err != nil {
		return nil, err
	}
	defer mem.Free(inclusion)
	r := s.result(c, capacity)
	for i, p := range s.policies {
		rows, peer, filled, predicted := r.Rows[i], r.Peer[i], r.Filled[i], r.Predicted[i]
		for size := range rows {
			r.Read[i][size] = c.remote
		}
		switch {
		case s.job.Sums: // all policies have been played, and their rows are added below
			for size := range predicted {
				predicted[size] = math.NaN()
			}
		case s.shared != nil && !p.None():
			err = c.sharedStatic(i, m, reader, inclusion, rows, peer, filled, predicted)
		case p.Static():
			err = c.static(p, m, reader, inclusion, r, i)
		default:
			err = c.predict(p, m, reader, inclusion, capacity, s.windows[i], predicted)
		}
		if err != nil {
			return nil, fmt.Errorf("rank %d, policy %s: %w", rank, p.Name, err)
		}
	}
	for _, d := range c.playing {
		r.used.policies += d.Bytes()
		r.Rows[d.policy][d.size], r.Totals[d.policy][d.size] = d.total.Remote+d.total.Sums, d.total
		r.Filled[d.policy][d.size], r.Traces[d.policy][d.size] = d.filled, d.trace
	}
	return r, nil
}

// result returns the counts of a rank's minibatches. The counts of its caches are still 0.
func (s *Simulation) result(c *counter, capacity []int) *Result {
	r := &Result{
		Options: s.o, Vertices: s.shards.Vertices, Steps: s.job.Steps(),
		Minibatches: s.job.Minibatches(), Remote: c.remote, Each: c.each, Asked: c.asked,
		EdgeRows: c.edgeRows,
		Learned:  c.learned, Gradients: int64(s.job.Steps()*s.o.Epochs) * s.gradients,
		AskingHops: sample.AskingHops(s.job.Sample.Hops(), s.job.Ranks, s.job.SeedsElsewhere()),
		Capacity:   capacity, Windows: s.windows, used: c.used, edgeIn: s.job.Model.EdgeIn,
		kinds: s.job.Kinds(),
	}
	for range s.policies {
		n := len(capacity)
		r.Rows, r.Read = append(r.Rows, make([]int64, n)), append(r.Read, make([]int64, n))
		r.Peer, r.Filled = append(r.Peer, make([]int64, n)), append(r.Filled, make([]int64, n))
		r.Shared = append(r.Shared, make([]int64, n))
		r.Predicted = append(r.Predicted, make([]float64, n))
		r.Traces = append(r.Traces, make([]Trace, n))
		r.Totals = append(r.Totals, make([]trace.Counters, n))
	}
	return r
}

// countRows counts minibatches while dynamic policies decide about them.
func (c *counter) countRows(m *access.Graph, r *access.Workload, capacity []int,
	workers int) error {
	c.addPlayers(m, r, capacity, func(p *policy.Policy) bool { return !p.Static() })
	return c.eachMinibatch(workers, c.plain(), func(m *minibatch) error {
		if err := c.count(m); err != nil {
			return err
		}
		return c.play(m)
	})
}

// countSums first counts all minibatches, because an oracle chooses rows by these counts. Then all
// policies decide about each minibatch. Static policies also decide about each minibatch. For the
// rows that a cache misses, owners send rows or sums, and which of the two they send depends on the
// minibatch.
func (c *counter) countSums(m *access.Graph, r *access.Workload, capacity []int,
	workers int) error {
	err := c.eachMinibatch(workers, c.plain(), c.count)
	if err != nil {
		return err
	}
	r.Known = c.accesses
	c.addPlayers(m, r, capacity, func(*policy.Policy) bool { return true })
	window := 0
	for _, p := range c.playing {
		window = max(window, p.Window())
	}
	c.sums = parallel.NewSumCounter(c.job.Model.Needs(), c.shards.Topology(), job.NewChooser(c.job),
		window)
	defer func() { c.used.sums, _ = c.sums.Bytes() }()
	return c.eachMinibatch(workers, c.plain(), c.play)
}

// static counts the rows that all epochs fetch, and predicts the rows of one epoch, for every size
// of a static policy.
func (c *counter) static(p *policy.Policy, m *access.Graph, r *access.Workload, inclusion []float32,
	result *Result, which int) error {
	capacity, rows, filled := result.Capacity, result.Rows[which], result.Filled[which]
	predicted := result.Predicted[which]
	read := c.readBytes(all(c.shards.Vertices))
	r.Known = c.accesses
	var score []float32
	var err error
	if !p.None() {
		score, err = p.Rank(m, r)
	}
	defer mem.Free(score)
	for i := 0; i < len(capacity) && err == nil; i++ {
		var held []graph.VertexID
		if !p.None() {
			if held, err = m.Best(score, r, capacity[i]); err != nil {
				break
			}
		}
		result.Totals[which][i].RowBytes = read - c.readBytes(slices.Values(held))
		rows[i], filled[i] = c.remote, int64(len(held))
		for _, v := range held {
			rows[i] -= int64(c.accesses[v])
		}
		predicted[i], err = p.Expected(m, inclusion, r, held, capacity[i], 0, 0)
		predicted[i] *= float64(c.perEpoch(r))
		mem.Free(held)
	}
	return err
}

// readBytes returns the bytes of all reads of the given vertices, or 0 if all rows have one size.
func (c *counter) readBytes(vertices iter.Seq[graph.VertexID]) (bytes int64) {
	if c.kinds == nil {
		return 0
	}
	for v := range vertices {
		bytes += int64(c.accesses[v]) * int64(c.kinds.Size(v))
	}
	return bytes
}

// all yields the given number of vertices, from the first on.
func all(vertices int64) iter.Seq[graph.VertexID] {
	return func(yield func(graph.VertexID) bool) {
		for v := range graph.VertexID(vertices) {
			if !yield(v) {
				return
			}
		}
	}
}

// predict sets the rows of an epoch that a dynamic policy is expected to transfer, or NaN if there
// is no formula.
func (c *counter) predict(p *policy.Policy, m *access.Graph, r *access.Workload,
	inclusion []float32, capacity, windows []int, predicted []float64,
) (err error) {
	n := c.perEpoch(r)
	for i, rows := range capacity {
		predicted[i], err = p.Expected(m, inclusion, r, nil, rows, windows[i], n*c.job.Epochs)
		if err != nil {
			return err
		}
		predicted[i] *= float64(n)
	}
	return nil
}

// perEpoch returns how many of the reader's minibatches in an epoch have seeds.
func (c *counter) perEpoch(r *access.Workload) int {
	return c.stepsOf(len(r.Sources[0].Seeds)) * r.Count
}
