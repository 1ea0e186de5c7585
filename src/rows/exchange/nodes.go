package exchange

import (
	"fmt"

	"halognn/src/base/mem"
	"halognn/src/ranks/comm"
)

// Ranks of a node that fetch as one. For each vertex of another node, one rank of this node is the
// buyer: the one whose place in the node is that of the vertex's owner in its own node. The buyer
// asks the owner once for a row that any rank of the node wants, and passes it on
// (docs/design/35-nodes.md).
//
//	           rank of the node             buyer                              owner
//	StartWants ids, by buyer     ──node──>  of all L ranks
//	Unite                                   each row once, owner by owner
//	StartAsk                                ids                    ──all──>
//	StartRows                               rows                   <──all──
//	PassOn                                  as each rank wants them
//	StartPass rows, where they  <──node──  and for whom each was fetched
//	           were to land
//
// Between Unite and the end of StartPass a plan's messages are those of the buyer; the requests of
// the rank itself wait in purchase.own. If rows of ranks of the own node cannot be read where they
// lie, each rank asks for them alone. Each also asks for its sums alone, because two ranks never
// want the same sum.

// Node says which ranks fetch as one. Either all ranks must set it, or none.
type Node struct {
	Comm comm.Comm // for the ranks of this node, in rank order; used only by exchanges
	Of   []int     // [K] the number of each rank's node
}

// check returns an error unless Comm is the node of rank r of k.
func (n *Node) check(r, k int) error {
	if len(n.Of) != k {
		return fmt.Errorf("nodes are given for %d ranks, but there are %d", len(n.Of), k)
	}
	place, ranks := n.places(r)
	if n.Comm.Rank() != place[r] || n.Comm.Size() != ranks {
		return fmt.Errorf("rank %d is rank %d of %d on its node, and must be %d of %d", r,
			n.Comm.Rank(), n.Comm.Size(), place[r], ranks)
	}
	return nil
}

// places returns the place of each rank on its node, and the number of ranks on the node of rank r.
func (n *Node) places(r int) (place []int, ranks int) {
	next := map[int]int{}
	for _, node := range n.Of {
		place = append(place, next[node])
		next[node]++
	}
	return place, next[n.Of[r]]
}

// buying is the state of a rank whose node fetches as one.
type buying struct {
	comm  comm.Comm
	self  int    // place of this rank in the node
	buyer []int  // [K] place of the rank that asks each owner on behalf of this rank
	near  []bool // [K] whether each rank is on this node
	// Owners by buyer: those of buyer b are order[first[b]:first[b+1]]. Owners on other nodes come
	// before those on this node, for which each rank is its own buyer.
	order, first []int
	far          int // number of owners on other nodes for which this rank is the buyer
	// [K] 1 for ranks that this rank asks, and for ranks that ask it; 0 for ranks without messages
	// to or from it.
	asks, hears []int
	finders     chan *finder // finders that no plan uses at present
}

func newBuying(n *Node, r int, sums bool) *buying {
	k := len(n.Of)
	place, ranks := n.places(r)
	b := &buying{comm: n.Comm, self: place[r], buyer: make([]int, k),
		first: make([]int, 1, ranks+1), asks: make([]int, k), hears: make([]int, k),
		finders: make(chan *finder, 64)}
	of := map[int]int{} // ranks of each node
	for _, node := range n.Of {
		of[node]++
	}
	for q, node := range n.Of {
		near := node == n.Of[r]
		b.near = append(b.near, near)
		if b.buyer[q] = place[q] % ranks; near {
			b.buyer[q] = b.self
		}
		if near || sums || b.buyer[q] == b.self {
			b.asks[q] = 1
		}
		if near || sums || place[r]%of[node] == place[q] {
			b.hears[q] = 1
		}
	}
	for buyer := range ranks {
		for _, near := range []bool{false, true} {
			for q := range k {
				if b.buyer[q] == buyer && b.near[q] == near {
					b.order = append(b.order, q)
				}
			}
			if buyer == b.self && !near {
				b.far = len(b.order) - b.first[buyer]
			}
		}
		b.first = append(b.first, len(b.order))
	}
	return b
}

// ranks returns the number of ranks on the node.
func (b *buying) ranks() int { return len(b.first) - 1 }

