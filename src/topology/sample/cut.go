package sample

import (
	"halognn/src/base/mem"
	"halognn/src/topology/graph"
)

// Cutter cuts a rank's share out of a minibatch that a group of ranks makes together. Forecasts of
// a run use it, because they sample whole minibatches. The zero value is ready for use; its arrays
// are kept until Free.
type Cutter struct {
	m, share *Minibatch
	size     int
	member   int32
	serving  bool
	owner    []int32 // [whole frontier] owner of each vertex
	// [whole frontier] place of each vertex in the frontier of its owner, which is the number of
	// earlier vertices with the same owner
	place []int32
	most  int // largest length of the frontier so far

	at []int32 // [sources of the block] position of each among the share's sources, or -1
	// [sources of the block] 1 + the member that was last found to read each source; 0 if none was
	read   []int32
	others []int32 // positions of sources of other ranks, in the order found
	rows   byRank
	ids    []graph.VertexID // own vertices that other ranks want
	places []int32          // position in the frontier of each vertex of ids
	more   []graph.VertexID // vertices of ids that this rank does not read itself
}

// Free frees the arrays.
func (x *Cutter) Free() {
	for _, s := range [][]int32{x.owner, x.place, x.at, x.read, x.others, x.places} {
		mem.Free(s)
	}
	mem.Free(x.ids)
	mem.Free(x.more)
	*x = Cutter{}
}

// push appends an item to an array of package mem.
func push[T mem.Number](s []T, x T) []T {
	s = mem.Grow(s, len(s)+1)
	s[len(s)-1] = x
	return s
}

// Cut sets share to the share of m that a member of a group makes. It sets c[h-1] to the Crossing
// of hop h, as Split.Last leaves it or, if `serving` is true, as Split.Serve does. All sizes are
// those of a real run, but the order differs: vertices beyond the destinations of a block come in
// the order of the whole minibatch. O(edges).
func (x *Cutter) Cut(m *Minibatch, o *Owners, member int, serving bool, share *Minibatch,
	c []Crossing) {
	x.m, x.share, x.size, x.member, x.serving = m, share, o.Size, int32(member), serving
	x.owner, x.place = mem.Grow(x.owner, len(m.Frontier)), mem.Grow(x.place, len(m.Frontier))
	own, seeds := int32(0), 0
	for i, v := range m.Frontier {
		x.owner[i], x.place[i] = int32(o.Owner(v)), own
		if x.owner[i] == x.member {
			own++
			if i < len(m.Seeds) {
				seeds++
			}
		}
	}
	hops := len(m.Blocks)
	share.layers(hops)
	if len(share.Others) != hops {
		share.Others = make([][]graph.VertexID, hops)
	}
	x.most = seeds
	for l := hops - 1; l >= 0; l-- {
		x.hop(l, &c[hops-1-l])
		if l > 0 {
			share.Others[l] = c[hops-1-l].IDs
		}
		if len(m.Transposes[l].Indptr) > 0 {
			share.Blocks[l].Transpose(&share.Transposes[l])
		}
	}
	share.Seeds, share.Estimates = share.Frontier[:seeds], m.Estimates
	if len(m.Totals) > 0 {
		share.Totals = mem.Grow(share.Totals[:0], share.numTotals())
	}
}

// numTotals returns the length of the list Totals of a minibatch, unless that list is left empty.
func (m *Minibatch) numTotals() (n int) {
	if len(m.Blocks[0].Ends) == 0 {
		return m.Blocks[0].NumDst
	}
	for l := range m.Blocks {
		n += m.Blocks[l].NumRows()
	}
	return n
}

// hop sets block l of the share, and its Crossing.
func (x *Cutter) hop(l int, c *Crossing) {
	b := &x.m.Blocks[l]
	c.size(x.size)
	x.rows.sort(x.size, b.NumRows(), func(row int) int32 { return x.owner[b.Target(row)] })
	x.at, x.read = mem.Grow(x.at, b.NumSrc), mem.Grow(x.read, b.NumSrc)
	x.others = mem.Grow(x.others, b.NumSrc)[:0]
	clear(x.read)
	own, destinations := 0, 0
	for i := range x.at {
		if x.at[i] = -1; x.owner[i] != x.member || l == 0 && i >= b.NumDst {
			continue
		}
		x.at[i] = x.place[i] // this includes vertices that only another rank has found
		if own++; i < b.NumDst {
			destinations++
		}
	}
	own = x.find(b, l, own, c)
	x.block(b, &x.share.Blocks[l], destinations, own)
	c.own = own
	x.wanted(b, l, c)
	if x.most = max(x.most, own+len(c.WantIDs)+1, own+len(c.IDs)); l > 0 {
		return
	}
	// In the last hop, Frontier lists all sources.
	s := x.share
	s.Frontier, s.Original = mem.Grow(s.Frontier, x.most), mem.Grow(s.Original, x.most)
	for i, k := range x.at {
		// If the test is false, the share does not have vertex i as a source.
		if k >= 0 && (int(k) < own) == (x.owner[i] == x.member) {
			s.Frontier[k], s.Original[k] = x.m.Frontier[i], x.m.Original[i]
		}
	}
	s.Frontier, s.Original = s.Frontier[:own+len(c.IDs)], s.Original[:own+len(c.IDs)]
}

