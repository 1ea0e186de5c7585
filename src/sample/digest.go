package sample

import (
	"github.com/cespare/xxhash/v2"

	"halognn/src/mem"
)

// Digest is the XXH64 of the blocks (row pointers and columns, input layer first) and of the original
// ids of the frontier in order: equal for equal minibatches, however the vertices of the graph are
// numbered. Transposes follow from the blocks and are left out. 0 for an empty frontier.
func (m *Minibatch) Digest() uint64 {
	if len(m.Original) == 0 {
		return 0
	}
	var h xxhash.Digest
	h.Reset()
	for l := range m.Blocks { // a hash takes everything it is given
		_, _ = h.Write(mem.Bytes(m.Blocks[l].Indptr))
		_, _ = h.Write(mem.Bytes(m.Blocks[l].Indices))
	}
	_, _ = h.Write(mem.Bytes(m.Original))
	return h.Sum64()
}
