package sample

import (
	"github.com/cespare/xxhash/v2"

	"halognn/src/base/mem"
	"halognn/src/base/random"
	"halognn/src/topology/graph"
)

// Digest is the XXH64 of the blocks (row pointers and columns, input layer first) and of the
// original ids of the frontier in order. It is equal for equal minibatches, however the vertices of
// the graph are numbered. Transposes follow from the blocks and are left out. It is 0 for an empty
// frontier.
func (m *Minibatch) Digest() uint64 {
	if len(m.Original) == 0 {
		return 0
	}
	var h xxhash.Digest
	h.Reset()
	for l := range m.Blocks { // the Write of a hash returns no error
		b := &m.Blocks[l]
		_, _ = h.Write(mem.Bytes(b.Indptr))
		_, _ = h.Write(mem.Bytes(b.Indices))
		_, _ = h.Write(mem.Bytes(b.Targets))
		_, _ = h.Write(mem.Bytes(b.Ends))
	}
	_, _ = h.Write(mem.Bytes(m.Original))
	return h.Sum64()
}

// EdgesDigest adds up a hash of every sampled edge. The hash is of the key, the hop that drew the
// edge (1 next to the seeds), and the original ids of its source and destination. The sum does not
// depend on the order of edges, on how a block numbers its vertices, or on which rank holds which
// part of a minibatch. So it can compare ways of sampling that number blocks differently, which
// Digest cannot. It is 0 for a minibatch without edges. The cost is one random.Mix for each edge.
func (m *Minibatch) EdgesDigest(key Key) uint64 {
	sum := uint64(0)
	for l := range m.Blocks {
		sum += EdgesDigest(&m.Blocks[l], m.Original, len(m.Blocks)-l, key)
	}
	return sum
}

// EdgesDigest returns what one block adds to Minibatch.EdgesDigest. The argument `original`
// [NumSrc] has the original ids of the block's sources, the destinations first, and hop is the
// number of the hop that drew the block.
func EdgesDigest(b *graph.Block, original []int32, hop int, key Key) uint64 {
	sum, name, first := uint64(0), key.hop(hop), 0
	for r := range max(1, len(b.Ends)) {
		word, end := relationWord(name, r), b.NumRows()
		if len(b.Ends) > 0 {
			end = int(b.Ends[r])
		}
		for row := first; row < end; row++ {
			destination := uint64(vertexStream(word, original[b.Target(row)]))
			for _, s := range b.Indices[b.Indptr[row]:b.Indptr[row+1]] {
				sum += random.Mix(destination ^ uint64(uint32(original[s])))
			}
		}
		first = end
	}
	return sum
}
