// Package exchange locates and fetches the feature rows of a minibatch's input frontier. Rows that
// the rank can read in memory stay where they lie. All others are fetched from their owners. In the
// same way it fetches any other matrix whose rows are distributed like the vertices, such as the
// hidden states of layer-wise inference.
//
//	frontier  v0  v1  v2  v3  v4  v5  ...        vertex ids, distinct
//	            │ part of v: search in Offsets [P+1]; rank of part: part / (P/K)
//	Plan        │
//	            ├─ own part       Of[i] = (part, row)          Tables[part]   own shard, mapped
//	            ├─ part of a peer Of[i] = (part, row)          Tables[part]   a peer's, mapped
//	            ├─ in the cache   Of[i] = (P, slot)            Tables[P]      Cache.Table
//	            └─ remote         Of[i] = (P+1, position)      Tables[P+1]    receive buffer
//
// Rows are of one or several kinds. If there are several, the cache has a table for each kind, and
// the receive buffer one for each part.
//
// With Options.Stored every rank has the tables of all parts, and nothing is remote. Each vertex is
// looked up in the cache first, and then in the table of its part.
//
//	remote ids, by owning part, then in frontier order:      rank r asks           rank s is asked
//	  counts  how many rows it asks of each owner            asked   [K]  ───────>  wanted   [K]
//	  ids     rows relative to the owner's first vertex      askIDs  [R]  ───────>  wantIDs  [S]
//	  slice   the owner copies the rows together                            wantRows [S, rowBytes]
//	  rows    in the order of the ids, so they land in place received [R] <───────  wantRows
//
// With Options.Sums the neighbours that a destination has in one part may come as their sum
// (groups.go). A rank then sends three counts: of rows, of sums and of the sums' members. In the
// messages, the ids of members follow the ids of rows, and sums follow rows. The edges are
// rewritten so that they read a sum like a row.
//
// With Options.Node, the ranks of a node request each row once, and pass it on (nodes.go).
//
// Without Node, no row is copied twice or permuted: readers follow the references in Plan.Rows
// (docs/design/05-rows-stay-where-they-lie.md). Because requests are grouped by part, the owner
// copies each run of rows of one table with one call.
//
// With a dynamic cache, whose content depends on the minibatches before, Plan is split into two
// calls. Locate finds the remote vertices. Request is told which of them have rows in
// Options.Buffer, and which further rows to fetch. After all rows of the minibatch have been read,
// Keep copies fetched rows into the buffer.
//
// The stages of one minibatch are, in pipeline terms, Plan (local), StartAsk, SliceRows (local),
// StartRows. Many plans may be in flight. StartAsk and StartRows use one communicator. The
// collectives of nodes.go use the node's communicator. All ranks must start the operations of a
// communicator in the same order; the pipeline's issuer does so by a schedule on which all ranks
// agree. Nothing else may use these communicators, because gradients and layer shuffles follow
// other schedules.
//
// All arrays lie outside the Go heap, grow with slack and are kept; in steady state a plan
// allocates nothing. The package knows nothing of sampling, of cache policies, or of where tables
// come from.
package exchange

import (
	"errors"
	"fmt"
	"math"

	"halognn/src/devices/compute"
	"halognn/src/ranks/comm"
	"halognn/src/topology/graph"
)

// Slicer is the part of compute.Host that is needed to send rows and their sums.
type Slicer interface {
	// SliceRows copies rows ids[i] of table, rowBytes bytes each, to dst, in order.
	SliceRows(dst, table []byte, rowBytes int, ids []int32)
	// SegmentRows adds up rows; see compute.Host. Only Options.Sums and Late need it.
	SegmentRows(dst compute.Matrix, how compute.Reduction, s compute.Segments, weights []float32,
		rows compute.Rows)
}

// Cache holds copies of rows of other ranks. It must be safe for concurrent use. A row that Row has
// returned for a plan must stay in the table until the plan has been used.
type Cache interface {
	// Row returns the number of the row in Table that holds vertex v, or -1. For sparse rows it
	// returns the number of the row's first entry. It is called only for remote vertices.
	Row(v graph.VertexID) int
	// Table returns the cached rows, with the exchange's columns and type.
	Table() []byte
}

