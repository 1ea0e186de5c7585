package exchange

import (
	"halognn/src/base/mem"
	"halognn/src/devices/compute"
	"halognn/src/ranks/comm"
	"halognn/src/topology/graph"
)

// Learned rows all have the same size, and training changes them. If a step that is still under way
// changes a row, the owner sends this row late, after that step. It sends all other rows early. So
// each row travels once. For each row its reader sends bytes back to the owner, such as a gradient.
// The same holds for sums (latesums.go): a sum is as long as a row, and is late if one of its rows
// is late.
//
//	           owner                                                reader
//	early      a bit for each row, and rows with bit 0 ────────> in received; Spread moves them
//	late       rows with bit 1 ────────────────────────────────> in received, in their places
//	StartBack  bytes returned for the row <─────────────────────── from received
//
// Where ranks of a node fetch as one, rows are fetched by other plans ("apart"): owners send only
// the bits and the sums. From the bits a reader learns which of its rows are early and which are
// late (Apart). It fetches each of the two lists by a plan of an exchange with Options.Node, and
// PutApart moves the fetched rows to their places. Each reader still requests its rows from the
// owner, because it returns its own bytes for each row.

// StartBack sends in the reverse direction of StartRows. In the place where a row of p has landed,
// the reader writes the bytes that it returns for the row, exactly as many bytes as the row has.
// StartBack sends them to the owner of the row. Once the request is complete, Returned has the
// bytes that came back for this rank's rows.
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

// ServedIDBytes returns the bytes of the ids by which other ranks have requested rows of this rank.
func (p *Plan) ServedIDBytes() int64 { return int64(len(p.wantIDs)) * IDBytes }

// Slot returns the index, among all rows and sums that p receives, of the row of the i-th vertex or
// of the sum that replaces this row. It returns -1 if the row need not be received. Slot may be
// called after Request.
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

// Received returns the bytes that p receives, as a matrix with one row for each received row and
// sum. The reader overwrites this matrix with what it sends back, and StartBack sends it.
func (p *Plan) Received() compute.Matrix { return p.numbers(p.received) }

// Returned returns the bytes that StartBack has received. They form a matrix with one row for each
// row and sum that other ranks have requested from this rank.
func (p *Plan) Returned() compute.Matrix { return p.numbers(p.sent) }

func (p *Plan) numbers(of []byte) compute.Matrix {
	return compute.Matrix{Rows: len(of) / p.on.unit, Cols: p.on.unit / floatBytes,
		Data: asFloats(of)}
}

// Late says which rows of a plan are sent late. The zero value is ready for Begin. Its lists are
// made while minibatches are prepared, so that a training step only has to copy rows and compute
// sums.
type Late struct {
	// Rows and members of sums that ranks ask for, as row indices of this rank.
	own []int32
	// [K+1] index of the first row or sum that each rank asks for, counted among all that ranks ask
	// for.
	first []int
	// [K] number of rows that each rank asks for; the sums that it asks for follow them.
	rows []int
	// Everything that ranks ask for, as segments: each row is a segment of one member, and each sum
	// a segment of several. The members are in the order of own.
	all  serving
	some [2]serving // [0]: the early rows and sums; [1]: the late ones
	// Rows and sums that other ranks request from this rank (serve), and those that this rank
	// requests from others (read).
	serve, read halves

	on     *Plan
	landed []int32 // places of the late rows that this rank receives
	late   []byte  // the late rows received

	apart bool // rows are fetched by other plans (see Apart)
	ids   [2][]graph.VertexID
	at    [2][]int32 // where the early and the late rows of ids land, as indices into received
}

// halves divide the rows and sums that ranks ask each other for into early and late ones. The place
// of a row or sum is its index among those that one rank asks another for. Rows come before sums.
type halves struct {
	// A bit for each place, 1 if the row is late; the bits of each rank begin at a new byte.
	bits        []byte
	bytes       []int // [K] number of bytes of bits
	apart       []int // [K] number of rows, from place 0 on, that other plans fetch
	early, late []int // [K] number of early and of late rows and sums that come by this plan
}

