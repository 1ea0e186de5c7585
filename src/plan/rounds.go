package plan

import (
	"halognn/src/sample"
)

// Rounds is what sampling a partitioned topology costs in a step: what package parallel counts, summed
// over the ranks.
type Rounds struct {
	Asked float64 `json:"asked_vertices"`   // vertices that ranks ask others to draw for
	Drawn float64 `json:"drawn_neighbours"` // neighbours that come back
	Bytes float64 `json:"sampling_bytes"`   // sent for it: counts, words, ids, sizes, neighbours

	busiest float64 // bytes sent or received by one rank, whichever is more, on average the same
}

// The collectives of a minibatch: counts, ids, rows; and counts, ids, sizes, neighbours of a hop.
const (
	fetchRounds = 3
	hopRounds   = 4
)

// Bytes of what a hop sends.
const (
	askBytes    = 16 // to every rank: a count, and the word that names the draws
	vertexBytes = 4
)

// asking is what one hop of a minibatch asks other ranks.
type asking struct{ asked, drawn int }

// askedOf returns what each hop of a minibatch, input layer first, asks of ranks that hold other
// vertices than [first, last): those of the first hop only if seeds may lie there.
func askedOf(mb *sample.Minibatch, first, last int64, seeds bool) []asking {
	hops := make([]asking, len(mb.Blocks))
	for l := range mb.Blocks {
		if l == len(mb.Blocks)-1 && !seeds {
			break
		}
		b, a := &mb.Blocks[l], &hops[l]
		for d, v := range mb.Frontier[:b.NumDst] {
			if int64(v) < first || int64(v) >= last {
				a.asked++
				a.drawn += int(b.Indptr[d+1] - b.Indptr[d])
			}
		}
	}
	return hops
}

// asks returns what a minibatch of a rank asks others.
func (p *planner) asks(r *rankPlan, mb *sample.Minibatch) []asking {
	if !p.job.Partitioned || p.job.Ranks == 1 {
		return nil
	}
	first, last := p.layout.Vertices(r.rank)
	return askedOf(mb, first, last, p.job.GlobalSeeds)
}

// askingHops returns how many hops of a minibatch ask other ranks.
func (p *planner) askingHops() int {
	hops := p.job.Sample.Hops()
	if !p.job.Partitioned || p.job.Ranks == 1 || hops == 0 {
		return 0
	}
	if !p.job.GlobalSeeds {
		hops--
	}
	return hops
}

// sentBytes returns the bytes of the hops of one minibatch: as many come as go, over all ranks.
func (p *planner) sentBytes(hops []asking) int {
	bytes := p.askingHops() * p.job.Ranks * askBytes
	for l, a := range hops {
		width := sample.SizeBytes(p.job.Sample.Fanouts[len(hops)-1-l])
		bytes += a.asked*(vertexBytes+width) + a.drawn*vertexBytes
	}
	return bytes
}

// rounds predicts what sampling costs in a step; nil if every rank has the whole topology.
func (p *planner) rounds() *Rounds {
	if p.askingHops() == 0 {
		return nil
	}
	var sum Rounds
	for _, r := range p.ranks {
		of := func(what func(hops []asking) int) float64 {
			return r.mean(func(s *shape) float64 { return float64(what(s.asks)) })
		}
		bytes := of(p.sentBytes)
		sum.Asked += of(func(hops []asking) (n int) {
			for _, a := range hops {
				n += a.asked
			}
			return n
		})
		sum.Drawn += of(func(hops []asking) (n int) {
			for _, a := range hops {
				n += a.drawn
			}
			return n
		})
		sum.Bytes += bytes
		sum.busiest = max(sum.busiest, bytes)
	}
	scale := float64(p.layout.Minibatches()) * float64(p.job.Ranks) / float64(len(p.ranks))
	sum.Asked, sum.Drawn, sum.Bytes = sum.Asked*scale, sum.Drawn*scale, sum.Bytes*scale
	sum.busiest *= float64(p.layout.Minibatches())
	return &sum
}

// askingBytes is what a minibatch holds between the rounds, for the largest hop: sample.Asking and, as
// others ask as much, sample.Answer.
func (p *planner) askingBytes(s *shape) int64 {
	most := int64(0)
	for l, a := range s.asks {
		h, width := s.hops[l], int64(sample.SizeBytes(p.job.Sample.Fanouts[len(s.asks)-1-l]))
		asked, drawn, own := int64(a.asked), int64(a.drawn), int64(h.destinations-a.asked)
		answer := func(vertices, edges int64) int64 { return vertices*(8+4+width) + 4*edges }
		bytes := 8*int64(h.destinations) + asked*width + 4*drawn + answer(own, int64(h.edges)-drawn) +
			4*asked + answer(asked, drawn)
		most = max(most, bytes)
	}
	return most
}

// topologyBytes returns the bytes of the edges and labels that a rank maps of its own, and of what all
// ranks of a node have in common.
func (p *planner) topologyBytes(rank int) (own, shared int64) {
	rows, shared := p.shards.MappedBytes()
	if !p.job.Partitioned {
		return rows, shared
	}
	first, last := p.layout.Vertices(rank)
	g, n := &p.shards.Topology().Graph, last-first
	edges := g.Indptr[last] - g.Indptr[first]
	own = 8*(n+1) + 4*edges
	if p.job.Model.Task == "multilabel" {
		own += n * int64(p.job.Model.Out)
	} else {
		own += 4 * n
	}
	return own, shared
}
