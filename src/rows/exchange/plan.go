package exchange

import (
	"fmt"

	"halognn/src/base/invariant"
	"halognn/src/base/mem"
	"halognn/src/base/trace"
	"halognn/src/devices/compute"
	"halognn/src/topology/graph"
)

// Plan says where the rows of one frontier lie, and holds the messages that fetch the remote ones.
// The zero value is ready for Exchange.Plan; it is reused from minibatch to minibatch, and Free
// frees its arrays.
type Plan struct {
	// Rows.Of[i] refers to the row of the i-th vertex. Own, peer and cached rows may be read after
	// Exchange.Plan, remote rows once the request of StartRows is complete.
	Rows compute.Rows

	// Parts holds the part of each vertex of the frontier. Sums add rows part by part, wherever the
	// rows are read from.
	Parts []uint16

	// Counters counts the rows and bytes of this plan. They are complete after StartRows.
	trace.Counters

	// RemoteIDs lists the remote vertices of the frontier, cached or not; set by Locate.
	RemoteIDs []graph.VertexID
	// Worth is how many vectors the cached row of each remote vertex would save (Groups.Worth).
	// Value sets it; before, it is nil.
	Worth []uint8

	on      *Exchange        // the exchange that made the plan
	missing []int32          // frontier positions of vertices whose rows are not at hand
	rows    []int32          // entries of missing whose rows are fetched; the rest comes in sums
	early   []compute.RowRef // where early rows land; the frontier does not read them
	part    []int            // [P] number of vertices of each part, later the next index in askIDs

	// A request to an owner has the ids of rows, by part and then in frontier order. Then come the
	// ids of members of sums, where the id of each sum's first member is inverted (^id), and the
	// bits of the members' weights. An answer has rows, then sums.
	asked    []int64 // [K*counts] sent: rows, sums and members requested from each owner
	wanted   []int64 // [K*counts] received: what each rank requests from this one
	askIDs   []int32 // sent: rows of the owners
	wantIDs  []int32 // received: rows of this rank that others request
	sent     []byte  // rows and sums that others request
	received []byte  // rows and sums that this plan requests
	// [K] number of words of each rank in askIDs and in wantIDs, and number of units of each rank
	// in received and in sent.
	askNumbers, wantNumbers, askRows, wantRows []int

	came   int64   // bytes received, see Came
	counts []int32 // [D] Edges.Counts
	// With several kinds, each table from Exchange.received on is a range of the array received.
	// These are the ranges, in units.
	spans [][2]int
	// [P] The row of part p that is requested by askIDs[i] is received at the reference landing[p]
	// + i. The sum may wrap around.
	landing  []compute.RowRef
	starts   []int64   // for sparse rows: the entry at which each row of askIDs is received
	choosing *choosing // memory for the choice, during Request
	serving
	relayed relayed  // rows passed on, after Relay
	bought  purchase // rows bought for the node, with Options.Node
}

// Plan looks up every vertex of a frontier and fills p.Rows. The reference of a remote vertex is
// the place where its row will land. The vertices ids must be distinct. It makes one pass over all
// ids and one over the remote ones, O(len(ids) + P + K). If a vertex is not in the graph, the error
// wraps graph.ErrVertexRange.
func (x *Exchange) Plan(p *Plan, ids []graph.VertexID) error {
	if err := x.place(p, ids); err != nil {
		return err
	}
	x.ask(p, nil)
	return nil
}

// Find is the first half of Plan: it looks up every vertex. Request must follow.
func (x *Exchange) Find(p *Plan, ids []graph.VertexID) error { return x.place(p, ids) }

// Locate is Find for a dynamic cache, which changes from step to step. It also lists the remote
// vertices of a frontier in p.RemoteIDs, in frontier order. It may run for many plans at once.
func (x *Exchange) Locate(p *Plan, ids []graph.VertexID) error {
	if err := x.place(p, ids); err != nil {
		return err
	}
	p.RemoteIDs = mem.Grow(p.RemoteIDs[:0], len(p.missing))
	for k, i := range p.missing {
		p.RemoteIDs[k] = ids[i]
	}
	return nil
}

