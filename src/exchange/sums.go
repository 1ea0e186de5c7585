package exchange

import (
	"fmt"
	"math"
	"unsafe"

	"halognn/src/compute"
	"halognn/src/graph"
	"halognn/src/mem"
)

// Sums says what the input layer makes of the rows that it reads. All neighbours of a destination
// in one part, a group, may then travel as one vector, made by their owner:
//
//	destination d    s1 s2 s3 │ s4 s5 │ s6        sources, by part (graph.Grouper)
//	                 own part │ p     │ q
//	row of s6, or                     │ x         who covers an edge is chosen by cover
//	sum of s4, s5             │ x     │           which stands for the edges of both
//
// A sum has all neighbours of d in its part, also those that are cached, so it is the number that
// would be made of their rows here (docs/design/08-input-aggregation.md).
type Sums struct {
	How      compute.Reduction // a mean is a sum that the asker divides
	Own      bool              // the rows of destinations are read themselves
	Weighted bool              // edges have weights, which travel
}

// Edges are those of the input layer, as graph.Grouper leaves them. Request writes sums in the place
// of groups: the arrays become shorter, and Counts says how many rows each destination has.
type Edges struct {
	Indptr  []int64
	Indices []int32
	Weights []float32 // nil without
	Counts  []int32
}

// choosing is the memory of a plan while it chooses between rows and sums.
type choosing struct {
	cover
	edges   *Edges
	begins  []int32 // [G] first edge of each group, by destination
	ends    []int32 // [G] and one past its last
	owner   []int32 // [G] part
	chosen  []int32 // [J] groups whose sums travel
	rows    []int32 // positions of the vertices whose rows travel
	vacant  []int32 // and of those that are only in sums
	numbers []int32 // [frontier] place in missing of each vertex that is missing
	next    []int   // [2K] place in askIDs and in the receive buffer of each owner's next sum
}

// serving are the groups that other ranks want added.
type serving struct {
	of      []compute.RowRef
	ptr     []int64
	indices []int32
}

// counts returns how many numbers ranks tell each other before ids.
func (x *Exchange) counts() int {
	if x.sums == nil {
		return 1
	}
	return 3 // rows, sums, members of sums
}

const floatBytes = 4

// sumBytes returns the bytes of a sum, sumRows the rows of the receive buffer that it takes.
func (x *Exchange) sumBytes() int { return x.cols * floatBytes }
func (x *Exchange) sumRows() int  { return x.sumBytes() / x.rowBytes }

// Request asks for what Find, or Locate and Hold, have not found of a frontier: rows and, if the exchange has
// Sums, sums of groups in their stead, where fewer bytes travel so. kept lists the misses, as
// Landed counts them, whose rows are wanted themselves; early are further rows. e, the edges of the
// input layer, is rewritten; nil if rows alone are wanted. It
// may run for many plans at once.
func (x *Exchange) Request(p *Plan, ids, early []graph.VertexID, kept []int32, e *Edges) {
	if x.sums == nil || e == nil || len(p.missing) == 0 {
		x.ask(p, early)
		return
	}
	select {
	case p.choosing = <-x.choices:
	default:
		p.choosing = new(choosing)
	}
	p.choosing.edges = e
	x.choose(p, kept)
	x.ask(p, early)
	if p.Sums > 0 {
		x.askSums(p, ids)
		x.standIn(p)
	}
	select {
	case x.choices <- p.choosing:
	default:
		p.choosing.free()
	}
	p.choosing, p.rows = nil, nil
}

// choose chooses between rows and sums.
func (x *Exchange) choose(p *Plan, kept []int32) {
	c := p.choosing
	x.bipartite(p, kept)
	c.choose(len(p.missing))
	c.chosen = mem.Grow(c.chosen[:0], len(c.bytes))[:0]
	for g := range c.bytes {
		if c.isSum(g) {
			c.chosen = append(c.chosen, int32(g))
		}
	}
	c.rows = mem.Grow(c.rows[:0], len(p.missing))[:0]
	c.vacant = mem.Grow(c.vacant[:0], len(p.missing))[:0]
	clear(p.part)
	for k, i := range p.missing {
		// One without edges that must be covered is a destination's own, or is kept.
		if c.isRow(k) || c.first[k] == c.first[k+1] {
			c.rows = append(c.rows, i)
			p.part[p.Parts[i]]++
		} else {
			c.vacant = append(c.vacant, i)
		}
	}
	p.rows = c.rows
	p.Summed, p.Sums = int64(len(c.vacant)), int64(len(c.chosen))
}