// find looks for the sources of block b that the share reads but other ranks own. It numbers them
// among the share's sources, by owner. In the last hop, find also numbers the own sources that are
// no destinations. It returns the number of own sources.
func (x *Cutter) find(b *graph.Block, l, own int, c *Crossing) int {
	found := 0 // number of sources found that are not destinations of this share
	for _, row := range x.rows.of(int(x.member)) {
		for _, s := range b.Indices[b.Indptr[row]:b.Indptr[row+1]] {
			if x.read[s] == x.member+1 {
				continue
			}
			x.read[s] = x.member + 1
			if int(s) >= b.NumDst || x.owner[s] != x.member {
				found++
			}
			switch {
			case x.owner[s] != x.member:
				x.others = append(x.others, s)
			case l == 0 && int(s) >= b.NumDst:
				x.at[s] = int32(own)
				own++
			}
		}
	}
	clear(c.Count)
	for _, s := range x.others {
		c.Count[x.owner[s]]++
	}
	at := 0
	for r, n := range c.Count {
		c.next[r] = at
		at += n
	}
	c.IDs, c.place = mem.Grow(c.IDs, len(x.others)), mem.Grow(c.place, found)
	for _, s := range x.others {
		next := &c.next[x.owner[s]]
		c.IDs[*next], x.at[s] = x.m.Frontier[s], int32(own+*next)
		*next++
	}
	return own
}

// block copies the rows of the member's own destinations into the block of the share.
func (x *Cutter) block(b, to *graph.Block, destinations, own int) {
	rows := x.rows.of(int(x.member))
	edges := 0
	for _, row := range rows {
		edges += int(b.Indptr[row+1] - b.Indptr[row])
	}
	to.NumDst, to.NumSrc = destinations, own+len(x.others)
	to.Indptr, to.Indices = mem.Grow(to.Indptr, len(rows)+1), mem.Grow(to.Indices, edges)
	to.Weights, to.Places = mem.Grow(to.Weights, min(edges, len(b.Weights))), mem.Grow(to.Places,
		min(edges, len(b.Places)))
	to.Targets, to.Ends = mem.Grow(to.Targets, min(len(rows), len(b.Targets))),
		mem.Grow(to.Ends, len(b.Ends))
	to.Indptr[0] = 0
	relation := 0
	for k, row := range rows {
		for relation < len(b.Ends) && row >= b.Ends[relation] {
			to.Ends[relation] = int32(k)
			relation++
		}
		if len(to.Targets) > 0 {
			to.Targets[k] = x.place[b.Target(int(row))]
		}
		lo, hi, at := b.Indptr[row], b.Indptr[row+1], to.Indptr[k]
		for e, s := range b.Indices[lo:hi] {
			to.Indices[int(at)+e] = x.at[s]
		}
		if len(to.Weights) > 0 {
			copy(to.Weights[at:], b.Weights[lo:hi])
		}
		if len(to.Places) > 0 {
			copy(to.Places[at:], b.Places[lo:hi])
		}
		to.Indptr[k+1] = at + hi - lo
	}
	for ; relation < len(b.Ends); relation++ {
		to.Ends[relation] = int32(len(rows))
	}
}

// wanted lists the member's own vertices that other ranks have found.
func (x *Cutter) wanted(b *graph.Block, l int, c *Crossing) {
	clear(c.Wanted)
	own := c.own
	if l == 0 {
		c.Reads = c.Reads[:0]
	}
	if l == 0 && !x.serving {
		c.WantIDs, c.At = c.WantIDs[:0], c.At[:0]
		return
	}
	ids, at, more := x.ids[:0], x.places[:0], x.more[:0]
	for r := range x.size {
		if int32(r) == x.member {
			continue
		}
		for _, row := range x.rows.of(r) {
			for _, s := range b.Indices[b.Indptr[row]:b.Indptr[row+1]] {
				if x.owner[s] != x.member || x.read[s] == int32(r)+1 {
					continue
				}
				x.read[s] = int32(r) + 1
				if x.at[s] < 0 {
					x.at[s] = int32(own + len(more))
					more = push(more, x.m.Frontier[s])
				}
				c.Wanted[r]++
				ids, at = push(ids, x.m.Frontier[s]), push(at, x.at[s])
			}
		}
	}
	x.ids, x.places, x.more = ids, at, more
	c.WantIDs, c.At = mem.Grow(c.WantIDs, len(ids)), mem.Grow(c.At, len(ids))
	copy(c.WantIDs, ids)
	copy(c.At, at)
	if l > 0 {
		return
	}
	c.Reads = mem.Grow(c.Reads, own+len(more))
	for i, k := range x.at {
		if k >= 0 && int(k) < own && x.owner[i] == x.member {
			c.Reads[k] = x.m.Frontier[i]
		}
	}
	copy(c.Reads[own:], more)
}
