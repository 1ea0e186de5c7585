package exchange

import (
	"halognn/src/base/mem"
	"halognn/src/devices/compute"
	"halognn/src/ranks/comm"
)

// Learned rows all have the same size, and change with training. If a step that is still under way
// changes a row, this row is sent late, after that step. All others are sent early. So each row
// travels once. For each row its reader sends something back to the owner, such as a gradient. The
// same holds for sums (latesums.go): they are as long as a row, and late if one of their rows is.
//
//	           owner                                                reader
//	early      a bit for each row, and rows with bit 0 ────────> in received, then in their places
//	late       rows with bit 1 ────────────────────────────────> in received, in their places
//	StartBack  bytes returned for the row <─────────────────────── from received

// StartBack is the reverse of StartRows on x. Where a row of p has landed, the reader writes the
// bytes that it returns for the row, as many as a row has. StartBack sends them to the owner of the
// row. Once the request is complete, Returned has what came back for this rank's rows.
func (x *Exchange) StartBack(p *Plan) comm.Request {
	p.Collectives++
	return x.comm.StartAlltoallv(p.received, p.sent, p.askRows, p.wantRows, x.unit)
}

// Vectors returns how many rows and sums this rank sends, and how many it receives.
func (p *Plan) Vectors() (sent, got int64) {
	for r := range p.wantRows {
		sent, got = sent+int64(p.wantRows[r]), got+int64(p.askRows[r])
	}
	return sent, got
}

// ServedIDBytes returns the bytes of the ids that others have sent to this rank.
func (p *Plan) ServedIDBytes() int64 { return int64(len(p.wantIDs)) * IDBytes }

// Slot returns where p receives the row of the i-th vertex, or the sum that replaces this row, as
// an index into all that p receives. It returns -1 if the rank has the row. It may be called after
// Request.
func (x *Exchange) Slot(p *Plan, i int) int {
	ref := p.Rows.Of[i]
	table := ref.Table() - x.received
	switch {
	case ref.Table() < len(x.base):
		return -1
	case x.mixed():
		return p.spans[table][0] + ref.Row()
	}
	return ref.Row()
}

// Received returns what p receives as a matrix of numbers, one row for each row and sum. What the
// reader writes there travels back.
func (p *Plan) Received() compute.Matrix { return p.numbers(p.received) }

// Returned returns what StartBack has brought, one row for each row and sum that others ask for.
func (p *Plan) Returned() compute.Matrix { return p.numbers(p.sent) }

func (p *Plan) numbers(of []byte) compute.Matrix {
	return compute.Matrix{Rows: len(of) / p.on.unit, Cols: p.on.unit / floatBytes,
		Data: asFloats(of)}
}

// Late says which rows of a plan are sent late. The zero value is ready for Begin. Its lists are
// made while minibatches are prepared, so that a step only makes rows and sums.
type Late struct {
	own         []int32    // rows and members of sums that ranks ask for, from this rank's first on
	first       []int      // [K+1] index of each rank's first row, or sum, among all rows and sums
	rows        []int      // [K] number of rows that each rank asks for; its sums follow these
	all         serving    // rows, as sums of one member, and sums; members in the order of own
	some        [2]serving // the early rows and sums, and the late ones
	serve, read halves     // requests of others to this rank, and its requests to them

	on     *Plan
	landed []int32 // places of late rows to be received
	late   []byte  // the late rows received
}

// halves are the early and the late rows that ranks ask each other for. The place of a row is its
// index among the rows that one rank asks another for; sums come after rows.
type halves struct {
	bits        []byte // a bit for each place: 1 if the row is late; each rank begins a new byte
	bytes       []int  // [K] number of bytes of bits
	early, late []int  // [K] number of early, and of late rows
}

