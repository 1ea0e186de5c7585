package exchange

import (
	"math"

	"halognn/src/base/mem"
	"halognn/src/base/trace"
	"halognn/src/devices/compute"
	"halognn/src/topology/graph"
)

// Sums says how the input layer adds the rows that it reads. A group is all neighbours of a
// destination in one part. If the layer only adds their rows, a group may travel as one vector,
// which the owner of the rows makes:
//
//	destination d    s1 s2 s3 │ s4 s5 │ s6        sources, by part (graph.Grouper)
//	                 own part │ p     │ q
//	row of s6, or                     │ x         which of the two covers an edge is chosen by
//	sum of s4, s5             │ x     │           cover: a row may be in many groups
//
// A sum covers all neighbours of d in its part, also those with cached rows. So it has the same
// bits as the sum that this rank would compute from their rows
// (docs/design/08-input-aggregation.md).
type Sums struct {
	How      compute.Reduction // for a mean, the owner sends a sum, which the asker divides
	Own      bool              // whether the rows of destinations are also read as rows
	Weighted bool              // whether edges have weights, which are then sent with the ids
	// Back says that the reader sends a gradient back for each row and each sum (Late). Then the
	// groups of a kind travel either all as sums or all as rows, so that the parts of a row's
	// gradient are added in one place.
	Back bool
}

const floatBytes = 4

// costs are the bytes that travel for a row, for a sum and for a member of a sum, including ids and
// weights. A sum may have at most `most` members.
type costs struct{ row, sum, member, most int }

// MemberBytes returns the bytes by which a sum's member is requested: its id and, with Weighted,
// its weight.
func (s *Sums) MemberBytes() int {
	if s.Weighted {
		return IDBytes + floatBytes
	}
	return IDBytes
}

// typeOf returns the type of a sum of rows of type t, and the largest number of rows that may be
// added in this type.
func (s *Sums) typeOf(t compute.DType) (compute.DType, int) { return t.SumType(s.How, s.Weighted) }

// Bytes returns the bytes of a sum of rows.
func (s *Sums) Bytes(cols int, t compute.DType) int {
	of, _ := s.typeOf(t)
	return cols * of.Size()
}

// costs returns the costs of the rows of a kind and of their sums.
func (s *Sums) costs(k Kind) costs {
	_, most := s.typeOf(k.Type)
	return costs{row: k.RowBytes() + IDBytes, sum: s.Bytes(k.Cols, k.Type), member: s.MemberBytes(),
		most: most}
}

// Edges are the edges of the input layer, in the order into which graph.Grouper has brought them.
// Request replaces groups by sums: the arrays become shorter, and Counts then has the number of
// rows that were added for each destination. If there are several kinds of rows, all rows of a
// destination have the same kind.
type Edges struct {
	Indptr  []int64
	Indices []int32
	Weights []float32 // nil if edges have no weights
	Counts  []int32
	// Whole lists the frontier positions of rows that are also read as rows. It may be left out if
	// these are the rows of the destinations, in order (Sums.Own).
	Whole []int32
	// Number of segments at the end of the list that are no groups: each consists of one row of
	// Whole.
	Alone int
}

// Groups are the groups of a minibatch whose members lie in parts that this rank cannot read,
// destination by destination and part by part. They are the only input of the choice between rows
// and sums. The zero value is ready for List; the arrays are reused.
type Groups struct {
	begin  []int32  // [G+1] the members of group g are member[begin[g]:begin[g+1]]
	member []int32  // [E] indices into the list of remote vertices; -1 if the row is cached
	edge   []int32  // [G] first edge of each group
	part   []uint16 // [G] part of each group
	alone  []uint8  // [R] 1 if the row is also read as a row
	kind   []uint16 // [R] kind of the row; empty if there is one kind
	place  []int32  // [frontier] index of each vertex in the list of remote ones, or -1
}

// List lists the groups of the remote vertices of p. After Locate it lists the groups of all remote
// vertices, after Find only the groups of remote vertices that are not cached. It may run for many
// plans at once. O(frontier + edges).
func (x *Exchange) List(p *Plan, e *Edges, g *Groups) {
	g.place = mem.Grow(g.place[:0], len(p.Parts))
	for i := range g.place {
		g.place[i] = -1
	}
	g.alone = mem.Grow(g.alone[:0], len(p.missing))
	clear(g.alone)
	destinations := len(e.Indptr) - 1
	g.kind = g.kind[:0]
	for k, i := range p.missing {
		g.place[i] = int32(k)
		if x.sums.Own && int(i) < destinations {
			g.alone[k] = 1
		}
		if x.mixed() {
			g.kind = append(mem.Grow(g.kind, k+1)[:k], x.partKind[p.Parts[i]])
		}
	}
	for _, i := range e.Whole {
		if k := g.place[i]; k >= 0 {
			g.alone[k] = 1
		}
	}
	found := len(p.Parts) // sources from this index on are passed on by other ranks
	if r := &p.relayed; len(r.parts) > 0 {
		found = r.own
		for _, i := range r.read {
			if k := g.place[i]; k >= 0 {
				g.alone[k] = 1
			}
		}
	}
	g.member, g.edge, g.part = g.member[:0], g.edge[:0], g.part[:0]
	g.begin = append(mem.Grow(g.begin[:0], 1)[:0], 0)
	for d := range destinations - e.Alone {
		for lo, hi := e.Indptr[d], e.Indptr[d+1]; lo < hi; {
			end := lo + 1
			for end < hi && e.Indices[end] >= 0 {
				end++
			}
			if s := compute.SourceOf(e.Indices[lo]); int(s) < found && x.remote[p.Parts[s]] != 0 {
				g.add(e.Indices[lo:end], lo, p.Parts[s])
			}
			lo = end
		}
	}
}