// hold handles the vertices whose rows are in Options.Buffer, as the list slot (Wants.Slot) says.
// It sets their references in p.Rows to the buffer, and removes the vertices from p.missing.
func (x *Exchange) hold(p *Plan, slot []int32) {
	if len(slot) == 0 {
		return
	}
	left := 0
	for k, i := range p.missing {
		if slot[k] < 0 {
			p.missing[left] = i
			left++
			continue
		}
		part := p.Rows.Of[i].Table()
		p.part[part]--
		p.Rows.Of[i] = compute.MakeRowRef(x.tableOf(part), int(slot[k]))
	}
	p.Cached = int64(len(p.missing) - left)
	p.missing = p.missing[:left]
}

// Landed returns where the n-th fetched row was received. Fetched rows are numbered from 0: first
// the misses in frontier order, then the early rows. The miss must have come as a row, not in a
// sum.
func (p *Plan) Landed(n int) compute.RowRef {
	if n < len(p.missing) {
		if len(p.relayed.found) > 0 {
			return p.relayed.found[p.missing[n]]
		}
		return p.Rows.Of[p.missing[n]]
	}
	return p.early[n-len(p.missing)]
}

// Keep copies the n-th fetched row to a slot in Options.Buffer, counted among the slots of the
// row's kind. Call it once the request of StartRows is complete and the plan has read all its rows
// of the buffer. If buyers keep rows (Node.Keeps), call it only after PassOn.
func (x *Exchange) Keep(p *Plan, n, slot int) {
	if x.KeepsBought() {
		x.keepBought(p, n, slot)
		return
	}
	from := p.Landed(n)
	// With several kinds, received rows have one table per part, and the part gives the kind.
	part := from.Table() - x.received
	size := x.rowBytesOf(part)
	copy(x.tables[x.tableOf(part)][slot*size:(slot+1)*size],
		p.Rows.Tables[from.Table()][from.Row()*size:])
}

// place looks up every vertex: its row is in an own part, a peer's part, the cache, or missing.
func (x *Exchange) place(p *Plan, ids []graph.VertexID) error {
	x.size(p, len(ids))
	remote, err := x.locate(p, ids)
	if err != nil {
		return err
	}
	p.Counters = trace.Counters{Frontier: int64(len(ids))}
	if x.ends != nil {
		x.measure(p, ids)
	}
	if x.cache != nil {
		remote = x.lookUp(p, ids, remote)
	}
	if x.stored {
		p.Stored, p.missing = int64(remote), p.missing[:0]
		clear(p.part)
		return nil
	}
	p.missing = p.missing[:remote]
	for part, n := range p.part {
		switch {
		case part/x.perRank == x.rank || x.rowBytesOf(part) == 0:
			p.Local += int64(n)
		case x.remote[part] == 0:
			p.Peer += int64(n)
		}
	}
	return nil
}

// ask lists, by owner, the rows and the chosen sums to request.
func (x *Exchange) ask(p *Plan, early []graph.VertexID) {
	if p.choosing == nil {
		p.rows = p.missing
	}
	n := len(p.rows) + len(early)
	p.Remote, p.Early = int64(n), int64(len(early))
	p.early = mem.Grow(p.early[:0], len(early))
	for k, v := range early {
		part := x.parts.Find(uint32(v))
		p.early[k] = compute.RowRef(part)
		p.part[part]++
	}
	x.group(p, early)
	if invariant.On {
		invariant.Holds(x.check(p))
	}
	if x.ends != nil {
		x.layEntries(p)
	}
}

// Lend swaps the plan's send and receive buffers, and the arrays that Buy makes, with those of b.
// So plans that wait long for Request or Buy need no such memory of their own.
func (p *Plan) Lend(b *Buffers) {
	p.sent, b.Sent = b.Sent, p.sent
	p.received, b.Received = b.Received, p.received
	p.bought.own.received, b.Bought = b.Bought, p.bought.own.received
	w := &p.bought
	w.sent, b.PassedOn = b.PassedOn, w.sent
	w.start, b.start = b.start, w.start
	w.size, b.size = b.size, w.size
	w.missAt, b.missAt = b.missAt, w.missAt
	w.earlyAt, b.earlyAt = b.earlyAt, w.earlyAt
	w.earlyBy, b.earlyBy = b.earlyBy, w.earlyBy
}

// Buffers are the send and receive buffers of rows, the largest arrays of a plan, and the arrays
// that Buy makes.
type Buffers struct {
	Sent, Received, Bought, PassedOn []byte
	start, missAt, earlyAt           []int64
	size, earlyBy                    []int32
}

// Bytes returns the memory of the buffers.
func (b *Buffers) Bytes() int64 {
	return int64(cap(b.Sent)+cap(b.Received)+cap(b.Bought)+cap(b.PassedOn)) +
		int64(cap(b.start)+cap(b.missAt)+cap(b.earlyAt))*8 + int64(cap(b.size)+cap(b.earlyBy))*4
}