// begin makes room for the given number of rows of each rank, and marks none as late.
func (h *halves) begin(rows []int) {
	if len(h.bytes) != len(rows) {
		h.bytes, h.early, h.late = make([]int, len(rows)), make([]int, len(rows)),
			make([]int, len(rows))
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

// Begin takes over the rows that others ask for, once the request of StartAsk is complete. No row
// is late yet.
func (l *Late) Begin(p *Plan) error {
	l.on = p
	l.serve.begin(p.wantRows)
	l.read.begin(p.askRows)
	return l.list()
}

// Asked returns, by place, the rows that a rank asks for as rows, counted from this rank's first
// vertex.
func (l *Late) Asked(rank int) []int32 {
	first := l.all.ptr[l.first[rank]]
	return l.own[first : first+int64(l.rows[rank])]
}

// Reads returns how many rows a rank asks for; a row in several sums counts several times.
func (l *Late) Reads(rank int) int {
	return int(l.all.ptr[l.first[rank+1]] - l.all.ptr[l.first[rank]])
}

// First returns the index of a rank's first row, or sum, among all that others ask for.
func (l *Late) First(rank int) int { return l.first[rank] }

// Put marks the row, or sum, at a place of a rank as late. Cut must follow.
func (l *Late) Put(rank, place int) {
	bits := l.serve.ofRank(rank)
	if isLate(bits, place) {
		return
	}
	bits[place/8] |= 1 << (place % 8)
	l.serve.early[rank]--
	l.serve.late[rank]++
}

// Cut lists the early and the late rows and sums.
func (l *Late) Cut() {
	l.some[0].clear()
	l.some[1].clear()
	for r := range l.rows {
		bits := l.serve.ofRank(r)
		for k := l.first[r]; k < l.first[r+1]; k++ {
			s := l.half(isLate(bits, k-l.first[r]))
			lo, hi, n := l.all.ptr[k], l.all.ptr[k+1], len(s.ptr)
			at := len(s.indices)
			s.indices, s.ptr = mem.Grow(s.indices, at+int(hi-lo)), mem.Grow(s.ptr, n+1)
			copy(s.indices[at:], l.all.indices[lo:hi])
			s.ptr[n] = int64(len(s.indices))
		}
	}
}

// half returns the early or the late rows and sums.
func (l *Late) half(late bool) *serving {
	if late {
		return &l.some[1]
	}
	return &l.some[0]
}

// Vectors returns how many rows and sums are early, or late.
func (l *Late) Vectors(late bool) int { return len(l.half(late).ptr) - 1 }

// Make makes the early or late rows and sums lo to hi-1, so that they can be sent. Several
// goroutines may make different ones.
func (l *Late) Make(x *Exchange, late bool, lo, hi int) {
	if lo == hi || x.planning {
		return
	}
	s, cols := l.half(late), x.unit/floatBytes
	x.host.SegmentRows(compute.Matrix{Rows: hi - lo, Cols: cols,
		Data: asFloats(l.on.sent[lo*x.unit : hi*x.unit])}, compute.ReduceSum,
		compute.Segments{Indptr: s.ptr[lo : hi+1], Indices: s.indices}, nil,
		compute.Rows{Cols: cols, Type: compute.Float32, Tables: x.tables, Of: l.all.of,
			Mixed: true})
}

// StartEarly sends the early rows, and the bits that say which rows are late. Once its request is
// complete, Spread moves the received rows to their places.
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

// Spread moves the early rows, which were received without gaps, to their places. It starts with
// the last row, because a row's place never comes before the position where it was received. It
// also lists the places of the late rows.
func (l *Late) Spread(x *Exchange) {
	from, to, size, late := 0, 0, x.unit, 0
	for r, n := range l.on.askRows {
		from, to, late = from+l.read.early[r], to+n, late+l.read.late[r]
	}
	l.landed = mem.Grow(l.landed[:0], late)
	for r := x.ranks - 1; r >= 0; r-- {
		bits := l.read.ofRank(r)
		for place := l.on.askRows[r] - 1; place >= 0; place-- {
			if to--; isLate(bits, place) {
				late--
				l.landed[late] = int32(to)
				continue
			}
			from--
			copy(l.on.received[to*size:][:size], l.on.received[from*size:])
		}
	}
}

// StartLate sends the late rows. Once its request is complete, Land moves the received rows to
// their places.
func (l *Late) StartLate(x *Exchange) comm.Request {
	l.on.Collectives++
	l.late = mem.Grow(l.late[:0], len(l.landed)*x.unit)
	return x.comm.StartAlltoallv(l.on.sent, l.late, l.serve.late, l.read.late, x.unit)
}

// Landed returns how many late rows and sums are received.
func (l *Late) Landed() int { return len(l.landed) }

// Land moves the received late rows lo to hi-1 to their places. Several goroutines may move
// different rows.
func (l *Late) Land(x *Exchange, lo, hi int) {
	size := x.unit
	for k, to := range l.landed[lo:hi] {
		copy(l.on.received[int(to)*size:][:size], l.late[(lo+k)*size:])
	}
}

// Rows returns how many late rows this rank sends, and how many it receives.
func (l *Late) Rows() (sent, got int) {
	for r := range l.serve.late {
		sent, got = sent+l.serve.late[r], got+l.read.late[r]
	}
	return sent, got
}

// Bits returns the bytes of the bits that say which rows are late: sent, and received.
func (l *Late) Bits() (sent, got int) { return len(l.serve.bits), len(l.read.bits) }

// Bytes returns the memory.
func (l *Late) Bytes() int64 {
	return 4*int64(cap(l.own)+cap(l.landed)) + l.all.bytes() + l.some[0].bytes() +
		l.some[1].bytes() + int64(cap(l.late)+cap(l.serve.bits)+cap(l.read.bits))
}

// Free frees the memory.
func (l *Late) Free() {
	mem.Free(l.own)
	mem.Free(l.landed)
	mem.Free(l.late)
	mem.Free(l.serve.bits)
	mem.Free(l.read.bits)
	l.all.free()
	l.some[0].free()
	l.some[1].free()
	*l = Late{}
}
