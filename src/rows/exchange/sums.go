package exchange

import (
	"encoding/binary"
	"fmt"
	"math"
	"unsafe"

	"halognn/src/base/mem"
	"halognn/src/devices/compute"
	"halognn/src/topology/graph"
)

// Wants are what a plan requests besides the misses of its frontier. The zero value requests the
// rows of all misses, and nothing else.
type Wants struct {
	// Slot [remote vertices] is used after Locate. It has, for each remote vertex, the slot of
	// Options.Buffer that holds the vertex's row, or a negative number for a miss. If Slot is
	// empty, all remote vertices are misses.
	Slot []int32
	// Early are vertices outside the frontier whose rows are also fetched.
	Early []graph.VertexID
	// Kept lists fetched rows that Keep will copy into the cache, numbered as by Landed. They must
	// come as rows, not in sums.
	Kept []int32
	// Edges are the edges of the input layer, which Request rewrites where sums replace rows; nil
	// if no rows may be replaced.
	Edges *Edges
}

// Request lists the requests for the rows of a frontier that Locate or Find has not found at hand.
// It may run for many plans at once. The caller must see to it that a cache decides about
// minibatches in order.
func (x *Exchange) Request(p *Plan, ids []graph.VertexID, w Wants) {
	x.hold(p, w.Slot)
	if x.sums == nil || w.Edges == nil || len(p.missing) == 0 {
		x.ask(p, w.Early)
		return
	}
	c := x.borrow()
	x.List(p, w.Edges, &c.list)
	if x.sums.Back {
		c.chooseKinds(&c.list)
	} else {
		c.choose(&c.list, nil, w.Kept)
	}
	p.choosing = c
	x.divide(p)
	x.ask(p, w.Early)
	if p.Sums > 0 {
		x.askSums(p, ids, w.Edges)
		x.standIn(p, w.Edges)
	}
	p.choosing, p.rows = nil, nil
	x.giveBack(c)
}

// Adds reports whether owners may send sums of rows (Options.Sums).
func (x *Exchange) Adds() bool { return x.sums != nil }

// Value sets p.Worth: how many vectors each row would save if it were cached. Some dynamic caches
// use it. Without Options.Sums it does nothing. Call it after Locate. It may run for several plans
// at once.
func (x *Exchange) Value(p *Plan, e *Edges) {
	if x.sums == nil || e == nil {
		return
	}
	c := x.borrow()
	x.List(p, e, &c.list)
	p.Worth = c.list.Worth(p.Worth)
	x.giveBack(c)
}

// borrow returns the memory for a choice. giveBack takes it back.
func (x *Exchange) borrow() *choosing {
	select {
	case c := <-x.choices:
		return c
	default:
		return &choosing{Chooser: *NewChooser(x.sums, x.kinds, nil)}
	}
}

func (x *Exchange) giveBack(c *choosing) {
	select {
	case x.choices <- c:
	default:
		c.free()
	}
}

// choosing is the memory of a plan while it chooses between rows and sums.
type choosing struct {
	Chooser
	list Groups
	// [K*kinds*2] two numbers for each owner and kind of rows: the index in Plan.askIDs of the
	// first member of the next sum, and the row of the receive table that this sum goes to
	next []int
}

func (c *choosing) memory() int64 { return c.Chooser.Bytes() + c.list.Bytes() }

func (c *choosing) free() {
	c.Chooser.Free()
	c.list.Free()
}

// Bytes returns the memory that plans share. No plan may be in Request.
func (x *Exchange) Bytes() (bytes int64) {
	for range len(x.choices) {
		c := <-x.choices
		bytes += c.memory()
		x.choices <- c
	}
	return bytes + x.node.bytes()
}

// Free frees the memory that plans share. No plan may be in Request.
func (x *Exchange) Free() {
	for range len(x.choices) {
		(<-x.choices).free()
	}
	x.node.free()
}

// serving are the sums that other ranks want, as segments of rows to add.
type serving struct {
	of      []compute.RowRef
	ptr     []int64
	indices []int32
	sums    []float32 // sums before conversion, if they travel in a type other than float32
}

func (s *serving) clear() {
	s.of, s.indices, s.ptr = s.of[:0], s.indices[:0], append(mem.Grow(s.ptr[:0], 1)[:0], 0)
}

