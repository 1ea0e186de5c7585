package plan

import (
	"fmt"

	"halognn/src/access"
	"halognn/src/graph"
	"halognn/src/sample"
	"halognn/src/shard"
)

// layout is which vertices and streams of seeds each rank has.
type layout struct {
	ranks, perNode int
	exact          bool    // as in a run on these parts
	first          []int64 // [K+1] rank r has the vertices first[r] to first[r+1]-1
	streams        *sample.Streams
	each           int // streams of a rank: minibatches that it trains in a step
}

// newLayout gives the job's ranks their vertices and seeds.
func newLayout(s *shard.Shards, j *Job) (*layout, error) {
	l := &layout{ranks: j.Ranks, perNode: j.RanksPerNode, exact: s.Parts%j.Ranks == 0}
	var streams, seeds [][]graph.VertexID // seeds of each part, and of each rank
	switch {
	case l.exact:
		per := s.Parts / j.Ranks
		for r := range j.Ranks {
			l.first = append(l.first, s.Offsets[r*per])
			var own []graph.VertexID
			for p := r * per; p < (r+1)*per; p++ {
				own = append(own, s.Train(p)...)
				streams = append(streams, s.Train(p))
			}
			seeds = append(seeds, own)
		}
	case j.Ranks%s.Parts == 0:
		pieces := j.Ranks / s.Parts
		for p := range s.Parts {
			rows, train := s.Offsets[p+1]-s.Offsets[p], s.Train(p)
			for i := range pieces {
				l.first = append(l.first, s.Offsets[p]+rows*int64(i)/int64(pieces))
				seeds = append(seeds, train[len(train)*i/pieces:len(train)*(i+1)/pieces])
			}
		}
	default:
		return nil, fmt.Errorf("%d ranks on %d parts; the number of ranks must divide the parts, or be a multiple of them", j.Ranks, s.Parts)
	}
	l.first = append(l.first, s.Vertices)
	if !j.StreamPerPart || !l.exact {
		streams = seeds
	}
	o := sample.StreamOptions{Batch: j.Batch, Seed: j.Seed, Original: s.Topology().Original}
	if j.GlobalBatch {
		o.Scope = sample.ScopeGlobal
	}
	if j.GlobalSeeds {
		o.Seeds = sample.SeedsGlobal
	}
	share, err := sample.ShareOf(len(streams), j.Ranks, 1, 0) // those of other ranks have the same form
	if err != nil {
		return nil, err
	}
	l.each = share.Count
	l.streams, err = sample.NewStreams(streams, o)
	return l, err
}

// node returns the ranks [lo, hi) of a rank's node.
func (l *layout) node(rank int) (lo, hi int) {
	lo = rank / l.perNode * l.perNode
	return lo, min(lo+l.perNode, l.ranks)
}

// rows returns the vertices of a rank.
func (l *layout) rows(rank int) int64 { return l.first[rank+1] - l.first[rank] }

// reader describes the minibatches of a rank as training does.
func (l *layout) reader(s *shard.Shards, j *Job, rank int) *access.Reader {
	lo, hi := l.node(rank)
	return &access.Reader{
		Local: []access.Range{{First: graph.VertexID(l.first[lo]), End: graph.VertexID(l.first[hi])}}, Sources: access.Sources(l.streams, rank*l.each, l.each), Sample: sample.Neighbours(j.Fanouts...), Hops: j.Cache.Hops,
		Topology: s.Topology(), Streams: l.streams, First: rank * l.each, Count: l.each, Seed: j.Seed, Epochs: j.Epochs, Workers: j.Workers,
	}
}
