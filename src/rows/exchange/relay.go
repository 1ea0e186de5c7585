package exchange

import (
	"fmt"

	"halognn/src/base/mem"
	"halognn/src/devices/compute"
	"halognn/src/ranks/comm"
	"halognn/src/topology/graph"
)

// If several ranks of a group read the same row, only one of them fetches it. For this, the rows
// that the group reads are divided into shares, one share for each rank. Each rank plans and
// fetches the rows of its share. Then it passes each row on to the ranks of the group that read it.
//
//	ids planned       [ own 0 .. n | read only by others ]
//	Relay             Of = [ own 0 .. n | passed on by others ]     rows passed on: Tables[P+2]
//	Plan ... StartRows
//	Collect           rows of the share that others read, by rank   ──┐ group
//	StartRelay        rows that others pass on, in Tables[P+2]  <─────┘
//
// With Options.Sums, Share comes before Request: a sum may replace those neighbours of a
// destination that are in this rank's share, but rows that others read must come as rows. All
// neighbours of a sum are in one part, and so in the share of one rank.
//
// Keep overwrites rows in Options.Buffer, while another rank may still have to read a row that is
// passed on from there. So Collect copies all rows that a minibatch reads from the buffer, also
// those that only this rank reads. The copies lie in Tables[P+3].

// relayed holds the rows that a plan passes on to other ranks of the group, and those that they
// pass on to it.
type relayed struct {
	found []compute.RowRef // [planned] where the planned rows lie; empty without Relay
	// Sums that edges read; their positions follow the positions of own rows and of rows passed on.
	sums  []compute.RowRef
	own   int      // number of planned rows that the rank itself reads
	parts []uint16 // [own + passed on] set by Share: the part of each row; else empty
	read  []int32  // set by Share: indices of the planned rows that others read
	// [W, rowBytes] The first rows are those that others read. Then come the rank's own rows of the
	// buffer.
	sent []byte
	got  []byte // [R, rowBytes] rows that other ranks pass on
}

// Share is called before Request if owners send sums. It tells Request the arguments of later
// calls: the number of vertices (`own`) and the list of vertices (`ids`) that Relay will get, and
// the positions (`at`) that Collect will get. Share returns the part of each of the rank's own
// vertices and then of each vertex in the list. The result is valid until the next call.
func (x *Exchange) Share(p *Plan, own int, ids []graph.VertexID, at []int32) []uint16 {
	r := &p.relayed
	r.own, r.read = own, at
	r.parts = mem.Grow(r.parts[:0], own+len(ids))
	copy(r.parts, p.Parts[:own])
	for k, v := range ids {
		r.parts[own+k] = 0 // Relay will refuse this vertex
		if uint32(v) < x.parts.Vertices() {
			r.parts[own+k] = uint16(x.parts.Find(uint32(v)))
		}
	}
	return r.parts
}

// Relay turns the plan p into a plan for the vertices that this rank itself reads. It is called
// after Plan or Request. The vertices are the first ones of p (their number is `count`), followed
// by a list of vertices (`ids`) whose rows other ranks of the group pass on. If a vertex of the
// list is not in the graph, the error wraps graph.ErrVertexRange.
func (x *Exchange) Relay(p *Plan, count int, ids []graph.VertexID) error {
	r := &p.relayed
	r.own = count
	r.found = mem.Grow(r.found[:0], len(p.Rows.Of))
	copy(r.found, p.Rows.Of)
	r.got = mem.Grow(r.got[:0], len(ids)*x.rowBytesOf(0))
	table := x.received + 1
	p.Rows.Tables[table] = r.got
	p.Rows.Of = mem.Grow(p.Rows.Of[:count], count+len(ids))
	p.Parts = mem.Grow(p.Parts[:count], count+len(ids))
	for k, v := range ids {
		if uint32(v) >= x.parts.Vertices() {
			return fmt.Errorf("exchange: vertex %d that is passed on is %d: %w (the graph has %d "+
				"vertices)", k, v, graph.ErrVertexRange, x.parts.Vertices())
		}
		p.Rows.Of[count+k] = compute.MakeRowRef(table, k)
		p.Parts[count+k] = uint16(x.parts.Find(uint32(v)))
	}
	p.Rows.Of = append(mem.Grow(p.Rows.Of, len(p.Rows.Of)+len(r.sums))[:len(p.Rows.Of)], r.sums...)
	return nil
}

// Collect copies the rows that other ranks read. The positions of these rows among all planned
// vertices are given (`at`). Call it once the request of StartRows is complete. If there is a
// Buffer, it also copies the rows that this rank reads from the Buffer, so that Keep may overwrite
// them there.
func (x *Exchange) Collect(p *Plan, at []int32) {
	r, buffer := &p.relayed, len(x.base)
	rows := len(at)
	if x.changes {
		for _, ref := range r.found[:r.own] {
			if ref.Table() == buffer {
				rows++
			}
		}
	}
	r.sent = mem.Grow(r.sent[:0], rows*x.rowBytesOf(0))
	collected := x.received + 2 // table of collected rows, as layTables numbers it
	p.Rows.Tables[collected] = r.sent
	for k, i := range at {
		x.copyRow(p, k, r.found[i])
		if x.changes && int(i) < r.own && r.found[i].Table() == buffer {
			p.Rows.Of[i] = compute.MakeRowRef(collected, k)
		}
	}
	if !x.changes {
		return
	}
	next := len(at)
	for i, ref := range p.Rows.Of[:r.own] {
		if ref.Table() == buffer {
			x.copyRow(p, next, ref)
			p.Rows.Of[i] = compute.MakeRowRef(collected, next)
			next++
		}
	}
}

func (x *Exchange) copyRow(p *Plan, k int, from compute.RowRef) {
	if x.planning {
		return
	}
	size := x.kinds[0].RowBytes() // if rows are passed on, all have one kind
	copy(p.relayed.sent[k*size:(k+1)*size], p.Rows.Tables[from.Table()][from.Row()*size:])
}

// StartRelay sends wanted[r] of the collected rows to each rank r of the group, and receives
// count[r] rows from it. Rows are sent and received in rank order. The rows for one rank are in the
// order of the positions passed to Collect. The rows from one rank are in the order of the ids
// passed to Relay. Once its request is complete, all of p.Rows may be read. All ranks of the group
// start the same plans in the same order.
func (x *Exchange) StartRelay(group comm.Comm, p *Plan, wanted, count []int) comm.Request {
	rows := 0
	for _, n := range wanted {
		rows += n
	}
	size := x.rowBytesOf(0)
	return group.StartAlltoallv(p.relayed.sent[:rows*size], p.relayed.got, wanted, count, size)
}

func (r *relayed) bytes() int64 {
	return int64(cap(r.found)+cap(r.sums))*8 + int64(cap(r.parts))*2 + int64(cap(r.sent)+cap(r.got))
}

// free frees the arrays.
func (r *relayed) free() {
	mem.Free(r.found)
	mem.Free(r.sums)
	mem.Free(r.parts)
	mem.Free(r.sent)
	mem.Free(r.got)
}
