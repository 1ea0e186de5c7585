package exchange

import (
	"iter"

	"halognn/src/compute"
	"halognn/src/mem"
)

// Sums of rows that change, of which gradients come back (Sums.Back). The gradient of a sum is that
// of each of its rows, which the owner knows from what it was asked for:
//
//	reader                                       owner
//	ids of rows, members of sums ──────────────> which are late
//	rows, sums                   <────────────── early and late
//	a gradient for each          ──────────────> for a row: of its sums in their order, its own last
//
// The gradient of a row is added in that order where no sums travel, too. So of the rows of a kind
// either all are added by their owners, and come as rows only where they are read themselves, or
// none are.

// listSums lists the sums that others ask for, rank by rank and kind by kind.
func (l *Late) listSums() error {
	p, x := l.on, l.on.on
	if len(l.rows) != x.ranks {
		l.rows = make([]int, x.ranks)
	}
	l.sums.clear()
	ids := l.asked
	for r, numbers := range p.wantNumbers {
		l.rows[r] = 0
		for kind := range x.kinds {
			l.rows[r] += int(x.countsOf(p.wanted, r, kind)[0])
		}
		if x.sums != nil {
			members := ids[l.rows[r]:numbers]
			for kind := range x.kinds {
				wanted := x.countsOf(p.wanted, r, kind)
				n := int(wanted[2])
				if err := x.listSums(&l.sums, r, kind, members[:n], int(wanted[1])); err != nil {
					return err
				}
				members = members[n:]
			}
		}
		ids = ids[numbers:]
	}
	return nil
}

// Members returns how many members the sums have that p asks of a rank.
func (x *Exchange) Members(p *Plan, rank int) (n int) {
	for kind := range x.kinds {
		if x.sums != nil {
			n += int(x.countsOf(p.asked, rank, kind)[2])
		}
	}
	return n
}

// AskBytes returns the bytes with which p asks for rows and sums, and is told which are late.
func (p *Plan) AskBytes() (bytes int64) {
	for r, numbers := range p.askNumbers {
		bytes += int64(numbers*IDBytes + (p.askRows[r]+7)/8)
	}
	return bytes
}

// sumsOf returns the first sum of a rank in l.sums, and how many it asks for.
func (l *Late) sumsOf(rank int) (first, n int) {
	for r := range rank {
		first += l.on.wantRows[r] - l.rows[r]
	}
	return first, l.on.wantRows[rank] - l.rows[rank]
}

// Sums returns how many sums a rank asks for.
func (l *Late) Sums(rank int) int { _, n := l.sumsOf(rank); return n }

// Members yields the members of the sums that a rank asks for, counted from this rank's first
// vertex, with the place of each, in the order of these.
func (l *Late) Members(rank int) iter.Seq2[int, int32] {
	return func(yield func(int, int32) bool) {
		x := l.on.on
		first, n := l.sumsOf(rank)
		for k := range n {
			for _, ref := range l.sums.of[l.sums.ptr[first+k]:l.sums.ptr[first+k+1]] {
				v := ref - x.base[ref.Table()] // see Exchange.base
				if !yield(l.rows[rank]+k, int32(uint32(v)-uint32(x.first))) {
					return
				}
			}
		}
	}
}

// addSums makes the early sums that a rank asks for, or the late ones. It returns their number.
func (l *Late) addSums(x *Exchange, to []byte, rank int, late bool) int {
	first, n := l.sumsOf(rank)
	bits, s := l.serve.ofRank(rank), &l.some
	s.clear()
	s.indices = mem.Grow(s.indices, int(l.sums.ptr[first+n]-l.sums.ptr[first]))[:0]
	s.ptr = mem.Grow(s.ptr, n+1)[:1]
	for k := range n {
		if isLate(bits, l.rows[rank]+k) == late {
			lo, hi := l.sums.ptr[first+k], l.sums.ptr[first+k+1]
			s.indices = append(s.indices, l.sums.indices[lo:hi]...)
			s.ptr = append(s.ptr, int64(len(s.indices)))
		}
	}
	sums, cols := len(s.ptr)-1, x.unit/floatBytes
	if sums > 0 && !x.planning {
		rows := compute.Rows{Cols: cols, Type: compute.Float32, Tables: x.tables, Of: l.sums.of,
			Mixed: x.mixed()}
		x.host.SegmentRows(compute.Matrix{Rows: sums, Cols: cols, Data: asFloats(to[:sums*x.unit])},
			compute.ReduceSum, compute.Segments{Indptr: s.ptr, Indices: s.indices}, nil, rows)
	}
	return sums
}

// chooseKinds chooses, for each kind, whether all groups travel as sums, by the bytes of both ways.
func (c *Chooser) chooseKinds(g *Groups) {
	kinds := len(c.costs)
	if len(c.kinds) != 2*kinds {
		c.kinds = make([]int64, 2*kinds)
	}
	clear(c.kinds)
	rows, sums := c.kinds[:kinds], c.kinds[kinds:]
	c.needed = mem.Grow(c.needed[:0], len(g.alone)) // 1 if in a group
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