// SharedCache is a Cache whose table also holds rows that other ranks of this node have cached.
// These count as peer rows.
type SharedCache interface {
	Cache
	// Own returns the rows [first, end) of Table that this rank caches.
	Own() (first, end int)
}

// Options describes where rows lie. All ranks must give the same Offsets and Kinds.
type Options struct {
	// Offsets [P+1]: part k is vertices [Offsets[k], Offsets[k+1]). P is a multiple of the number
	// of ranks K; rank r owns parts [r*P/K, (r+1)*P/K). Parts may be empty.
	Offsets []int64

	// Tables [P] are the rows of each part that this rank can read in memory: of its own parts, and
	// of the parts of peers that share its memory. The entries of other parts are nil, and the rows
	// of these parts are fetched. Tables must stay valid until the last plan has been used.
	Tables [][]byte

	// Stored says that Tables has the rows of all parts, but is slower to read than the cache. Rows
	// that are not cached are read from Tables, and counted as stored rows.
	Stored bool

	// Kinds are the kinds of rows: part k has rows of kind k % len(Kinds), and every rank has parts
	// of all kinds. A SharedCache allows only one.
	Kinds []Kind
	Scale []float32 // [Cols] for rows of type compute.Int8: see compute.Rows.Scale
	// Ends [N+1] is set for sparse rows (see compute.Rows); not with SharedCache, Buffer or Sums.
	Ends []int64
	// Kept [len(Kinds)] is the number of rows of each kind in the table of Cache, or in Buffer (see
	// CutTable). It is used only if there are several kinds.
	Kept []int

	Host  Slicer
	Cache Cache // a fixed set of rows, for Plan; nil for none

	// Sums allows owners to send the sum of several rows if a reader needs only the sum. If Sums is
	// nil, owners send rows only. All ranks must set the same Sums.
	Sums *Sums

	// Node describes this rank's node. Its ranks then fetch each row once for all of them. If Node
	// is nil, each rank fetches for itself.
	Node *Node

	// Window bounds the bytes under way from this rank at a time (see comm.Pacer); 0 is no limit.
	// All ranks must set the same Window.
	Window int

	// Buffer is the table of a dynamic cache, whose rows change from step to step; nil if there is
	// no such cache. Locate and Request refer to its rows, and Keep writes them.
	Buffer []byte
}

// Kind describes the rows of a part.
type Kind struct {
	Cols int // if 0, the part has no rows, and none are requested
	Type compute.DType
}

// RowBytes returns the bytes of a row; for sparse rows, the bytes of an entry.
func (k Kind) RowBytes() int {
	if k.Type.IsSparse() {
		return k.Type.Size()
	}
	return k.Cols * k.Type.Size()
}

// tableAlign is the alignment of a kind's rows in a table with several kinds.
const tableAlign = 64

// TableBytes returns the length of a table with the given number of rows of each kind.
func TableBytes(kinds []Kind, rows []int) (bytes int) {
	if len(kinds) == 1 { // no other kind follows, so no alignment
		return rows[0] * kinds[0].RowBytes()
	}
	for k, n := range rows {
		bytes += aligned(n * kinds[k].RowBytes())
	}
	return bytes
}

// CutTable cuts a table, whose length TableBytes returns, into one table for each kind. A single
// kind has the whole table.
func CutTable(table []byte, kinds []Kind, rows []int) [][]byte {
	if len(kinds) == 1 {
		return [][]byte{table}
	}
	of := make([][]byte, len(kinds))
	for k, kind := range kinds {
		size := rows[k] * kind.RowBytes()
		of[k], table = table[:size], table[aligned(size):]
	}
	return of
}

func aligned(bytes int) int { return (bytes + tableAlign - 1) / tableAlign * tableAlign }

