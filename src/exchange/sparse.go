package exchange

import (
	"fmt"

	"halognn/src/compute"
	"halognn/src/mem"
)

// Sparse rows differ in length, and every rank knows the lengths of all (Options.Ends). So they are
// planned like others, row for row, and then laid out: a reference becomes that of the row's first
// entry. Asker and owner come to the same numbers of entries, which no message tells.

// layEntries lays out the rows of a plan.
func (x *Exchange) layEntries(p *Plan) {
	p.starts = mem.Grow(p.starts[:0], len(p.askIDs))
	p.Rows.Lengths = mem.Grow(p.Rows.Lengths[:0], len(p.Rows.Of))
	place, end := 0, 0
	for r, n := range p.askNumbers {
		first, begin := x.offsets[r*x.perRank], end
		for range n {
			v := first + int64(p.askIDs[place])
			p.starts[place] = int64(end)
			end += int(x.ends[v+1] - x.ends[v])
			place++
		}
		p.askRows[r] = end - begin
	}
	p.received = mem.Grow(p.received[:0], end*x.unit)
	p.Rows.Tables[len(x.base)+1], p.AskedBytes = p.received, int64(len(p.received))
	for i, ref := range p.Rows.Of {
		part := int(p.Parts[i])
		if table := ref.Table(); table == part {
			v := x.offsets[part] + int64(ref.Row())
			p.Rows.Lengths[i] = int32(x.ends[v+1] - x.ends[v])
			p.Rows.Of[i] = compute.MakeRowRef(part, int(x.ends[v]-x.ends[x.offsets[part]]))
			continue
		}
		start, next := p.starts[ref.Row()], int64(end)
		if ref.Row()+1 < place {
			next = p.starts[ref.Row()+1]
		}
		p.Rows.Lengths[i] = int32(next - start)
		p.Rows.Of[i] = compute.MakeRowRef(len(x.base)+1, int(start))
	}
}

// sliceEntries is SliceRows.
func (x *Exchange) sliceEntries(p *Plan) error {
	total, ids := 0, p.wantIDs
	for r, n := range p.wantNumbers {
		p.wantRows[r] = 0
		for _, id := range ids[:n] {
			if uint32(id) >= uint32(x.rows) {
				return x.outside(fmt.Sprintf("rank %d wants row %d", r, id))
			}
			v := int64(x.first) + int64(id)
			p.wantRows[r] += int(x.ends[v+1] - x.ends[v])
		}
		total, ids = total+p.wantRows[r], ids[n:]
	}
	p.sent = mem.Grow(p.sent[:0], total*x.unit)
	to, unit := p.sent, int64(x.unit)
	for _, id := range p.wantIDs {
		v := int64(x.first) + int64(id)
		part := x.parts.Find(uint32(v))
		first := x.ends[x.offsets[part]]
		n := copy(to, x.tables[part][(x.ends[v]-first)*unit:(x.ends[v+1]-first)*unit])
		to = to[n:]
	}
	return nil
}

// checkSparse reports what sparse rows cannot have, and ends that are none.
func checkSparse(o *Options) error {
	n := o.Offsets[len(o.Offsets)-1]
	if o.Cache != nil || o.Buffer != nil || o.Sums != nil || len(o.Kinds) > 0 || o.Stored {
		return fmt.Errorf("sparse rows are neither cached nor added by owners")
	}
	if int64(len(o.Ends)) != n+1 {
		return fmt.Errorf("%d ends of sparse rows of %d vertices", len(o.Ends), n)
	}
	for v := range n {
		if d := o.Ends[v+1] - o.Ends[v]; d < 0 || d > int64(o.Cols) {
			return fmt.Errorf("the row of vertex %d has %d entries in %d columns; partition again", v, d,
				o.Cols)
		}
	}
	return nil
}