// told returns how many row counts rank m of the node sends to this rank.
func (b *buying) told(m int) int {
	if m == b.self {
		return b.first[m+1] - b.first[m]
	}
	return b.far
}

// message is a request to owners, as in Plan.
type message struct {
	asked               []int64
	askIDs              []int32
	askNumbers, askRows []int
	received            []byte
}

func (m *message) swap(p *Plan) {
	m.asked, p.asked = p.asked, m.asked
	m.askIDs, p.askIDs = p.askIDs, m.askIDs
	m.askNumbers, p.askNumbers = p.askNumbers, m.askNumbers
	m.askRows, p.askRows = p.askRows, m.askRows
	m.received, p.received = p.received, m.received
}

// purchase is what a plan wants from buyers, and what its rank buys.
type purchase struct {
	own   message // this rank's own; while it is in the plan, the buyer's
	early []int32 // places in own.askIDs of early rows

	// [L] for each rank of the node: number of counts sent and received, of ids sent and received,
	// and units of rows received and sent.
	toldTo, toldBy, wants, wanted, comes, passes []int
	// Rows wanted from each owner: sent, by buyer; received, by rank.
	counts, told []int64
	// Ids that ranks want, by rank; then their indices in the union.
	ids []int32
	// [U] where each row of the union is received, in units.
	start []int64
	// [U] units of each row; start and size are empty if all rows have one size.
	size []int32
	// Rows, in the order in which ranks want them.
	sent []byte

	// A bit for each wanted row: 1 if it was fetched for the rank that wants it. Each rank begins a
	// new byte.
	firsts, fetched        []byte
	firstBytes, fetchBytes []int

	out, in []int64 // counts to the ranks that are asked, and from the ranks that ask
}

// Buys reports whether ranks of a node fetch as one: StartWants and Unite then come before
// StartAsk, and PassOn and StartPass after StartRows.
func (x *Exchange) Buys() bool { return x.node != nil }

// owners returns the owners in the order in which their rows are listed and land: by buyer.
func (x *Exchange) owners() []int {
	if x.node != nil {
		return x.node.order
	}
	return x.byRank
}

// rowsAsked returns how many rows a plan requests from a rank.
func (x *Exchange) rowsAsked(asked []int64, rank int) (rows int) {
	for kind := range x.kinds {
		rows += int(x.countsOf(asked, rank, kind)[0])
	}
	return rows
}

// sumUnits returns the units that the sums requested from a rank take.
func (x *Exchange) sumUnits(asked []int64, rank int) (units int) {
	if x.sums == nil {
		return 0
	}
	for kind, of := range x.kinds {
		units += int(x.countsOf(asked, rank, kind)[1]) * x.sumRows(kind) * (of.RowBytes() / x.unit)
	}
	return units
}

// plain reports whether a rank receives only rows, all of one size.
func (x *Exchange) plain() bool { return x.sums == nil && x.ends == nil && !x.mixed() }

// StartWants sends the buyers of the node the rows that p wants. All ranks of the node start the
// same plans in the same order.
func (x *Exchange) StartWants(p *Plan) comm.Request {
	b, w := x.node, &p.bought
	p.Collectives++
	p.on = x
	ranks := b.ranks()
	if len(w.wants) != ranks {
		for _, list := range []*[]int{&w.toldTo, &w.toldBy, &w.wants, &w.wanted, &w.comes,
			&w.passes, &w.firstBytes, &w.fetchBytes} {
			*list = make([]int, ranks)
		}
	}
	w.counts = mem.Grow(w.counts[:0], len(b.order))
	told, rows := 0, 0
	for m := range ranks {
		w.wants[m], w.comes[m] = 0, 0
		for k := b.first[m]; k < b.first[m+1]; k++ {
			owner := b.order[k]
			n := x.rowsAsked(p.asked, owner)
			w.counts[k] = int64(n)
			w.wants[m] += n
			w.comes[m] += p.askRows[owner] - x.sumUnits(p.asked, owner)
		}
		rows += w.wants[m]
		w.fetchBytes[m] = (w.wants[m] + 7) / 8
		w.toldTo[m], w.toldBy[m] = b.first[m+1]-b.first[m], b.told(m)
		told += w.toldBy[m]
	}
	w.told = mem.Grow(w.told[:0], told)
	others := len(b.order) - w.toldTo[b.self]
	p.NodeBytes = int64(others)*countBytes + int64(rows-w.wants[b.self])*IDBytes
	return b.comm.StartAlltoallThen(mem.Bytes(w.counts), mem.Bytes(w.told), w.toldTo, w.toldBy,
		countBytes, comm.Then{Send: mem.Bytes(p.askIDs[:rows]), SendRows: w.wants,
			RowBytes: IDBytes, Expect: (*wanting)(p)})
}

