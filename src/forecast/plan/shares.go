package plan

import (
	"fmt"
	"slices"

	"halognn/src/base/mem"
	"halognn/src/step/parallel"
	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
)

// shares reports whether ranks train minibatches together.
func (p *planner) shares() bool { return p.job.Mode.Sharing != sample.Alone }

// others returns the number of rows of other ranks that are appended to the output of layer l.
func (s *shape) others(l int) int {
	if l+1 < len(s.loads) {
		return s.loads[l+1].Others
	}
	return s.rated.others
}

// relays reports whether the ranks of a node fetch rows for each other and pass them on, as in
// hybrid mode.
func (p *planner) relays() bool { return p.job.Mode.Sharing == sample.InNodes }

func (p *planner) groupSize() int { return p.job.Share(0).Size }

// probeShares samples minibatches scattered over the first epoch, and counts the share of each
// analysed rank in them.
func (p *planner) probeShares() error {
	if !p.job.Reads() && p.job.Sample.Links == nil {
		for _, r := range p.ranks {
			if err := p.probeSeeds(r); err != nil {
				return err
			}
		}
		return nil
	}
	size := p.groupSize()
	g := groupProbe{
		p: p, owners: sample.NewOwners(p.job.Offsets(), size),
		loads: sample.NewLoads(size, p.job.Sample.Hops()), candidates: make([][]int, size),
		rated: make([]crossed, size),
	}
	defer g.crossing.Free()
	defer func() { mem.Free(g.truth) }()
	for r := range g.candidates {
		g.candidates[r] = make([]int, p.job.Sample.Layers())
	}
	for i, r := range p.ranks {
		if i == 0 || p.ranks[i-1].rank/size != r.rank/size {
			g.groups = append(g.groups, nil)
		}
		last := &g.groups[len(g.groups)-1]
		*last = append(*last, r)
	}
	p.shuffles = new(Shuffles)
	if !p.job.Reads() {
		for _, ranks := range g.groups {
			if err := g.probeRated(ranks); err != nil {
				return err
			}
		}
		return nil
	}
	var err error
	g.replay, err = p.job.Reader(0).Replay(p.shards.Topology(),
		p.samplerOptions(sample.Near{}))
	if err != nil {
		return err
	}
	defer g.replay.Free()
	for _, ranks := range g.groups {
		if err := g.probe(ranks); err != nil {
			return err
		}
	}
	return nil
}

// groupProbe is the state of probeShares.
type groupProbe struct {
	p      *planner
	groups [][]*rankPlan // the analysed ranks, one list for each group that shares minibatches
	owners *sample.Owners
	loads  [][]sample.Load // loads of the current minibatch, for each member of its group
	// [S,layers] number of candidates that each member finds for a layer whose vertices are drawn
	// for all seeds together
	candidates [][]int
	replay     *sample.Replay
	crossing   sample.Crossing // embeddings that are sent to the ranks that rate links
	rated      []crossed       // [S] number of embeddings that cross between ranks, for each member
	truth      []byte
}

// rate counts the embeddings of the ends of links that are sent to the ranks that rate these links,
// and the gradients that come back.
func (g *groupProbe) rate(s *Shuffles, key sample.Key) {
	l, busiest := g.p.job.Sample.Links, 0
	if l == nil {
		return
	}
	for m := range g.owners.Size {
		c := &g.crossing
		g.truth = l.Divide(c, g.truth, key, g.owners, m)
		s.Hidden += float64(len(c.IDs))
		s.Bytes += float64(len(c.IDs)) * parallel.BetweenBytes(g.p.job.Model.Out)
		g.rated[m] = crossed{len(c.IDs), len(c.At)}
		busiest = max(busiest, len(c.IDs), len(c.At))
	}
	s.between += float64(busiest) * parallel.BetweenBytes(g.p.job.Model.Out)
}

// probeRated counts, for one group, the embeddings that its links need. It is for a model that
// reads no neighbours, so minibatches have no vertices but their seeds.
func (g *groupProbe) probeRated(ranks []*rankPlan) error {
	p, groups := g.p, float64(g.p.job.Ranks/g.owners.Size)/float64(len(g.groups))
	var mean Shuffles
	var mb sample.Minibatch
	defer mb.Free()
	for i := range leastProbes {
		key := p.job.Reader(ranks[0].rank).Key(1, p.scattered(i))
		seeds, own := p.job.Seeds(key, nil), make([]int, g.owners.Size)
		for _, v := range seeds {
			own[g.owners.Owner(v)]++
		}
		one := Shuffles{Loaded: float64(len(seeds))}
		g.rate(&one, key)
		mean.add(&one, leastProbes)
		for _, r := range ranks {
			member := r.rank % g.owners.Size
			s := seedShape(p.job.Model.Layers, own[member])
			s.rated = g.rated[member]
			if err := r.trial.prepare(&mb, seeds, key, true, &s); err != nil {
				return err
			}
			r.add(&s)
		}
	}
	p.shuffles.join(&mean, groups)
	return nil
}

