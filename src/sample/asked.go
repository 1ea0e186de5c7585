package sample

import "halognn/src/graph"

// Asked is what hops ask of other ranks where no rank holds the rows of all vertices (Remote),
// counted on minibatches that were sampled where one does.
type Asked struct {
	Vertices   int // whose owners are asked
	Neighbours int // that come back
	Bytes      int // sent for it, over all ranks
}

// AskBytes is what a hop sends to every rank: a count, and the word that names the draws.
const AskBytes = 16

// VertexBytes is a vertex in a message.
const VertexBytes = 4

// AskingHops returns how many of a minibatch's hops ask other ranks. Those next to the seeds only
// do if seeds may be vertices of any rank.
func AskingHops(hops, ranks int, elsewhere bool) int {
	if ranks == 1 || hops == 0 {
		return 0
	}
	if !elsewhere {
		return hops - 1
	}
	return hops
}

// Asks returns what each block of a minibatch, input layer first, asks in a job of so many ranks,
// of which the one whose minibatch it is has the vertices [first, end). O(V).
func (m *Minibatch) Asks(
	fanouts []int, ranks int, elsewhere bool, first, end graph.VertexID,
) []Asked {
	asks := make([]Asked, len(m.Blocks))
	for l := range AskingHops(len(m.Blocks), ranks, elsewhere) {
		b, a := &m.Blocks[l], &asks[l]
		for d, v := range m.Frontier[:b.NumDst] {
			if v < first || v >= end {
				a.Vertices++
				a.Neighbours += int(b.Indptr[d+1] - b.Indptr[d])
			}
		}
		width := SizeBytes(fanouts[len(m.Blocks)-1-l])
		a.Bytes = ranks*AskBytes + a.Vertices*(VertexBytes+width) + a.Neighbours*VertexBytes
	}
	return asks
}

// Add adds o to a.
func (a *Asked) Add(o Asked) {
	a.Vertices += o.Vertices
	a.Neighbours += o.Neighbours
	a.Bytes += o.Bytes
}

// Sum adds up the hops of a minibatch.
func Sum(asks []Asked) (sum Asked) {
	for _, a := range asks {
		sum.Add(a)
	}
	return sum
}