// wanting is a plan that implements comm.Expecter for what ranks of the node want from this rank.
type wanting Plan

// Expect makes room for ids.
func (p *wanting) Expect() ([]byte, []int, error) {
	b, w := p.on.node, &p.bought
	at, all := 0, 0
	for m := range w.wanted {
		w.wanted[m] = 0
		for _, n := range w.told[at : at+w.toldBy[m]] {
			if n < 0 || n > int64(p.on.parts.Vertices()) {
				return nil, nil, fmt.Errorf("exchange: rank %d of the node wants %d rows "+
					"through rank %d of the node; %s",
					m, n, b.self, cure)
			}
			w.wanted[m] += int(n)
		}
		at += w.toldBy[m]
		w.firstBytes[m] = (w.wanted[m] + 7) / 8
		all += w.wanted[m]
	}
	w.ids = mem.Grow(w.ids[:0], all)
	return mem.Bytes(w.ids), w.wanted, nil
}

// Unite merges what the ranks of the node want from this rank into its requests to owners, once the
// request of StartWants is complete. A row that several ranks want is requested once, for the first
// of them. An id outside an owner's rows is an error.
func (x *Exchange) Unite(p *Plan) error {
	b, w := x.node, &p.bought
	all, bits, units := 0, 0, 0
	for m, n := range w.wanted {
		all, bits = all+n, bits+w.firstBytes[m]
	}
	w.firsts = mem.Grow(w.firsts[:0], bits)
	clear(w.firsts)
	numbers := all
	for r, n := range p.askNumbers { // and members of sums
		numbers += n - x.rowsAsked(p.asked, r)
	}
	w.own.swap(p)
	if len(p.asked) != len(w.own.asked) || len(p.askRows) != x.ranks {
		p.asked = mem.Grow(p.asked, len(w.own.asked))
		p.askRows, p.askNumbers = make([]int, x.ranks), make([]int, x.ranks)
	}
	copy(p.asked, w.own.asked)
	p.askIDs = mem.Grow(p.askIDs[:0], numbers)
	if !x.plain() {
		w.start, w.size = mem.Grow(w.start[:0], all), mem.Grow(w.size[:0], all)
	}
	u := union{x: x, p: p, finder: b.borrow(all)}
	err := u.make()
	b.giveBack(u.finder)
	if err != nil {
		return err
	}
	for _, n := range p.askRows {
		units += n
	}
	p.askIDs = p.askIDs[:u.next]
	p.received = mem.Grow(p.received[:0], units*x.unit)
	if !x.plain() {
		p.AskedBytes = int64(len(p.received))
	}
	return nil
}

// union is the state of Unite.
type union struct {
	x *Exchange
	p *Plan
	*finder
	next, landing int // next index in askIDs, and next unit of the receive buffer
	rows          int // number of rows listed so far
}

// make lists what to ask of each owner: rows, for one rank of the node after another, and then the
// sums that this rank wants.
func (u *union) make() error {
	x, p, b, w := u.x, u.p, u.x.node, &u.p.bought
	own := &w.own
	sums := 0 // members of sums follow all rows
	for m := range w.wants {
		sums += w.wants[m]
	}
	far, near := 0, b.far // index of the owner's count among those that a rank sends
	for r := range x.ranks {
		begin, landed := u.next, u.landing
		for kind := range x.kinds {
			x.countsOf(p.asked, r, kind)[0] = 0
		}
		if b.buyer[r] == b.self {
			k := &far
			if b.near[r] {
				k = &near
			}
			if err := u.rowsOf(r, *k); err != nil {
				return err
			}
			*k++
		}
		members := own.askNumbers[r] - x.rowsAsked(own.asked, r)
		copy(p.askIDs[u.next:], own.askIDs[sums:sums+members])
		u.next, sums = u.next+members, sums+members
		u.landing += x.sumUnits(own.asked, r)
		p.askNumbers[r], p.askRows[r] = u.next-begin, u.landing-landed
	}
	return nil
}

