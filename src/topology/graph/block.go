package graph

import (
	"fmt"

	"halognn/src/base/mem"
)

// Block is one hop of a sampled minibatch (a message flow graph, MFG): a bipartite graph from
// sources to destinations, in CSC form with a list of in-edges for each destination. The first
// NumDst sources are the destinations themselves, so a layer can read a destination's own row too.
// The other sources follow in the order in which sampling first met them, so that two equal samples
// number their vertices alike.
//
//	Indptr  [NumDst+1]  in-edges of destination d are Indices[Indptr[d]:Indptr[d+1]]
//	Indices [E]         positions among the sources, in [0, NumSrc)
//	Weights [E]         weights of the edges, if the sampler was asked for them
//	Places  [E]         positions of the edges in the whole topology, if asked for
//
// In a graph with relations a row of Indptr holds the in-edges of one destination by one relation.
// Rows are in the order of relations, then of destinations. A destination without edges of a
// relation has no row for that relation.
//
//	Targets [rows]  destination of each row; empty if rows are the destinations
//	Ends    [R]     one past the last row of each relation
type Block struct {
	NumSrc, NumDst int
	Indptr         []int64
	Indices        []int32
	Weights        []float32
	Places         []int32
	Targets        []int32
	Ends           []int32
}

// NumRows returns the number of rows of Indptr: destinations, or pairs of a destination and a
// relation with edges.
func (b *Block) NumRows() int { return len(b.Indptr) - 1 }

// Target returns the destination of a row.
func (b *Block) Target(row int) int32 {
	if len(b.Ends) == 0 {
		return int32(row)
	}
	return b.Targets[row]
}

// NumEdges returns the number of sampled edges.
func (b *Block) NumEdges() int { return len(b.Indices) }

// Validate reports the first broken rule of the layout.
func (b *Block) Validate() error {
	switch {
	case b.NumDst > b.NumSrc:
		return fmt.Errorf("block has %d destinations but only %d sources", b.NumDst, b.NumSrc)
	case len(b.Ends) == 0 && len(b.Indptr) != b.NumDst+1:
		return fmt.Errorf("block indptr has %d entries, but needs %d", len(b.Indptr), b.NumDst+1)
	case b.Indptr[0] != 0 || b.Indptr[b.NumRows()] != int64(len(b.Indices)):
		return fmt.Errorf("block indptr runs from %d to %d, but must run from 0 to %d", b.Indptr[0],
			b.Indptr[b.NumRows()], len(b.Indices))
	case len(b.Ends) > 0 && (len(b.Targets) != b.NumRows() ||
		int(b.Ends[len(b.Ends)-1]) != b.NumRows()):
		return fmt.Errorf("block has %d rows, but %d targets, and relations that end at row %d",
			b.NumRows(), len(b.Targets), b.Ends[len(b.Ends)-1])
	}
	for d := range b.NumRows() {
		if b.Indptr[d+1] < b.Indptr[d] {
			return fmt.Errorf("block indptr falls at destination %d", d)
		}
	}
	for row, d := range b.Targets {
		if d < 0 || int(d) >= b.NumDst {
			return fmt.Errorf("block row %d has destination %d, but only %d exist", row, d,
				b.NumDst)
		}
	}
	for e, s := range b.Indices {
		if s < 0 || int(s) >= b.NumSrc {
			return fmt.Errorf("block edge %d has source %d, but only %d exist", e, s, b.NumSrc)
		}
	}
	return nil
}

// SelfEdges copies the block b, and gives each destination of the copy an edge from itself, before
// its other in-edges. Layers in which a vertex is its own neighbour need such edges. The block b
// must have no edge from a vertex to itself; the edges of datasets are like that. The caller
// provides the block for the copy (`into`). SelfEdges reuses the arrays of this block, and
// allocates only if they are too small. O(E).
func (b *Block) SelfEdges(into *Block) {
	into.NumSrc, into.NumDst = b.NumSrc, b.NumDst
	into.Indptr = mem.Grow(into.Indptr, b.NumDst+1)
	into.Indices = mem.Grow(into.Indices, b.NumEdges()+b.NumDst)
	into.Indptr[0] = 0
	for d := range b.NumDst {
		at := into.Indptr[d]
		into.Indices[at] = int32(d)
		n := copy(into.Indices[at+1:], b.Indices[b.Indptr[d]:b.Indptr[d+1]])
		into.Indptr[d+1] = at + 1 + int64(n)
	}
}

// BlockTranspose holds the edges of a Block sorted by source. The backward pass needs this order to
// send gradients from destinations to sources.
//
//	Indptr  [NumSrc+1]  out-edges of source s are Indices[Indptr[s]:Indptr[s+1]]
//	Indices [E]         destinations, or rows of the block, in increasing edge order of the block
//	Edges   [E]         position of each edge in Block.Indices, increasing within a source
type BlockTranspose struct {
	Indptr  []int64
	Indices []int32
	Edges   []int32
}

// Transpose fills t with the edges of b sorted by source. It reuses the arrays of t, and allocates
// only if they are too small. O(S+E) for S sources.
func (b *Block) Transpose(t *BlockTranspose) {
	t.Indptr = mem.Grow(t.Indptr, b.NumSrc+1)
	t.Indices = mem.Grow(t.Indices, b.NumEdges())
	t.Edges = mem.Grow(t.Edges, b.NumEdges())
	clear(t.Indptr)
	for _, s := range b.Indices {
		t.Indptr[s+1]++
	}
	for s := range b.NumSrc {
		t.Indptr[s+1] += t.Indptr[s]
	}
	// Indptr[s] is where the next edge of s is written. At the end it is where the edges of s+1
	// begin, so moving all entries up by one restores Indptr.
	for d := range b.NumRows() {
		for e := b.Indptr[d]; e < b.Indptr[d+1]; e++ {
			s := b.Indices[e]
			at := t.Indptr[s]
			t.Indptr[s]++
			t.Indices[at], t.Edges[at] = int32(d), int32(e)
		}
	}
	copy(t.Indptr[1:], t.Indptr[:b.NumSrc])
	t.Indptr[0] = 0
}

// Free frees the arrays.
func (t *BlockTranspose) Free() {
	mem.Free(t.Indptr)
	mem.Free(t.Indices)
	mem.Free(t.Edges)
	*t = BlockTranspose{}
}
