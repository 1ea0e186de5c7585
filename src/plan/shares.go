package plan

import (
	"fmt"
	"slices"
	"time"

	"halognn/src/graph"
	"halognn/src/sample"
)

// shares reports whether ranks train minibatches together.
func (p *planner) shares() bool { return p.job.Sharing != sample.Alone }

// room returns the rows of other ranks behind the output of layer l.
func (s *shape) room(l int) int {
	if l+1 >= len(s.loads) {
		return 0
	}
	return s.loads[l+1].Others
}

// probeShares samples minibatches of the first epoch, scattered over it, and counts on each what the
// analysed ranks have of it.
func (p *planner) probeShares() error {
	if !p.job.Reads() {
		for _, r := range p.ranks {
			p.probeSeeds(r)
		}
		return nil
	}
	rows := []int64{0}
	for r := range p.job.Ranks {
		_, last := p.layout.Vertices(r)
		rows = append(rows, last)
	}
	parts := graph.NewPartIndex(rows)
	owner := func(v graph.VertexID) int { return parts.Find(uint32(v)) }
	loads := sample.NewLoads(p.job.Ranks, p.job.Sample.Hops())
	s, err := sample.New(p.shards.Topology(), p.samplerOptions(nil))
	if err != nil {
		return err
	}
	defer s.Free()
	var mb sample.Minibatch
	defer mb.Free()
	first, minibatches := p.ranks[0], []Shuffles(nil)
	for i, edges := -1, 0; i < leastProbes || i < mostProbes && edges < probeEdges; i++ {
		step, stream := p.scattered(first, max(i, 0))
		seeds := p.layout.Streams.Piece(1, step, stream, nil)
		key := sample.Key{Seed: p.job.Seed, Epoch: 1, Step: step, Stream: stream}
		begin := time.Now()
		if err := s.Sample(&mb, seeds, key); err != nil {
			return fmt.Errorf("sampling: %w", err)
		}
		took := time.Since(begin)
		if i < 0 {
			continue
		}
		edges += mb.NumEdges()
		mb.Loads(owner, loads)
		minibatches = append(minibatches, p.shuffled(&mb, loads))
		for _, r := range p.ranks {
			r.edges, r.took = r.edges+mb.NumEdges(), r.took+took
			shape := shareOf(loads[r.rank])
			r.add(&shape)
		}
	}
	p.shuffles = new(Shuffles)
	for i := range minibatches {
		p.shuffles.add(&minibatches[i], float64(len(minibatches)))
	}
	if err := p.probeSharedEvaluation(s, &mb, owner, loads); err != nil {
		return err
	}
	whole := mb.Blocks[0].NumDst
	for _, r := range p.ranks {
		// Its scratch memory is for the destinations of the last hop; a bit for each own vertex.
		r.sampler = s.Bytes() - 16*int64(whole-r.most.hops[0].destinations) + p.rows(r.rank)/8
	}
	return nil
}

// probeSharedEvaluation samples minibatches of validation vertices if evaluation has its own
// fanouts. A minibatch has vertices of all parts, as in evaluation.
func (p *planner) probeSharedEvaluation(s sample.Sampler, mb *sample.Minibatch,
	owner func(graph.VertexID) int, loads [][]sample.Load) error {
	if p.job.Eval.Hops() == 0 {
		return nil
	}
	var all []graph.VertexID
	for k := range p.shards.Parts {
		all = append(all, p.shards.Valid(k)...)
	}
	size := p.layout.Streams.MaxPiece()
	items := (len(all) + size - 1) / size
	for i := range min(items, leastProbes) {
		var seeds []graph.VertexID
		for k := i; k < len(all); k += items {
			seeds = append(seeds, all[k])
		}
		if err := s.SampleEval(mb, seeds, sample.Key{Seed: p.job.Seed, Step: i}); err != nil {
			return fmt.Errorf("sampling for evaluation: %w", err)
		}
		mb.Loads(owner, loads)
		for _, r := range p.ranks {
			shape := shareOf(loads[r.rank])
			r.judged.atLeast(&shape)
		}
	}
	return nil
}

// shareOf is shapeOf of a rank's share of a minibatch.
func shareOf(loads []sample.Load) shape {
	s := shape{seeds: loads[len(loads)-1].Destinations, remote: loads[0].Others,
		loads: slices.Clone(loads)}
	for _, x := range loads {
		s.hops = append(s.hops, hopShape{x.Sources(), x.Destinations, x.Edges})
	}
	return s
}

// sharingBytes is what a share of a minibatch takes beside its blocks: the shuffle index of each hop
// (sample.Crossing), of all but the last as kernels read it.
func (p *planner) sharingBytes(s *shape) int64 {
	bytes, found := int64(0), 0
	for l, x := range s.loads {
		found = max(found, x.Sources()-x.Destinations)
		bytes += 4 * int64(x.Others)
		if l > 0 {
			bytes += int64(x.Wanted)*(4+4) + // ids, positions
				8*int64(x.Wanted+1) + 8*int64(x.Own+1) + 8*int64(x.Wanted)
		}
	}
	if s.loads != nil {
		bytes += 4 * int64(len(s.loads)*found) // positions of what a hop finds
	}
	return bytes
}

// shuffleBytes is what a rank keeps of rows on their way between two layers, in both directions:
// where the layers compute, and pinned on the host of a GPU.
func (p *planner) shuffleBytes(r *rankPlan) (computed, pinned int64) {
	for l, x := range r.most.loads {
		in, _ := p.job.Model.Widths(l)
		if l > 0 {
			computed = max(computed, 2*4*int64(x.Wanted*in))
			pinned = max(pinned, 4*int64((x.Wanted+x.Others)*in))
		}
	}
	return computed, pinned
}

// indexBytes is what a GPU gets of the shuffle index.
func (s *shape) indexBytes() (bytes int) {
	for l, x := range s.loads {
		if l > 0 {
			bytes += 8*(x.Wanted+1) + 8*(x.Own+1) + 2*4*x.Wanted
		}
	}
	return bytes
}
