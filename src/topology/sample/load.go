package sample

import (
	"slices"

	"halognn/src/topology/graph"
)

// Load counts a rank's share of one block, if ranks sample a minibatch together (Split). It is
// computed from the minibatch of all ranks.
type Load struct {
	Destinations, Edges int
	Cross               int // number of edges from sources of other ranks
	// number of own sources; in the last hop, only of those that the rank reads
	Own             int
	Others          int   // number of sources of other ranks
	Far             int   // number of sources of ranks on other nodes
	Bytes, FarBytes int64 // bytes of feature rows of Others and Far that the input layer reads
	Wanted          int   // number of own vertices that other ranks read, counted for each rank
}

// NewLoads makes room for the loads of the given number of ranks in minibatches of the given number
// of layers.
func NewLoads(ranks, layers int) [][]Load {
	loads := make([][]Load, ranks)
	for r := range loads {
		loads[r] = make([]Load, layers)
	}
	return loads
}

// Sources returns the number of sources of the share.
func (l Load) Sources() int { return l.Own + l.Others }

// Loads sets loads[r][l] to the share of rank r in Blocks[l]. The function ownerOf returns the rank
// that owns a vertex. Each node has perNode consecutive ranks. The function rowOf returns the bytes
// of a vertex's feature row, and false for a vertex without features, which is no source of the
// input layer. If rowOf is nil, bytes are not counted. O(K L + V + E).
func (m *Minibatch) Loads(ownerOf func(graph.VertexID) int, perNode int,
	rowOf func(graph.VertexID) (int64, bool), loads [][]Load) {
	perNode = max(1, perNode)
	owner := make([]int32, len(m.Frontier))
	for i, v := range m.Frontier {
		owner[i] = int32(ownerOf(v))
	}
	for r := range loads {
		clear(loads[r])
	}
	// Destinations and rows are grouped by rank, so that one mark for each source says which rank
	// has read it last.
	var own, rows byRank
	read := make([]int32, len(m.Frontier))
	for l := range m.Blocks {
		if l > 0 {
			rowOf = nil
		}
		b := &m.Blocks[l]
		own.sort(len(loads), b.NumDst, func(d int) int32 { return owner[d] })
		rows.sort(len(loads), b.NumRows(), func(row int) int32 { return owner[b.Target(row)] })
		clear(read)
		for r := range loads {
			of := &loads[r][l]
			for _, d := range own.of(r) {
				read[d] = int32(r) + 1 // a destination's own row is also a source
				of.Destinations, of.Own = of.Destinations+1, of.Own+1
			}
			for _, row := range rows.of(r) {
				m.load(b, l, int(row), int32(r), owner, int32(perNode), read, rowOf, loads)
			}
		}
		if l == 0 {
			continue
		}
		// count all own sources, because other ranks may have found more of a rank's vertices
		for r := range loads {
			loads[r][l].Own = 0
		}
		for _, o := range owner[:b.NumSrc] {
			loads[o][l].Own++
		}
	}
}

// byRank lists numbers grouped by rank, ascending in each group.
type byRank struct {
	order []int32
	ends  []int
}

func (b *byRank) sort(ranks, n int, rankOf func(int) int32) {
	b.order, b.ends = slices.Grow(b.order[:0], n)[:n], slices.Grow(b.ends[:0], ranks+1)[:ranks+1]
	clear(b.ends)
	for i := range n {
		b.ends[rankOf(i)+1]++
	}
	for r := range ranks {
		b.ends[r+1] += b.ends[r]
	}
	for i := range n {
		r := rankOf(i)
		b.order[b.ends[r]] = int32(i)
		b.ends[r]++
	}
}

func (b *byRank) of(rank int) []int32 {
	if rank == 0 {
		return b.order[:b.ends[0]]
	}
	return b.order[b.ends[rank-1]:b.ends[rank]]
}

// load counts a row of block l. The destination of the row belongs to the given rank.
func (m *Minibatch) load(b *graph.Block, l, row int, rank int32, owner []int32, perNode int32,
	read []int32, rowOf func(graph.VertexID) (int64, bool), loads [][]Load) {
	of := &loads[rank][l]
	of.Edges += int(b.Indptr[row+1] - b.Indptr[row])
	for _, s := range b.Indices[b.Indptr[row]:b.Indptr[row+1]] {
		if owner[s] != rank {
			of.Cross++
		}
		if read[s] == rank+1 {
			continue
		}
		read[s] = rank + 1
		if owner[s] == rank {
			of.Own++
			continue
		}
		size := int64(0)
		if rowOf != nil {
			bytes, has := rowOf(m.Frontier[s])
			if !has {
				continue
			}
			size = bytes
		}
		of.Others, of.Bytes = of.Others+1, of.Bytes+size
		if owner[s]/perNode != rank/perNode {
			of.Far, of.FarBytes = of.Far+1, of.FarBytes+size
		}
		loads[owner[s]][l].Wanted++
	}
}