// add appends a group.
func (g *Groups) add(sources []int32, edge int64, part uint16) {
	n := len(g.member)
	g.member = mem.Grow(g.member, n+len(sources))
	for k, s := range sources {
		g.member[n+k] = g.place[compute.SourceOf(s)]
	}
	groups := len(g.edge)
	g.begin, g.edge = mem.Grow(g.begin, groups+2), mem.Grow(g.edge, groups+1)
	g.part = mem.Grow(g.part, groups+1)
	g.begin[groups+1], g.edge[groups], g.part[groups] = int32(len(g.member)), int32(edge), part
}

const vector = math.MaxUint8 // a whole vector in units of worth

// Worth returns, for each remote vertex, how many vectors a cached row would save, in units of
// 1/255 vector. It reuses the memory of dst. A row that is also read as a row saves one vector. Any
// other row saves the sum of its shares in the groups that it is in. A group travels as one vector,
// and each row of the group that is read only in sums has an equal share in this vector.
func (g *Groups) Worth(dst []uint8) []uint8 {
	dst = mem.Grow(dst[:0], len(g.alone))
	for k, alone := range g.alone {
		dst[k] = alone * vector
	}
	for i := range len(g.begin) - 1 {
		members, summed := g.member[g.begin[i]:g.begin[i+1]], 0
		for _, k := range members {
			if k >= 0 && g.alone[k] == 0 {
				summed++
			}
		}
		for _, k := range members {
			if k >= 0 && g.alone[k] == 0 {
				dst[k] = uint8(min(vector, int(dst[k])+vector/summed))
			}
		}
	}
	return dst
}

// Copy makes g a copy of o without the array that only List needs. A choice can be made from the
// copy.
func (g *Groups) Copy(o *Groups) {
	g.begin = append(mem.Grow(g.begin[:0], len(o.begin))[:0], o.begin...)
	g.member = append(mem.Grow(g.member[:0], len(o.member))[:0], o.member...)
	g.alone = append(mem.Grow(g.alone[:0], len(o.alone))[:0], o.alone...)
	g.part = append(mem.Grow(g.part[:0], len(o.part))[:0], o.part...)
	g.kind = append(mem.Grow(g.kind[:0], len(o.kind))[:0], o.kind...)
}

// Bytes returns the memory of the arrays.
func (g *Groups) Bytes() int64 {
	return int64(cap(g.begin)+cap(g.member)+cap(g.edge)+cap(g.place))*4 +
		int64(cap(g.part)+cap(g.kind))*2 + int64(cap(g.alone))
}

// Free frees the arrays.
func (g *Groups) Free() {
	mem.Free(g.begin)
	mem.Free(g.member)
	mem.Free(g.edge)
	mem.Free(g.part)
	mem.Free(g.kind)
	mem.Free(g.alone)
	mem.Free(g.place)
	*g = Groups{}
}

// Chooser decides which rows and which sums of minibatches travel, so that few bytes travel.
type Chooser struct {
	costs  []costs                  // [kinds] costs of each kind
	early  func(graph.VertexID) int // returns the kind of a vertex; only for several kinds
	cover  cover
	groups []int32 // [groups in cover] index of each group in Groups
	// Vertices whose rows are not at hand, as indices into the list of remote vertices.
	misses []int32
	needed []uint8 // [R] 1 if only sums need the row and it is not at hand, so that cover decides
	chosen []int32 // groups whose sums travel
	rows   []int32 // indices of the vertices whose rows travel
	vacant []int32 // indices of the vertices that are only in sums
	kinds  []int64 // [2*kinds] for chooseKinds: the bytes of rows, and of sums
}

// NewChooser makes the chooser of an exchange with these kinds of rows. The function kindOf returns
// the kind of a vertex. It is needed only by Counts with several kinds.
func NewChooser(s *Sums, kinds []Kind, kindOf func(graph.VertexID) int) *Chooser {
	c := &Chooser{early: kindOf}
	for _, k := range kinds {
		c.costs = append(c.costs, s.costs(k))
	}
	return c
}

// kindOf returns the costs of the kind of rows in a group.
func (c *Chooser) kindOf(g *Groups, group int32) *costs {
	return &c.costs[int(g.part[group])%len(c.costs)]
}