// probe samples minibatches of one group. Each group samples the same share of the total number of
// edges.
func (g *groupProbe) probe(ranks []*rankPlan) error {
	p, n := g.p, len(g.groups)
	minibatches, whole, mb := []Shuffles(nil), 0, &g.replay.Minibatch
	g.replay.Of = p.job.Reader(ranks[0].rank)
	for i, edges := -1, 0; i < leastProbes || i < mostProbes/n && edges < probeEdges/n; i++ {
		key, err := g.replay.SampleItem(1, p.scattered(max(i, 0)))
		if err != nil {
			return fmt.Errorf("sampling: %w", err)
		}
		if i < 0 {
			continue
		}
		edges, whole = edges+mb.NumEdges(), max(whole, mb.Blocks[0].NumDst)
		mb.Loads(g.owners.Owner, p.job.RanksPerNode, p.rowOf, g.loads)
		if p.job.Sample.Layers() > 0 && len(g.loads) > 1 {
			mb.Candidates(p.shards.Topology(), g.owners.Owner, g.candidates)
		}
		shuffled := p.shuffled(mb, g.loads, g.candidates)
		g.rate(&shuffled, key)
		minibatches = append(minibatches, shuffled)
		for _, r := range ranks {
			r.edges, r.took = r.edges+mb.NumEdges(), r.took+g.replay.Took
			shape := g.shapeOf(r, p.job.Sample, key)
			if err := r.trial.prepare(mb, mb.Seeds, key, true, &shape); err != nil {
				return err
			}
			r.add(&shape)
		}
	}
	var mean Shuffles
	for i := range minibatches {
		mean.add(&minibatches[i], float64(len(minibatches)))
	}
	p.shuffles.join(&mean, float64(p.job.Ranks/g.owners.Size)/float64(n))
	if err := g.probeEvaluation(ranks); err != nil {
		return err
	}
	for _, r := range ranks {
		// The replay has sampled whole minibatches, but a rank's sampler needs scratch memory only
		// for the rank's own destinations.
		r.sampler = g.replay.Sampler.Bytes() - 16*int64(whole-r.most.hops[0].destinations)
		if p.relays() {
			r.correct()
		} else {
			r.sampler += p.rows(r.rank) / 8 // one bit for each own vertex
		}
	}
	return nil
}

// shapeOf returns the shape of a rank's share in a minibatch. The minibatch was drawn by spec, and
// its loads are in g.loads.
func (g *groupProbe) shapeOf(r *rankPlan, spec sample.Spec, key sample.Key) shape {
	member := r.rank % g.owners.Size
	s := shareOf(g.loads[member])
	s.rated = g.rated[member]
	if !g.p.relays() {
		return s
	}
	s.remote = 0
	s.asks = g.p.asks(r, &g.replay.Minibatch, spec, key,
		func(v graph.VertexID) bool { return g.owners.Owner(v) == member })
	first, last := g.p.job.Vertices(r.rank)
	for _, v := range g.replay.Minibatch.Frontier {
		if g.owners.Owner(v) != member {
			continue
		}
		if int64(v) < first || int64(v) >= last {
			s.remote++
		}
	}
	return s
}

// probeEvaluation does what planner.probeEvaluation does, for ranks that share minibatches. A
// minibatch has vertices of all parts of the group, as in evaluation.
func (g *groupProbe) probeEvaluation(ranks []*rankPlan) error {
	p, size := g.p, g.owners.Size
	for _, r := range ranks {
		if !r.evaluates(p) {
			return nil // the other ranks do not evaluate either
		}
	}
	lo := ranks[0].rank / size * size
	first, _ := p.job.Vertices(lo)
	_, last := p.job.Vertices(lo + size - 1)
	var all []graph.VertexID
	for k := range p.shards.Parts {
		for _, v := range p.shards.Valid(k) {
			if int64(v) >= first && int64(v) < last {
				all = append(all, v)
			}
		}
	}
	most := p.job.Streams.MaxPiece()
	items := (len(all) + most - 1) / most
	for i := range min(items, leastProbes) {
		var seeds []graph.VertexID
		for k := i; k < len(all); k += items {
			seeds = append(seeds, all[k])
		}
		mb := &g.replay.Minibatch
		key := sample.Key{Seed: p.job.Seed, Step: i}
		if err := g.replay.Sampler.SampleEval(mb, seeds, key); err != nil {
			return fmt.Errorf("sampling for evaluation: %w", err)
		}
		mb.Loads(g.owners.Owner, p.job.RanksPerNode, p.rowOf, g.loads)
		for _, r := range ranks {
			shape := g.shapeOf(r, p.evaluatedBy(), sample.Key{})
			if err := r.evaluate(p, mb, key, &shape); err != nil {
				return err
			}
		}
	}
	return nil
}

// rowOf returns the bytes of the feature row of a vertex, and that it has one.
// sample.Minibatch.Loads calls it.
func (p *planner) rowOf(v graph.VertexID) (int64, bool) { return int64(p.kinds().Size(v)), true }

// shareOf returns the shape of a rank's share of a minibatch, from its loads.
func shareOf(loads []sample.Load) shape {
	s := shape{seeds: loads[len(loads)-1].Destinations, remote: loads[0].Others,
		loads: slices.Clone(loads)}
	for _, x := range loads {
		s.hops = append(s.hops,
			hopShape{sources: x.Sources(), destinations: x.Destinations, edges: x.Edges})
	}
	return s
}

// shuffleBytes returns the bytes that a rank keeps of rows that are sent between two layers,
// forwards and backwards: those on the device that computes, and those pinned on the host of a GPU.
func (p *planner) shuffleBytes(r *rankPlan) (computed, pinned int64) {
	for l, x := range r.most.loads {
		in, _ := p.job.Model.Widths(l)
		if l > 0 {
			size := p.job.Model.Stored(l-1, p.job.Stored).Size()
			computed = max(computed, int64((size+4)*x.Wanted*in))
			pinned = max(pinned, 4*int64((x.Wanted+x.Others)*in))
		}
	}
	x, out := r.most.rated, p.job.Model.Out
	computed = max(computed, 2*4*int64(x.wanted*out))
	pinned = max(pinned, 4*int64((x.wanted+x.others)*out))
	return computed, pinned
}