// bipartite fills the graph of what is not at hand.
func (x *Exchange) bipartite(p *Plan, kept []int32) {
	c := p.choosing
	e := c.edges
	const wanted = -1 // as a row in any case
	c.numbers = mem.Grow(c.numbers[:0], len(p.Rows.Of))
	for i := range c.numbers {
		c.numbers[i] = wanted
	}
	for k, i := range p.missing {
		c.numbers[i] = int32(k)
	}
	destinations := len(e.Indptr) - 1
	if x.sums.Own {
		for d := range c.numbers[:destinations] {
			c.numbers[d] = wanted
		}
	}
	for _, n := range kept {
		if int(n) < len(p.missing) {
			c.numbers[p.missing[n]] = wanted
		}
	}
	edges := len(e.Indices)
	c.start(x.rowBytes+idBytes, edges)
	c.begins, c.ends = mem.Grow(c.begins[:0], edges)[:0], mem.Grow(c.ends[:0], edges)[:0]
	c.owner = mem.Grow(c.owner[:0], edges)[:0]
	member := idBytes
	if x.sums.Weighted {
		member += floatBytes
	}
	for d := range destinations {
		for begin, hi := e.Indptr[d], e.Indptr[d+1]; begin < hi; {
			part := p.Parts[compute.SourceOf(e.Indices[begin])]
			end := begin
			for ; end == begin || end < hi && e.Indices[end] >= 0; end++ {
				s := compute.SourceOf(e.Indices[end])
				if x.remote[part] != 0 && c.numbers[s] != wanted {
					c.member = append(c.member, c.numbers[s])
				}
			}
			if c.add(x.sumBytes() + int(end-begin)*member) {
				c.begins, c.ends = append(c.begins, int32(begin)), append(c.ends, int32(end))
				c.owner = append(c.owner, int32(part))
			}
			begin = end
		}
	}
}

// placeSums counts the sums asked of rank r, whose members come next in askIDs and which land next in
// the receive buffer, and returns what comes after them.
func (x *Exchange) placeSums(p *Plan, r, next, landing int) (int, int) {
	asked := p.asked[r*x.counts():]
	asked[1], asked[2] = 0, 0
	c := p.choosing
	if c == nil {
		return next, landing
	}
	c.next = growInts(c.next, 2*x.ranks)
	c.next[2*r], c.next[2*r+1] = next, landing
	for _, g := range c.chosen {
		if int(c.owner[g])/x.perRank == r {
			asked[1]++
			asked[2] += int64(c.ends[g] - c.begins[g])
		}
	}
	numbers := int(asked[2])
	if x.sums.Weighted {
		numbers *= 2
	}
	return next + numbers, landing + int(asked[1])*x.sumRows()
}

func growInts(s []int, n int) []int {
	if len(s) != n {
		return make([]int, n)
	}
	return s
}

