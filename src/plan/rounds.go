package plan

import (
	"halognn/src/graph"
	"halognn/src/nn"
	"halognn/src/sample"
)

// Rounds is what sampling a partitioned topology costs in a step: what package parallel counts,
// summed over the ranks.
type Rounds struct {
	Asked float64 `json:"asked_vertices"`   // vertices that ranks ask others to draw for
	Drawn float64 `json:"drawn_neighbours"` // neighbours that come back
	Bytes float64 `json:"sampling_bytes"`   // sent for it: counts, words, ids, sizes, neighbours

	busiest float64 // bytes of one rank: on average as many are received as sent
}

// asks returns what a minibatch of a rank asks others.
func (p *planner) asks(r *rankPlan, mb *sample.Minibatch) []sample.Asked {
	if p.askingHops() == 0 {
		return nil
	}
	first, last := p.layout.Vertices(r.rank)
	return mb.Asks(p.job.Sample.Fanouts, p.job.Ranks, p.job.GlobalSeeds,
		graph.VertexID(first), graph.VertexID(last))
}

// askingHops returns how many hops of a minibatch ask other ranks.
func (p *planner) askingHops() int {
	if !p.job.Partitioned || p.shares() {
		return 0
	}
	return sample.AskingHops(p.job.Sample.Hops(), p.job.Ranks, p.job.GlobalSeeds)
}

// rounds predicts what sampling costs in a step; nil if every rank has the whole topology.
func (p *planner) rounds() *Rounds {
	if p.askingHops() == 0 {
		return nil
	}
	var all Rounds
	for _, r := range p.ranks {
		of := func(what func(a sample.Asked) int) float64 {
			return r.mean(func(s *shape) float64 { return float64(what(sample.Sum(s.asks))) })
		}
		bytes := of(func(a sample.Asked) int { return a.Bytes })
		all.Asked += of(func(a sample.Asked) int { return a.Vertices })
		all.Drawn += of(func(a sample.Asked) int { return a.Neighbours })
		all.Bytes += bytes
		all.busiest = max(all.busiest, bytes*float64(p.layout.Minibatches()))
	}
	scale := float64(p.layout.Minibatches()) * float64(p.job.Ranks) / float64(len(p.ranks))
	all.Asked, all.Drawn, all.Bytes = all.Asked*scale, all.Drawn*scale, all.Bytes*scale
	return &all
}

// askingBytes is what a minibatch holds between the rounds, for the largest hop: sample.Asking and,
// as others ask as much, sample.Answer.
func (p *planner) askingBytes(s *shape) int64 {
	most := int64(0)
	for l, a := range s.asks {
		h, width := s.hops[l], int64(sample.SizeBytes(p.job.Sample.Fanouts[len(s.asks)-1-l]))
		asked, drawn := int64(a.Vertices), int64(a.Neighbours)
		own := int64(h.destinations) - asked
		answer := func(vertices, edges int64) int64 { return vertices*(8+4+width) + 4*edges }
		bytes := 8*int64(h.destinations) + asked*width + 4*drawn +
			answer(own, int64(h.edges)-drawn) + 4*asked + answer(asked, drawn)
		most = max(most, bytes)
	}
	return most
}

// topologyBytes returns the bytes of the edges and labels that a rank maps, and of what all ranks
// of a node have in common.
func (p *planner) topologyBytes(rank int) (rows, common int64) {
	rows, common = p.shards.MappedBytes()
	if !p.job.Partitioned {
		return rows, common
	}
	first, last := p.layout.Vertices(rank)
	g, n := &p.shards.Topology().Graph, last-first
	pointers, labels := 8*(n+1), n*int64(p.labelBytes())
	if p.job.Model.Needs().Weights == nn.WeightsSymmetric { // by degrees of all vertices
		pointers, common = 0, common+8*(p.shards.Vertices+1)
	}
	if p.job.GlobalSeeds {
		labels, common = 0, common+p.shards.Vertices*int64(p.labelBytes())
	}
	edges := p.shards.Edges / p.shards.Vertices * n
	if p.shards.HasTopology() {
		edges = g.Indptr[last] - g.Indptr[first]
	}
	return pointers + 4*edges + labels, common
}