// rowsOf lists the rows of an owner, whose counts are the k-th that ranks have sent.
func (u *union) rowsOf(owner, k int) error {
	x, p, w := u.x, u.p, &u.p.bought
	first := x.offsets[owner*x.perRank]
	end := x.offsets[(owner+1)*x.perRank]
	told, ids, bits := 0, 0, 0 // where the rank's counts, ids and bits begin
	for m, n := range w.toldBy {
		if k < n {
			at := ids
			for _, before := range w.told[told : told+k] {
				at += int(before)
			}
			for i := at; i < at+int(w.told[told+k]); i++ {
				id := int64(w.ids[i])
				if id < 0 || first+id >= end {
					return fmt.Errorf(
						"exchange: rank %d of the node wants row %d of rank %d, which has %d; %s",
						m, id, owner, end-first, cure)
				}
				place, isNew := u.find(uint32(first+id), u.rows)
				if w.ids[i] = int32(place); !isNew {
					continue
				}
				w.firsts[bits+(i-ids)/8] |= 1 << ((i - ids) % 8)
				p.askIDs[u.next] = int32(id)
				part := x.parts.Find(uint32(first + id))
				size := x.rowBytesOf(part) / x.unit
				if x.ends != nil {
					size = int(x.ends[first+id+1] - x.ends[first+id])
				}
				if !x.plain() {
					w.start[u.rows], w.size[u.rows] = int64(u.landing), int32(size)
				}
				x.countsOf(p.asked, owner, int(x.partKind[part]))[0]++
				u.landing += size
				u.next++
				u.rows++
			}
		}
		told, ids, bits = told+n, ids+w.wanted[m], bits+w.firstBytes[m]
	}
	return nil
}

// PassOn copies the bought rows in the order in which each rank of the node wants them, and this
// rank's sums to their places. Call it once the request of StartRows is complete.
func (x *Exchange) PassOn(p *Plan) {
	w, own := &p.bought, &p.bought.own
	at, units := 0, 0
	for m, n := range w.wanted {
		w.passes[m] = n
		if !x.plain() {
			w.passes[m] = 0
			for _, place := range w.ids[at : at+n] {
				w.passes[m] += int(w.size[place])
			}
		}
		at, units = at+n, units+w.passes[m]
	}
	w.sent = mem.Grow(w.sent[:0], units*x.unit)
	if x.planning {
		return
	}
	if x.plain() {
		x.host.SliceRows(w.sent, p.received, x.unit, w.ids)
		return
	}
	to := w.sent
	for _, place := range w.ids {
		from, size := int(w.start[place])*x.unit, int(w.size[place])*x.unit
		to = to[copy(to, p.received[from:from+size]):]
	}
	if x.sums == nil {
		return
	}
	from, landing := 0, 0
	for m := range w.comes {
		landing += w.comes[m]
	}
	for r := range x.ranks {
		from += p.askRows[r]
		n := x.sumUnits(own.asked, r)
		copy(own.received[landing*x.unit:(landing+n)*x.unit], p.received[(from-n)*x.unit:])
		landing += n
	}
}

// StartPass sends the ranks of the node the rows that they want, with the bits that say for whom
// each row was fetched. Once its request is complete, Passed must follow.
func (x *Exchange) StartPass(p *Plan) comm.Request {
	w := &p.bought
	p.Collectives++
	own := w.firstBytes[x.node.self] + w.passes[x.node.self]*x.unit
	p.NodeBytes += int64(len(w.firsts) + len(w.sent) - own)
	bytes := 0
	for _, n := range w.fetchBytes {
		bytes += n
	}
	w.fetched = mem.Grow(w.fetched[:0], bytes)
	return x.node.comm.StartAlltoallThen(w.firsts, w.fetched, w.firstBytes, w.fetchBytes, 1,
		comm.Then{Send: w.sent, SendRows: w.passes, RowBytes: x.unit, Expect: (*passing)(p)})
}

// passing is a plan that implements comm.Expecter for the rows that buyers pass on.
type passing Plan

// Expect returns where the rows land. This rank's sums follow them.
func (p *passing) Expect() ([]byte, []int, error) {
	return p.bought.own.received, p.bought.comes, nil
}