// Free frees the buffers.
func (b *Buffers) Free() {
	mem.Free(b.Sent)
	mem.Free(b.Received)
	mem.Free(b.Bought)
	mem.Free(b.PassedOn)
	for _, s := range [][]int64{b.start, b.missAt, b.earlyAt} {
		mem.Free(s)
	}
	mem.Free(b.size)
	mem.Free(b.earlyBy)
	*b = Buffers{}
}

// size makes room for a frontier of n vertices.
func (x *Exchange) size(p *Plan, n int) {
	parts, k := len(x.base), x.ranks
	if len(p.part) != parts || len(p.askRows) != k || len(p.asked) != k*x.counts() ||
		len(p.Rows.Tables) != x.numTables {
		p.part = make([]int, parts)
		p.askRows, p.wantRows = make([]int, k), make([]int, k)
		p.askNumbers, p.wantNumbers = make([]int, k), make([]int, k)
		p.asked, p.wanted = mem.Grow(p.asked, k*x.counts()), mem.Grow(p.wanted, k*x.counts())
		p.Rows.Tables = make([][]byte, x.numTables)
		if x.mixed() {
			p.spans = make([][2]int, x.numTables-x.received)
		}
	}
	p.Rows.Cols, p.Rows.Type, p.Rows.Scale = x.kinds[0].Cols, x.kinds[0].Type, x.scale
	copy(p.Rows.Tables, x.tables)
	p.Rows.Of = mem.Grow(p.Rows.Of[:0], n)
	p.Parts = mem.Grow(p.Parts[:0], n)
	p.missing = mem.Grow(p.missing[:0], n)
	r := &p.relayed
	p.Rows.Wide, r.found, r.sums, r.parts = 0, r.found[:0], r.sums[:0], r.parts[:0]
}

// locate sets every vertex's reference as if this rank could read the rows of all parts. It also
// counts the vertices of each part, and lists the frontier positions of remote vertices. It returns
// the number of remote vertices. Local and remote vertices alternate unpredictably, so the list is
// written without a branch.
func (x *Exchange) locate(p *Plan, ids []graph.VertexID) (int, error) {
	clear(p.part)
	// Go need not load these slices again after each store, because they are local variables.
	of, missing, count := p.Rows.Of[:len(ids)], p.missing, p.part
	parts := p.Parts[:len(ids)]
	index, base, remote := x.parts, x.base, x.remote
	m := 0
	for i, v := range ids {
		if uint32(v) >= index.Vertices() {
			return 0, fmt.Errorf("exchange: frontier vertex %d is %d: %w (the graph has %d "+
				"vertices)", i, v, graph.ErrVertexRange, index.Vertices())
		}
		part := index.Find(uint32(v))
		of[i] = base[part] + compute.RowRef(v)
		parts[i] = uint16(part)
		count[part]++
		missing[m] = int32(i)
		m += int(remote[part])
	}
	return m, nil
}

// lookUp sets the references of cached remote vertices to their rows in the cache, and returns the
// number of misses. Only this method uses the cache.
func (x *Exchange) lookUp(p *Plan, ids []graph.VertexID, remote int) int {
	left, own := 0, 0
	for _, i := range p.missing[:remote] {
		row := x.cache.Row(ids[i])
		if row < 0 {
			p.missing[left] = i
			left++
			continue
		}
		part := p.Rows.Of[i].Table()
		p.part[part]--
		p.Rows.Of[i] = compute.MakeRowRef(x.tableOf(part), row)
		if row >= x.kept[0] && row < x.kept[1] {
			own++
		}
	}
	p.Cached, p.PeerCached = int64(own), int64(remote-left-own)
	p.Peer = p.PeerCached
	return left
}

