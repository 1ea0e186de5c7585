package sample

import "halognn/src/topology/graph"

// Asked counts what a hop asks of other ranks if each rank holds only a part of the topology
// (Remote). It is computed from minibatches that were sampled on a replicated topology.
type Asked struct {
	Vertices   int // number of vertices whose owners are asked
	Neighbours int // number of neighbours that owners return
	Bytes      int // bytes of these vertices and neighbours in messages, over all ranks
}

// AskBytes is the number of bytes that a hop sends to every rank: a count, and the word that keys
// the draws.
const AskBytes = 16

// VertexBytes is the size of a vertex in a message.
const VertexBytes = 4

// AskingHops returns how many of a minibatch's hops ask other ranks. If `elsewhere` is false, all
// seeds are vertices of this rank, so the hop next to the seeds asks no other rank.
func AskingHops(hops, ranks int, elsewhere bool) int {
	if ranks == 1 || hops == 0 {
		return 0
	}
	if !elsewhere {
		return hops - 1
	}
	return hops
}

// Askers describes a rank that asks other ranks, and its job.
type Askers struct {
	Spec       Spec // Spec of the minibatches
	Carried         // what owners return with each neighbour
	Topology   *Topology
	Ranks      int
	Elsewhere  bool                      // seeds may be vertices of any rank
	First, End graph.VertexID            // vertices First to End-1 are the asker's
	Draws      func(graph.VertexID) bool // reports whether the asker draws for a vertex
	Key        Key                       // key of the minibatch
}

// Asks returns what each block of a minibatch, input layer first, asks of other ranks. O(V).
func (m *Minibatch) Asks(of *Askers) []Asked {
	asks := make([]Asked, len(m.Blocks))
	var list leftOut
	if err := list.find(of.Spec.Links, of.Key, m.Frontier, nil); err != nil {
		// impossible, because this key was used to sample the minibatch
		panic(err)
	}
	for l := range AskingHops(len(m.Blocks), of.Ranks, of.Elsewhere) {
		b, a, without := &m.Blocks[l], &asks[l], 0
		columns := 0
		asks := func(v graph.VertexID) bool { return (v < of.First || v >= of.End) && of.Draws(v) }
		for d, v := range m.Frontier[:b.NumDst] {
			if asks(v) {
				_, _, n := of.Topology.Columns.Of(v)
				a.Vertices, columns = a.Vertices+1, columns+n
				without += len(list.sourcesOf(d))
			}
		}
		for row := range b.NumRows() {
			d := int(b.Target(row))
			switch v := m.Frontier[d]; {
			case !asks(v):
			case of.Spec.HasFanouts():
				a.Neighbours += int(b.Indptr[row+1] - b.Indptr[row])
			case d < len(m.Totals): // owners return all in-neighbours except those left out
				a.Neighbours += int(m.Totals[d])
			default:
				a.Neighbours += int(of.Topology.Degree(v))
			}
		}
		reply := of.Spec.Reply(len(m.Blocks)-l, of.Carried)
		a.Bytes = of.Ranks*AskBytes + without*VertexBytes + a.Vertices*VertexBytes +
			columns*reply.Column() + a.Neighbours*reply.Edge
	}
	return asks
}

// Add adds the counts of o to those of a.
func (a *Asked) Add(o Asked) {
	a.Vertices += o.Vertices
	a.Neighbours += o.Neighbours
	a.Bytes += o.Bytes
}

// Sum returns the sum of the counts of all hops of a minibatch.
func Sum(asks []Asked) (sum Asked) {
	for _, a := range asks {
		sum.Add(a)
	}
	return sum
}