func (s *serving) bytes() int64 {
	return int64(cap(s.of)+cap(s.ptr))*8 + int64(cap(s.indices)+cap(s.sums))*4
}

func (s *serving) free() {
	mem.Free(s.of)
	mem.Free(s.ptr)
	mem.Free(s.indices)
	mem.Free(s.sums)
}

// counts returns how many counts a rank sends before ids. For each kind there is the number of rows
// and, with Options.Sums, also the number of sums and the number of their members.
func (x *Exchange) counts() int { return len(x.kinds) * x.perKind }

func (x *Exchange) countsOf(counts []int64, rank, kind int) []int64 {
	return counts[rank*x.counts()+kind*x.perKind:][:x.perKind]
}

// sumRows returns how many rows of a kind are as long as one sum of such rows.
func (x *Exchange) sumRows(kind int) int {
	of, _ := x.sums.typeOf(x.kinds[kind].Type)
	return of.Size() / x.kinds[kind].Type.Size()
}

// divide applies the choice between rows and sums to the plan: it lists the frontier positions of
// the misses that travel as rows.
func (x *Exchange) divide(p *Plan) {
	c := p.choosing
	clear(p.part)
	for n, k := range c.rows {
		i := p.missing[k]
		c.rows[n] = i
		p.part[p.Parts[i]]++
	}
	for n, k := range c.vacant {
		c.vacant[n] = p.missing[k]
	}
	p.rows = c.rows
	p.Summed, p.Sums = int64(len(c.vacant)), int64(len(c.chosen))
}

// owner returns the rank that owns a group's rows and makes its sum. size returns the number of a
// group's members.
func (x *Exchange) owner(g *Groups, group int32) int { return int(g.part[group]) / x.perRank }

func (g *Groups) size(group int32) int { return int(g.begin[group+1] - g.begin[group]) }

// kindOf returns the kind of a group's rows.
func (x *Exchange) kindOf(g *Groups, group int32) int { return int(x.partKind[g.part[group]]) }

// nextOf returns the entries of choosing.next for the group's owner and kind.
func (x *Exchange) nextOf(c *choosing, group int32) []int {
	return c.next[2*(x.owner(&c.list, group)*len(x.kinds)+x.kindOf(&c.list, group)):][:2]
}

// placeSums counts the sums requested from rank r and gives them places, kind by kind. Their
// members go into askIDs from index next on, and the sums into the receive buffer from unit landing
// on. It returns the index and the unit after the last sum.
func (x *Exchange) placeSums(p *Plan, r, next, landing int) (int, int) {
	c := p.choosing
	for kind := range x.kinds {
		asked := x.countsOf(p.asked, r, kind)
		asked[1], asked[2] = 0, 0
		if x.mixed() {
			p.spans[x.sumsIn(r, kind)-x.received] = [2]int{}
		}
	}
	if c == nil {
		return next, landing
	}
	for _, group := range c.chosen {
		if x.owner(&c.list, group) == r {
			asked := x.countsOf(p.asked, r, x.kindOf(&c.list, group))
			asked[1]++
			asked[2] += int64(c.list.size(group))
		}
	}
	if n := 2 * x.ranks * len(x.kinds); len(c.next) != n {
		c.next = make([]int, n)
	}
	for kind, of := range x.kinds {
		asked, begin := x.countsOf(p.asked, r, kind), landing
		landing += int(asked[1]) * x.sumRows(kind) * (of.RowBytes() / x.unit)
		at := c.next[2*(r*len(x.kinds)+kind):]
		at[0], at[1] = next, begin
		if x.mixed() { // with several kinds, indices count from the first sum of the table
			at[1] = 0
			p.spans[x.sumsIn(r, kind)-x.received] = [2]int{begin, landing}
		}
		numbers := int(asked[2])
		if x.sums.Weighted {
			numbers *= 2
		}
		next += numbers
	}
	return next, landing
}

