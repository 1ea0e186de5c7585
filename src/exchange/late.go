package exchange

import (
	"halognn/src/comm"
	"halognn/src/mem"
)

// Learned rows have one size, and change with training. Rows that a step under way changes are sent
// late, after that step, all others early, so that each row travels once. For each row its reader
// sends something back to the owner, such as a gradient. So it is with sums (latesums.go), which
// are as long as a row, and late if one of their rows is.
//
//	           owner                                                reader
//	early      a bit for each row, and those whose bit is 0 ─────> in received, then where they belong
//	late       those whose bit is 1 ─────────────────────────────> in received, where they belong
//	StartBack  as many bytes for each row <─────────────────────── from received

// StartBack is the reverse of StartRows on x. Where a row of p has landed, its reader has put as
// many bytes to return, which travel to the row's owner. When the request is complete, Returned has
// what came for this rank's rows.
func (x *Exchange) StartBack(p *Plan) comm.Request {
	p.Collectives++
	return x.comm.StartAlltoallv(p.received, p.sent, p.askRows, p.wantRows, x.unit)
}

// Returned returns the bytes that StartBack has brought of a rank's readers, by place.
func (p *Plan) Returned(rank int) []byte {
	from := 0
	for _, n := range p.wantRows[:rank] {
		from += n
	}
	return p.sent[from*p.on.unit : (from+p.wantRows[rank])*p.on.unit]
}

// Landing returns the bytes that the row of the i-th vertex, or the sum in its place, was received
// in; nil if the rank has it. All rows have one size.
func (p *Plan) Landing(i int) []byte {
	ref, size := p.Rows.Of[i], p.on.unit
	if ref.Table() < len(p.on.base) {
		return nil
	}
	return p.Rows.Tables[ref.Table()][ref.Row()*size:][:size]
}

// Vectors returns how many rows and sums this rank sends, and how many it gets.
func (p *Plan) Vectors() (sent, got int64) {
	for r := range p.wantRows {
		sent, got = sent+int64(p.wantRows[r]), got+int64(p.askRows[r])
	}
	return sent, got
}

// ServedIDBytes returns the bytes of ids in which others have asked this rank.
func (p *Plan) ServedIDBytes() int64 { return int64(len(p.wantIDs)) * IDBytes }

// Late says which rows of a plan are sent late. The zero value is ready for Begin.
type Late struct {
	asked       []int32 // rows of this rank that others ask for, counted from its first vertex
	rows        []int   // [K] of each rank; its sums follow, and the members of these in asked
	sums        serving // that others ask for
	ids         []int32 // of the rows, those of a rank that are sent now
	some        serving // and of its sums
	serve, read halves  // what others ask of this rank, and it of them

	on   *Plan
	late []byte // rows, as they come
}

// halves are the early and the late rows that ranks ask of each other. A row's place is its number
// among the rows that one rank asks of another, after which come its sums.
type halves struct {
	bits        []byte // of each place: 1 if the row is late; of each rank whole bytes
	bytes       []int  // [K] of bits
	early, late []int  // [K] rows
}

// begin makes room for the given number of rows of each rank, and marks none as late.
func (h *halves) begin(rows []int) {
	if len(h.bytes) != len(rows) {
		h.bytes, h.early, h.late = make([]int, len(rows)), make([]int, len(rows)), make([]int, len(rows))
	}
	all := 0
	for r, n := range rows {
		h.bytes[r], h.early[r], h.late[r] = (n+7)/8, n, 0
		all += h.bytes[r]
	}
	h.bits = mem.Grow(h.bits[:0], all)
	clear(h.bits)
}

// ofRank returns the bits of the rows of a rank.
func (h *halves) ofRank(rank int) []byte {
	at := 0
	for _, n := range h.bytes[:rank] {
		at += n
	}
	return h.bits[at : at+h.bytes[rank]]
}

func isLate(bits []byte, place int) bool { return bits[place/8]>>(place%8)&1 != 0 }

// Begin begins with the rows that others ask for, when the request of StartAsk is complete: none is late.
func (l *Late) Begin(p *Plan) error {
	l.on = p
	l.asked = mem.Grow(l.asked[:0], len(p.wantIDs))
	copy(l.asked, p.wantIDs)
	l.serve.begin(p.wantRows)
	l.read.begin(p.askRows)
	return l.listSums()
}