// Exchange plans and fetches rows for one rank. Its methods may be called concurrently for
// different plans if all ranks still start the collectives on the communicator in the same order.
type Exchange struct {
	comm     comm.Comm
	rank     int
	ranks    int
	perRank  int // number of parts of each rank
	parts    graph.PartIndex
	first    graph.VertexID // first vertex of this rank
	rows     int            // number of rows of this rank
	scale    []float32
	ends     []int64 // [N+1] Options.Ends for sparse rows; else nil
	offsets  []int64 // [P+1] copy of Options.Offsets
	kinds    []Kind
	partKind []uint16 // [P] kind of each part's rows
	// Bytes of the unit in which messages are counted; it divides the bytes of every row.
	unit     int
	tables   [][]byte         // [P+kinds] rows of each part, then cached rows of each kind
	base     []compute.RowRef // [P] the row of vertex v of part p has the reference base[p] + v
	remote   []uint8          // [P] 1 for parts whose rows are looked up in the cache
	stored   bool             // Options.Stored; if not set, rows that are not cached are fetched
	host     Slicer
	cache    Cache
	changes  bool   // whether there is an Options.Buffer
	kept     [2]int // the rows [kept[0], kept[1]) of the cache's table are cached by this rank
	sums     *Sums
	perKind  int            // number of counts that a message has for each kind of rows
	choices  chan *choosing // memory for choices that no plan uses at present
	firsts   []int32        // [P] first row of the part among its owner's rows
	ones     []int          // [K] 1 for every rank, because each rank gets one message
	byRank   []int          // [K] the numbers of all ranks, ascending
	node     *buying        // nil if each rank fetches for itself
	planning bool           // NewPlanning made this exchange, so tables have no rows

	// Numbers of the first table of received rows and of the first of sums, and count of tables.
	received, summed, numTables int
}

// Parts returns the number of parts.
func (x *Exchange) Parts() int { return len(x.base) }

// Ranks returns the number of ranks. OwnerOf returns the rank that owns a part.
func (x *Exchange) Ranks() int           { return x.ranks }
func (x *Exchange) OwnerOf(part int) int { return part / x.perRank }

// Rank returns the number of this rank. First returns the first vertex of this rank.
func (x *Exchange) Rank() int             { return x.rank }
func (x *Exchange) First() graph.VertexID { return x.first }

// New returns the exchange of this rank. Nothing else may use c while plans are in flight (see the
// package comment); the caller makes it with Dup and frees it. All errors are reported at once.
func New(c comm.Comm, o Options) (*Exchange, error) {
	if err := check(c, o); err != nil {
		return nil, fmt.Errorf("exchange: %w", err)
	}
	return open(c, o), nil
}

// open makes the exchange from options that check has accepted.
func open(c comm.Comm, o Options) *Exchange {
	parts, k, r := len(o.Offsets)-1, c.Size(), c.Rank()
	x := &Exchange{
		comm: c, rank: r, ranks: k, perRank: parts / k, parts: graph.NewPartIndex(o.Offsets),
		offsets: o.Offsets, ends: o.Ends, scale: o.Scale,
		kinds: o.Kinds, sums: o.Sums, choices: make(chan *choosing, 64),
		tables: make([][]byte, parts+len(o.Kinds)), base: make([]compute.RowRef, parts),
		remote: make([]uint8, parts), partKind: make([]uint16, parts),
		stored: o.Stored,
		host:   o.Host, cache: o.Cache, firsts: make([]int32, parts), ones: make([]int, k),
	}
	for _, k := range x.kinds {
		x.unit = gcd(x.unit, k.RowBytes())
	}
	x.unit, x.perKind = max(1, x.unit), 1
	if x.sums != nil {
		x.perKind = 3 // rows, sums, members of sums
	}
	x.first = graph.VertexID(o.Offsets[r*x.perRank])
	x.rows = int(o.Offsets[(r+1)*x.perRank]) - int(x.first)
	copy(x.tables, o.Tables)
	for p := range parts {
		x.partKind[p] = uint16(p % len(x.kinds))
		x.firsts[p] = int32(o.Offsets[p] - o.Offsets[p/x.perRank*x.perRank])
		x.base[p] = compute.MakeRowRef(p, 0) - compute.RowRef(o.Offsets[p])
		if (o.Stored || o.Tables[p] == nil) && x.rowBytesOf(p) > 0 {
			x.remote[p] = 1
		}
	}
	held := o.Buffer
	x.changes = o.Buffer != nil
	if o.Cache != nil {
		held = o.Cache.Table()
		x.kept = [2]int{0, math.MaxInt}
		if c, ok := o.Cache.(SharedCache); ok {
			x.kept[0], x.kept[1] = c.Own()
		}
	}
	if held != nil {
		copy(x.tables[parts:], CutTable(held, o.Kinds, o.Kept))
	}
	x.layTables()
	for i := range x.ones {
		x.ones[i] = 1
		x.byRank = append(x.byRank, i)
	}
	if o.Node != nil {
		x.node = newBuying(o.Node, r, o.Sums != nil)
	}
	comm.Pace(c, o.Window)
	return x
}