// askSums lists the members of the sums to request, owner by owner and kind by kind, after the
// rows. Sums of one kind come in the order of their destinations.
func (x *Exchange) askSums(p *Plan, ids []graph.VertexID, e *Edges) {
	c, ask := p.choosing, p.askIDs
	g := &c.list
	for _, group := range c.chosen {
		part, size, next := int(g.part[group]), g.size(group), x.nextOf(c, group)
		at, members := next[0], int(x.countsOf(p.asked, x.owner(g, group), x.kindOf(g, group))[2])
		for k := range size {
			edge := int(g.edge[group]) + k
			v := ids[compute.SourceOf(e.Indices[edge])]
			id := int32((x.base[part] + compute.RowRef(v)).Row()) + x.firsts[part]
			if k == 0 {
				id = ^id
			}
			ask[at+k] = id
			if x.sums.Weighted {
				ask[at+k+members] = int32(math.Float32bits(e.Weights[edge]))
			}
		}
		next[0] += size
	}
}

// standIn replaces the edges of groups that travel as sums by edges to the sums. An edge refers to
// a sum by a frontier position, as it does to a vertex. Sums take the positions of vertices that
// are only in sums, and positions after the frontier if there are more sums than such vertices.
func (x *Exchange) standIn(p *Plan, e *Edges) {
	c := p.choosing
	if x.mixed() {
		p.Rows.Wide = x.summed // RowsOf decides which kinds have wide sums
	} else if of, _ := x.sums.typeOf(x.kinds[0].Type); of != x.kinds[0].Type {
		p.Rows.Tables[x.summed], p.Rows.Wide, p.Rows.WideType = p.received, x.summed, of
	}
	frontier, beyond := len(p.Rows.Of), &p.Rows.Of
	// Relay will put these sums after the rows that are passed on.
	if r := &p.relayed; len(r.parts) > 0 {
		frontier, beyond = len(r.parts), &r.sums
	}
	next := len(*beyond)
	*beyond = mem.Grow(*beyond, next+max(0, len(c.chosen)-len(c.vacant)))
	set := func(j int, ref compute.RowRef) {
		if j < len(c.vacant) {
			p.Rows.Of[c.vacant[j]] = ref
		} else {
			(*beyond)[next+j-len(c.vacant)] = ref
		}
	}
	place := func(j int) int32 {
		if j < len(c.vacant) {
			return c.vacant[j]
		}
		return int32(frontier + j - len(c.vacant))
	}
	for j, group := range c.chosen {
		kind, next := x.kindOf(&c.list, group), x.nextOf(c, group)
		set(j, compute.MakeRowRef(x.sumsIn(x.owner(&c.list, group), kind), next[1]))
		next[1] += x.sumRows(kind)
	}
	for j := len(c.chosen); j < len(c.vacant); j++ { // no edge reads these positions
		set(j, p.Rows.Of[c.vacant[0]])
	}
	p.shorten(e, place)
}

// shorten rewrites the edges: the edges of the j-th sum become one edge from position place(j),
// with weight 1.
func (p *Plan) shorten(e *Edges, place func(j int) int32) {
	c, g := p.choosing, &p.choosing.list
	p.counts = mem.Grow(p.counts[:0], len(e.Indptr)-1)
	e.Counts = p.counts
	to, next, begin := int64(0), 0, e.Indptr[0]
	for d := range e.Counts {
		hi := e.Indptr[d+1]
		e.Counts[d] = int32(hi - begin)
		for edge := begin; edge < hi; to++ {
			s, size, weight := e.Indices[edge], int64(1), float32(1)
			if e.Weights != nil {
				weight = e.Weights[edge]
			}
			if next < len(c.chosen) && int64(g.edge[c.chosen[next]]) == edge {
				size, weight = int64(g.size(c.chosen[next])), 1
				if s < 0 {
					s = ^place(next)
				} else {
					s = place(next)
				}
				next++
			}
			e.Indices[to] = s
			if e.Weights != nil {
				e.Weights[to] = weight
			}
			edge += size
		}
		begin, e.Indptr[d+1] = hi, to
	}
	e.Indices = e.Indices[:to]
	if e.Weights != nil {
		e.Weights = e.Weights[:to]
	}
}

// addSums computes the sums that rank r wants, and writes them to dst. The list ids has the sums'
// members, which come after the ids of rows in wantIDs.
func (x *Exchange) addSums(p *Plan, r int, ids []int32, dst []byte) error {
	for kind, of := range x.kinds {
		wanted := x.countsOf(p.wanted, r, kind)
		bytes := int(wanted[1]) * x.sumRows(kind) * of.RowBytes()
		if err := x.addKind(p, r, kind, ids, dst[:bytes]); err != nil {
			return err
		}
		numbers := int(wanted[2])
		if x.sums.Weighted {
			numbers *= 2
		}
		ids, dst = ids[numbers:], dst[bytes:]
	}
	return nil
}