// Passed completes what StartPass has begun: now all of p.Rows may be read, and the counters say
// which rows were fetched for this rank, and which for another one of its node.
func (x *Exchange) Passed(p *Plan) {
	w := &p.bought
	w.own.swap(p)
	if x.planning { // a prediction receives no bits
		return
	}
	rows, fetched, early := 0, 0, 0
	at, bits := 0, 0
	for m, n := range w.wants {
		rows += n
		for i := range n {
			fetched += int(w.fetched[bits+i/8] >> (i % 8) & 1)
		}
		for _, place := range w.early {
			if i := int(place) - at; i >= 0 && i < n {
				early += int(w.fetched[bits+i/8] >> (i % 8) & 1)
			}
		}
		at, bits = at+n, bits+w.fetchBytes[m]
	}
	p.Shared = int64(rows-len(w.early)) - int64(fetched-early)
	p.Remote, p.Early = int64(fetched), int64(early)
}

// compact returns the counts of the given ranks, without those of others.
func (x *Exchange) compact(of []int64, all []int64, ranks []int) []int64 {
	of = mem.Grow(of[:0], len(all))[:0]
	for r, talks := range ranks {
		if talks == 1 {
			of = append(of, all[r*x.counts():(r+1)*x.counts()]...)
		}
	}
	return of
}

// expand is the reverse of compact: the counts of other ranks are 0.
func (x *Exchange) expand(all []int64, of []int64, ranks []int) {
	for r, talks := range ranks {
		to := all[r*x.counts():][:x.counts()]
		if talks == 1 {
			of = of[copy(to, of):]
		} else {
			clear(to)
		}
	}
}

// finder tells whether a vertex has come before, and at which place. It is an open-addressing
// table.
type finder struct {
	slots []uint64 // place << 32 | vertex + 1; 0 if vacant
	shift int
}

// borrow returns a finder for the given number of vertices. giveBack takes it back.
func (b *buying) borrow(vertices int) *finder {
	var f *finder
	select {
	case f = <-b.finders:
	default:
		f = new(finder)
	}
	bits := 4
	for 1<<bits < 2*vertices {
		bits++
	}
	f.slots, f.shift = mem.Grow(f.slots[:0], 1<<bits), 32-bits
	clear(f.slots)
	return f
}

func (b *buying) giveBack(f *finder) {
	select {
	case b.finders <- f:
	default:
		mem.Free(f.slots)
	}
}

// find returns the place of a vertex; a new vertex gets the given place.
func (f *finder) find(vertex uint32, place int) (at int, isNew bool) {
	key := uint64(vertex) + 1
	for i := vertex * 0x9e3779b1 >> f.shift; ; i = (i + 1) & uint32(len(f.slots)-1) {
		switch slot := f.slots[i]; {
		case slot == 0:
			f.slots[i] = uint64(place)<<32 | key
			return place, true
		case slot&0xffffffff == key:
			return int(slot >> 32), false
		}
	}
}

// bytes returns the memory that plans share, and free frees it. No plan may be in Unite.
func (b *buying) bytes() (bytes int64) {
	if b == nil {
		return 0
	}
	for range len(b.finders) {
		f := <-b.finders
		bytes += int64(cap(f.slots)) * 8
		b.finders <- f
	}
	return bytes
}

func (b *buying) free() {
	if b == nil {
		return
	}
	for range len(b.finders) {
		mem.Free((<-b.finders).slots)
	}
}

// bytes returns the memory of the arrays.
func (w *purchase) bytes() int64 {
	return int64(cap(w.own.asked)+cap(w.counts)+cap(w.told)+cap(w.start)+cap(w.out)+cap(w.in))*8 +
		int64(cap(w.own.askIDs)+cap(w.early)+cap(w.ids)+cap(w.size))*4 +
		int64(cap(w.own.received)+cap(w.sent)+cap(w.firsts)+cap(w.fetched))
}

func (w *purchase) free() {
	for _, s := range [][]int64{w.own.asked, w.counts, w.told, w.start, w.out, w.in} {
		mem.Free(s)
	}
	for _, s := range [][]int32{w.own.askIDs, w.early, w.ids, w.size} {
		mem.Free(s)
	}
	for _, s := range [][]byte{w.own.received, w.sent, w.firsts, w.fetched} {
		mem.Free(s)
	}
}