// Asked returns the rows that a rank asks for itself, counted from this rank's first vertex, by
// place.
func (l *Late) Asked(rank int) []int32 {
	from := 0
	for _, n := range l.on.wantNumbers[:rank] {
		from += n
	}
	return l.asked[from : from+l.rows[rank]]
}

// Put marks the row, or the sum, that a rank asks for at the given place as late.
func (l *Late) Put(rank, place int) {
	bits := l.serve.ofRank(rank)
	if isLate(bits, place) {
		return
	}
	bits[place/8] |= 1 << (place % 8)
	l.serve.early[rank]--
	l.serve.late[rank]++
}

// Slice copies the early rows that others ask for, or the late ones, and makes such sums, so that
// they can be sent.
func (l *Late) Slice(x *Exchange, late bool) error {
	to := l.on.sent
	for r := range x.ranks {
		asked, bits, n := l.Asked(r), l.serve.ofRank(r), 0
		l.ids = mem.Grow(l.ids[:0], len(asked))
		for place, id := range asked {
			if isLate(bits, place) == late {
				l.ids[n] = id
				n++
			}
		}
		if err := x.sliceRows(to, l.ids[:n], r); err != nil {
			return err
		}
		to = to[n*x.unit:]
		to = to[l.addSums(x, to, r, late)*x.unit:]
	}
	return nil
}

// StartEarly sends the early rows, and which rows are late. When its request is complete, Spread
// moves the received rows to their places.
func (l *Late) StartEarly(x *Exchange) comm.Request {
	l.on.Collectives++
	return x.comm.StartAlltoallThen(l.serve.bits, l.read.bits, l.serve.bytes, l.read.bytes, 1,
		comm.Then{Send: l.on.sent, SendRows: l.serve.early, RowBytes: x.unit, Expect: l})
}

// Expect implements comm.Expecter.
func (l *Late) Expect() (recv []byte, rows []int, err error) {
	for r, n := range l.on.askRows {
		bits := l.read.ofRank(r)
		for place := range n {
			if isLate(bits, place) {
				l.read.early[r]--
				l.read.late[r]++
			}
		}
	}
	return l.on.received, l.read.early, nil
}

// Spread moves the early rows, which were received without gaps, to their places. It begins with
// the last one, because no place lies before the position at which its row was received.
func (l *Late) Spread(x *Exchange) {
	from, to, size := 0, 0, x.unit
	for r, n := range l.on.askRows {
		from, to = from+l.read.early[r], to+n
	}
	for r := x.ranks - 1; r >= 0; r-- {
		bits := l.read.ofRank(r)
		for place := l.on.askRows[r] - 1; place >= 0; place-- {
			if to--; !isLate(bits, place) {
				from--
				copy(l.on.received[to*size:][:size], l.on.received[from*size:])
			}
		}
	}
}

// StartLate sends the late rows. When its request is complete, Land moves the received rows to
// their places.
func (l *Late) StartLate(x *Exchange) comm.Request {
	l.on.Collectives++
	_, n := l.Rows()
	l.late = mem.Grow(l.late[:0], n*x.unit)
	return x.comm.StartAlltoallv(l.on.sent, l.late, l.serve.late, l.read.late, x.unit)
}

// Land moves the late rows to their places.
func (l *Late) Land(x *Exchange) {
	from, to, size := l.late, 0, x.unit
	for r, n := range l.on.askRows {
		bits := l.read.ofRank(r)
		for place := range n {
			if isLate(bits, place) {
				copy(l.on.received[to*size:][:size], from)
				from = from[size:]
			}
			to++
		}
	}
}

// Rows returns how many late rows this rank sends, and how many it gets.
func (l *Late) Rows() (sent, got int) {
	for r := range l.serve.late {
		sent, got = sent+l.serve.late[r], got+l.read.late[r]
	}
	return sent, got
}

// Bits returns the bytes that tell which rows are late: sent, and received.
func (l *Late) Bits() (sent, got int) { return len(l.serve.bits), len(l.read.bits) }

// Bytes returns the memory.
func (l *Late) Bytes() int64 {
	return 4*int64(cap(l.asked)+cap(l.ids)) + l.sums.bytes() + l.some.bytes() +
		int64(cap(l.late)+cap(l.serve.bits)+cap(l.read.bits))
}

// Free frees it.
func (l *Late) Free() {
	mem.Free(l.asked)
	mem.Free(l.ids)
	mem.Free(l.late)
	mem.Free(l.serve.bits)
	mem.Free(l.read.bits)
	l.sums.free()
	l.some.free()
	*l = Late{}
}
