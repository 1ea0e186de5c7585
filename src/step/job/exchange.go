package job

import (
	"slices"

	"halognn/src/data/shard"
	"halognn/src/devices/compute"
	"halognn/src/model/nn"
	"halognn/src/rows/exchange"
)

// OwnersSums says which sums of rows owners make for other ranks. It returns nil if only rows
// travel.
func (s *Spec) OwnersSums() *exchange.Sums {
	if !s.Sums || !s.Reads() {
		return nil
	}
	needs := s.Model.Needs()
	sums := &exchange.Sums{How: needs.Aggregate, Own: needs.Own,
		Weighted: needs.Weights != nn.NoWeights}
	if needs.Averages {
		sums.How = compute.ReduceMean
	}
	return sums
}

// LearnedSums says which sums of learned rows owners make in training. It returns nil if only rows
// travel.
func (s *Spec) LearnedSums() *exchange.Sums {
	if !s.Sums || !s.Model.LearnsRows() || !s.Model.Needs().Averages {
		return nil
	}
	return &exchange.Sums{How: compute.ReduceMean, Back: true}
}

// NewChooser makes the chooser that decides which rows and which sums of a job travel.
func NewChooser(j *Job) *exchange.Chooser {
	return exchange.NewChooser(j.OwnersSums(), Rows(&j.Shards.Meta), j.Kinds().Of)
}

// Rows returns the kind of the rows of each vertex type.
func Rows(m *shard.Meta) (kinds []exchange.Kind) {
	for t := range m.Schema.NumTypes() {
		kinds = append(kinds, exchange.Kind{Cols: m.Table(t).Features, Type: m.Table(t).Type()})
	}
	return kinds
}

// SumBytes returns the bytes of a sum of rows; 0 if only rows travel.
func (s *Spec) SumBytes(of *shard.Meta) int {
	sums := s.OwnersSums()
	if sums == nil {
		return 0
	}
	return sums.Bytes(of.Table(0).Features, of.Type())
}

// pieces is for parts that are cut into pieces, one for each rank. For each piece it returns the
// first vertex of every vertex type in it, as Shards.Ranges does for whole parts.
func (j *Job) pieces() []int64 {
	starts, types := j.Shards.Ranges(), j.Shards.Schema.NumTypes()
	all := make([]int64, 0, j.Ranks*types+1)
	for r := range j.Ranks {
		part := r * j.Shards.Parts / j.Ranks
		for t := range types {
			all = append(all, min(max(starts[part*types+t], j.first[r]), j.first[r+1]))
		}
	}
	return append(all, j.Shards.Vertices)
}

// ReadRows returns the kinds of the rows that minibatches read: one for each vertex type, or one
// for all vertices. For sparse rows it is a kind whose rows have the average length of the sparse
// rows in bytes.
func (j *Job) ReadRows() []exchange.Kind {
	m := &j.Shards.Meta
	if j.Sparse {
		return []exchange.Kind{{Cols: m.RowBytes(), Type: compute.Int8}}
	}
	return Rows(m)
}

// Exchange returns an exchange for predictions: it plans the minibatches of a rank, but never
// fetches.
func (j *Job) Exchange(rank int) (*exchange.Exchange, error) {
	return j.ExchangeOf(rank, j.ReadRows(), j.Neighbours(rank), j.OwnersSums())
}

// ExchangeOf is Exchange for rows of the given kinds. The slice inMemory lists the ranks whose rows
// this rank reads in memory.
func (j *Job) ExchangeOf(rank int, kinds []exchange.Kind, inMemory []int, sums *exchange.Sums) (
	*exchange.Exchange, error) {
	offsets := j.Shards.Ranges()
	if !j.Exact { // parts are cut into pieces
		offsets = j.pieces()
	}
	return exchange.NewPlanning(rank, j.Ranks, offsets, kinds, func(part int) bool {
		return slices.Contains(inMemory, part*j.Ranks/(len(offsets)-1))
	}, sums)
}

// EdgeExchange is Exchange for the feature rows of edges. The owner of an edge's target has the row
// of the edge; if rows are read from files, all ranks have it.
func (j *Job) EdgeExchange(rank int) (*exchange.Exchange, error) {
	offsets := make([]int64, j.Ranks+1)
	for r, v := range j.first {
		offsets[r] = j.Shards.Topology().Graph.Indptr[v]
	}
	here := j.Neighbours(rank)
	return exchange.NewPlanning(rank, j.Ranks, offsets,
		[]exchange.Kind{{Cols: j.Shards.EdgeFeatures, Type: compute.Float32}},
		func(part int) bool { return j.Cache.FromFiles() || slices.Contains(here, part) }, nil)
}

// LearnedKinds returns the kind of the learned rows of each vertex type, with 0 columns for a type
// without learned rows.
func (j *Job) LearnedKinds() []exchange.Kind {
	kinds := make([]exchange.Kind, j.Shards.Schema.NumTypes())
	for t, learns := range j.Model.Learns {
		if learns {
			kinds[t] = exchange.Kind{Cols: j.Model.Learned, Type: compute.Float32}
		}
	}
	return kinds
}

// LearnedExchange is Exchange for the learned rows of training, which only their owners have in
// memory. If asNode is set, it is the exchange of rows that the ranks of a node fetch once for all
// of them; otherwise it is that of rows and sums from rank to rank.
func (j *Job) LearnedExchange(rank int, asNode bool) (*exchange.Exchange, error) {
	if !asNode {
		return j.ExchangeOf(rank, j.LearnedKinds(), []int{rank}, j.LearnedSums())
	}
	x, err := j.ExchangeOf(rank, j.LearnedKinds(), []int{rank}, nil)
	if err == nil {
		x.PlanNodes(j.NodeOf(), false)
	}
	return x, err
}
