package plan

import (
	"halognn/src/model/nn"
	"halognn/src/step/job"
	"halognn/src/topology/graph"
	"halognn/src/topology/sample"
)

// Sampling holds what sampling a partitioned topology costs in a step, summed over the ranks.
// Package parallel counts the same in a run.
type Sampling struct {
	Asked float64 `json:"asked_vertices"`   // vertices that ranks ask others to draw for
	Drawn float64 `json:"drawn_neighbours"` // neighbours that come back
	Bytes float64 `json:"sampling_bytes"`   // bytes sent: counts, words, ids, sizes, neighbours

	busiest float64 // bytes that the busiest rank sends; on average it receives the same number
}

// all can be the function Draws of sample.Askers. It says that the rank draws for every vertex of
// its minibatches.
func all(graph.VertexID) bool { return true }

// asks returns, hop by hop, what a rank asks other ranks to draw for its share of a minibatch. The
// argument `spec` says how the minibatch is drawn.
func (p *planner) asks(r *rankPlan, mb *sample.Minibatch, spec sample.Spec, key sample.Key,
	draws func(graph.VertexID) bool) []sample.Asked {
	if p.askingHops() == 0 {
		return nil
	}
	j := p.job
	first, last := p.job.Vertices(r.rank)
	return mb.Asks(&sample.Askers{Spec: spec, Carried: job.CarriedOf(&j.Spec),
		Topology: p.shards.Topology(), Ranks: j.Ranks, Elsewhere: j.SeedsElsewhere(),
		First: graph.VertexID(first), End: graph.VertexID(last), Draws: draws, Key: key})
}

// askingHops returns the number of hops of a minibatch for which other ranks draw.
func (p *planner) askingHops() int {
	if !p.job.Partitioned || p.groupSize() == p.job.Ranks {
		return 0
	}
	return sample.AskingHops(p.job.Sample.Hops(), p.job.Ranks, p.job.SeedsElsewhere())
}

// sampling predicts what sampling costs in a step. It returns nil if every rank has the whole
// topology.
func (p *planner) sampling() *Sampling {
	if p.askingHops() == 0 {
		return nil
	}
	var all Sampling
	for _, r := range p.ranks {
		of := func(what func(a sample.Asked) int) float64 {
			return r.mean(func(s *shape) float64 { return float64(what(sample.Sum(s.asks))) })
		}
		bytes := of(func(a sample.Asked) int { return a.Bytes })
		all.Asked += of(func(a sample.Asked) int { return a.Vertices })
		all.Drawn += of(func(a sample.Asked) int { return a.Neighbours })
		all.Bytes += bytes
		all.busiest = max(all.busiest, bytes*float64(p.job.Minibatches()))
	}
	scale := float64(p.job.Minibatches()) * float64(p.job.Ranks) / float64(len(p.ranks))
	all.Asked, all.Drawn, all.Bytes = all.Asked*scale, all.Drawn*scale, all.Bytes*scale
	return &all
}

// askingBytes returns the bytes that a minibatch holds between the collectives for its largest hop.
// It counts sample.Asking and the totals of estimates. It also counts sample.Answer, for the same
// number of vertices of other ranks as the minibatch asks other ranks for.
func (p *planner) askingBytes(s *shape) int64 {
	j, most := p.job, int64(0)
	for l, a := range s.asks {
		h, reply := s.hops[l], j.Sample.Reply(len(s.asks)-l, job.CarriedOf(&j.Spec))
		asked, drawn, edge := int64(a.Vertices), int64(a.Neighbours), int64(reply.Edge)
		own, width := int64(h.destinations)-asked, int64(reply.Column())
		answer := func(vertices, edges int64) int64 {
			// neighbours are first drawn into an array of their own, without the data of their
			// edges
			if reply.Edge > sample.VertexBytes {
				edges *= 2
			}
			return vertices*(8+4+width) + edge*edges
		}
		mine := max(0, int64(h.edges)-drawn)
		// Without fanouts all edges come back. A vertex of this rank is assumed to have the same
		// number of edges as a vertex that is asked about.
		if !j.Sample.HasFanouts() && asked > 0 {
			mine = drawn * own / asked
		}
		bytes := 8*int64(h.destinations) + asked*width + edge*drawn +
			answer(own, mine) + 4*asked + answer(asked, drawn)
		most = max(most, bytes)
	}
	// words for the edges that sampling leaves out: those that the rank asks about, and those that
	// others ask about
	if s.asks != nil && j.Sample.Links.Excludes() {
		most += 2 * sample.VertexBytes * j.Sample.Links.MostLeftOut()
	}
	if s.asks != nil && (j.Sample.Estimates() || j.Sample.Links.Excludes()) {
		most += 8 * int64(s.hops[0].destinations)
	}
	return most
}

// topologyBytes returns two numbers of bytes of mapped topology. The result rows is for edges and
// labels, of all vertices or, if the topology is partitioned, of the rank's own vertices. The
// result common is for all that every rank maps as a whole.
func (p *planner) topologyBytes(rank int) (rows, common int64) {
	rows, common = p.shards.MappedBytes()
	if !p.job.Partitioned {
		return rows, common
	}
	first, last := p.job.Vertices(rank)
	g, n := &p.shards.Topology().Graph, last-first
	pointers, labels := 8*(n+1), n*int64(p.labelBytes())
	sums, edge := int64(0), int64(4)
	if p.shards.Weighted {
		sums, edge = 4*n, 8
	}
	// symmetric weights need the degrees of all vertices, so the ranks of a node share them
	if p.job.Model.Needs().Weights == nn.WeightsSymmetric {
		pointers, common = 0, common+8*(p.shards.Vertices+1)
		if p.shards.Weighted {
			sums, common = 0, common+4*p.shards.Vertices
		}
	}
	if p.job.GlobalSeeds {
		labels, common = 0, common+p.shards.Vertices*int64(p.labelBytes())
	}
	edges := p.shards.Edges / p.shards.Vertices * n
	if p.shards.HasTopology() {
		edges = g.Indptr[last] - g.Indptr[first]
	}
	if c := &p.shards.Topology().Columns; !c.Plain() && n > 0 {
		_, begin, _ := c.Of(graph.VertexID(first))
		_, at, count := c.Of(graph.VertexID(last - 1))
		pointers += 8 * (int64(at) + int64(count) - int64(begin) + 1)
	}
	return pointers + sums + edge*edges + labels, common
}
