package job

import (
	"slices"

	"halognn/src/compute"
	"halognn/src/exchange"
	"halognn/src/nn"
	"halognn/src/shard"
)

// OwnersSums returns what the owners of rows add for others; nil if rows alone travel.
func (s *Spec) OwnersSums() *exchange.Sums {
	if !s.Sums || !s.Reads() {
		return nil
	}
	needs := s.Model.Needs()
	sums := &exchange.Sums{How: needs.Aggregate, Own: needs.Own, Weighted: needs.Weights != nn.NoWeights}
	if needs.Averages {
		sums.How = compute.ReduceMean
	}
	return sums
}

// LearnedSums returns what owners add of learned rows that are trained; nil if rows alone travel.
func (s *Spec) LearnedSums() *exchange.Sums {
	if !s.Sums || !s.Model.LearnsRows() || !s.Model.Needs().Averages {
		return nil
	}
	return &exchange.Sums{How: compute.ReduceMean, Back: true}
}

// NewChooser makes the chooser between rows and sums for the rows of a job.
func NewChooser(j *Job) *exchange.Chooser {
	return exchange.NewChooser(j.OwnersSums(), Rows(&j.Shards.Meta), j.Kinds().Of)
}

// Rows returns what the rows of each vertex type are.
func Rows(m *shard.Meta) (kinds []exchange.Kind) {
	for t := range m.Schema.NumTypes() {
		kinds = append(kinds, exchange.Kind{Cols: m.Table(t).Features, Type: m.Table(t).Type()})
	}
	return kinds
}

// SumBytes returns the bytes of a sum of rows that travels; 0 if rows alone do.
func (s *Spec) SumBytes(of *shard.Meta) int {
	sums := s.OwnersSums()
	if sums == nil {
		return 0
	}
	return sums.Bytes(of.Table(0).Features, of.Type())
}

// pieces returns where the vertices of each piece and type begin, as Ranges does of parts.
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

// ReadRows returns what the rows of each vertex type are that minibatches read, or of all vertices.
// Sparse ones stand for rows of bytes of average length.
func (j *Job) ReadRows() []exchange.Kind {
	m := &j.Shards.Meta
	if j.Sparse {
		return []exchange.Kind{{Cols: m.RowBytes(), Type: compute.Int8}}
	}
	return Rows(m)
}

// Exchange returns the exchange with which a rank plans its minibatches but never fetches, for
// predictions.
func (j *Job) Exchange(rank int) (*exchange.Exchange, error) {
	return j.ExchangeOf(rank, j.ReadRows(), j.Neighbours(rank), j.OwnersSums())
}

// ExchangeOf is Exchange for rows of kinds, of which a rank reads those of the ranks here in memory.
func (j *Job) ExchangeOf(rank int, kinds []exchange.Kind, here []int, sums *exchange.Sums) (
	*exchange.Exchange, error) {
	offsets := j.Shards.Ranges()
	if !j.Exact { // of the pieces into which parts are cut
		offsets = j.pieces()
	}
	return exchange.NewPlanning(rank, j.Ranks, offsets, kinds, func(part int) bool {
		return slices.Contains(here, part*j.Ranks/(len(offsets)-1))
	}, sums)
}

// EdgeExchange is Exchange for the feature rows of edges, which the owners of their targets have and,
// where rows are read from files, all ranks.
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

// LearnedKinds returns what the learned rows of each vertex type are; of no columns where it has
// none.
func (j *Job) LearnedKinds() []exchange.Kind {
	kinds := make([]exchange.Kind, j.Shards.Schema.NumTypes())
	for t, learns := range j.Model.Learns {
		if learns {
			kinds[t] = exchange.Kind{Cols: j.Model.Learned, Type: compute.Float32}
		}
	}
	return kinds
}

// LearnedExchange is Exchange for the learned rows of training, which their owners alone have.
func (j *Job) LearnedExchange(rank int) (*exchange.Exchange, error) {
	return j.ExchangeOf(rank, j.LearnedKinds(), []int{rank}, j.LearnedSums())
}
