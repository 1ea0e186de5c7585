package exchange

import (
	"errors"
	"fmt"

	"halognn/src/base/mem"
	"halognn/src/devices/compute"
	"halognn/src/topology/graph"
)

// Sparse rows differ in length, but every rank knows the length of each (Options.Ends). They are
// first planned like other rows. Then layEntries replaces the reference to each row by a reference
// to its first entry. The rank that asks and the owner both know the numbers of entries, so no
// message carries them.

// measure sets the number of entries of each vertex's row.
func (x *Exchange) measure(p *Plan, ids []graph.VertexID) {
	p.Rows.Lengths = mem.Grow(p.Rows.Lengths[:0], len(ids))
	for i, v := range ids {
		p.Rows.Lengths[i] = int32(x.ends[v+1] - x.ends[v])
	}
}

// layEntries makes the references in a plan refer to the first entry of each row. References to
// cached rows do so already.
func (x *Exchange) layEntries(p *Plan) {
	p.starts = mem.Grow(p.starts[:0], len(p.askIDs))
	place, end := 0, 0
	for _, r := range x.owners() {
		n, first, begin := p.askNumbers[r], x.offsets[r*x.perRank], end
		for range n {
			v := first + int64(p.askIDs[place])
			p.starts[place] = int64(end)
			end += int(x.ends[v+1] - x.ends[v])
			place++
		}
		p.askRows[r] = end - begin
	}
	p.received = mem.Grow(p.received[:0], end*x.unit)
	p.Rows.Tables[x.received], p.AskedBytes = p.received, int64(len(p.received))
	for i, ref := range p.Rows.Of {
		switch part := int(p.Parts[i]); ref.Table() {
		case part:
			v := x.offsets[part] + int64(ref.Row())
			p.Rows.Of[i] = compute.MakeRowRef(part, int(x.ends[v]-x.ends[x.offsets[part]]))
		case x.received:
			p.Rows.Of[i] = compute.MakeRowRef(x.received, int(p.starts[ref.Row()]))
		}
	}
}

// sliceEntries is SliceRows for sparse rows.
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

// checkSparse returns an error for options that do not work with sparse rows, and for impossible
// row ends.
func checkSparse(o *Options) error {
	n := o.Offsets[len(o.Offsets)-1]
	if _, shared := o.Cache.(SharedCache); shared || o.Buffer != nil || o.Stored {
		return errors.New("sparse rows do not work with a SharedCache or a Buffer; give a Cache")
	}
	if o.Sums != nil || len(o.Kinds) > 1 {
		return errors.New("sparse rows must be of one kind, without Sums")
	}
	if int64(len(o.Ends)) != n+1 {
		return fmt.Errorf("sparse rows have %d ends for %d vertices, but need one end more than "+
			"vertices", len(o.Ends), n)
	}
	for v := range n {
		if d := o.Ends[v+1] - o.Ends[v]; d < 0 || d > int64(o.Kinds[0].Cols) {
			return fmt.Errorf("the row of vertex %d has %d entries in %d columns; partition again",
				v, d, o.Kinds[0].Cols)
		}
	}
	return nil
}