// askSums lists the members of the sums to ask for, owner by owner, after the rows. The sums of an
// owner come in the order of their destinations.
func (x *Exchange) askSums(p *Plan, ids []graph.VertexID) {
	c, ask := p.choosing, p.askIDs
	e := c.edges
	for _, g := range c.chosen {
		part := int(c.owner[g])
		r := part / x.perRank
		at, members := c.next[2*r], int(p.asked[r*x.counts()+2])
		for k := range int(c.ends[g] - c.begins[g]) {
			edge := int(c.begins[g]) + k
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
		c.next[2*r] += int(c.ends[g] - c.begins[g])
	}
}

// standIn puts the sums in the place of their edges. They are referred to like vertices, in the
// places of those that are only in sums, and beyond the frontier if there are more.
func (x *Exchange) standIn(p *Plan) {
	c, table := p.choosing, len(x.base)+1
	if x.dtype == compute.Float16 {
		table++
		p.Rows.Tables[table], p.Rows.Wide = p.received, table
	}
	frontier := len(p.Rows.Of)
	more := max(0, len(c.chosen)-len(c.vacant))
	p.Rows.Of = mem.Grow(p.Rows.Of, frontier+more)
	place := func(j int) int32 {
		if j < len(c.vacant) {
			return c.vacant[j]
		}
		return int32(frontier + j - len(c.vacant))
	}
	for j, g := range c.chosen {
		at := &c.next[2*(int(c.owner[g])/x.perRank)+1]
		p.Rows.Of[place(j)] = compute.MakeRowRef(table, *at)
		*at += x.sumRows()
	}
	for j := len(c.chosen); j < len(c.vacant); j++ { // which nobody reads
		p.Rows.Of[place(j)] = p.Rows.Of[place(0)]
	}
	x.shorten(p, place)
}

// shorten rewrites the edges.
func (x *Exchange) shorten(p *Plan, place func(int) int32) {
	c := p.choosing
	e := c.edges
	p.counts = mem.Grow(p.counts[:0], len(e.Indptr)-1)
	e.Counts = p.counts
	to, next, begin := int64(0), 0, e.Indptr[0]
	for d := range e.Counts {
		hi := e.Indptr[d+1]
		e.Counts[d] = int32(hi - begin)
		for edge := begin; edge < hi; to++ {
			s := e.Indices[edge]
			after := edge + 1
			weight := float32(1)
			if e.Weights != nil {
				weight = e.Weights[edge]
			}
			if next < len(c.chosen) && int64(c.begins[c.chosen[next]]) == edge {
				after, weight = int64(c.ends[c.chosen[next]]), 1
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
			edge = after
		}
		begin, e.Indptr[d+1] = hi, to
	}
	e.Indices = e.Indices[:to]
	if e.Weights != nil {
		e.Weights = e.Weights[:to]
	}
}

// addSums makes the sums that rank r wants, of members that follow its rows in wantIDs, into dst.
func (x *Exchange) addSums(p *Plan, r int, ids []int32, dst []byte) error {
	sums, members := int(p.wanted[r*x.counts()+1]), int(p.wanted[r*x.counts()+2])
	if sums == 0 && members == 0 {
		return nil
	}
	s := &p.serving
	s.of, s.indices = mem.Grow(s.of[:0], members), mem.Grow(s.indices[:0], members)
	s.ptr = mem.Grow(s.ptr[:0], sums+1)
	groups := 0
	for k, id := range ids[:members] {
		if id < 0 {
			if groups < sums {
				s.ptr[groups] = int64(k)
			}
			groups++
			id = ^id
		}
		if uint32(id) >= uint32(x.rows) {
			return fmt.Errorf("exchange: rank %d wants a sum with row %d of rank %d, which has %d; %s",
				r, id, x.rank, x.rows, cure)
		}
		v := uint32(x.first) + uint32(id)
		s.of[k] = x.base[x.parts.Find(v)] + compute.RowRef(v)
		s.indices[k] = int32(k)
	}
	if groups != sums || members > 0 && ids[0] >= 0 {
		return fmt.Errorf("exchange: rank %d wants %d sums of rank %d, but names the rows of %d; %s", r,
			sums, x.rank, groups, cure)
	}
	s.ptr[sums] = int64(members)
	how := x.sums.How
	if how == compute.ReduceMean {
		how = compute.ReduceSum
	}
	var weights []float32
	if x.sums.Weighted {
		weights = asFloats(mem.Bytes(ids[members : 2*members]))
	}
	x.host.SegmentRows(compute.Matrix{Rows: sums, Cols: x.cols, Data: asFloats(dst)}, how,
		compute.Segments{Indptr: s.ptr, Indices: s.indices}, weights,
		compute.Rows{Cols: x.cols, Type: x.dtype, Tables: x.tables, Of: s.of})
	p.ServedSums += int64(sums)
	return nil
}

// asFloats returns memory as float32 numbers. float16 rows of an odd width may put it at an odd
// multiple of 2 bytes, from which the processors that this runs on read and write them all the same.
func asFloats(b []byte) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/floatBytes)
}

func (c *choosing) free() {
	c.cover.free()
	for _, x := range [][]int32{c.begins, c.ends, c.owner, c.chosen, c.rows, c.vacant, c.numbers} {
		mem.Free(x)
	}
	*c = choosing{}
}

func (c *choosing) memory() int64 {
	return c.cover.memory() + int64(cap(c.begins)+cap(c.ends)+cap(c.owner)+cap(c.chosen)+
		cap(c.rows)+cap(c.vacant)+cap(c.numbers))*4
}

// Bytes returns the memory that is shared by plans. None may be choosing.
func (x *Exchange) Bytes() (bytes int64) {
	for range len(x.choices) {
		c := <-x.choices
		bytes += c.memory()
		x.choices <- c
	}
	return bytes
}

// Free frees the memory that is shared by plans. None may be choosing.
func (x *Exchange) Free() {
	for range len(x.choices) {
		(<-x.choices).free()
	}
}

func (s *serving) bytes() int64 { return int64(cap(s.of)+cap(s.ptr))*8 + int64(cap(s.indices))*4 }

func (s *serving) free() {
	mem.Free(s.of)
	mem.Free(s.ptr)
	mem.Free(s.indices)
}