// begin makes room for the given number of rows of each rank, and marks none as late. The function
// apart returns how many rows of a rank, from place 0 on, are fetched by other plans.
func (h *halves) begin(rows []int, apart func(rank int) int) {
	if len(h.bytes) != len(rows) {
		for _, list := range []*[]int{&h.bytes, &h.apart, &h.early, &h.late} {
			*list = make([]int, len(rows))
		}
	}
	all := 0
	for r, n := range rows {
		h.apart[r] = apart(r)
		h.bytes[r], h.early[r], h.late[r] = (n+7)/8, n-h.apart[r], 0
		all += h.bytes[r]
	}
	h.bits = mem.Grow(h.bits[:0], all)
	clear(h.bits)
}

// ofRank returns the bits of the rows asked for between this rank and the given one.
func (h *halves) ofRank(rank int) []byte {
	at := 0
	for _, n := range h.bytes[:rank] {
		at += n
	}
	return h.bits[at : at+h.bytes[rank]]
}

func isLate(bits []byte, place int) bool { return bits[place/8]>>(place%8)&1 != 0 }

// Begin lists the rows and sums that others ask for in plan p, all as early. If apart is set, rows
// come by other plans, and only sums come by p. Call it once the request of StartAsk is complete.
func (l *Late) Begin(p *Plan, apart bool) error {
	l.on, l.apart = p, apart
	if err := l.list(); err != nil {
		return err
	}
	rows := func(of func(rank int) int) func(rank int) int {
		return func(rank int) int {
			if !apart {
				return 0
			}
			return of(rank)
		}
	}
	l.serve.begin(p.wantRows, rows(func(rank int) int { return l.rows[rank] }))
	l.read.begin(p.askRows, rows(func(rank int) int { return p.on.rowsAsked(p.asked, rank) }))
	return nil
}

// Asked returns the rows that a rank asks for (without the members of sums), in the order of
// places, as row numbers of this rank.
func (l *Late) Asked(rank int) []int32 {
	first := l.all.ptr[l.first[rank]]
	return l.own[first : first+int64(l.rows[rank])]
}

// Reads returns how many rows a rank asks for; a row in several sums counts several times.
func (l *Late) Reads(rank int) int {
	return int(l.all.ptr[l.first[rank+1]] - l.all.ptr[l.first[rank]])
}

// First returns the index of the first row or sum that a rank asks for, counted among all that
// others ask for.
func (l *Late) First(rank int) int { return l.first[rank] }

// Put marks as late the row or sum that a rank asks for at a place. Cut must be called after the
// last Put.
func (l *Late) Put(rank, place int) {
	bits := l.serve.ofRank(rank)
	if isLate(bits, place) {
		return
	}
	bits[place/8] |= 1 << (place % 8)
	if place >= l.serve.apart[rank] {
		l.serve.early[rank]--
		l.serve.late[rank]++
	}
}

// Cut lists the early and the late rows and sums that this plan sends.
func (l *Late) Cut() {
	l.some[0].clear()
	l.some[1].clear()
	for r := range l.rows {
		bits := l.serve.ofRank(r)
		for k := l.first[r] + l.serve.apart[r]; k < l.first[r+1]; k++ {
			s := l.half(isLate(bits, k-l.first[r]))
			lo, hi, n := l.all.ptr[k], l.all.ptr[k+1], len(s.ptr)
			at := len(s.indices)
			s.indices, s.ptr = mem.Grow(s.indices, at+int(hi-lo)), mem.Grow(s.ptr, n+1)
			copy(s.indices[at:], l.all.indices[lo:hi])
			s.ptr[n] = int64(len(s.indices))
		}
	}
}

// half returns the late rows and sums, or the early ones.
func (l *Late) half(late bool) *serving {
	if late {
		return &l.some[1]
	}
	return &l.some[0]
}

// Vectors returns how many rows and sums are late, or how many are early.
func (l *Late) Vectors(late bool) int { return len(l.half(late).ptr) - 1 }

// The method Make copies rows and computes sums, to be sent. It makes the late ones if `late` is
// true, otherwise the early ones, and of these only numbers lo to hi-1. Several goroutines may call
// it at the same time for different numbers.
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