// choose chooses rows and sums for the remote vertices of g. The row of vertex k is at hand if
// slot[k] is not negative; if slot is empty, no row is at hand. The rows of some vertices must come
// as rows, not in sums. The list `kept` has these vertices, each by its index among the vertices
// whose rows are not at hand.
func (c *Chooser) choose(g *Groups, slot, kept []int32) {
	c.misses = mem.Grow(c.misses[:0], len(g.alone))[:0]
	c.needed = mem.Grow(c.needed[:0], len(g.alone))
	for k, alone := range g.alone {
		c.needed[k] = 0
		if len(slot) == 0 || slot[k] < 0 {
			c.needed[k] = 1 - alone
			c.misses = append(c.misses, int32(k))
		}
	}
	for _, n := range kept {
		if int(n) < len(c.misses) { // the others are early rows
			c.needed[c.misses[n]] = 0
		}
	}
	c.cover.start(len(g.member), len(g.begin)-1)
	c.groups = mem.Grow(c.groups[:0], len(g.begin))[:0]
	for i := range len(g.begin) - 1 {
		members := g.member[g.begin[i]:g.begin[i+1]]
		for _, k := range members {
			if k >= 0 && c.needed[k] != 0 {
				c.cover.member = append(c.cover.member, k)
			}
		}
		is := c.kindOf(g, int32(i))
		bytes := is.sum + len(members)*is.member
		// One sum can have at most is.most members, and several sums would cost more than the rows.
		if len(members) > is.most {
			bytes = math.MaxInt32
		}
		if c.cover.add(bytes, is.row) {
			c.groups = append(c.groups, int32(i))
		}
	}
	c.cover.decide(len(g.alone))
	c.chosen = mem.Grow(c.chosen[:0], len(c.groups))[:0]
	for i, group := range c.groups {
		if c.cover.isSum(i) {
			c.chosen = append(c.chosen, group)
		}
	}
	c.rows = mem.Grow(c.rows[:0], len(c.misses))[:0]
	c.vacant = mem.Grow(c.vacant[:0], len(c.misses))[:0]
	for _, k := range c.misses {
		// A row without edges to cover is needed as a row.
		if c.cover.isRow(int(k)) || c.cover.first[k] == c.cover.first[k+1] {
			c.rows = append(c.rows, k)
		} else {
			c.vacant = append(c.vacant, k)
		}
	}
}

// Rows returns which vertices travel as rows, as indices into the list of remote vertices. The last
// call of Counts made this choice. Early rows are not in the list.
func (c *Chooser) Rows() []int32 { return c.rows }

// SumBytes returns the bytes of the sums that the last call of Counts has chosen. The argument g
// must be the same as in that call.
func (c *Chooser) SumBytes(g *Groups) (bytes int64) {
	for _, group := range c.chosen {
		bytes += int64(c.kindOf(g, group).sum)
	}
	return bytes
}

// AddRows adds to rows[k] the number of rows of kind k that travel by the last choice. The last
// call of Counts, with the same g and w, made this choice.
func (c *Chooser) AddRows(g *Groups, w Wants, rows []float64) {
	if len(c.costs) == 1 {
		rows[0] += float64(len(c.rows) + len(w.Early))
		return
	}
	for _, k := range c.rows {
		rows[g.kind[k]]++
	}
	for _, v := range w.Early {
		rows[c.early(v)]++
	}
}

// Bytes returns the memory of the arrays.
func (c *Chooser) Bytes() int64 {
	return c.cover.memory() + int64(cap(c.needed)) +
		int64(cap(c.misses)+cap(c.groups)+cap(c.chosen)+cap(c.rows)+cap(c.vacant))*4
}

// Free frees the arrays.
func (c *Chooser) Free() {
	c.cover.free()
	mem.Free(c.needed)
	for _, s := range [][]int32{c.misses, c.groups, c.chosen, c.rows, c.vacant} {
		mem.Free(s)
	}
	*c = Chooser{costs: c.costs, early: c.early}
}

// Counts returns the counters that the plan of a minibatch would have after Request with the given
// wants (`w`). The groups g are those of w.Edges.
func (c *Chooser) Counts(g *Groups, w Wants) trace.Counters {
	c.choose(g, w.Slot, w.Kept)
	early, sums := int64(len(w.Early)), int64(len(c.chosen))
	n := trace.Counters{Remote: int64(len(c.rows)) + early, Early: early, Sums: sums,
		Summed: int64(len(c.vacant))}
	n.IDBytes = n.Remote * IDBytes
	for _, group := range c.chosen {
		is := c.kindOf(g, group)
		n.IDBytes += int64(g.size(group) * is.member)
		n.RowBytes += int64(is.sum)
	}
	if len(c.costs) == 1 {
		n.RowBytes += n.Remote * int64(c.costs[0].row-IDBytes)
		return n
	}
	for _, k := range c.rows {
		n.RowBytes += int64(c.costs[g.kind[k]].row - IDBytes)
	}
	for _, v := range w.Early {
		n.RowBytes += int64(c.costs[c.early(v)].row - IDBytes)
	}
	return n
}