// RowsOf returns the rows of a plan as rows of one kind: with the columns and type of this kind,
// and the type of its sums. References to rows of other kinds must not be followed.
func (x *Exchange) RowsOf(p *Plan, kind int) compute.Rows {
	rows, of := p.Rows, x.kinds[kind]
	rows.Cols, rows.Type, rows.Mixed = of.Cols, of.Type, x.mixed()
	if x.sums == nil {
		return rows
	}
	if rows.WideType, _ = x.sums.typeOf(of.Type); rows.WideType == of.Type {
		rows.Wide = 0
	}
	return rows
}

// Kinds returns the kinds: part k has rows of kind k % len(Kinds).
func (x *Exchange) Kinds() []Kind { return x.kinds }

// MakesSums reports whether owners may send sums of rows.
func (x *Exchange) MakesSums() bool { return x.sums != nil }

func (x *Exchange) rowBytesOf(part int) int { return x.kinds[x.partKind[part]].RowBytes() }

// layTables numbers the tables of a plan:
//
//	parts [P] | cached rows [kinds] | received | passed on | collected | sums
//
// With several kinds no rows are passed on. Received rows then have a table for each part, and sums
// have a table for each owner and kind.
func (x *Exchange) layTables() {
	x.received = len(x.base) + len(x.kinds)
	x.summed = x.received + 3
	x.numTables = x.summed + 1
	if !x.mixed() {
		return
	}
	x.summed = x.received + len(x.base)
	if x.numTables = x.summed; x.sums != nil {
		x.numTables += x.ranks * len(x.kinds)
	}
}

// mixed reports whether rows are of several kinds.
func (x *Exchange) mixed() bool { return len(x.kinds) > 1 }

// tableOf returns the number of the table of cached rows for a part. landedIn returns the number of
// the part's table of received rows.
func (x *Exchange) tableOf(part int) int { return len(x.base) + int(x.partKind[part]) }
func (x *Exchange) landedIn(part int) int {
	if !x.mixed() {
		return x.received
	}
	return x.received + part
}

