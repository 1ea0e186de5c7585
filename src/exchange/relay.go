package exchange

import (
	"fmt"

	"halognn/src/comm"
	"halognn/src/compute"
	"halognn/src/graph"
	"halognn/src/mem"
)

// Where the ranks of a group each find a share of the rows that all of them read, no row is fetched
// twice for the group: a rank plans the rows of its share, whoever reads them, and passes them on.
//
//	ids planned       [ own 0 .. n | that others alone read ]
//	Relay             Of = [ own 0 .. n | passed on by others ]     the latter in Tables[P+2]
//	Plan ... StartRows
//	Collect           rows of the share that others read, by rank   ──┐ group
//	StartRelay        rows that others pass on, in Tables[P+2]  <─────┘

// relayed is what a plan passes on and is passed.
type relayed struct {
	refs []compute.RowRef // [W] rows that others read
	sent []byte           // [W, rowBytes]
	got  []byte           // [R, rowBytes]
}

// Relay makes a plan, after Plan, that of the first own vertices planned, followed by ids, whose
// rows other ranks of a group pass on. at are the positions, among all vertices planned, of those
// whose rows they want, which must not change before Collect: there is no Options.Buffer. A vertex
// that the graph does not have is graph.ErrVertexRange.
func (x *Exchange) Relay(p *Plan, own int, at []int32, ids []graph.VertexID) error {
	r := &p.relayed
	r.refs = mem.Grow(r.refs, len(at))
	for k, i := range at {
		r.refs[k] = p.Rows.Of[i]
	}
	r.got = mem.Grow(r.got[:0], len(ids)*x.rowBytes)
	table := len(x.base) + 2
	p.Rows.Tables = append(p.Rows.Tables[:table], r.got)
	p.Rows.Of = mem.Grow(p.Rows.Of[:own], own+len(ids))
	p.Parts = mem.Grow(p.Parts[:own], own+len(ids))
	for k, v := range ids {
		if uint32(v) >= x.parts.Vertices() {
			return fmt.Errorf("exchange: vertex %d that is passed on is %d: %w (the graph has %d "+
				"vertices)", k, v, graph.ErrVertexRange, x.parts.Vertices())
		}
		p.Rows.Of[own+k] = compute.MakeRowRef(table, k)
		p.Parts[own+k] = uint16(x.parts.Find(uint32(v)))
	}
	return nil
}

// Collect copies the rows that others read, when the request of StartRows is complete.
func (x *Exchange) Collect(p *Plan) {
	r := &p.relayed
	r.sent = mem.Grow(r.sent[:0], len(r.refs)*x.rowBytes)
	for k, ref := range r.refs {
		copy(r.sent[k*x.rowBytes:(k+1)*x.rowBytes], p.Rows.Tables[ref.Table()][ref.Row()*x.rowBytes:])
	}
}

// StartRelay sends each rank of the group wanted of the collected rows, and receives count from it:
// both by rank, in the orders of at and of ids. When its request is complete, all of p.Rows may be
// read. All ranks of the group start the same plans in the same order.
func (x *Exchange) StartRelay(group comm.Comm, p *Plan, wanted, count []int) comm.Request {
	return group.StartAlltoallv(p.relayed.sent, p.relayed.got, wanted, count, x.rowBytes)
}

// bytes returns the memory of the arrays.
func (r *relayed) bytes() int64 { return int64(cap(r.refs))*8 + int64(cap(r.sent)+cap(r.got)) }

// free frees the arrays.
func (r *relayed) free() {
	mem.Free(r.refs)
	mem.Free(r.sent)
	mem.Free(r.got)
}
