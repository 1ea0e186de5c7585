package exchange

import (
	"cmp"
	"fmt"
	"slices"

	"halognn/src/base/mem"
	"halognn/src/ranks/comm"
	"halognn/src/topology/graph"
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
//
// With Node.Keeps buyers cache rows that change from step to step. Each sees all that its node
// wants of the rows that it buys, so it decides alone which of them to keep:
//
//	Merge      what the ranks want, each row once: Plan.Wanted
//	           cache.Policy.Step                                      in step order
//	Buy        what the cache lacks, and early rows
//	           StartAsk ... StartRows
//	PassOn     from the cache or as received; then Keep               in step order

// Node says which ranks fetch as one. Either all ranks must set it, or none.
type Node struct {
	Comm comm.Comm // for the ranks of this node, in rank order; used only by exchanges
	Of   []int     // [K] the number of each rank's node
	// Keeps says that Options.Buffer holds rows that the rank buys, for all ranks of the node.
	// Merge and Buy then take the place of Unite.
	Keeps bool
}

// check returns an error unless Comm is the node of rank r of k.
func (n *Node) check(r, k int) error {
	if len(n.Of) != k {
		return fmt.Errorf("nodes are given for %d ranks, but there are %d ranks", len(n.Of), k)
	}
	place, ranks := n.places(r)
	if n.Comm.Rank() != place[r] || n.Comm.Size() != ranks {
		return fmt.Errorf("rank %d is number %d of %d ranks on its node, but must be number %d "+
			"of %d ranks", r,
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

// buying is the state of a rank if the ranks of its node fetch as one: rows that several of them
// want are requested once.
type buying struct {
	comm  comm.Comm
	self  int    // place of this rank in the node
	buyer []int  // [K] place of the rank that asks each owner on behalf of this rank
	near  []bool // [K] whether each rank is on this node
	// Owners, buyer by buyer: the owners of buyer b are order[first[b]:first[b+1]]. Owners on other
	// nodes come before those on this node, for which each rank is its own buyer.
	order, first []int
	far          int // number of owners on other nodes for which this rank is the buyer
	keeps        bool
	// [K] whether this rank sends requests to each rank (asks), and whether it receives requests
	// from each rank (hears): 1 or 0.
	asks, hears []int
	finders     chan *finder // finders that no plan uses at present
}

func newBuying(n *Node, r int, sums bool) *buying {
	k := len(n.Of)
	place, ranks := n.places(r)
	b := &buying{comm: n.Comm, self: place[r], buyer: make([]int, k),
		first: make([]int, 1, ranks+1), asks: make([]int, k), hears: make([]int, k),
		finders: make(chan *finder, 64), keeps: n.Keeps}
	of := map[int]int{} // ranks of each node
	for _, node := range n.Of {
		of[node]++
	}
	for q, node := range n.Of {
		near := node == n.Of[r]
		b.near = append(b.near, near)
		if b.buyer[q] = buyerOf(place[q], ranks); near {
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

// buyerOf returns the place of the buyer, on a node of the given number of ranks, of the rows of an
// owner that has the given place on another node.
func buyerOf(place, ranks int) int { return place % ranks }

// Bought returns the ranks of other nodes whose rows rank r buys for its node, in ascending order.
// The node of each rank is given, as in Node.Of.
func Bought(of []int, r int) (owners []int) {
	place, ranks := (&Node{Of: of}).places(r)
	for q, node := range of {
		if node != of[r] && buyerOf(place[q], ranks) == place[r] {
			owners = append(owners, q)
		}
	}
	return owners
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
	// For each plan, a rank sends owners two messages: one for itself, and one for its node, as a
	// buyer. The Plan holds the one that is used now, and own holds the other (message.swap).
	own   message
	early []int32 // places in own.askIDs of early rows

	// [L] For each rank of the node: number of counts sent to it (toldTo) and received from it
	// (toldBy), number of ids sent to it (wants) and received from it (wanted), and units of rows
	// received from it (comes) and sent to it (passes).
	toldTo, toldBy, wants, wanted, comes, passes []int
	// Numbers of rows that are wanted from each owner. This rank sends such numbers to the buyers,
	// one buyer after another (counts), and receives them from the ranks of the node, one rank
	// after another (told).
	counts, told []int64
	// Ids that ranks of the node want from this rank, rank by rank. Merge replaces each id by its
	// index in the union.
	ids []int32
	// [U] The rows that ranks want, each once, owner by owner.
	union []graph.VertexID
	each  []int // [K] number of rows of the union that each owner has
	// [U] where this rank receives each row of the union, in units. A row that it has kept in slot
	// s of the buffer has ^s instead.
	start []int64
	// [U] units of each row; start and size are empty if all rows have one size and no rows are
	// kept.
	size []int32

	// The following four are set only if this buyer keeps rows. Where it receives the rows of the
	// union that the cache lacks, in the order of the union (missAt), and the early rows (earlyAt),
	// in units.
	missAt, earlyAt []int64
	earlyBy         []int32 // indices of the early rows, owner by owner
	room            int     // bytes that this rank itself is to receive
	// Rows that this buyer passes on, in the order in which ranks want them.
	sent []byte

	// A bit for each wanted row: 1 if it was fetched for the rank that wants it. The bits of each
	// rank begin at a new byte. If buyers keep rows, a second bit for each wanted row follows these
	// bits: 1 if the buyer had the row.
	firsts, fetched        []byte
	firstBytes, fetchBytes []int

	out, in []int64 // counts to the ranks that are asked, and from the ranks that ask
}

// Buys reports whether ranks of a node fetch as one: StartWants and Unite then come before
// StartAsk, and PassOn and StartPass after StartRows.
func (x *Exchange) Buys() bool { return x.node != nil }

// KeepsBought reports whether buyers keep rows for their node (Node.Keeps).
func (x *Exchange) KeepsBought() bool { return x.node != nil && x.node.keeps }

// owners returns the owners in the order in which their rows are requested and received. They come
// buyer by buyer.
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

// bitBytes returns the number of bytes that the buyer sends along with n wanted rows: one bit for
// each row, which says whether the row was fetched for the rank that wants it, and if buyers keep
// rows, a second bit, which says whether the buyer had the row.
func (b *buying) bitBytes(n int) int {
	if b.keeps {
		return 2 * ((n + 7) / 8)
	}
	return (n + 7) / 8
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
		w.fetchBytes[m] = b.bitBytes(w.wants[m])
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
		w.firstBytes[m] = b.bitBytes(w.wanted[m])
		all += w.wanted[m]
	}
	w.ids = mem.Grow(w.ids[:0], all)
	return mem.Bytes(w.ids), w.wanted, nil
}

// Unite merges what the ranks of the node want from this rank into its requests to owners, once the
// request of StartWants is complete. A row that several ranks want is requested once, for the first
// of them. An id outside an owner's rows is an error.
func (x *Exchange) Unite(p *Plan) error {
	err := x.Merge(p)
	if err == nil {
		x.Buy(p, nil, nil)
	}
	return err
}

// Merge is the first half of Unite. It lists in p.Wanted the rows that the ranks of the node want
// this rank to buy.
func (x *Exchange) Merge(p *Plan) error {
	b, w := x.node, &p.bought
	all, bits := 0, 0
	for m, n := range w.wanted {
		all, bits = all+n, bits+w.firstBytes[m]
	}
	w.firsts = mem.Grow(w.firsts[:0], bits)
	clear(w.firsts)
	w.union = mem.Grow(w.union[:0], all)[:0]
	if len(w.each) != x.ranks {
		w.each = make([]int, x.ranks)
	}
	f := b.borrow(all)
	defer b.giveBack(f)
	far, near := 0, b.far // index of the owner's count among those that a rank sends
	for r := range x.ranks {
		before := len(w.union)
		if b.buyer[r] == b.self {
			k := &far
			if b.near[r] {
				k = &near
			}
			if err := x.merge(p, f, r, *k); err != nil {
				return err
			}
			*k++
		}
		w.each[r] = len(w.union) - before
	}
	return nil
}

// merge lists the rows of an owner, whose counts are the k-th that ranks have sent.
func (x *Exchange) merge(p *Plan, f *finder, owner, k int) error {
	w := &p.bought
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
						"exchange: rank %d of the node wants row %d of rank %d, but that rank "+
							"has only %d rows; %s",
						m, id, owner, end-first, cure)
				}
				place, isNew := f.find(uint32(first+id), len(w.union))
				if w.ids[i] = int32(place); isNew {
					w.firsts[bits+(i-ids)/8] |= 1 << ((i - ids) % 8)
					w.union = append(w.union, graph.VertexID(first+id))
				}
			}
		}
		told, ids, bits = told+n, ids+w.wanted[m], bits+w.firstBytes[m]
	}
	return nil
}

// Wanted returns the rows that ranks of the node want this rank to buy, each row once. It may be
// called after Merge.
func (p *Plan) Wanted() []graph.VertexID { return p.bought.union }

// Buy is the second half of Unite. It lists the rows to request from each owner. The array slot has
// an entry for each row of p.Wanted, which says where the row is in Options.Buffer, as Wants.Slot
// does. The rows of the list early are bought too. Both are nil unless buyers keep rows.
func (x *Exchange) Buy(p *Plan, slot []int32, early []graph.VertexID) {
	b, w := x.node, &p.bought
	numbers := len(w.union) + len(early)
	for r, n := range p.askNumbers { // n also counts the members of sums
		numbers += n - x.rowsAsked(p.asked, r)
	}
	w.own.swap(p)
	if len(p.asked) != len(w.own.asked) || len(p.askRows) != x.ranks {
		p.asked = mem.Grow(p.asked, len(w.own.asked))
		p.askRows, p.askNumbers = make([]int, x.ranks), make([]int, x.ranks)
	}
	copy(p.asked, w.own.asked)
	p.askIDs = mem.Grow(p.askIDs[:0], numbers)
	if !x.plain() || b.keeps {
		w.start = mem.Grow(w.start[:0], len(w.union))
		w.size = mem.Grow(w.size[:0], len(w.union))
	}
	if b.keeps {
		x.makeRoom(p, early)
		w.markHeld(slot)
	}
	l := listing{x: x, p: p, slot: slot, early: early}
	l.make()
	p.askIDs = p.askIDs[:l.next]
	p.received = mem.Grow(p.received[:0], l.landing*x.unit)
	if !x.plain() {
		p.AskedBytes = int64(len(p.received))
	}
}

// makeRoom makes room for what is fetched, and for what this rank is to receive.
func (x *Exchange) makeRoom(p *Plan, early []graph.VertexID) {
	w := &p.bought
	w.own.received = mem.Grow(w.own.received[:0], w.room)
	p.Rows.Tables[x.received] = w.own.received
	if p.Rows.Wide == x.summed {
		p.Rows.Tables[x.summed] = w.own.received
	}
	w.missAt = mem.Grow(w.missAt[:0], len(w.union))[:0]
	w.earlyAt = mem.Grow(w.earlyAt[:0], len(early))
	w.earlyBy = mem.Grow(w.earlyBy[:0], len(early))
	for i := range w.earlyBy {
		w.earlyBy[i] = int32(i)
	}
	slices.SortFunc(w.earlyBy, func(i, j int32) int { return cmp.Compare(early[i], early[j]) })
}

// markHeld sets the bits of the wanted rows that the buffer holds, because these rows are not
// fetched.
func (w *purchase) markHeld(slot []int32) {
	if len(slot) == 0 {
		return
	}
	at, bits := 0, 0
	for m, n := range w.wanted {
		firsts := w.firsts[bits : bits+w.firstBytes[m]]
		held := firsts[len(firsts)/2:]
		for i, place := range w.ids[at : at+n] {
			if slot[place] >= 0 {
				firsts[i/8] &^= 1 << (i % 8)
				held[i/8] |= 1 << (i % 8)
			}
		}
		at, bits = at+n, bits+w.firstBytes[m]
	}
}

// listing is the state of Buy.
type listing struct {
	x             *Exchange
	p             *Plan
	slot          []int32
	early         []graph.VertexID
	next, landing int // next index in askIDs, and next unit of the receive buffer
}

// make lists what to request from each owner: the rows of the union, then early rows, then the sums
// that this rank wants.
func (l *listing) make() {
	x, p, w := l.x, l.p, &l.p.bought
	own := &w.own
	sums := 0 // members of sums follow all rows
	for m := range w.wants {
		sums += w.wants[m]
	}
	place, ahead := 0, w.earlyBy
	for r := range x.ranks {
		begin, landed := l.next, l.landing
		for kind := range x.kinds {
			x.countsOf(p.asked, r, kind)[0] = 0
		}
		for range w.each[r] {
			l.row(r, place)
			place++
		}
		for len(ahead) > 0 && int64(l.early[ahead[0]]) < x.offsets[(r+1)*x.perRank] {
			w.earlyAt[ahead[0]] = int64(l.landing)
			l.ask(r, l.early[ahead[0]])
			ahead = ahead[1:]
		}
		members := own.askNumbers[r] - x.rowsAsked(own.asked, r)
		copy(p.askIDs[l.next:], own.askIDs[sums:sums+members])
		l.next, sums = l.next+members, sums+members
		l.landing += x.sumUnits(own.asked, r)
		p.askNumbers[r], p.askRows[r] = l.next-begin, l.landing-landed
	}
}

// row lists the row at the given place of the union, which the owner has, unless the buffer has the
// row too.
func (l *listing) row(owner, place int) {
	x, w := l.x, &l.p.bought
	keeps, landing := x.node.keeps, l.landing
	if keeps {
		if len(l.slot) > 0 && l.slot[place] >= 0 {
			w.start[place], w.size[place] = ^int64(l.slot[place]), 1
			return
		}
		w.missAt = append(w.missAt, int64(landing))
	}
	if l.ask(owner, w.union[place]); !x.plain() || keeps {
		w.start[place], w.size[place] = int64(landing), int32(l.landing-landing)
	}
}

// ask lists a row of an owner.
func (l *listing) ask(owner int, v graph.VertexID) {
	x, p := l.x, l.p
	p.askIDs[l.next] = int32(int64(v) - x.offsets[owner*x.perRank])
	part := x.parts.Find(uint32(v))
	size := x.rowBytesOf(part) / x.unit
	if x.ends != nil {
		size = int(x.ends[v+1] - x.ends[v])
	}
	x.countsOf(p.asked, owner, int(x.partKind[part]))[0]++
	l.landing += size
	l.next++
}

// keepBought does the work of Keep for a buyer. The n-th row is counted among the fetched rows of
// Plan.Wanted, and then among the early rows.
func (x *Exchange) keepBought(p *Plan, n, slot int) {
	w := &p.bought
	at := w.missAt
	if n >= len(at) {
		n, at = n-len(at), w.earlyAt
	}
	copy(x.tables[len(x.base)][slot*x.unit:][:x.unit], p.received[int(at[n])*x.unit:])
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
	if x.plain() && !x.node.keeps {
		x.host.SliceRows(w.sent, p.received, x.unit, w.ids)
		return
	}
	to := w.sent
	for _, place := range w.ids {
		of, from, size := p.received, int(w.start[place]), int(w.size[place])*x.unit
		if from < 0 {
			of, from = x.tables[len(x.base)], ^from
		}
		to = to[copy(to, of[from*x.unit:][:size]):]
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
	rows, fetched, early, held := 0, 0, 0, [2]int{} // held: by peers, and by this rank
	at, bits := 0, 0
	for m, n := range w.wants {
		rows += n
		fetched += ones(w.fetched[bits:], n)
		if x.node.keeps {
			whose := 0
			if m == x.node.self {
				whose = 1
			}
			held[whose] += ones(w.fetched[bits+w.fetchBytes[m]/2:], n)
		}
		for _, place := range w.early {
			if i := int(place) - at; i >= 0 && i < n {
				early += int(w.fetched[bits+i/8] >> (i % 8) & 1)
			}
		}
		at, bits = at+n, bits+w.fetchBytes[m]
	}
	p.Shared = int64(rows-len(w.early)-held[0]-held[1]) - int64(fetched-early)
	p.Remote, p.Early = int64(fetched), int64(early)
	if x.node.keeps {
		p.Remote, p.Early = p.Remote+int64(len(w.earlyAt)), int64(len(w.earlyAt))
		p.Cached, p.PeerCached = int64(held[1]), int64(held[0])
		p.Peer += p.PeerCached
	}
}

// ones counts the bits that are 1 among the first n.
func ones(of []byte, n int) (count int) {
	for i := range n {
		count += int(of[i/8] >> (i % 8) & 1)
	}
	return count
}

// compact returns the counts of the ranks whose entry in ranks is 1, without the counts of other
// ranks.
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

// bytes returns the memory that plans share, and free frees it. No plan may be in Merge.
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
	return int64(cap(w.own.asked)+cap(w.counts)+cap(w.told)+cap(w.start)+cap(w.out)+cap(w.in)+
		cap(w.missAt)+cap(w.earlyAt))*8 +
		int64(cap(w.own.askIDs)+cap(w.early)+cap(w.ids)+cap(w.union)+cap(w.size)+
			cap(w.earlyBy))*4 +
		int64(cap(w.own.received)+cap(w.sent)+cap(w.firsts)+cap(w.fetched))
}

func (w *purchase) free() {
	for _, s := range [][]int64{w.own.asked, w.counts, w.told, w.start, w.out, w.in, w.missAt,
		w.earlyAt} {
		mem.Free(s)
	}
	mem.Free(w.union)
	for _, s := range [][]int32{w.own.askIDs, w.early, w.ids, w.size, w.earlyBy} {
		mem.Free(s)
	}
	for _, s := range [][]byte{w.own.received, w.sent, w.firsts, w.fetched} {
		mem.Free(s)
	}
}
