package sample

import (
	"github.com/cespare/xxhash/v2"

	"halognn/src/graph"
	"halognn/src/mem"
	"halognn/src/random"
)

// Digest is the XXH64 of the blocks (row pointers and columns, input layer first) and of the
// original ids of the frontier in order: equal for equal minibatches, for any numbering of the
// vertices of the graph. Transposes follow from the blocks and are left out. 0 for an empty
// frontier.
func (m *Minibatch) Digest() uint64 {
	if len(m.Original) == 0 {
		return 0
	}
	var h xxhash.Digest
	h.Reset()
	for l := range m.Blocks { // the Write of a hash returns no error
		_, _ = h.Write(mem.Bytes(m.Blocks[l].Indptr))
		_, _ = h.Write(mem.Bytes(m.Blocks[l].Indices))
	}
	_, _ = h.Write(mem.Bytes(m.Original))
	return h.Sum64()
}

// EdgesDigest sums a hash of every sampled edge: of the hop's draws (the key and the hop, 1 next to
// the seeds) and of the original ids of source and destination. It does not depend on the order of
// edges, on how a block numbers its vertices, nor on which rank holds which part of a minibatch, so
// it compares ways of sampling that number blocks differently; Digest tells those apart. 0 for a
// minibatch without edges. One multiply-mix an edge.
func (m *Minibatch) EdgesDigest(key Key) uint64 {
	sum := uint64(0)
	for l := range m.Blocks {
		sum += EdgesDigest(&m.Blocks[l], m.Original, len(m.Blocks)-l, key)
	}
	return sum
}

// EdgesDigest is Minibatch.EdgesDigest of one block: original [NumSrc] has the original ids of its
// sources, the destinations first, and hop says which hop drew it.
func EdgesDigest(b *graph.Block, original []int32, hop int, key Key) uint64 {
	sum, name := uint64(0), key.hop(hop)
	for d := range b.NumDst {
		destination := uint64(vertexStream(name, original[d]))
		for _, s := range b.Indices[b.Indptr[d]:b.Indptr[d+1]] {
			sum += random.Mix(destination ^ uint64(uint32(original[s])))
		}
	}
	return sum
}