// group sorts the remote vertices by owning part in one counting pass, in frontier order within a
// part. It sets each reference to the row's place in the receive buffer. The early rows of a part
// come after its other rows: p.early has their parts before the call, and their places after it.
// The sums requested from an owner come after its rows.
func (x *Exchange) group(p *Plan, early []graph.VertexID) {
	next, landing, parts := 0, 0, len(x.base) // landing is in units of x.unit bytes
	p.landing = mem.Grow(p.landing[:0], parts)
	for _, r := range x.owners() {
		begin, landed := next, landing
		for kind := range x.kinds {
			x.countsOf(p.asked, r, kind)[0] = 0
		}
		for part := r * x.perRank; part < (r+1)*x.perRank; part++ {
			n, row, from := p.part[part]*int(x.remote[part]), landing, landing
			x.countsOf(p.asked, r, int(x.partKind[part]))[0] += int64(n)
			landing += n * (x.rowBytesOf(part) / x.unit)
			if x.mixed() {
				row, p.spans[part] = 0, [2]int{from, landing}
			}
			p.landing[part] = compute.MakeRowRef(x.landedIn(part), 0) + compute.RowRef(row) -
				compute.RowRef(next)
			p.part[part], next = next, next+n
		}
		if x.sums != nil && x.node == nil {
			next, landing = x.placeSums(p, r, next, landing)
		}
		p.askNumbers[r], p.askRows[r] = next-begin, landing-landed
	}
	// Buyers do not handle sums, so each rank asks the owners itself.
	if x.sums != nil && x.node != nil {
		for r := range x.ranks {
			begin, landed := next, landing
			next, landing = x.placeSums(p, r, next, landing)
			p.askNumbers[r] += next - begin
			p.askRows[r] += landing - landed
		}
	}
	p.askIDs = mem.Grow(p.askIDs[:0], next)
	if p.bought.room = landing * x.unit; !x.KeepsBought() { // otherwise Buy makes the buffer
		p.received = mem.Grow(p.received[:0], p.bought.room)
		p.cutReceived(x)
	}
	of, position, ask, firsts := p.Rows.Of, p.part, p.askIDs, x.firsts
	for _, i := range p.rows {
		part := of[i].Table()
		at := position[part]
		position[part]++
		ask[at] = int32(of[i].Row()) + firsts[part] // row number of the owner
		of[i] = p.landing[part] + compute.RowRef(at)
	}
	if x.node != nil {
		p.bought.early = mem.Grow(p.bought.early[:0], len(early))
	}
	for k, v := range early {
		part := int(p.early[k])
		at := position[part]
		position[part]++
		if x.node != nil {
			p.bought.early[k] = int32(at)
		}
		ask[at] = int32((x.base[part] + compute.RowRef(v)).Row()) + firsts[part]
		p.early[k] = p.landing[part] + compute.RowRef(at)
	}
}

// If there are several kinds, cutReceived cuts the receive buffer into tables: one for the rows of
// each part, and one for the sums of each owner and kind.
func (p *Plan) cutReceived(x *Exchange) {
	if !x.mixed() {
		p.Rows.Tables[x.received] = p.received
		return
	}
	p.AskedBytes = int64(len(p.received))
	for i, s := range p.spans {
		p.Rows.Tables[x.received+i] = p.received[s[0]*x.unit : s[1]*x.unit]
	}
}

// Bytes returns the memory of the plan's arrays.
func (p *Plan) Bytes() int64 {
	return int64(cap(p.Rows.Of)+cap(p.early)+cap(p.asked)+cap(p.wanted))*8 +
		int64(cap(p.RemoteIDs)+cap(p.missing))*4 + int64(cap(p.Parts))*2 + int64(cap(p.Worth)) +
		int64(cap(p.counts))*4 + int64(cap(p.landing)+cap(p.starts))*8 +
		int64(cap(p.Rows.Lengths))*4 + p.MessageBytes() + p.relayed.bytes()
}

// MessageBytes returns the memory of the plan's messages, which are ids and rows. It grows with the
// number of fetched rows.
func (p *Plan) MessageBytes() int64 {
	return int64(cap(p.askIDs)+cap(p.wantIDs))*4 + int64(cap(p.sent)+cap(p.received)) +
		p.serving.bytes() + p.bought.bytes()
}

// Free frees the plan's arrays. None of its requests may be under way.
func (p *Plan) Free() {
	mem.Free(p.Rows.Of)
	mem.Free(p.Parts)
	mem.Free(p.RemoteIDs)
	mem.Free(p.Worth)
	mem.Free(p.missing)
	mem.Free(p.early)
	mem.Free(p.asked)
	mem.Free(p.wanted)
	mem.Free(p.askIDs)
	mem.Free(p.wantIDs)
	mem.Free(p.sent)
	mem.Free(p.received)
	mem.Free(p.counts)
	mem.Free(p.landing)
	mem.Free(p.starts)
	mem.Free(p.Rows.Lengths)
	p.serving.free()
	p.relayed.free()
	p.bought.free()
	*p = Plan{}
}