// addKind is addSums for the sums of one kind. The argument `ids` begins with the members of these
// sums.
func (x *Exchange) addKind(p *Plan, r, kind int, ids []int32, dst []byte) error {
	wanted, is := x.countsOf(p.wanted, r, kind), x.kinds[kind]
	sums, members := int(wanted[1]), int(wanted[2])
	if sums == 0 && members == 0 {
		return nil
	}
	s := &p.serving
	s.clear()
	if err := x.listSums(s, r, kind, ids[:members], sums); err != nil {
		return err
	}
	as, _ := x.sums.typeOf(is.Type)
	if as != compute.Float32 {
		s.sums = mem.Grow(s.sums[:0], sums*is.Cols)
	}
	if x.planning {
		return nil
	}
	how := x.sums.How
	if how == compute.ReduceMean {
		how = compute.ReduceSum
	}
	var weights []float32
	if x.sums.Weighted {
		weights = asFloats(mem.Bytes(ids[members : 2*members]))
	}
	to := compute.Matrix{Rows: sums, Cols: is.Cols, Data: s.sums}
	if as == compute.Float32 {
		to.Data = asFloats(dst)
	}
	x.host.SegmentRows(to, how, compute.Segments{Indptr: s.ptr, Indices: s.indices}, weights,
		compute.Rows{Cols: is.Cols, Type: is.Type, Tables: x.tables, Of: s.of})
	switch as {
	case compute.Int8:
		for i, y := range to.Data {
			dst[i] = byte(int8(y))
		}
	case compute.Int16:
		for i, y := range to.Data {
			binary.LittleEndian.PutUint16(dst[2*i:], uint16(int16(y)))
		}
	}
	p.ServedSums += int64(sums)
	return nil
}

// listSums appends to s the sums of a kind that rank r wants. The argument `ids` has their members.
func (x *Exchange) listSums(s *serving, r, kind int, ids []int32, sums int) error {
	at, before := len(s.of), len(s.ptr)-1
	s.of, s.indices = mem.Grow(s.of, at+len(ids)), mem.Grow(s.indices, at+len(ids))
	s.ptr = mem.Grow(s.ptr, before+sums+1)
	// In a prediction, the ids are those of this rank's own requests to other ranks. Each sum gets
	// an equal share of these ids as its members.
	if x.planning {
		for k, id := range ids {
			v := uint32(x.first) + uint32(id)
			s.of[at+k] = x.base[x.parts.Find(v)] + compute.RowRef(v)
			s.indices[at+k] = int32(at + k)
		}
		for k := range sums {
			s.ptr[before+k+1] = int64(at + len(ids)*(k+1)/sums)
		}
		return nil
	}
	groups, of := 0, 0 // number of sums so far, and the part of the last sum
	for k, id := range ids {
		first := id < 0
		if first {
			if groups < sums {
				s.ptr[before+groups] = int64(at + k)
			}
			groups++
			id = ^id
		}
		if uint32(id) >= uint32(x.rows) {
			return x.outside(fmt.Sprintf("rank %d wants a sum with row %d", r, id))
		}
		v := uint32(x.first) + uint32(id)
		part := x.parts.Find(v)
		if first || k == 0 {
			of = part
		}
		if part != of || int(x.partKind[part]) != kind {
			return fmt.Errorf("exchange: rank %d asks rank %d for a sum of rows of part %d, but "+
				"row %d in it belongs to part %d; %s", r, x.rank, of, id, part, cure)
		}
		s.of[at+k] = x.base[part] + compute.RowRef(v)
		s.indices[at+k] = int32(at + k)
	}
	if groups != sums || len(ids) > 0 && ids[0] >= 0 {
		return fmt.Errorf("exchange: rank %d asks rank %d for %d sums, but lists rows for %d "+
			"sums; %s", r, x.rank, sums, groups, cure)
	}
	s.ptr[before+sums] = int64(at + len(ids))
	return nil
}

// asFloats returns memory as float32 numbers. After float16 rows with an odd number of columns, the
// memory may begin at an odd multiple of 2 bytes. The supported processors read and write such
// unaligned numbers too.
func asFloats(b []byte) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/floatBytes)
}
