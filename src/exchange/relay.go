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
//
// With Options.Sums, Share comes before Request: a sum may stand for the neighbours of a destination
// that the rank finds itself, and rows that others read come as rows. A group has one part, and so
// one finder, which makes it whole or absent.
//
// Options.Buffer changes as soon as Keep has run, and what is passed on is read by two ranks at
// different times. So Collect takes all that a minibatch reads of the buffer out of it: the own rows
// as well, which then lie in Tables[P+3].

// relayed is what a plan passes on and is passed.
type relayed struct {
	found []compute.RowRef // [planned] where the rows lie that were planned; empty without Relay
	sums  []compute.RowRef // those that edges read beyond own rows and those passed on
	own   int              // of them, those that the rank itself reads
	parts []uint16         // [own + passed on] of Share, empty without: the part of each row
	read  []int32          // of Share: places among those planned of rows that others read
	sent  []byte           // [W, rowBytes] what others read, then own rows of the buffer
	got   []byte           // [R, rowBytes]
}

// Share tells the next Request in advance what Relay will be given (own and ids) and Collect (at).
// It returns the part of each own vertex and then of each of ids; the next call overwrites them.
func (x *Exchange) Share(p *Plan, own int, ids []graph.VertexID, at []int32) []uint16 {
	r := &p.relayed
	r.own, r.read = own, at
	r.parts = mem.Grow(r.parts[:0], own+len(ids))
	copy(r.parts, p.Parts[:own])
	for k, v := range ids {
		r.parts[own+k] = 0 // of one that Relay refuses
		if uint32(v) < x.parts.Vertices() {
			r.parts[own+k] = uint16(x.parts.Find(uint32(v)))
		}
	}
	return r.parts
}

// Relay makes a plan, after Plan or Request, that of the first own vertices planned, followed by
// ids, whose rows other ranks of a group pass on. A vertex that the graph does not have is
// graph.ErrVertexRange.
func (x *Exchange) Relay(p *Plan, own int, ids []graph.VertexID) error {
	r := &p.relayed
	r.own = own
	r.found = mem.Grow(r.found[:0], len(p.Rows.Of))
	copy(r.found, p.Rows.Of)
	r.got = mem.Grow(r.got[:0], len(ids)*x.rowBytesOf(0))
	table := x.received + 1
	p.Rows.Tables[table] = r.got
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
	p.Rows.Of = append(mem.Grow(p.Rows.Of, len(p.Rows.Of)+len(r.sums))[:len(p.Rows.Of)], r.sums...)
	return nil
}

// Collect copies the rows that other ranks read, at the positions at among all planned vertices.
// Call it when the request of StartRows is complete. With a Buffer it also copies the rows that
// this rank reads there, so that Keep may overwrite them.
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
	collected := x.received + 2 // see layTables
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
	size := x.kinds[0].RowBytes() // there is one kind
	copy(p.relayed.sent[k*size:(k+1)*size], p.Rows.Tables[from.Table()][from.Row()*size:])
}

// StartRelay sends each rank of the group wanted of the collected rows, and receives count from it:
// both by rank, in the orders of at and of ids. When its request is complete, all of p.Rows may be
// read. All ranks of the group start the same plans in the same order.
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
