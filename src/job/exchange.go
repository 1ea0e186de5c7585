package job

import (
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
	if needs.Averages != nil {
		sums.How = compute.ReduceMean
	}
	return sums
}

// NewChooser makes the chooser between rows and sums for the rows of a job.
func NewChooser(j *Job) *exchange.Chooser {
	m := &j.Shards.Meta
	if kinds := Rows(m); kinds != nil {
		return exchange.NewChooser(j.OwnersSums(), kinds, j.Kinds().Of)
	}
	return exchange.NewChooser(j.OwnersSums(), []exchange.Kind{{Cols: m.Features, Type: m.Type()}}, nil)
}

// Rows returns what the rows of each vertex type are; nil where vertices have no types.
func Rows(m *shard.Meta) (kinds []exchange.Kind) {
	for t := range m.Schema.Types {
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
	return sums.Bytes(of.Features, of.Type())
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

// Exchange returns the exchange with which a rank plans its minibatches but never fetches, for
// predictions; free gives its memory back.
func (j *Job) Exchange(rank int) (x *exchange.Exchange, free func(), err error) {
	offsets := j.Shards.Ranges()
	if !j.Exact { // of the pieces into which parts are cut
		offsets = j.pieces()
	}
	here, widths := make([]bool, len(offsets)-1), []int(nil)
	if j.Shards.Schema.Typed() {
		widths = j.Kinds().Bytes
	}
	for _, r := range j.Neighbours(rank) {
		for p := r * len(here) / j.Ranks; p < (r+1)*len(here)/j.Ranks; p++ {
			here[p] = true
		}
	}
	return exchange.NewPlanning(rank, j.Ranks, offsets, widths,
		func(part int) bool { return here[part] }, j.OwnersSums())
}