// sumsIn returns the number of the table of the sums that a rank sends for a kind.
func (x *Exchange) sumsIn(rank, kind int) int {
	if x.mixed() {
		return x.summed + rank*len(x.kinds) + kind
	}
	if of, _ := x.sums.typeOf(x.kinds[kind].Type); of == x.kinds[kind].Type {
		return x.received
	}
	return x.summed
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// maxParts is the largest number of parts. The number of a table has 16 bits. Besides the tables of
// the parts there are five: rows of the cache, received rows, rows that other ranks pass on, rows
// that Collect copies out of the cache, and sums.
const maxParts = 1<<16 - 5

// check returns all errors in the arguments of New, joined into one.
func check(c comm.Comm, o Options) error {
	var errs []error
	reject := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if len(o.Kinds) == 0 {
		return errors.New("the list Options.Kinds is empty; give at least one kind of rows, with " +
			"the number and type of its columns")
	}
	errs = append(errs, checkKept(&o)...)
	if o.Stored && o.Buffer != nil {
		reject("rows that are read from files cannot be kept in a Buffer, which is filled by " +
			"fetching; give a Cache")
	}
	if o.Cache != nil && o.Buffer != nil {
		reject("there are both a Cache and a Buffer; rows are kept in only one of them")
	}
	if o.Host == nil {
		reject("there is no Host to copy rows with")
	}
	if err := checkParts(c, o); err != nil {
		return errors.Join(append(errs, err)...)
	}
	if o.Node != nil {
		errs = append(errs, o.Node.check(c.Rank(), c.Size()))
		switch of := o.Kinds[0].Type; {
		case !o.Node.Keeps:
		case o.Buffer == nil:
			reject("there is no Buffer for the rows that a rank keeps for its node")
		case len(o.Kinds) > 1 || of.IsSparse():
			reject("rows that a rank keeps for its node must have one size")
		}
	}
	if o.Kinds[0].Type.IsSparse() {
		if err := checkSparse(&o); err != nil {
			return errors.Join(append(errs, err)...)
		}
	}
	return errors.Join(append(errs, checkTables(c.Rank(), (len(o.Offsets)-1)/c.Size(), o)...)...)
}

// checkParts returns an error if the parts cannot be divided among the ranks or do not fit the
// tables.
func checkParts(c comm.Comm, o Options) error {
	parts, k, most := len(o.Offsets)-1, c.Size(), maxParts
	if len(o.Kinds) > 1 {
		most = (maxParts - len(o.Kinds)) / 2
		if o.Sums != nil {
			most = (maxParts - len(o.Kinds)) / 3
		}
	}
	switch {
	case parts < 1 || parts > most:
		return fmt.Errorf("the number of parts is %d; it must be 1 to %d", parts, most)
	case parts%k != 0 || parts/k%len(o.Kinds) != 0:
		return fmt.Errorf("%d parts cannot be shared evenly by %d ranks; use a number of ranks "+
			"that divides the number of parts", parts, k)
	case o.Offsets[0] != 0:
		return fmt.Errorf("offsets start at %d, not 0", o.Offsets[0])
	case o.Offsets[parts] > graph.MaxVertices:
		return fmt.Errorf("there are %d vertices, but at most %d are supported", o.Offsets[parts],
			graph.MaxVertices)
	case len(o.Tables) != parts:
		return fmt.Errorf("%d tables for %d parts", len(o.Tables), parts)
	}
	return nil
}

// checkKept returns an error if the length of the cache's table or of the buffer does not fit the
// rows of each kind in Kept.
func checkKept(o *Options) []error {
	if o.Cache == nil && o.Buffer == nil {
		return nil
	}
	// Sparse rows differ in length, so Kept does not determine the length of the table.
	if len(o.Kinds) == 1 && (o.Kept == nil || o.Kinds[0].Type.IsSparse()) {
		return nil
	}
	table := o.Buffer
	if o.Cache != nil {
		table = o.Cache.Table()
	}
	_, shared := o.Cache.(SharedCache)
	switch {
	case shared && len(o.Kinds) == 1:
		return nil
	case shared:
		return []error{errors.New("rows of several kinds do not work with a SharedCache")}
	case len(o.Kept) != len(o.Kinds) || len(table) != TableBytes(o.Kinds, o.Kept):
		return []error{fmt.Errorf("a table of %d bytes does not have %v rows of %d kinds",
			len(table), o.Kept, len(o.Kinds))}
	}
	return nil
}

// checkTables returns errors for offsets that do not ascend, and for tables that are missing or do
// not fit their part.
func checkTables(rank, perRank int, o Options) (errs []error) {
	for p, table := range o.Tables {
		rows := o.Offsets[p+1] - o.Offsets[p]
		kind := o.Kinds[p%len(o.Kinds)]
		want := rows * int64(kind.RowBytes())
		if kind.Type.IsSparse() && rows >= 0 {
			want = (o.Ends[o.Offsets[p+1]] - o.Ends[o.Offsets[p]]) * int64(kind.RowBytes())
		}
		switch own := p/perRank == rank; {
		case rows < 0:
			errs = append(errs, fmt.Errorf("offsets fall from %d to %d at part %d", o.Offsets[p],
				o.Offsets[p+1], p))
		case table == nil && o.Stored && rows > 0:
			errs = append(errs, fmt.Errorf("rows are read from files, but part %d has no table of "+
				"its %d rows", p, rows))
		case table == nil && own && want > 0:
			errs = append(errs, fmt.Errorf("rank %d owns part %d but has no table of its %d rows",
				rank, p, rows))
		case table != nil && int64(len(table)) != want:
			errs = append(errs, fmt.Errorf("the table of part %d has %d bytes, but %d rows of %d "+
				"%s columns need %d bytes",
				p, len(table), rows, kind.Cols, kind.Type, want))
		}
	}
	return errs
}
