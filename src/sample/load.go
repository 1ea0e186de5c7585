package sample

import "halognn/src/graph"

// Load is a rank's share of a block that ranks make together (Split), counted on the whole
// minibatch.
type Load struct {
	Destinations, Edges int
	Cross               int // edges from sources of other ranks
	Own                 int // sources that the rank owns; of the last hop those that it reads
	Others              int // sources of other ranks
	Far                 int // of Others: of ranks of other nodes
	Wanted              int // own vertices that other ranks read, once for each of these
}

// NewLoads makes room for the loads of so many ranks in minibatches of so many layers.
func NewLoads(ranks, layers int) [][]Load {
	loads := make([][]Load, ranks)
	for r := range loads {
		loads[r] = make([]Load, layers)
	}
	return loads
}

// Sources returns the sources of the share.
func (l Load) Sources() int { return l.Own + l.Others }

// Loads sets loads[r][l] to the share of rank r in Blocks[l], where ownerOf names the rank of a
// vertex, and perNode consecutive ranks are a node. O(K L + V + E).
func (m *Minibatch) Loads(ownerOf func(graph.VertexID) int, perNode int, loads [][]Load) {
	perNode = max(1, perNode)
	owner := make([]int32, len(m.Frontier))
	for i, v := range m.Frontier {
		owner[i] = int32(ownerOf(v))
	}
	for r := range loads {
		clear(loads[r])
	}
	// Destinations by rank, so that one mark for each source tells which rank has read it last.
	order, next := make([]int32, len(m.Frontier)), make([]int, len(loads)+1)
	read := make([]int32, len(m.Frontier))
	for l := range m.Blocks {
		b := &m.Blocks[l]
		clear(next)
		for _, o := range owner[:b.NumDst] {
			next[o+1]++
		}
		for r := range loads {
			next[r+1] += next[r]
		}
		for d, o := range owner[:b.NumDst] {
			order[next[o]] = int32(d)
			next[o]++
		}
		clear(read)
		for _, d := range order[:b.NumDst] {
			m.load(b, l, int(d), owner, int32(perNode), read, loads)
		}
		if l == 0 {
			continue
		}
		for r := range loads { // others may have found more of them
			loads[r][l].Own = 0
		}
		for _, o := range owner[:b.NumSrc] {
			loads[o][l].Own++
		}
	}
}

// load counts destination d of block l.
func (m *Minibatch) load(b *graph.Block, l, d int, owner []int32, perNode int32, read []int32,
	loads [][]Load) {
	rank := owner[d]
	of := &loads[rank][l]
	of.Destinations++
	of.Edges += int(b.Indptr[d+1] - b.Indptr[d])
	if read[d] != rank+1 { // its own row
		read[d] = rank + 1
		of.Own++
	}
	for _, s := range b.Indices[b.Indptr[d]:b.Indptr[d+1]] {
		if owner[s] != rank {
			of.Cross++
		}
		if read[s] == rank+1 {
			continue
		}
		read[s] = rank + 1
		if owner[s] == rank {
			of.Own++
		} else {
			of.Others++
			if owner[s]/perNode != rank/perNode {
				of.Far++
			}
			loads[owner[s]][l].Wanted++
		}
	}
}