// Expect implements comm.Expecter: once the bits have arrived, it makes room for the early rows.
func (l *Late) Expect() (recv []byte, rows []int, err error) {
	for r, n := range l.on.askRows {
		bits := l.read.ofRank(r)
		for place := l.read.apart[r]; place < n; place++ {
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
// also lists the places of the late rows, and the rows that other plans must fetch (Apart).
func (l *Late) Spread(x *Exchange) {
	l.listApart(x)
	from, to, size, late := 0, 0, x.unit, 0
	for r, n := range l.on.askRows {
		from, to, late = from+l.read.early[r], to+n, late+l.read.late[r]
	}
	l.landed = mem.Grow(l.landed[:0], late)
	for r := x.ranks - 1; r >= 0; r-- {
		bits := l.read.ofRank(r)
		for place := l.on.askRows[r] - 1; place >= 0; place-- {
			if to--; place < l.read.apart[r] {
				continue
			}
			if isLate(bits, place) {
				late--
				l.landed[late] = int32(to)
				continue
			}
			from--
			copy(l.on.received[to*size:][:size], l.on.received[from*size:])
		}
	}
}

// listApart lists the rows that other plans must fetch.
func (l *Late) listApart(x *Exchange) {
	for half := range l.ids {
		l.ids[half], l.at[half] = l.ids[half][:0], l.at[half][:0]
	}
	word, to := 0, 0 // index of the rank's first id, and its first place
	for r, n := range l.read.apart {
		bits, first := l.read.ofRank(r), x.offsets[r*x.perRank]
		for place, id := range l.on.askIDs[word : word+n] {
			half := 0
			if isLate(bits, place) {
				half = 1
			}
			i := len(l.ids[half])
			l.ids[half], l.at[half] = mem.Grow(l.ids[half], i+1), mem.Grow(l.at[half], i+1)
			l.ids[half][i], l.at[half][i] = graph.VertexID(first+int64(id)), int32(to+place)
		}
		word, to = word+l.on.askNumbers[r], to+l.on.askRows[r]
	}
}

// Apart returns the vertices whose early (or late) rows must be fetched by another plan. Call it
// after Spread.
func (l *Late) Apart(late bool) []graph.VertexID {
	if late {
		return l.ids[1]
	}
	return l.ids[0]
}

// PutApart moves rows lo to hi-1 of the plan p, which has fetched the vertices of Apart, to their
// places. The argument x is the exchange of p. Several goroutines may move different rows.
func (l *Late) PutApart(x *Exchange, p *Plan, late bool, lo, hi int) {
	if x.planning {
		return
	}
	at, size := l.at[0], x.unit
	if late {
		at = l.at[1]
	}
	for i, ref := range p.Rows.Of[lo:hi] {
		copy(l.on.received[int(at[lo+i])*size:][:size],
			p.Rows.Tables[ref.Table()][ref.Row()*size:])
	}
}

// StartLate sends the late rows and sums. Once its request is complete, Land moves those received
// to their places.
func (l *Late) StartLate(x *Exchange) comm.Request {
	l.on.Collectives++
	l.late = mem.Grow(l.late[:0], len(l.landed)*x.unit)
	return x.comm.StartAlltoallv(l.on.sent, l.late, l.serve.late, l.read.late, x.unit)
}

// Landed returns how many late rows and sums are received.
func (l *Late) Landed() int { return len(l.landed) }

// Land moves the received late rows number lo to hi-1 to their places. Several goroutines may call
// it at a time, each for its own rows.
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

// Bits returns how many bytes this rank sends, and how many it receives, for the bits that say
// which rows are late.
func (l *Late) Bits() (sent, got int) { return len(l.serve.bits), len(l.read.bits) }

// Bytes returns the memory.
func (l *Late) Bytes() int64 {
	bytes := 4*int64(cap(l.own)+cap(l.landed)) + l.all.bytes() + l.some[0].bytes() +
		l.some[1].bytes() + int64(cap(l.late)+cap(l.serve.bits)+cap(l.read.bits))
	for half := range l.ids {
		bytes += 4 * int64(cap(l.ids[half])+cap(l.at[half]))
	}
	return bytes
}

// Free frees the memory.
func (l *Late) Free() {
	mem.Free(l.own)
	mem.Free(l.landed)
	mem.Free(l.late)
	mem.Free(l.serve.bits)
	mem.Free(l.read.bits)
	for half := range l.ids {
		mem.Free(l.ids[half])
		mem.Free(l.at[half])
	}
	l.all.free()
	l.some[0].free()
	l.some[1].free()
	*l = Late{}
}
