package exchange

import (
	"fmt"
	"iter"

	"halognn/src/base/mem"
	"halognn/src/devices/compute"
	"halognn/src/topology/graph"
)

// This file has the sums of learned rows, for which readers send gradients back (Sums.Back). The
// gradient of a sum is also the gradient of each of its rows. The owner knows from the request
// which rows these are:
//
//	reader                                   owner
//	ids of rows, members of sums ──────────> a bit for each: late or not
//	rows, sums                   <────────── early and late
//	a gradient for each          ──────────> a row adds those of its sums, in order, then its own
//
// The gradients of a row must be added in that order even if no sums travel. So for each kind of
// rows, owners do one of two things. Either they send all groups as sums, and rows only if these
// are also read as rows, or they send no sums at all.

// list lists the rows and sums that others ask for, rank by rank. The rows of a rank come first,
// then its sums, kind by kind.
func (l *Late) list() error {
	p, x := l.on, l.on.on
	if len(l.rows) != x.ranks {
		l.rows, l.first = make([]int, x.ranks), make([]int, x.ranks+1)
	}
	l.all.clear()
	l.own = mem.Grow(l.own[:0], len(p.wantIDs))
	for i, id := range p.wantIDs {
		l.own[i] = max(id, ^id)
	}
	ids := p.wantIDs
	for r, numbers := range p.wantNumbers {
		l.rows[r] = 0
		for kind := range x.kinds {
			l.rows[r] += int(x.countsOf(p.wanted, r, kind)[0])
		}
		if err := x.listRows(&l.all, r, ids[:l.rows[r]]); err != nil {
			return err
		}
		members := ids[l.rows[r]:numbers]
		for kind := range x.kinds {
			if x.sums == nil {
				break
			}
			wanted := x.countsOf(p.wanted, r, kind)
			n := int(wanted[2])
			if err := x.listSums(&l.all, r, kind, members[:n], int(wanted[1])); err != nil {
				return err
			}
			members = members[n:]
		}
		l.first[r+1] = len(l.all.ptr) - 1
		ids = ids[numbers:]
	}
	return nil
}

// listRows appends rows that rank r wants, each as a sum of one row.
func (x *Exchange) listRows(s *serving, r int, ids []int32) error {
	at, before := len(s.of), len(s.ptr)
	s.of, s.indices = mem.Grow(s.of, at+len(ids)), mem.Grow(s.indices, at+len(ids))
	s.ptr = mem.Grow(s.ptr, before+len(ids))
	for k, id := range ids {
		if uint32(id) >= uint32(x.rows) {
			return x.outside(fmt.Sprintf("rank %d wants row %d", r, id))
		}
		v := uint32(x.first) + uint32(id)
		s.of[at+k] = x.base[x.parts.Find(v)] + compute.RowRef(v)
		s.indices[at+k] = int32(at + k)
		s.ptr[before+k] = int64(at + k + 1)
	}
	return nil
}

// AskedMembers returns the total number of members of the sums that p requests from a rank.
func (x *Exchange) AskedMembers(p *Plan, rank int) (n int) {
	for kind := range x.kinds {
		if x.sums != nil {
			n += int(x.countsOf(p.asked, rank, kind)[2])
		}
	}
	return n
}

// AskedRows yields the vertices whose rows p requests, before SliceRows. The exchange has no Node.
func (x *Exchange) AskedRows(p *Plan) iter.Seq[graph.VertexID] {
	return func(yield func(graph.VertexID) bool) {
		ids := p.askIDs
		for r, numbers := range p.askNumbers {
			for _, id := range ids[:x.rowsAsked(p.asked, r)] {
				if !yield(graph.VertexID(x.offsets[r*x.perRank] + int64(id))) {
					return
				}
			}
			ids = ids[numbers:]
		}
	}
}

// AskBytes returns the bytes that travel to request the rows and sums of p. It also counts the bits
// by which owners say which of these rows and sums are late.
func (p *Plan) AskBytes() (bytes int64) {
	for r, numbers := range p.askNumbers {
		bytes += int64(numbers*IDBytes + (p.askRows[r]+7)/8)
	}
	return bytes
}

// Sums returns how many sums a rank asks for.
func (l *Late) Sums(rank int) int { return l.first[rank+1] - l.first[rank] - l.rows[rank] }

// Members yields each member of the sums that a rank asks for, in the order of places. It yields
// the place of the sum, and the row number that the member has on this rank.
func (l *Late) Members(rank int) iter.Seq2[int, int32] {
	return func(yield func(int, int32) bool) {
		for k := l.first[rank] + l.rows[rank]; k < l.first[rank+1]; k++ {
			for _, own := range l.own[l.all.ptr[k]:l.all.ptr[k+1]] {
				if !yield(k-l.first[rank], own) {
					return
				}
			}
		}
	}
}

// chooseKinds chooses for each kind whether all its groups travel as sums or as rows, whichever
// takes fewer bytes.
func (c *Chooser) chooseKinds(g *Groups) {
	kinds := len(c.costs)
	if len(c.kinds) != 2*kinds {
		c.kinds = make([]int64, 2*kinds)
	}
	clear(c.kinds)
	rows, sums := c.kinds[:kinds], c.kinds[kinds:]
	c.needed = mem.Grow(c.needed[:0], len(g.alone)) // 1 if the row is in a group
	clear(c.needed)
	for i := range len(g.begin) - 1 {
		members, is := g.member[g.begin[i]:g.begin[i+1]], c.kindOf(g, int32(i))
		sums[int(g.part[i])%kinds] += int64(2*is.sum + len(members)*is.member)
		for _, k := range members {
			if c.needed[k] == 0 && g.alone[k] == 0 {
				rows[int(g.part[i])%kinds] += int64(2*is.row - IDBytes)
			}
			c.needed[k] = 1
		}
	}
	c.chosen = mem.Grow(c.chosen[:0], len(g.begin))[:0]
	for i := range len(g.begin) - 1 {
		if kind := int(g.part[i]) % kinds; sums[kind] < rows[kind] {
			c.chosen = append(c.chosen, int32(i))
		}
	}
	c.rows = mem.Grow(c.rows[:0], len(g.alone))[:0]
	c.vacant = mem.Grow(c.vacant[:0], len(g.alone))[:0]
	for k, alone := range g.alone {
		kind := 0
		if len(g.kind) > 0 {
			kind = int(g.kind[k])
		}
		if alone == 0 && c.needed[k] != 0 && sums[kind] < rows[kind] {
			c.vacant = append(c.vacant, int32(k))
		} else {
			c.rows = append(c.rows, int32(k))
		}
	}
}
